"""A small artefact for tests: real boosters on random feature rows, two trees each."""

import numpy as np

from forecaster.features import FEATURE_SCHEMA, SCALE_FEATURES
from forecaster.forecast import LEVELS, TARGETS
from models.artifact import ModelArtifact
from models.lightgbm_quantile import LightGBMQuantileForecaster
from models.model_forecaster import MODEL_COLUMNS

HORIZONS = (6.0, 30.0, 180.0)


def feature_rows(seed=0, num_rows=300):
    """Rows that could be: ratios around zero, scales positive."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 0.5, (num_rows, FEATURE_SCHEMA.num_features))
    for i, name in enumerate(SCALE_FEATURES):
        rows[:, FEATURE_SCHEMA.index[name]] = rng.lognormal(3 * (2 - i), 0.3, num_rows)
    return rows


def _built():
    rows = feature_rows()
    rng = np.random.default_rng(1)
    growth = np.abs(rng.normal(0, 0.3, (len(rows), len(TARGETS), len(HORIZONS)))).cumsum(axis=2)
    estimator = LightGBMQuantileForecaster(num_trees=2, num_leaves=4, min_rows_in_leaf=20)
    estimator.fit(rows[:, MODEL_COLUMNS], growth.reshape(len(rows), -1))
    return ModelArtifact(
        booster_texts=estimator.booster_texts_,
        targets=TARGETS,
        horizons_seconds=HORIZONS,
        levels=LEVELS,
        offsets=rng.normal(0, 0.01, (len(TARGETS), len(HORIZONS), len(LEVELS))),
        provenance={"seed": 1},
        metrics={"skill_ratio": 0.25},
    )


TINY_ARTIFACT = _built()
