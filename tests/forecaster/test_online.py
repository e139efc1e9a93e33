"""The live forecast: whatever the forecaster does, the mixture answers with what it has seen, and says so."""

import numpy as np
import pytest

from forecaster.capacity import ReplicaCapacity
from forecaster.features import FEATURE_SCHEMA, scale_name
from forecaster.forecast import LEVELS, TARGETS, QuantileForecast
from forecaster.online import ENSEMBLE, HORIZONS_ROWS, OnlineForecaster, loads_of
from simulator.profiles import DEFAULT_PROFILE, profile_named

CAPACITY: ReplicaCapacity = profile_named(DEFAULT_PROFILE).capacity
ENOUGH_ROWS = 400  # the longest horizon, a warm-up and a dozen outcomes


class Scripted:
    """Says `quantile` of everything, or raises."""

    def __init__(self, quantile=None, levels=LEVELS):
        self.quantile, self.levels = quantile, levels

    def forecast(self, features, *, made_at, horizons_seconds):
        if self.quantile is None:
            raise RuntimeError("no GPU")
        grid = np.full((len(horizons_seconds), len(self.levels)), self.quantile)
        return QuantileForecast(
            made_at=made_at,
            horizons_seconds=horizons_seconds,
            levels=self.levels,
            values=dict.fromkeys(TARGETS, grid),
            fallback_reason="borrowed",
        )


def feature_row(load):
    row = np.zeros(FEATURE_SCHEMA.num_features)
    for target in TARGETS:
        row[FEATURE_SCHEMA.index[scale_name(target)]] = load
    return row


def played(forecaster, loads):
    online = OnlineForecaster(forecaster, CAPACITY)
    for i, load in enumerate(loads):
        online.observe(feature_row(load), row_at=float(i))
    return online


def test_loads_are_read_back_from_the_features():
    np.testing.assert_allclose(loads_of(feature_row(7.0)), 7.0)


def test_a_forecaster_that_fails_is_replaced_by_the_trivial_ones_once_they_have_outcomes():
    loads = 5000.0 + np.arange(ENOUGH_ROWS) % 7
    assert played(Scripted(), loads[:50]).forecast(made_at=50.0, horizons_seconds=(30.0,)) is None
    forecast = played(Scripted(), loads).forecast(made_at=float(ENOUGH_ROWS), horizons_seconds=(6.0, 30.0, 90.0))
    assert forecast.source == ENSEMBLE
    assert forecast.fallback_reason == "RuntimeError: no GPU"
    for target in TARGETS:
        assert forecast.values[target].shape == (3, len(LEVELS))
        assert 4900 < forecast.values[target].min() <= forecast.values[target].max() < 5100


def test_a_forecaster_speaks_alone_at_first_and_its_own_reason_is_kept():
    forecast = played(Scripted(5500.0), [5000.0] * 40).forecast(made_at=40.0, horizons_seconds=(30.0,))
    np.testing.assert_allclose(forecast.values[TARGETS[0]], 5500.0)
    assert forecast.fallback_reason == "borrowed"


def test_a_forecaster_with_other_levels_is_left_out_and_named():
    online = played(Scripted(5500.0, levels=(0.5, 0.9)), [5000.0] * ENOUGH_ROWS)
    forecast = online.forecast(made_at=400.0, horizons_seconds=(30.0,))
    assert "levels are (0.5, 0.9)" in forecast.fallback_reason
    assert forecast.values[TARGETS[0]].max() < 5400


@pytest.mark.parametrize("horizon", HORIZONS_ROWS)
def test_at_its_own_horizons_the_mixture_is_given_back_as_it_is(horizon):
    online = played(Scripted(5500.0), 5000.0 + 300.0 * np.random.default_rng(1).random(ENOUGH_ROWS))
    forecast = online.forecast(made_at=400.0, horizons_seconds=(float(horizon),))
    raw = online._quantiles[0, HORIZONS_ROWS.index(horizon)]
    assert (forecast.values[TARGETS[0]][0] >= raw * (1 - 1e-12)).all()
