"""A backtest scores what was said before anything came, beside forecasts that anybody could make."""

import numpy as np
import pytest

from forecaster.forecast import LEVELS, TARGETS
from forecaster.telemetry import TelemetryWindow
from models.demand_forecaster import DemandForecaster
from simulator.profiles import DEFAULT_PROFILE, profile_named
from training.backtest import Backtest, backtest, ratio_interval, trivial_quantiles
from training.datasets import maximum_ahead

CAPACITY = profile_named(DEFAULT_PROFILE).capacity


def telemetry(rates):
    rates = np.asarray(rates, dtype=float)
    columns = {
        "request_rate_per_second": rates,
        "prompt_tokens_per_second": 1000.0 * rates,
        "kv_blocks_used": 2000.0 * rates,
        "waiting_requests": np.zeros(rates.size),
        "waiting_prompt_tokens": np.zeros(rates.size),
        "decode_tokens_per_second": 200.0 * rates,
        "running_requests": 5.0 * rates,
    }
    return TelemetryWindow.from_columns("llama", 1.0 + np.arange(rates.size), columns=columns)


def rates(num_rows, *, seed=0):
    return 20.0 * np.exp(np.random.default_rng(seed).normal(0, 0.2, num_rows))


def without_model():
    return DemandForecaster(None, model_problem="left out")


def test_every_target_is_scored_on_the_second_half_at_outcomes_that_came_later():
    series = rates(1000)
    found = backtest(telemetry(series), CAPACITY, {"live": without_model()})
    assert [one.target for one in found] == list(TARGETS)
    expected = maximum_ahead(2000.0 * series, 30)[500:970]
    np.testing.assert_allclose(found[0].actual, expected)
    assert set(found[0].quantiles) == {*found[0].trivial, "live", "live, alone"}
    assert len(found[0].trivial) == 5


def test_an_altered_future_changes_no_forecast_before_it():
    series = rates(800)
    changed = series.copy()
    changed[600:] *= 10
    a = backtest(telemetry(series), CAPACITY, {"live": without_model()})[0]
    b = backtest(telemetry(changed), CAPACITY, {"live": without_model()})[0]
    for name in a.quantiles:
        np.testing.assert_allclose(a.quantiles[name][:200], b.quantiles[name][:200], err_msg=name)


def test_a_run_too_short_is_refused():
    with pytest.raises(ValueError, match="599 rows of 1 s are too few, at least 600"):
        backtest(telemetry(rates(599)), CAPACITY, {"live": without_model()})


def test_the_best_trivial_has_a_ratio_of_one_and_a_perfect_forecast_of_zero():
    actual = np.linspace(1.0, 2.0, 100)
    flat = np.full((100, len(LEVELS)), 1.5)
    test = Backtest(
        row_at=np.arange(100.0),
        target="kv_blocks",
        actual=actual,
        quantiles={"flat": flat, "far": flat + 5.0, "perfect": np.repeat(actual[:, None], len(LEVELS), axis=1)},
        trivial=("flat", "far"),
    )
    assert test.best_trivial == "flat"
    assert (test.ratio("flat"), test.ratio("perfect")) == (1.0, 0.0)
    assert test.wape("perfect") == 0.0
    assert test.coverage_ratio("perfect").tolist() == [1.0] * len(LEVELS)


@pytest.mark.parametrize("name", ["last value", "trailing mean", "EWMA", "trailing quantile"])
def test_a_trivial_forecast_covers_what_it_says_on_noise(name):
    series = rates(8000, seed=3)
    made = trivial_quantiles(series, train_until=4000)[name][4000:-30]
    coverage = (maximum_ahead(series, 30)[4000:-30, None] <= made).mean(axis=0)
    np.testing.assert_allclose(coverage, LEVELS, atol=0.06)


def test_the_seasonal_forecast_finds_the_season():
    season = np.tile(np.repeat([10.0, 50.0, 10.0], [60, 30, 210]), 6)
    made = trivial_quantiles(season, train_until=900)["seasonal naive"]
    np.testing.assert_array_equal(made[1000:1500, -1] >= 50.0, made[1300:1800, -1] >= 50.0)


def test_the_interval_of_a_ratio_holds_the_ratio_and_narrows_with_rows():
    rng = np.random.default_rng(2)
    reference = rng.gamma(2.0, 1.0, 40_000)
    losses = 0.8 * reference + 0.02 * rng.normal(size=reference.size)
    wide = ratio_interval(losses[:600], reference[:600], np.random.default_rng(1))
    narrow = ratio_interval(losses, reference, np.random.default_rng(1))
    assert wide[0] < 0.8 < wide[1]
    assert narrow[0] < 0.8 < narrow[1]
    assert narrow[1] - narrow[0] < wide[1] - wide[0]
