"""What a quantile estimator is, and the checks they share."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from forecaster.telemetry import Floats


class QuantileForecaster(Protocol):
    """A fitted estimator of quantiles, one set a row and output."""

    def predict_quantiles(self, X: Floats) -> Floats:
        """Return non-crossing quantiles, shape (n_rows, n_outputs, n_levels)."""
        ...


def checked_levels(levels: Sequence[float]) -> tuple[float, ...]:
    """Return the quantile levels as a tuple.

    Raises
    ------
    ValueError
        If they do not increase within (0, 1), or there are none.
    """
    found = tuple(float(level) for level in levels)
    if not found or list(found) != sorted(set(found)) or found[0] <= 0 or found[-1] >= 1:
        raise ValueError(f"levels must increase within (0, 1), got {found}")
    return found


def checked_rows(rows: Floats, *, num_features: int | None = None) -> Floats:
    """Return the rows as a float64 matrix; NaN is an unknown value, infinity is refused.

    Raises
    ------
    ValueError
        If they are no matrix, have the wrong number of columns, or hold an infinity.
    """
    found = np.ascontiguousarray(rows, dtype=np.float64)
    if found.ndim != 2 or (num_features is not None and found.shape[1] != num_features):
        wanted = "n_features" if num_features is None else num_features
        raise ValueError(f"X must have shape (n_rows, {wanted}), got {found.shape}")
    if np.isinf(found).any():
        row, column = np.argwhere(np.isinf(found))[0]
        raise ValueError(f"X holds {found[row, column]} at row {row}, column {column}; unknown values are NaN")
    return found


def uncrossed(quantiles: Floats) -> Floats:
    """Return quantiles that do not decrease along the last axis: each is raised to the largest before it."""
    return np.maximum.accumulate(quantiles, axis=-1)
