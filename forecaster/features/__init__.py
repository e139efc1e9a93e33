"""Telemetry to feature rows: one set of definitions, computed over a window or row by row."""

from forecaster.features.build import FeatureStream, build_features
from forecaster.features.definitions import FEATURE_SCHEMA, SCALE_FEATURES, floors_for, scale_name
from forecaster.features.schema import FeatureColumn, FeatureSchema

__all__ = [
    "FEATURE_SCHEMA",
    "SCALE_FEATURES",
    "FeatureColumn",
    "FeatureSchema",
    "FeatureStream",
    "build_features",
    "floors_for",
    "scale_name",
]
