"""What a trace is like: how fast, how bursty, how long its prompts and answers are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from simulator.requests import RequestTable
from training.arrival_statistics import (
    UnknownFigureError,
    autocorrelation,
    hurst_dfa,
    index_of_dispersion,
    prefix_hit_potential_ratio,
)

BURSTY_PEAK_TO_MEAN = 5.0
"""Above it a fleet sized for the mean is overrun before a replica can start."""

WINDOWS_SECONDS = (1, 5, 10)
DISPERSION_SECONDS = (1, 30, 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenQuantiles:
    """Mean and quantiles of a number of tokens."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStatistics:
    """Statistics of one trace; None is what it cannot tell, and `unknown` says why.

    Attributes
    ----------
    num_requests : int
    span_seconds : float
        From the first arrival to the last.
    request_rate_per_second : float
        num_requests / span_seconds.
    peak_to_mean_1s, peak_to_mean_5s, peak_to_mean_10s : float
        Largest over mean number of requests in consecutive whole windows of that length.
    rolling_peak_to_mean_1s, rolling_peak_to_mean_5s, rolling_peak_to_mean_10s : float
        The same for windows that begin at every second, so that a burst across a border is seen whole.
    prompt_tokens_peak_to_mean_10s : float
        The same as peak_to_mean_10s for prompt tokens.
    inter_arrival_cv : float
        Standard deviation over mean of the times between arrivals; 1 for Poisson arrivals.
    dispersion_1s, dispersion_30s, dispersion_60s : float
        Variance over mean of the number of requests in consecutive whole windows; 1 for Poisson arrivals.
    hurst_dfa_1s : float
        DFA-1 exponent of the requests per second; 0.5 for arrivals without memory.
    prompt_tokens_autocorrelation_30s : float
        Of the prompt tokens in consecutive 10-s windows, three windows apart.
    prefix_hit_potential_ratio : float
        Share of the prompt tokens that an infinite prefix cache would hit.
    prompt_tokens, output_tokens : TokenQuantiles
    is_bursty : bool
    verdict : str
        In a sentence.
    unknown : mapping of str to str
        Reason by name of each figure that is None.
    """

    num_requests: int
    span_seconds: float
    request_rate_per_second: float
    peak_to_mean_1s: float | None
    peak_to_mean_5s: float | None
    peak_to_mean_10s: float | None
    rolling_peak_to_mean_1s: float | None
    rolling_peak_to_mean_5s: float | None
    rolling_peak_to_mean_10s: float | None
    prompt_tokens_peak_to_mean_10s: float | None
    inter_arrival_cv: float
    dispersion_1s: float | None
    dispersion_30s: float | None
    dispersion_60s: float | None
    hurst_dfa_1s: float | None
    prompt_tokens_autocorrelation_30s: float | None
    prefix_hit_potential_ratio: float | None
    prompt_tokens: TokenQuantiles
    output_tokens: TokenQuantiles
    is_bursty: bool
    verdict: str
    unknown: Mapping[str, str]


def trace_statistics(requests: RequestTable) -> TraceStatistics:
    """Return the statistics of a trace.

    Raises
    ------
    ValueError
        If there are fewer than two requests: nothing can be said of their rate.
    """
    if requests.num_requests < 2 or requests.span_seconds <= 0:
        raise ValueError(f"statistics need two requests at different times, got {requests.num_requests} request(s)")
    arrival = requests.arrival_seconds - requests.arrival_seconds[0]
    gaps = np.diff(arrival)
    is_bursty, verdict = _verdict(arrival)
    known, unknown = _told_apart(_figures(arrival, requests))
    return TraceStatistics(
        num_requests=requests.num_requests,
        span_seconds=requests.span_seconds,
        request_rate_per_second=requests.num_requests / requests.span_seconds,
        inter_arrival_cv=float(gaps.std() / gaps.mean()),
        prompt_tokens=_quantiles(requests.prompt_tokens),
        output_tokens=_quantiles(requests.output_tokens),
        is_bursty=is_bursty,
        verdict=verdict,
        unknown=unknown,
        **known,
    )


def _figures(arrival: NDArray[np.float64], requests: RequestTable) -> dict[str, Callable[[], float]]:
    """Return how to find each figure that a trace may be too short to tell."""
    prompt = requests.prompt_tokens
    figures: dict[str, Callable[[], float]] = {}
    for seconds in WINDOWS_SECONDS:
        figures[f"peak_to_mean_{seconds}s"] = partial(_peak, peak_to_mean, arrival, seconds)
        figures[f"rolling_peak_to_mean_{seconds}s"] = partial(_peak, rolling_peak_to_mean, arrival, seconds)
    figures["prompt_tokens_peak_to_mean_10s"] = partial(_peak, partial(peak_to_mean, weights=prompt), arrival, 10)
    for seconds in DISPERSION_SECONDS:
        figures[f"dispersion_{seconds}s"] = partial(index_of_dispersion, arrival, seconds)
    return figures | {
        "hurst_dfa_1s": partial(hurst_dfa, arrival),
        "prompt_tokens_autocorrelation_30s": partial(
            autocorrelation, arrival, prompt, window_seconds=10, lag_seconds=30
        ),
        "prefix_hit_potential_ratio": partial(prefix_hit_potential_ratio, prompt, requests.prefixes),
    }


def _peak(
    peak: Callable[[NDArray[np.float64], int], float], arrival: NDArray[np.float64], window_seconds: int
) -> float:
    value = peak(arrival, window_seconds)
    if np.isnan(value):
        raise UnknownFigureError(f"needs a whole {window_seconds}-s window, the trace has none")
    return value


def _told_apart(figures: dict[str, Callable[[], float]]) -> tuple[dict[str, float | None], dict[str, str]]:
    """Return the figures, None where they are unknown, and why each of those is."""
    found: dict[str, float | None] = {}
    reasons = {}
    for name, figure in figures.items():
        try:
            found[name] = figure()
        except UnknownFigureError as error:
            found[name] = None
            reasons[name] = str(error)
    return found, reasons


def peak_to_mean(
    arrival_seconds: NDArray[np.float64], window_seconds: int, *, weights: NDArray[np.int64] | None = None
) -> float:
    """Return the largest over the mean sum in consecutive whole windows from 0; NaN if no window is whole.

    Examples
    --------
    >>> peak_to_mean(np.array([0.0, 0.1, 0.2, 1.0, 2.0]), 1)
    1.5
    """
    num_windows = int(arrival_seconds[-1] // window_seconds)
    window = (arrival_seconds // window_seconds).astype(np.int64)
    whole = window < num_windows
    if not whole.any():
        return float("nan")
    # only windows that hold a request are counted: the memory is that of the requests, however long the trace
    first = np.flatnonzero(np.diff(window[whole], prepend=-1))
    amounts = np.ones(int(whole.sum()), dtype=np.int64) if weights is None else weights[whole]
    sums = np.add.reduceat(amounts, first)
    return float(sums.max() / (sums.sum() / num_windows))


def rolling_peak_to_mean(
    arrival_seconds: NDArray[np.float64], window_seconds: int, *, num_seconds: int | None = None
) -> float:
    """Return the most requests in any window that begins at a whole second, over the mean; NaN if no window is whole.

    The mean is that of all whole seconds, times the window. `num_seconds` are the seconds that the arrivals were
    recorded for, by default the whole seconds up to the last of them.

    Examples
    --------
    >>> rolling_peak_to_mean(np.array([0.0, 3.5, 4.0, 4.5, 5.0, 8.0]), 2)
    2.4
    """
    num_seconds = int(arrival_seconds[-1]) if num_seconds is None else num_seconds
    second = arrival_seconds.astype(np.int64)
    second = second[second < num_seconds]
    if num_seconds < window_seconds or second.size == 0:
        return float("nan")
    # some fullest window ends with a second that holds a request, or is the first: others lose nothing by moving back
    begins = np.maximum(second - window_seconds + 1, 0)
    counts = np.searchsorted(second, begins + window_seconds) - np.searchsorted(second, begins)
    return float(counts.max() / (second.size / num_seconds * window_seconds))


def _verdict(arrival: NDArray[np.float64]) -> tuple[bool, str]:
    """Return whether the trace is bursty, and why.

    The rolling peak-to-mean of 1 s or 5 s must stay above 5: in the first half of the trace and in the second, so that
    one odd second does not make a habit.
    """
    middle = arrival[-1] / 2
    halves = (arrival[arrival < middle], arrival[arrival >= middle] - middle)
    peaks = {
        seconds: [rolling_peak_to_mean(half, seconds, num_seconds=int(middle)) for half in halves] for seconds in (1, 5)
    }
    lowest = {seconds: float(np.min(both)) for seconds, both in peaks.items()}  # NaN if either is
    seconds = max(lowest, key=lambda s: np.nan_to_num(lowest[s]))
    if lowest[seconds] > BURSTY_PEAK_TO_MEAN:
        return True, (
            f"bursty: in both halves some {seconds}-s window holds at least {lowest[seconds]:.1f} times the mean"
        )
    if all(np.isnan(peak) for peak in lowest.values()):
        return False, "smooth as far as can be told: too few requests in one half of the trace for a 1-s window"
    return False, (f"smooth: no 1-s or 5-s window stays above {BURSTY_PEAK_TO_MEAN:.0f} times the mean in both halves")


def _quantiles(tokens: NDArray[np.int64]) -> TokenQuantiles:
    p50, p90, p95, p99 = np.quantile(tokens, (0.5, 0.9, 0.95, 0.99))
    return TokenQuantiles(mean=float(tokens.mean()), p50=float(p50), p90=float(p90), p95=float(p95), p99=float(p99))
