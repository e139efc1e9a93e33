"""An artefact as a forecaster: the estimator's own numbers in the target's unit, at any horizon."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_artifact import HORIZONS, TINY_ARTIFACT, feature_rows

from forecaster.errors import InsufficientHistoryError
from forecaster.features import FEATURE_SCHEMA, SCALE_FEATURES, scale_name
from forecaster.forecast import DEMAND, LEVELS, MAX_EXTRAPOLATION, TARGETS, horizon_weights
from models.forest import Forest
from models.model_forecaster import MODEL_COLUMNS, MODEL_FEATURES, ModelForecaster

FORECASTER = ModelForecaster(TINY_ARTIFACT)


def test_the_model_does_not_see_the_targets_own_levels():
    assert set(MODEL_FEATURES) == set(FEATURE_SCHEMA.names) - set(SCALE_FEATURES)


def test_values_are_the_calibrated_boosters_times_the_trailing_mean():
    row = feature_rows(seed=4, num_rows=1)[0]
    raw = Forest.from_texts(TINY_ARTIFACT.booster_texts).predict(row[None, MODEL_COLUMNS])
    expected = np.exp(raw.reshape(3, 3, 6) + TINY_ARTIFACT.offsets)
    expected = np.maximum.accumulate(np.maximum.accumulate(expected, axis=2), axis=1)
    forecast = FORECASTER.forecast(row, made_at=7.0, horizons_seconds=HORIZONS)
    assert (forecast.made_at, forecast.source, forecast.levels) == (7.0, "model", LEVELS)
    for i, target in enumerate(TARGETS):
        scale = row[FEATURE_SCHEMA.index[scale_name(target)]]
        np.testing.assert_allclose(forecast.values[target], expected[i] * scale, rtol=1e-12)


def test_doubling_the_trailing_mean_alone_doubles_the_forecast():
    row = feature_rows(seed=5, num_rows=1)[0]
    doubled = row.copy()
    doubled[FEATURE_SCHEMA.index[scale_name(DEMAND)]] *= 2
    before = FORECASTER.forecast(row, made_at=0.0, horizons_seconds=HORIZONS).values[DEMAND]
    after = FORECASTER.forecast(doubled, made_at=0.0, horizons_seconds=HORIZONS).values[DEMAND]
    np.testing.assert_allclose(after, 2 * before)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    unknown_ratio=st.sampled_from([0.0, 0.3, 1.0]),
    horizons=st.lists(st.floats(0.5, 3000), min_size=1, max_size=5, unique=True).map(sorted),
)
def test_never_crosses_at_any_horizon_whatever_is_unknown(seed, unknown_ratio, horizons):
    row = feature_rows(seed=seed, num_rows=1)[0] * 3
    unknown = np.random.default_rng(seed).random(row.size) < unknown_ratio
    unknown[[FEATURE_SCHEMA.index[name] for name in SCALE_FEATURES]] = False
    row[unknown] = np.nan
    row[[FEATURE_SCHEMA.index[name] for name in SCALE_FEATURES]] = 12.0
    forecast = FORECASTER.forecast(row, made_at=0.0, horizons_seconds=tuple(horizons))
    for values in forecast.values.values():
        assert (np.diff(values, axis=0) >= 0).all()
        assert (np.diff(values, axis=1) >= 0).all()


@pytest.mark.parametrize(
    ("wanted", "weights"),
    [
        (6.0, [1, 0, 0]),
        (1.0, [1, 0, 0]),
        (30.0, [0, 1, 0]),
        (np.sqrt(30 * 180), [0, 0.5, 0.5]),
        (180.0, [0, 0, 1]),
        (180.0 * np.sqrt(6), [0, -0.5, 1.5]),
    ],
    ids=["trained", "shorter", "middle", "between", "longest", "beyond"],
)
def test_horizons_are_linear_in_their_logarithm(wanted, weights):
    np.testing.assert_allclose(horizon_weights(HORIZONS, (wanted,))[0], weights, atol=1e-12)


def test_extrapolation_is_bounded():
    np.testing.assert_array_equal(
        horizon_weights(HORIZONS, (180 * MAX_EXTRAPOLATION,)), horizon_weights(HORIZONS, (1e6,))
    )


def test_one_trained_horizon_stands_for_all():
    assert horizon_weights((30.0,), (6.0, 300.0)).tolist() == [[1.0], [1.0]]


def test_refuses_a_horizon_that_is_not_ahead():
    with pytest.raises(ValueError, match="horizons_seconds must be > 0"):
        FORECASTER.forecast(feature_rows(num_rows=1)[0], made_at=0.0, horizons_seconds=(0.0, 6.0))


def test_refuses_a_row_without_a_trailing_mean_and_names_the_target():
    row = feature_rows(num_rows=1)[0]
    row[FEATURE_SCHEMA.index[scale_name(DEMAND)]] = np.nan
    with pytest.raises(InsufficientHistoryError, match="trailing mean of demand_replicas at 50"):
        FORECASTER.forecast(row, made_at=50.0, horizons_seconds=HORIZONS)
