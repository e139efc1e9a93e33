"""What a trace is like: how fast, how bursty, how long its prompts and answers are."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.requests import RequestTable

BURSTY_PEAK_TO_MEAN = 5.0
"""Above it a fleet sized for the mean is overrun before a replica can start."""

WINDOWS_SECONDS = (1, 5, 10)


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
    """Statistics of one trace.

    Attributes
    ----------
    num_requests : int
    span_seconds : float
        From the first arrival to the last.
    request_rate_per_second : float
        num_requests / span_seconds.
    peak_to_mean_1s, peak_to_mean_5s, peak_to_mean_10s : float
        Largest over mean number of requests in consecutive whole windows of that length; NaN if none fits.
    rolling_peak_to_mean_1s, rolling_peak_to_mean_5s, rolling_peak_to_mean_10s : float
        The same for windows that begin at every second, so that a burst across a border is seen whole.
    prompt_tokens_peak_to_mean_10s : float
        The same as peak_to_mean_10s for prompt tokens.
    inter_arrival_cv : float
        Standard deviation over mean of the times between arrivals; 1 for Poisson arrivals.
    prompt_tokens, output_tokens : TokenQuantiles
    is_bursty : bool
    verdict : str
        In a sentence.
    """

    num_requests: int
    span_seconds: float
    request_rate_per_second: float
    peak_to_mean_1s: float
    peak_to_mean_5s: float
    peak_to_mean_10s: float
    rolling_peak_to_mean_1s: float
    rolling_peak_to_mean_5s: float
    rolling_peak_to_mean_10s: float
    prompt_tokens_peak_to_mean_10s: float
    inter_arrival_cv: float
    prompt_tokens: TokenQuantiles
    output_tokens: TokenQuantiles
    is_bursty: bool
    verdict: str


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
    peaks = {seconds: peak_to_mean(arrival, seconds) for seconds in WINDOWS_SECONDS}
    rolling = {seconds: rolling_peak_to_mean(arrival, seconds) for seconds in WINDOWS_SECONDS}
    is_bursty, verdict = _verdict(arrival)
    return TraceStatistics(
        num_requests=requests.num_requests,
        span_seconds=requests.span_seconds,
        request_rate_per_second=requests.num_requests / requests.span_seconds,
        peak_to_mean_1s=peaks[1],
        peak_to_mean_5s=peaks[5],
        peak_to_mean_10s=peaks[10],
        rolling_peak_to_mean_1s=rolling[1],
        rolling_peak_to_mean_5s=rolling[5],
        rolling_peak_to_mean_10s=rolling[10],
        prompt_tokens_peak_to_mean_10s=peak_to_mean(arrival, 10, weights=requests.prompt_tokens),
        inter_arrival_cv=float(gaps.std() / gaps.mean()),
        prompt_tokens=_quantiles(requests.prompt_tokens),
        output_tokens=_quantiles(requests.output_tokens),
        is_bursty=is_bursty,
        verdict=verdict,
    )


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
