"""The trivial forecast that stands in when the model cannot: trailing maxima, read as quantiles."""

import numpy as np

from forecaster.errors import InsufficientHistoryError
from forecaster.features import FEATURE_SCHEMA
from forecaster.features.definitions import MAXIMUM_ROWS, maximum_name, scale_name
from forecaster.forecast import LEVELS, TARGETS, QuantileForecast, repaired_quantiles
from forecaster.telemetry import Floats

SOURCE = "baseline"
_WINDOWS: Floats = np.array(MAXIMUM_ROWS, dtype=np.float64)


class TrailingQuantileForecaster:
    """The maximum of the last W seconds as the W/(W + h) quantile of the maximum of the next h.

    Of W + h exchangeable seconds the largest is equally likely to be any, so the next h seconds hold a new record with
    probability h/(W + h); nothing is estimated and nothing can fail but history itself. Between the windows the level
    is interpolated in -log(1 - level). Below the shortest the shortest stands (10 s; that is too high, not too low),
    and beyond the longest the longest: a quarter of an hour can't vouch for the 0.99 quantile of the next three
    minutes, and going on with the slope doubled the loss on generated fleets, for it multiplies a burst by itself.

    References
    ----------
    Record probabilities of exchangeable sequences: B. C. Arnold, N. Balakrishnan and H. N. Nagaraja, "Records", 1998,
    section 2.3.
    """

    def __init__(self, levels: tuple[float, ...] = LEVELS) -> None:
        self.levels = levels
        self._scales = [FEATURE_SCHEMA.index[scale_name(target)] for target in TARGETS]
        self._maxima = np.array(
            [[FEATURE_SCHEMA.index[maximum_name(target, rows)] for rows in MAXIMUM_ROWS] for target in TARGETS]
        )

    def forecast(self, features: Floats, *, made_at: float, horizons_seconds: tuple[float, ...]) -> QuantileForecast:
        """Return the forecast at the given horizons.

        Raises
        ------
        InsufficientHistoryError
            If the row does not say what any target has been.
        """
        values = {}
        for i, target in enumerate(TARGETS):
            maxima = features[self._scales[i]] * np.exp(features[self._maxima[i]])
            known = np.isfinite(maxima)
            if not known.any():
                raise InsufficientHistoryError(
                    f"no trailing maximum of {target} at {made_at:.0f}: no known value in the last minute; "
                    f"check that the metric source delivers arrivals, prompt tokens and KV blocks"
                )
            rows = [
                _quantiles(maxima[known], _WINDOWS[known], horizon, levels=self.levels) for horizon in horizons_seconds
            ]
            values[target] = repaired_quantiles(np.array(rows))[0]
        return QuantileForecast(
            made_at=made_at, horizons_seconds=horizons_seconds, levels=self.levels, values=values, source=SOURCE
        )


def _quantiles(maxima: Floats, windows: Floats, horizon_seconds: float, *, levels: tuple[float, ...]) -> Floats:
    """Return the quantiles of the next `horizon_seconds` from the maxima over trailing windows, in seconds."""
    known_at = np.log1p(windows / horizon_seconds)  # -log(1 - W/(W + h))
    return np.asarray(np.interp(-np.log1p(-np.array(levels)), known_at, maxima))
