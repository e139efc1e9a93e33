"""Estimators, calibration and the artefact format: everything between a feature row and a quantile forecast."""

from models.artifact import ModelArtifact, load_artifact, save_artifact
from models.base import QuantileForecaster
from models.baseline import TrailingQuantileForecaster
from models.conformal import conformal_offsets
from models.demand_forecaster import DemandForecaster, load_default, load_forecaster
from models.forest import Forest
from models.model_forecaster import ModelForecaster

__all__ = [
    "DemandForecaster",
    "Forest",
    "ModelArtifact",
    "ModelForecaster",
    "QuantileForecaster",
    "TrailingQuantileForecaster",
    "conformal_offsets",
    "load_artifact",
    "load_default",
    "load_forecaster",
    "save_artifact",
]
