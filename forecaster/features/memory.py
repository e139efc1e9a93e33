"""Statistics that remember beyond a window, each in two forms that agree: over a column and value by value.

An unknown value (NaN) changes nothing that is remembered; before the first known value the statistic is NaN, except
where a class says otherwise.
"""

from math import isnan, nan

import numpy as np
import pandas as pd

from forecaster.features.windows import RollingMean, checked_rows
from forecaster.telemetry import Floats

BURST_LOG_RATIO = 0.4
"""A load half as high again as the trailing minute's mean (e^0.4 = 1.49) is called a burst."""


class Lag:
    """The value `rows` rows ago, NaN if it was unknown; 0 rows ago is the value itself."""

    __slots__ = ("_past", "_position", "_rows")

    def __init__(self, rows: int) -> None:
        self._rows = checked_rows(rows, least=0)
        self._past = [nan] * rows
        self._position = 0

    def update(self, value: float) -> float:
        """Take the next value and return the lagged one."""
        if not self._rows:
            return value
        i = self._position
        lagged = self._past[i]
        self._past[i] = value
        self._position = i + 1 if i + 1 < self._rows else 0
        return lagged

    def transform(self, column: Floats) -> Floats:
        """Return the lagged value at every row, shape (n_rows,)."""
        return np.concatenate([np.full(self._rows, nan), column])[: len(column)]


class Ewma:
    """Exponentially weighted mean of span `rows` (weight 2/(rows + 1)), started at the first known value."""

    __slots__ = ("_mean", "_weight")

    def __init__(self, rows: int) -> None:
        self._weight = 2.0 / (checked_rows(rows) + 1.0)
        self._mean = nan

    def update(self, value: float) -> float:
        """Take the next value and return the mean with it."""
        if isnan(value):
            return self._mean
        mean = self._mean
        self._mean = mean + self._weight * (value - mean) if not isnan(mean) else value
        return self._mean

    def transform(self, column: Floats) -> Floats:
        """Return the mean at every row, shape (n_rows,)."""
        smoothed = pd.Series(column).ewm(alpha=self._weight, adjust=False, ignore_na=True).mean()
        return smoothed.to_numpy(dtype=np.float64)


class KnownRatio:
    """Share of the last `rows` rows whose value is known; rows before the first count as unknown. Never NaN."""

    __slots__ = ("_mean", "_rows", "_seen")

    def __init__(self, rows: int) -> None:
        self._rows = checked_rows(rows)
        self._mean = RollingMean(rows)
        self._seen = 0

    def update(self, value: float) -> float:
        """Take the next value and return the share with it."""
        self._seen += self._seen < self._rows
        return self._mean.update(0.0 if isnan(value) else 1.0) * self._seen / self._rows

    def transform(self, column: Floats) -> Floats:
        """Return the share at every row, shape (n_rows,)."""
        seen = np.minimum(np.arange(1, len(column) + 1), self._rows)
        return self._mean.transform((~np.isnan(column)).astype(np.float64)) * seen / self._rows


class PeakMemory:
    """Largest value so far, which halves its distance from 0 every `rows` rows: a slow memory of bursts.

    A quantile over a window forgets a burst all at once, this one fades (DESIGN section 5: adaptive quantiles forget
    bursts). While values are unknown nothing fades, since nothing says that the bursts are over.
    """

    __slots__ = ("_keep", "_peak", "_rows")

    def __init__(self, rows: int) -> None:
        self._rows = checked_rows(rows)
        self._keep = 0.5 ** (1.0 / rows)
        self._peak = nan

    def update(self, value: float) -> float:
        """Take the next value and return the remembered peak with it."""
        if isnan(value):
            return self._peak
        faded = self._peak * self._keep
        self._peak = faded if faded > value else value
        return self._peak

    def transform(self, column: Floats) -> Floats:
        """Return the remembered peak at every row, shape (n_rows,)."""
        fresh = PeakMemory(self._rows)
        return np.array([fresh.update(value) for value in np.asarray(column).tolist()], dtype=np.float64)


class RowsSinceBurst:
    """Rows since a log-ratio was last at or over `BURST_LOG_RATIO`, at most `rows`, which also stands for never.

    Never NaN: unknown values let time pass.
    """

    __slots__ = ("_rows", "_since")

    def __init__(self, rows: int) -> None:
        self._rows = checked_rows(rows)
        self._since = rows

    def update(self, value: float) -> float:
        """Take the next value and return the number of rows since the last burst."""
        if value >= BURST_LOG_RATIO:
            self._since = 0
        elif self._since < self._rows:
            self._since += 1
        return float(self._since)

    def transform(self, column: Floats) -> Floats:
        """Return the number of rows since the last burst at every row, shape (n_rows,)."""
        with np.errstate(invalid="ignore"):
            is_burst = np.asarray(column) >= BURST_LOG_RATIO
        row = np.arange(is_burst.size)
        last = np.maximum.accumulate(np.where(is_burst, row, -self._rows - 1))
        return np.minimum(row - last, self._rows).astype(np.float64)
