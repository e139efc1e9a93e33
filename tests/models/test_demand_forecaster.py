"""Whatever a model does wrong, there is a forecast, and it says whose it is and why."""

import numpy as np
import pytest
from tiny_artifact import HORIZONS, TINY_ARTIFACT, feature_rows

from forecaster.errors import InsufficientHistoryError
from forecaster.features import FEATURE_SCHEMA
from forecaster.forecast import KV_BLOCKS, TARGETS, QuantileForecast
from models.artifact import BOOSTERS, save_artifact
from models.demand_forecaster import DemandForecaster, load_default, load_forecaster
from models.model_forecaster import ModelForecaster

ROW = feature_rows(seed=3, num_rows=1)[0]


class BrokenForecaster:
    """Fails in the way it is told."""

    def __init__(self, failure):
        self.failure = failure

    def forecast(self, features, *, made_at, horizons_seconds):
        if isinstance(self.failure, Exception):
            raise self.failure
        values = {target: np.full((len(horizons_seconds), 2), 1.0) for target in TARGETS}
        values[KV_BLOCKS] = np.array([self.failure] * len(horizons_seconds), dtype=np.float64)
        return QuantileForecast(made_at=made_at, horizons_seconds=horizons_seconds, levels=(0.5, 0.9), values=values)


def test_a_working_model_answers_itself():
    forecaster = DemandForecaster(ModelForecaster(TINY_ARTIFACT))
    forecast = forecaster.forecast(ROW, made_at=1.0, horizons_seconds=HORIZONS)
    assert (forecast.source, forecast.fallback_reason, forecaster.num_fallbacks) == ("model", "", 0)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (RuntimeError("no memory"), "RuntimeError: no memory"),
        (KeyError("x"), "KeyError: 'x'"),
        ((np.nan, 2.0), "must be finite"),
        ((1.0, np.inf), "must be finite"),
        ((-3.0, 2.0), "must be finite and >= 0"),
        ((5.0, 2.0), "quantiles of kv_blocks cross"),
    ],
    ids=["raises", "raises another", "NaN", "infinite", "negative", "crossing"],
)
def test_a_failing_model_gives_the_baseline_and_says_why(failure, reason):
    forecaster = DemandForecaster(BrokenForecaster(failure))
    forecast = forecaster.forecast(ROW, made_at=1.0, horizons_seconds=HORIZONS)
    assert forecast.source == "baseline"
    assert reason in forecast.fallback_reason
    assert forecaster.num_fallbacks == 1


def test_a_model_that_recovers_answers_again():
    broken = BrokenForecaster(RuntimeError("once"))
    forecaster = DemandForecaster(broken)
    forecaster.forecast(ROW, made_at=1.0, horizons_seconds=HORIZONS)
    broken.failure = (1.0, 2.0)
    assert forecaster.forecast(ROW, made_at=2.0, horizons_seconds=HORIZONS).fallback_reason == ""
    assert forecaster.num_fallbacks == 1


def test_raises_only_when_the_baseline_knows_nothing_either():
    unknown = np.full(FEATURE_SCHEMA.num_features, np.nan)
    with pytest.raises(InsufficientHistoryError, match="trailing maximum"):
        DemandForecaster(ModelForecaster(TINY_ARTIFACT)).forecast(unknown, made_at=1.0, horizons_seconds=HORIZONS)


def test_refuses_to_be_without_a_model_for_no_reason():
    with pytest.raises(ValueError, match="model_problem"):
        DemandForecaster(None)


def test_loads_an_artefact(tmp_path):
    save_artifact(TINY_ARTIFACT, tmp_path)
    assert load_forecaster(tmp_path).forecast(ROW, made_at=1.0, horizons_seconds=HORIZONS).source == "model"


def test_an_absent_artefact_gives_the_baseline_and_says_so(tmp_path):
    forecast = load_forecaster(tmp_path / "none").forecast(ROW, made_at=1.0, horizons_seconds=HORIZONS)
    assert forecast.source == "baseline"
    assert "ArtifactMismatchError: no model in" in forecast.fallback_reason


def test_a_damaged_artefact_gives_the_baseline_and_says_so(tmp_path):
    save_artifact(TINY_ARTIFACT, tmp_path)
    (tmp_path / BOOSTERS).write_bytes(b"damaged")
    forecast = load_forecaster(tmp_path).forecast(ROW, made_at=1.0, horizons_seconds=HORIZONS)
    assert "SHA-256" in forecast.fallback_reason


def test_the_artefact_that_ships_fits_this_code():
    forecaster = load_default()
    assert forecaster.model_problem == ""
    forecast = forecaster.forecast(ROW, made_at=1.0, horizons_seconds=(6.0, 32.0))
    assert (forecast.source, forecast.fallback_reason) == ("model", "")
    assert set(forecast.values) == set(TARGETS)
