"""How arrivals cluster: dispersion, long memory, autocorrelation; and what prompts have in common."""

import numpy as np
from numpy.typing import NDArray

from simulator.requests import Prefixes

MIN_WINDOWS = 10
"""Windows that an index of dispersion needs: with fewer its standard error for Poisson arrivals is over a half."""

MIN_WINDOWS_FOR_AUTOCORRELATION = 30
"""With fewer, white noise alone passes 0.36 one time in twenty (1.96 / sqrt(n))."""

MAX_WINDOWS = 2**24
"""Seconds of half a year: the counts of more would not fit into memory beside a simulation."""

DFA_SMALLEST_SECONDS = 8
DFA_LARGEST_SHARE = 8
DFA_NUM_SCALES = 10
"""Window lengths: from 8 s to an eighth of the trace. No source gives them.

They were picked because they give the three published exponents of the public traces (traces/README.md), which
few other choices do. That they agree is thus no proof: with 4 to 16 s for the smallest and 200 s to half the trace for
the largest, a trace of an hour gives 0.71 to 0.96 (Azure code) or 0.59 to 0.92 (Azure conversation).
"""

MIN_SECONDS_FOR_DFA = 256
"""The largest DFA window is then four times the smallest; a slope over less says nothing."""


class UnknownFigureError(ValueError):
    """A trace is too short, or too plain, for a figure; the message says why."""


def index_of_dispersion(arrival_seconds: NDArray[np.float64], window_seconds: int) -> float:
    """Return the variance over the mean of the number of arrivals in consecutive whole windows from 0.

    1 for Poisson arrivals, 0 for regular ones (Cox and Lewis, The Statistical Analysis of Series of Events, 1966, 4.5).

    Raises
    ------
    UnknownFigureError
        If fewer than `MIN_WINDOWS` windows are whole.

    Examples
    --------
    >>> index_of_dispersion(np.arange(0.0, 21.0, 0.5), 1)
    0.0
    """
    counts = _sums(arrival_seconds, window_seconds, at_least=MIN_WINDOWS)
    return float(counts.var(ddof=1) / counts.mean())


def hurst_dfa(arrival_seconds: NDArray[np.float64]) -> float:
    """Return the exponent of a detrended fluctuation analysis of arrivals per second: 0.5 without memory.

    DFA-1 (Peng et al., Physical Review E 49, 1994): the slope, in logarithms, of the root mean square of the profile
    about straight lines, over 10 window lengths from 8 s to an eighth of the trace, evenly spaced in logarithms.

    Raises
    ------
    UnknownFigureError
        If the trace has fewer than `MIN_SECONDS_FOR_DFA` whole seconds, or its seconds do not vary.
    """
    counts = _sums(arrival_seconds, 1, at_least=MIN_SECONDS_FOR_DFA)
    return dfa_exponent(counts)


def dfa_exponent(series: NDArray[np.float64]) -> float:
    """Return the exponent of `hurst_dfa` of a series of at least `MIN_SECONDS_FOR_DFA` values, one a second."""
    profile = np.cumsum(series - series.mean())
    largest = series.size // DFA_LARGEST_SHARE
    scales = np.unique(np.geomspace(DFA_SMALLEST_SECONDS, largest, DFA_NUM_SCALES).astype(np.int64))
    fluctuations = np.array([_fluctuation(profile, int(scale)) for scale in scales])
    # what rounding leaves of a straight profile is no fluctuation
    if fluctuations.min() <= 1e-9 * max(1.0, float(np.abs(profile).max())):
        raise UnknownFigureError("the seconds do not vary")
    return float(np.polyfit(np.log(scales), np.log(fluctuations), 1)[0])


def _fluctuation(profile: NDArray[np.float64], scale: int) -> float:
    """Return the root mean square of the profile about a straight line in each window."""
    num_windows = profile.size // scale
    windows = profile[: num_windows * scale].reshape(num_windows, scale)
    at = np.arange(scale) - (scale - 1) / 2
    residuals = windows - windows.mean(axis=1, keepdims=True)
    residuals -= np.outer(residuals @ at / (at @ at), at)
    return float(np.sqrt(np.mean(residuals**2)))


def autocorrelation(
    arrival_seconds: NDArray[np.float64], weights: NDArray[np.int64], *, window_seconds: int, lag_seconds: int
) -> float:
    """Return the autocorrelation of the sums of weights in consecutive whole windows from 0.

    The lag's sum of products over the sum of squares, both about the mean of all (Box and Jenkins, Time Series
    Analysis, 2.1.5).

    Raises
    ------
    UnknownFigureError
        If fewer than `MIN_WINDOWS_FOR_AUTOCORRELATION` windows are whole, or they do not vary.
    """
    sums = _sums(arrival_seconds, window_seconds, weights=weights, at_least=MIN_WINDOWS_FOR_AUTOCORRELATION)
    if sums.min() == sums.max():
        raise UnknownFigureError(f"the {window_seconds}-s windows do not vary")
    lag = lag_seconds // window_seconds
    deviations = sums - sums.mean()
    return float(deviations[:-lag] @ deviations[lag:] / (deviations @ deviations))


def prefix_hit_potential_ratio(prompt_tokens: NDArray[np.int64], prefixes: Prefixes) -> float:
    """Return the share of prompt tokens that a cache which keeps every prefix, and shares it at once, would hit.

    Of each prompt in order of arrival: its leading whole groups that an earlier prompt had. The last token is computed
    always, as engines do to have something to decode from.

    Raises
    ------
    UnknownFigureError
        If no prompt has prefix ids.
    """
    if prefixes.ids.size == 0:
        raise UnknownFigureError("the trace has no prefix ids")
    _, first, inverse = np.unique(prefixes.ids, return_index=True, return_inverse=True)
    is_new = first[inverse] == np.arange(prefixes.ids.size)
    num_new = np.concatenate(([0], np.cumsum(is_new)))
    request = np.repeat(np.arange(prompt_tokens.size), np.diff(prefixes.starts))
    is_leading = num_new[1:] == num_new[prefixes.starts[request]]
    num_leading = np.bincount(request[is_leading], minlength=prompt_tokens.size)
    num_hit = np.minimum(num_leading, (prompt_tokens - 1) // prefixes.group_tokens)
    return float(num_hit.sum() * prefixes.group_tokens / prompt_tokens.sum())


def _sums(
    arrival_seconds: NDArray[np.float64],
    window_seconds: int,
    *,
    at_least: int,
    weights: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Return the number of arrivals, or the sum of their weights, in each consecutive whole window from 0."""
    num_windows = int(arrival_seconds[-1] // window_seconds) if arrival_seconds.size else 0
    if num_windows < at_least:
        raise UnknownFigureError(f"needs {at_least} whole {window_seconds}-s windows, the trace has {num_windows}")
    if num_windows > MAX_WINDOWS:
        raise UnknownFigureError(f"{num_windows:,} windows of {window_seconds} s are more than {MAX_WINDOWS:,}")
    window = (arrival_seconds // window_seconds).astype(np.int64)
    whole = window < num_windows
    amounts = None if weights is None else weights[whole]
    return np.bincount(window[whole], amounts, minlength=num_windows).astype(np.float64)
