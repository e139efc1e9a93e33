"""A trained artefact as a forecaster: feature row in, quantiles of every target at any horizon out."""

from collections.abc import Mapping

import numpy as np

from forecaster.errors import InsufficientHistoryError
from forecaster.features import FEATURE_SCHEMA, SCALE_FEATURES, scale_name
from forecaster.forecast import QuantileForecast, horizon_weights, repaired_quantiles
from forecaster.telemetry import Floats
from models.artifact import ModelArtifact
from models.forest import Forest

SOURCE = "model"
MODEL_FEATURES: tuple[str, ...] = tuple(name for name in FEATURE_SCHEMA.names if name not in SCALE_FEATURES)
"""What the boosters see: every feature but the targets' own levels."""

MODEL_COLUMNS = np.array([FEATURE_SCHEMA.index[name] for name in MODEL_FEATURES])


class ModelForecaster:
    """Forecasts of an artefact; raises where it cannot, so wrap it in `DemandForecaster`.

    The boosters give log(maximum / trailing mean) at the trained horizons. Between those, quantiles are linear in the
    logarithm of the horizon, the rate at which a maximum of light-tailed noise grows; beyond the longest the last
    slope goes on, up to `forecaster.forecast.MAX_EXTRAPOLATION`; below the shortest its forecast stands, since a
    maximum over less time is no larger.
    """

    def __init__(self, artifact: ModelArtifact) -> None:
        self.artifact = artifact
        self._forest = Forest.from_texts(artifact.booster_texts)
        self._scales = np.array([FEATURE_SCHEMA.index[scale_name(target)] for target in artifact.targets])
        self._weights: dict[tuple[float, ...], Floats] = {}

    @property
    def provenance(self) -> Mapping[str, object]:
        """Where the model came from."""
        return self.artifact.provenance

    def forecast(self, features: Floats, *, made_at: float, horizons_seconds: tuple[float, ...]) -> QuantileForecast:
        """Return the forecast at the given horizons.

        Raises
        ------
        InsufficientHistoryError
            If a target's trailing mean is unknown.
        ValueError
            If the boosters give NaN or infinity.
        """
        artifact = self.artifact
        scale = features[self._scales]
        if not np.isfinite(scale).all():
            unknown = [target for target, known in zip(artifact.targets, np.isfinite(scale), strict=True) if not known]
            raise InsufficientHistoryError(
                f"trailing mean of {', '.join(unknown)} at {made_at:.0f} is unknown: no known row in the last minute"
            )
        logs = self._forest.predict(features[None, MODEL_COLUMNS]).reshape(artifact.offsets.shape) + artifact.offsets
        trained = np.exp(logs) * scale[:, None, None]
        weights = self._horizon_weights(horizons_seconds)
        values = {
            target: repaired_quantiles(weights @ repaired_quantiles(grid)[0])[0]
            for target, grid in zip(artifact.targets, trained, strict=True)
        }
        return QuantileForecast(
            made_at=made_at, horizons_seconds=horizons_seconds, levels=artifact.levels, values=values, source=SOURCE
        )

    def _horizon_weights(self, horizons_seconds: tuple[float, ...]) -> Floats:
        """Return the weights of the trained horizons, shape (n_horizons, n_trained); few different ones are asked."""
        if horizons_seconds not in self._weights:
            self._weights[horizons_seconds] = horizon_weights(self.artifact.horizons_seconds, horizons_seconds)
        return self._weights[horizons_seconds]
