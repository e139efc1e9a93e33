"""Quantile forecasts of what the fleet will be asked for: horizons x levels per target, never crossing."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from math import log1p
from typing import Protocol

import numpy as np

from forecaster.telemetry import Floats

LEVELS: tuple[float, ...] = (0.5, 0.7, 0.9, 0.95, 0.98, 0.99)
KV_BLOCKS = "kv_blocks"
PREFILL = "prefill_tokens_per_second"
DEMAND = "demand_replicas"
HEADLINE_HORIZON_SECONDS = 30.0
"""The horizon that is shown, and at which TTFT is foretold: about what a replica takes to start at best."""
TARGETS: tuple[str, ...] = (KV_BLOCKS, PREFILL, DEMAND)
"""Each is a maximum over (t, t+h]: of 1-s values of offered KV blocks and demand, of 5-s means of prefill tokens/s."""
MAX_EXTRAPOLATION = 4.0
"""Horizons up to this many times the longest trained one are extrapolated, longer ones answered as that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileForecast:
    """Quantiles of the maximum over (now, now + horizon] of each target.

    Attributes
    ----------
    made_at : float, POSIX seconds
        The cutoff: nothing later was used.
    horizons_seconds : tuple of float
        Increasing.
    levels : tuple of float
        Increasing, in (0, 1).
    values : mapping of target name to ndarray of shape (n_horizons, n_levels)
        Finite, >= 0, non-decreasing along both axes (a maximum over a longer horizon is no smaller).
    source : str
        Which forecaster made it, "model", "baseline" or a name of its own.
    fallback_reason : str
        Why it is not the model's own, empty if it is.
    """

    made_at: float
    horizons_seconds: tuple[float, ...]
    levels: tuple[float, ...] = LEVELS
    values: Mapping[str, Floats]
    source: str = "model"
    fallback_reason: str = ""

    def __post_init__(self) -> None:
        shape = (len(self.horizons_seconds), len(self.levels))
        if list(self.horizons_seconds) != sorted(set(self.horizons_seconds)):
            raise ValueError(f"horizons_seconds must increase, got {self.horizons_seconds}")
        for target, value in self.values.items():
            if value.shape != shape:
                raise ValueError(f"forecast of {target}: expected shape {shape}, got {value.shape}")
            if not np.isfinite(value).all() or (value < 0).any():
                raise ValueError(f"forecast of {target} must be finite and >= 0, got {value.tolist()}")
            if (np.diff(value, axis=1) < 0).any() or (np.diff(value, axis=0) < 0).any():
                raise ValueError(f"quantiles of {target} cross: {value.tolist()}; use repaired_quantiles()")

    def quantile(self, target: str, *, horizon_seconds: float, level: float) -> float:
        """Return one quantile, by monotone interpolation over levels and horizons.

        Between levels the value is linear in -log(1 - level) (an exponential tail), and beyond the last level it goes
        on with the slope of the last two; between horizons it is linear, outside them the nearest one stands.
        """
        grid = self.values[target]
        low, high, share = _between(self.horizons_seconds, horizon_seconds)
        value = _at_level(grid[low].tolist(), self.levels, level)
        if high == low:
            return value
        return value + share * (_at_level(grid[high].tolist(), self.levels, level) - value)


def _between(grid: tuple[float, ...], at: float) -> tuple[int, int, float]:
    """Return the neighbours of `at` in an increasing grid and how far it is from the one to the other."""
    high = bisect_left(grid, at)
    if high == 0 or high == len(grid):
        nearest = min(high, len(grid) - 1)
        return nearest, nearest, 0.0
    return high - 1, high, (at - grid[high - 1]) / (grid[high] - grid[high - 1])


def _at_level(row: list[float], levels: tuple[float, ...], level: float) -> float:
    """Return a row's quantile. Scalars and no arrays: a plan asks some ten times a tick."""
    level = min(level, 0.9999)
    if level <= levels[0] or len(levels) == 1:
        return row[0]
    high = min(bisect_left(levels, level), len(levels) - 1)
    left, right = -log1p(-levels[high - 1]), -log1p(-levels[high])
    # beyond the last level this goes on with the last slope
    return row[high - 1] + (row[high] - row[high - 1]) * (-log1p(-level) - left) / (right - left)


def repaired_quantiles(raw: Floats) -> tuple[Floats, bool]:
    """Return `raw` made usable, and whether anything had to change.

    Negative values become 0, crossings are removed by a running maximum over levels, then over horizons, so that
    no upper quantile is ever lowered.

    Parameters
    ----------
    raw : ndarray of shape (n_horizons, n_levels)

    Raises
    ------
    ValueError
        If a value is NaN or infinite: a forecaster that does not know must not be guessed for.
    """
    if not np.isfinite(raw).all():
        raise ValueError(f"forecast holds NaN or infinite values: {raw.tolist()}")
    fixed = np.maximum.accumulate(np.maximum.accumulate(np.maximum(raw, 0.0), axis=1), axis=0)
    return fixed, bool((fixed != raw).any())


def horizon_weights(trained_seconds: tuple[float, ...], wanted_seconds: tuple[float, ...]) -> Floats:
    """Return how much of each trained horizon makes a wanted one, shape (n_wanted, n_trained); rows sum to 1.

    Raises
    ------
    ValueError
        If a wanted horizon is not positive.

    Examples
    --------
    >>> horizon_weights((5.0, 20.0), (10.0, 40.0)).round(6).tolist()
    [[0.5, 0.5], [-0.5, 1.5]]
    """
    wanted = np.array(wanted_seconds, dtype=np.float64)
    if not (wanted > 0).all():
        raise ValueError(f"horizons_seconds must be > 0, got {wanted_seconds}")
    weights = np.zeros((wanted.size, len(trained_seconds)))
    if len(trained_seconds) == 1:
        return weights + 1.0
    known = np.log(trained_seconds)
    at = np.log(np.clip(wanted, trained_seconds[0], trained_seconds[-1] * MAX_EXTRAPOLATION))
    lower = np.clip(np.searchsorted(known, at, side="right") - 1, 0, known.size - 2)
    upper_share = (at - known[lower]) / (known[lower + 1] - known[lower])
    rows = np.arange(wanted.size)
    weights[rows, lower] = 1.0 - upper_share
    weights[rows, lower + 1] = upper_share
    return weights


class Forecaster(Protocol):
    """Anything that forecasts demand from a feature row; models live above the core."""

    def forecast(self, features: Floats, *, made_at: float, horizons_seconds: tuple[float, ...]) -> QuantileForecast:
        """Return the forecast at the given horizons; raises if it cannot."""
        ...
