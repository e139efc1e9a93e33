"""The trailing-quantile forecast: exact on exchangeable seconds, ordered, and honest about missing history."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_artifact import feature_rows

from forecaster.errors import InsufficientHistoryError
from forecaster.features import FEATURE_SCHEMA, scale_name
from forecaster.features.definitions import MAXIMUM_ROWS, maximum_name
from forecaster.forecast import KV_BLOCKS, LEVELS, TARGETS
from models.baseline import TrailingQuantileForecaster

BASELINE = TrailingQuantileForecaster()


def row_with_maxima(maxima, *, scale=10.0):
    row = np.full(FEATURE_SCHEMA.num_features, np.nan)
    for target in TARGETS:
        row[FEATURE_SCHEMA.index[scale_name(target)]] = scale
        for rows, largest in zip(MAXIMUM_ROWS, maxima, strict=True):
            row[FEATURE_SCHEMA.index[maximum_name(target, rows)]] = np.log(largest / scale)
    return row


def test_a_trailing_maximum_is_the_quantile_of_the_record_probability():
    """The maximum of the last 60 s is not beaten in the next 30 with probability 60 / 90."""
    forecast = TrailingQuantileForecaster(levels=(30 / 60, 60 / 90, 300 / 330)).forecast(
        row_with_maxima([11, 12, 13, 14, 15]), made_at=0.0, horizons_seconds=(30.0,)
    )
    np.testing.assert_allclose(forecast.values[KV_BLOCKS][0], [12, 13, 14])


def test_covers_exchangeable_seconds_at_its_levels():
    rng = np.random.default_rng(0)
    horizon, levels = 30, (0.5, 60 / 90, 300 / 330)
    covered = np.zeros(len(levels))
    baseline = TrailingQuantileForecaster(levels)
    num_trials = 2000
    for _ in range(num_trials):
        seconds = rng.exponential(10.0, 900 + horizon)
        maxima = [seconds[900 - rows : 900].max() for rows in MAXIMUM_ROWS]
        forecast = baseline.forecast(row_with_maxima(maxima), made_at=0.0, horizons_seconds=(float(horizon),))
        covered += seconds[900:].max() <= forecast.values[KV_BLOCKS][0]
    for share, level in zip(covered / num_trials, levels, strict=True):
        assert share == pytest.approx(level, abs=4 * np.sqrt(level * (1 - level) / num_trials))


@settings(max_examples=50, deadline=None)
@given(
    growth=st.lists(st.floats(0, 5), min_size=5, max_size=5),
    horizons=st.lists(st.floats(1, 2000), min_size=1, max_size=4, unique=True).map(sorted),
)
def test_never_crosses_and_is_finite(growth, horizons):
    maxima = 1.0 + np.cumsum(growth)
    forecast = BASELINE.forecast(row_with_maxima(maxima), made_at=0.0, horizons_seconds=tuple(horizons))
    assert forecast.source == "baseline"
    assert forecast.levels == LEVELS
    for values in forecast.values.values():
        assert (np.diff(values, axis=0) >= 0).all()
        assert (np.diff(values, axis=1) >= 0).all()


def test_the_longest_window_stands_for_levels_beyond_it():
    forecast = BASELINE.forecast(row_with_maxima([1, 2, 3, 4, 6]), made_at=0.0, horizons_seconds=(180.0,))
    assert forecast.values[KV_BLOCKS][0, -1] == pytest.approx(6)  # 0.99 lies beyond 900 / 1080


def test_windows_with_nothing_known_are_left_out():
    known = BASELINE.forecast(row_with_maxima([5, 6, 7, 8, 9]), made_at=0.0, horizons_seconds=(30.0,))
    partly = BASELINE.forecast(row_with_maxima([np.nan, np.nan, 7, 8, 9]), made_at=0.0, horizons_seconds=(30.0,))
    np.testing.assert_allclose(partly.values[KV_BLOCKS][0, 2:], known.values[KV_BLOCKS][0, 2:])


def test_a_single_known_window_stands_for_every_level():
    row = row_with_maxima([np.nan, np.nan, np.nan, np.nan, 9])
    forecast = BASELINE.forecast(row, made_at=0.0, horizons_seconds=(30.0,))
    np.testing.assert_allclose(forecast.values[KV_BLOCKS], 9)


def test_refuses_when_nothing_is_known_of_a_target():
    row = feature_rows(num_rows=1)[0]
    row[FEATURE_SCHEMA.index[scale_name(KV_BLOCKS)]] = np.nan
    with pytest.raises(InsufficientHistoryError, match="no trailing maximum of kv_blocks"):
        BASELINE.forecast(row, made_at=100.0, horizons_seconds=(30.0,))
