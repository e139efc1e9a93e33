"""Scores: the pinball loss is what it is defined as, and a forecast is scored the way it is made live."""

import json

import numpy as np
import pytest

from forecaster.features import FEATURE_SCHEMA
from forecaster.forecast import LEVELS
from models.artifact import ModelArtifact
from models.lightgbm_quantile import LightGBMQuantileForecaster
from models.model_forecaster import MODEL_COLUMNS
from training.datasets import Dataset
from training.scores import CLIMATOLOGY, MODEL, TRAILING_QUANTILE, forecast_scores, pinball_loss


def dataset(seed, *, num_rows=400):
    rng = np.random.default_rng(seed)
    features = rng.normal(0, 0.3, (num_rows, FEATURE_SCHEMA.num_features))
    features[:, :3] = np.exp(features[:, :3])
    growth = np.cumsum(rng.exponential(0.2, (num_rows, 1, 3)), axis=2) + 0.5 * features[:, 5, None, None]
    return Dataset(
        features=features,
        log_ratios=np.repeat(growth, 3, axis=1),
        run=np.arange(num_rows) // 50,
        cutoff_at=np.arange(num_rows, dtype=np.float64),
    )


def artifact(data):
    estimator = LightGBMQuantileForecaster(num_trees=20, num_leaves=6, min_rows_in_leaf=20)
    estimator.fit(data.features[:, MODEL_COLUMNS], data.log_ratios.reshape(data.num_rows, -1))
    return ModelArtifact(
        booster_texts=estimator.booster_texts_,
        targets=("kv_blocks", "prefill_tokens_per_second", "demand_replicas"),
        horizons_seconds=(6.0, 30.0, 180.0),
        levels=LEVELS,
        offsets=np.zeros((3, 3, 6)),
    )


def test_pinball_loss_is_least_at_the_quantile():
    rng = np.random.default_rng(0)
    outcome = rng.exponential(1.0, 20_000)
    candidates = np.linspace(0.5, 4.0, 71)
    losses = [pinball_loss(outcome, np.full((outcome.size, 1), c), np.array([0.9])).mean() for c in candidates]
    assert candidates[int(np.argmin(losses))] == pytest.approx(np.log(10), abs=0.1)


def test_pinball_loss_charges_level_below_and_the_rest_above():
    loss = pinball_loss(np.array([10.0, 10.0]), np.array([[8.0], [13.0]]), np.array([0.9]))
    np.testing.assert_allclose(loss[:, 0], [1.8, 0.3])


def test_a_model_that_knows_more_than_the_climatology_beats_it():
    data = dataset(0, num_rows=1500)
    scores = forecast_scores(artifact(data), dataset(1), climatology=data)
    assert scores.num_rows == 400
    assert scores.num_runs == 8
    assert set(scores.pinball) == {MODEL, TRAILING_QUANTILE, CLIMATOLOGY}
    assert 0.02 < scores.skill_ratio(CLIMATOLOGY) < 0.9
    np.testing.assert_allclose(scores.coverage_ratio.mean(axis=(0, 1)), LEVELS, atol=0.1)


def test_scores_are_json_values():
    data = dataset(0)
    scores = forecast_scores(artifact(data), dataset(1, num_rows=60), climatology=data)
    again = json.loads(json.dumps(scores.to_json()))
    assert again["num_rows"] == 60
    assert np.shape(again["coverage_ratio"]) == (3, 3, 6)
