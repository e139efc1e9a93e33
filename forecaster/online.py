"""The forecast that runs live: a forecaster's word and the trivial ones', mixed by how they have done lately."""

from collections.abc import Sequence

import numpy as np

from forecaster.capacity import ReplicaCapacity
from forecaster.ensemble import OnlineEnsemble
from forecaster.features import FEATURE_SCHEMA, floors_for, scale_name
from forecaster.forecast import LEVELS, TARGETS, Forecaster, QuantileForecast, horizon_weights, repaired_quantiles
from forecaster.telemetry import Floats

HORIZONS_ROWS: tuple[int, ...] = (6, 30, 180)
"""What the mixture learns at, in rows of 1 s: promotion lead and a tick, the headline horizon, a slow cold start."""

ENSEMBLE = "ensemble"

_SCALES = [FEATURE_SCHEMA.index[scale_name(target)] for target in TARGETS]
_LAST = [FEATURE_SCHEMA.index[f"{target}_last_log_ratio"] for target in TARGETS]


def loads_of(features: Floats) -> Floats:
    """Return the targets' own values at feature rows, shape (..., n_targets), at least their floors, NaN if unknown.

    Parameters
    ----------
    features : ndarray of shape (..., n_features)
    """
    return np.asarray(np.exp(features[..., _LAST]) * features[..., _SCALES])


class OnlineForecaster:
    """The state of one deployment's forecast; a row of 1 s after the other.

    Parameters
    ----------
    forecaster : Forecaster
        The expert to mix with the trivial ones. Whatever it does wrong costs its weight, not the forecast.
    capacity : ReplicaCapacity

    Attributes
    ----------
    ensemble : OnlineEnsemble
    said : ndarray of shape (n_targets, n_horizons, n_levels), or None
        What the forecaster said at the last row by itself, at `HORIZONS_ROWS`.
    problem : str
        What the forecaster raised at the last row, empty if nothing.
    """

    def __init__(self, forecaster: Forecaster, capacity: ReplicaCapacity) -> None:
        floors = floors_for(capacity)
        self.forecaster = forecaster
        self.ensemble = OnlineEnsemble([floors[target] for target in TARGETS], horizons_rows=HORIZONS_ROWS)
        self.said: Floats | None = None
        self.problem = ""
        self._reason = ""
        self._quantiles: Floats | None = None
        self._weights: dict[tuple[float, ...], Floats] = {}

    def observe(self, features: Floats, *, row_at: float) -> None:
        """Take the feature row of the second that ended at `row_at`.

        Raises
        ------
        ValueError
            If it is not later than the one before.
        """
        self.said = self._said(features, row_at)
        self._quantiles = self.ensemble.update(round(row_at), loads_of(features), self.said)

    def forecast(self, *, made_at: float, horizons_seconds: Sequence[float]) -> QuantileForecast | None:
        """Return the forecast from the last row on at the given horizons; None if nothing is known yet."""
        if self._quantiles is None or not np.isfinite(self._quantiles).all():
            return None
        wanted = tuple(horizons_seconds)
        if wanted not in self._weights:
            self._weights[wanted] = horizon_weights(tuple(float(rows) for rows in HORIZONS_ROWS), wanted)
        values = {
            target: repaired_quantiles(self._weights[wanted] @ repaired_quantiles(grid)[0])[0]
            for target, grid in zip(TARGETS, self._quantiles, strict=True)
        }
        return QuantileForecast(
            made_at=made_at,
            horizons_seconds=wanted,
            levels=LEVELS,
            values=values,
            source=ENSEMBLE,
            fallback_reason=self.problem or self._reason,
        )

    def _said(self, features: Floats, row_at: float) -> Floats | None:
        """Return what the forecaster says, shape (n_targets, n_horizons, n_levels), None if it fails."""
        try:
            made = self.forecaster.forecast(
                features, made_at=row_at, horizons_seconds=tuple(float(rows) for rows in HORIZONS_ROWS)
            )
            said = np.array([made.values[target] for target in TARGETS])
        except Exception as exc:  # whatever a forecaster does wrong, the fleet is forecast for, and it says so
            self.problem = f"{type(exc).__name__}: {exc}"
            return None
        self.problem, self._reason = "", made.fallback_reason
        if made.levels != LEVELS:
            self.problem = f"forecaster's levels are {made.levels}, not {LEVELS}: left out of the mixture"
            return None
        return said
