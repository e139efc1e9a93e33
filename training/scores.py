"""How good a forecast was on rows that it had not seen: pinball loss beside trivial forecasts, and coverage."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from forecaster.features import FEATURE_SCHEMA, scale_name
from forecaster.forecast import Forecaster
from forecaster.telemetry import Floats
from models.artifact import ModelArtifact
from models.baseline import TrailingQuantileForecaster
from models.model_forecaster import ModelForecaster
from training.datasets import Dataset

MODEL, TRAILING_QUANTILE, CLIMATOLOGY = "model", "trailing quantile", "climatology"
MAX_SCORED_ROWS = 4000
"""Every forecast goes the way of a live one, row by row; neighbouring rows say nearly the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastScores:
    """Scores of one model and of the trivial forecasts on the same rows.

    Attributes
    ----------
    targets : tuple of str
    horizons_seconds, levels : tuple of float
    num_rows, num_runs : int
        What was scored; rows of one run are alike.
    pinball : mapping of forecaster name to ndarray of shape (n_targets, n_horizons, n_levels)
        Mean pinball loss of target / trailing mean, so that large fleets do not count for more.
    coverage_ratio : ndarray of shape (n_targets, n_horizons, n_levels)
        Share of rows whose target was not above the model's quantile; the level itself is ideal.
    """

    targets: tuple[str, ...]
    horizons_seconds: tuple[float, ...]
    levels: tuple[float, ...]
    num_rows: int
    num_runs: int
    pinball: Mapping[str, Floats]
    coverage_ratio: Floats

    def skill_ratio(self, baseline: str) -> float:
        """Return by how much the model's pinball loss is below a baseline's, averaged over every cell; 0 is equal."""
        return float(np.mean(1.0 - self.pinball[MODEL] / self.pinball[baseline]))

    def to_json(self) -> dict[str, Any]:
        """Return the scores as JSON values, rounded to what the rows can tell."""
        return {
            "num_rows": self.num_rows,
            "num_runs": self.num_runs,
            "pinball_of_target_over_trailing_mean": {
                name: np.round(loss, 5).tolist() for name, loss in self.pinball.items()
            },
            "coverage_ratio": np.round(self.coverage_ratio, 4).tolist(),
            "skill_ratio": {name: round(self.skill_ratio(name), 4) for name in (TRAILING_QUANTILE, CLIMATOLOGY)},
        }


def pinball_loss(actual: Floats, quantiles: Floats, levels: Floats) -> Floats:
    """Return the pinball loss, elementwise, shape of `quantiles`.

    Parameters
    ----------
    actual : ndarray of shape (...,)
    quantiles : ndarray of shape (..., n_levels)
    levels : ndarray of shape (n_levels,)

    References
    ----------
    R. Koenker and G. Bassett, "Regression Quantiles", Econometrica 46(1), 1978.

    Examples
    --------
    >>> pinball_loss(np.array([2.0]), np.array([[1.0, 3.0]]), np.array([0.5, 0.9])).round(3).tolist()
    [[0.5, 0.1]]
    """
    gap = np.asarray(actual)[..., None] - quantiles
    return np.maximum(levels * gap, (levels - 1.0) * gap)


def forecast_scores(artifact: ModelArtifact, test: Dataset, *, climatology: Dataset) -> ForecastScores:
    """Return the scores of an artefact on `test`.

    Parameters
    ----------
    artifact : ModelArtifact
    test : Dataset
        Rows of runs that neither fitted nor calibrated it.
    climatology : Dataset
        The rows that it was fitted on; their quantiles of target / trailing mean, the same at every row, are one of
        the trivial forecasts.
    """
    every = -(-test.num_rows // MAX_SCORED_ROWS)
    rows = np.arange(0, test.num_rows, every)
    actual = np.exp(test.log_ratios[rows])
    levels = np.array(artifact.levels)
    typical = np.exp(np.moveaxis(np.nanquantile(climatology.log_ratios, levels, axis=0), 0, -1))
    forecasts = {
        MODEL: _relative(ModelForecaster(artifact), artifact, test.features[rows]),
        TRAILING_QUANTILE: _relative(TrailingQuantileForecaster(artifact.levels), artifact, test.features[rows]),
        CLIMATOLOGY: np.broadcast_to(typical, (rows.size, *typical.shape)),
    }
    return ForecastScores(
        targets=artifact.targets,
        horizons_seconds=artifact.horizons_seconds,
        levels=artifact.levels,
        num_rows=rows.size,
        num_runs=int(np.unique(test.run).size),
        pinball={name: pinball_loss(actual, made, levels).mean(axis=0) for name, made in forecasts.items()},
        coverage_ratio=(actual[..., None] <= forecasts[MODEL]).mean(axis=0),
    )


def _relative(forecaster: Forecaster, artifact: ModelArtifact, features: Floats) -> Floats:
    """Return forecasts over the trailing mean, shape (n_rows, n_targets, n_horizons, n_levels)."""
    scales = features[:, [FEATURE_SCHEMA.index[scale_name(target)] for target in artifact.targets]]
    made = [
        forecaster.forecast(row, made_at=0.0, horizons_seconds=artifact.horizons_seconds).values for row in features
    ]
    values = np.array([[one[target] for target in artifact.targets] for one in made])
    return np.asarray(values / scales[:, :, None, None])
