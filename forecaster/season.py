"""Recurring peaks found in history: the season of a load, and what it did a season ago.

Kept per deployment, of the last hours, in tens of seconds: enough for a batch job every ten minutes or a sale on the
hour. What recurs daily is for the calendar of declared events.
"""

from math import isnan, nan

import numpy as np

from forecaster.telemetry import Floats

BIN_ROWS = 10
"""Rows of a bin; its maximum is kept."""

NUM_BINS = 1080
"""Three hours of them."""

FIND_EVERY_BINS = 6
"""The season is looked for once a minute."""

SHORTEST_BINS = 6
"""Shorter seasons than a minute are noise to a forecast 30 s ahead."""

LEAST_CORRELATION = 0.3
"""Below it nothing recurs; of white noise 100 bins long a correlation over 0.2 is rare (2 standard errors)."""

MAX_SEASONS = 3
"""Past seasons that are averaged where there are so many."""


class Season:
    """The season of one load and the maxima of past seasons; a row after the other."""

    def __init__(self) -> None:
        self._bins: list[float] = []
        self._bin = nan
        self._rows_in_bin = 0
        self.period_bins = 0
        self.correlation = 0.0

    def update(self, value: float) -> None:
        """Take the next row's value; NaN is unknown."""
        if not isnan(value) and not self._bin >= value:
            self._bin = value
        self._rows_in_bin += 1
        if self._rows_in_bin < BIN_ROWS:
            return
        self._bins.append(self._bin)
        if len(self._bins) > NUM_BINS:
            del self._bins[0]
        self._bin, self._rows_in_bin = nan, 0
        if len(self._bins) % FIND_EVERY_BINS == 0 or len(self._bins) == NUM_BINS:
            self.period_bins, self.correlation = season_of(np.array(self._bins))

    def ahead(self, rows: int) -> float:
        """Return the mean over past seasons of the maximum over the `rows` rows that come next; NaN if none is known.

        A bin counts where it overlaps the span.
        """
        if not self.period_bins:
            return nan
        total, count = 0.0, 0
        last = -(-(self._rows_in_bin + rows) // BIN_ROWS)
        for season in range(1, MAX_SEASONS + 1):
            start = len(self._bins) - season * self.period_bins
            known = [x for x in self._bins[max(start, 0) : max(start + last, 0)] if not isnan(x)]
            if start < 0 or not known:
                break
            total += max(known)
            count += 1
        return total / count if count else nan


def season_of(bins: Floats) -> tuple[int, float]:
    """Return (period in bins, correlation of a period with the one before it), (0, 0.0) if nothing recurs.

    The period is where the autocorrelation of the logarithms peaks after it first fell below zero, up to half of what
    is known: a slow level alone is no season.

    Parameters
    ----------
    bins : ndarray of shape (n,), >= 0, NaN where unknown

    References
    ----------
    Autocorrelation by the fast Fourier transform of the padded series (Wiener and Khinchin).

    Examples
    --------
    >>> season_of(np.tile([1.0, 1.0, 1.0, 9.0, 9.0, 1.0, 1.0, 1.0, 1.0, 1.0], 6))[0]
    10
    """
    known = np.isfinite(bins)
    if bins.size < 3 * SHORTEST_BINS or known.mean() < 0.8:
        return 0, 0.0
    logs = np.log(np.maximum(np.where(known, bins, np.nan), 1e-9))
    centred = np.where(known, logs - np.nanmean(logs), 0.0)
    power = np.abs(np.fft.rfft(centred, 2 * centred.size)) ** 2
    products = np.fft.irfft(power)[: centred.size // 2 + 1]
    if products[0] <= 1e-12:
        return 0, 0.0
    # each lag over the number of pairs it has, else long seasons would be put at a disadvantage
    correlation = products / products[0] * centred.size / (centred.size - np.arange(products.size))
    below = np.flatnonzero(correlation < 0)
    if not below.size:
        return 0, 0.0
    first = max(int(below[0]), SHORTEST_BINS)
    if first >= correlation.size:
        return 0, 0.0
    best = first + int(np.argmax(correlation[first:]))
    # a multiple of the season correlates as well as itself: take the shortest that is nearly as good
    for divisor in range(best // first, 1, -1):
        shorter = round(best / divisor)
        near = correlation[max(shorter - 1, first) : shorter + 2]
        if near.size and near.max() > 0.9 * correlation[best]:
            best = max(shorter - 1, first) + int(np.argmax(near))
            break
    found = float(correlation[best])
    return (best, found) if found >= LEAST_CORRELATION else (0, 0.0)
