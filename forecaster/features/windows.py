"""Trailing windows over one series, each in two forms that agree: over a column and value by value.

A window counts rows, ends with the row just seen and never looks further. Unknown values (NaN) are skipped; a window
without a known value is NaN, and one that is not yet full uses what there is.

The incremental forms cut the rows into blocks of one window each. A window is then the tail of the last block and the
head of this one: the tails are aggregated once a block, the head grows by one value a row. That is O(1) a row, and
nothing is ever subtracted, so no rounding error outlives the values that caused it.

References
----------
M. van Herk, "A fast algorithm for local minimum and maximum filters on rectangular and octagonal kernels", Pattern
Recognition Letters 13(7), 1992. J. Gil and M. Werman, "Computing 2-D min, median, and max filters", IEEE TPAMI 15(5),
1993. Merging of moments: T. F. Chan, G. H. Golub and R. J. LeVeque, "Updating formulae and a pairwise algorithm for
computing sample variances", 1979.
"""

from itertools import accumulate
from math import inf, isnan, nan, sqrt
from typing import TypeVar

import numpy as np

from forecaster.telemetry import Floats

T = TypeVar("T")
Moments = tuple[int, float, float]
"""Number of values, their mean, and the sum of their squared distances from it."""

_NO_VALUES: Moments = (0, 0.0, 0.0)


def checked_rows(rows: int, *, least: int = 1) -> int:
    """Return `rows`.

    Raises
    ------
    ValueError
        If a window of that many rows makes no sense.
    """
    if rows < least:
        raise ValueError(f"rows must be >= {least}, got {rows}")
    return rows


def trailing_view(column: Floats, rows: int, *, before: float = nan) -> Floats:
    """Return the trailing windows of a column, shape (n_rows, rows), with `before` where there was no row yet."""
    if not len(column):
        return np.empty((0, rows))
    padded = np.concatenate([np.full(rows - 1, before), np.asarray(column, dtype=np.float64)])
    return np.lib.stride_tricks.sliding_window_view(padded, rows)


class RollingMean:
    """Mean of the known values of the last `rows` rows."""

    __slots__ = ("_head_count", "_head_sum", "_known", "_position", "_rows", "_tail_counts", "_tail_sums", "_values")

    def __init__(self, rows: int) -> None:
        self._rows = checked_rows(rows)
        self._position = 0
        self._values = [0.0] * rows
        self._known = [0] * rows
        self._head_sum = 0.0
        self._head_count = 0
        self._tail_sums = [0.0] * (rows + 1)
        self._tail_counts = [0] * (rows + 1)

    def update(self, value: float) -> float:
        """Take the next value and return the mean with it."""
        i = self._position
        if isnan(value):
            self._values[i] = 0.0
            self._known[i] = 0
        else:
            self._head_sum += value
            self._head_count += 1
            self._values[i] = value
            self._known[i] = 1
        i += 1
        total = self._head_sum + self._tail_sums[i]
        count = self._head_count + self._tail_counts[i]
        if i == self._rows:
            self._tail_sums = _tails(accumulate(reversed(self._values)), 0.0)
            self._tail_counts = _tails(accumulate(reversed(self._known)), 0)
            self._head_sum = 0.0
            self._head_count = i = 0
        self._position = i
        return total / count if count else nan

    def transform(self, column: Floats) -> Floats:
        """Return the mean at every row, shape (n_rows,)."""
        known = ~np.isnan(column)
        total = trailing_view(np.where(known, column, 0.0), self._rows, before=0.0)
        count = trailing_view(known.astype(np.float64), self._rows, before=0.0)
        return _ratio(total.sum(axis=1), count.sum(axis=1))


class RollingMax:
    """Largest known value of the last `rows` rows."""

    __slots__ = ("_head", "_position", "_rows", "_tails", "_values")

    def __init__(self, rows: int) -> None:
        self._rows = checked_rows(rows)
        self._position = 0
        self._values = [-inf] * rows
        self._head = -inf
        self._tails = [-inf] * (rows + 1)

    def update(self, value: float) -> float:
        """Take the next value and return the maximum with it."""
        i = self._position
        if isnan(value):
            self._values[i] = -inf
        else:
            self._values[i] = value
            # not max(): a call costs more than the rest of this method
            self._head = value if value > self._head else self._head
        i += 1
        tail, head = self._tails[i], self._head
        largest = tail if tail > head else head
        if i == self._rows:
            self._tails = _tails(accumulate(reversed(self._values), max), -inf)
            self._head = -inf
            i = 0
        self._position = i
        return largest if largest > -inf else nan

    def transform(self, column: Floats) -> Floats:
        """Return the maximum at every row, shape (n_rows,)."""
        return np.asarray(np.fmax.reduce(trailing_view(column, self._rows), axis=1))


class RollingMin:
    """Smallest known value of the last `rows` rows."""

    __slots__ = ("_negated",)

    def __init__(self, rows: int) -> None:
        self._negated = RollingMax(rows)

    def update(self, value: float) -> float:
        """Take the next value and return the minimum with it."""
        return -self._negated.update(-value)

    def transform(self, column: Floats) -> Floats:
        """Return the minimum at every row, shape (n_rows,)."""
        return -self._negated.transform(-np.asarray(column))


class RollingStd:
    """Standard deviation (population form) of the known values of the last `rows` rows; of one value it is 0."""

    __slots__ = ("_head", "_position", "_rows", "_tails", "_values")

    def __init__(self, rows: int) -> None:
        self._rows = checked_rows(rows)
        self._position = 0
        self._values = [nan] * rows
        self._head = _NO_VALUES
        self._tails = [_NO_VALUES] * (rows + 1)

    def update(self, value: float) -> float:
        """Take the next value and return the standard deviation with it."""
        i = self._position
        self._values[i] = value
        self._head = _with_value(self._head, value)
        i += 1
        count, squares = _merged(self._head, self._tails[i])
        if i == self._rows:
            self._tails = _tails(accumulate(reversed(self._values), _with_value, initial=_NO_VALUES), None)
            self._head = _NO_VALUES
            i = 0
        self._position = i
        return sqrt(squares / count) if count else nan

    def transform(self, column: Floats) -> Floats:
        """Return the standard deviation at every row, shape (n_rows,)."""
        values = trailing_view(column, self._rows)
        known = ~np.isnan(values)
        count = known.sum(axis=1).astype(np.float64)
        mean = _ratio(np.nansum(values, axis=1), count)
        squares = np.where(known, values - mean[:, None], 0.0) ** 2
        return np.sqrt(_ratio(squares.sum(axis=1), count))


class Slope:
    """Mean gain per row: the mean of the newer half of `rows` less that of the older, over the half's length.

    It needs a known value in either half. For white noise its variance is 4/3 of a least-squares slope's, and unlike
    that it has no term that grows with the row number.
    """

    __slots__ = ("_half", "_newer", "_older", "_past", "_position")

    def __init__(self, rows: int) -> None:
        self._half = checked_rows(rows, least=2) // 2
        self._newer = RollingMean(self._half)
        self._older = RollingMean(self._half)
        self._past = [nan] * self._half
        self._position = 0

    def update(self, value: float) -> float:
        """Take the next value and return the slope with it."""
        i = self._position
        older = self._older.update(self._past[i])
        self._past[i] = value
        self._position = i + 1 if i + 1 < self._half else 0
        return (self._newer.update(value) - older) / self._half

    def transform(self, column: Floats) -> Floats:
        """Return the slope at every row, shape (n_rows,)."""
        means = self._newer.transform(column)
        earlier = np.concatenate([np.full(self._half, nan), means])[: means.size]
        return np.asarray((means - earlier) / self._half)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Return the elementwise ratio, NaN where the denominator is 0."""
    return np.asarray(np.divide(numerator, denominator, out=np.full(numerator.shape, nan), where=denominator > 0))


def _tails(backwards: "accumulate[T]", empty: T | None) -> list[T]:
    """Return the aggregates of a block's last n, n-1, ..., 0 values from those that grow backwards from its end."""
    tails = list(backwards)
    tails.reverse()
    if empty is not None:
        tails.append(empty)
    return tails


def _with_value(moments: Moments, value: float) -> Moments:
    """Return the moments with one more value; an unknown one changes nothing."""
    if isnan(value):
        return moments
    count, mean, squares = moments
    count += 1
    gap = value - mean
    mean += gap / count
    return count, mean, squares + gap * (value - mean)


def _merged(head: Moments, tail: Moments) -> tuple[int, float]:
    """Return number of values and sum of squared distances of two groups together."""
    head_count, head_mean, head_squares = head
    tail_count, tail_mean, tail_squares = tail
    count = head_count + tail_count
    if not head_count or not tail_count:
        return count, head_squares + tail_squares
    gap = head_mean - tail_mean
    return count, head_squares + tail_squares + gap * gap * head_count * tail_count / count
