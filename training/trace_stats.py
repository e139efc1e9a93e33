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
    prompt_tokens_peak_to_mean_10s : float
        The same for prompt tokens.
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
    is_bursty, verdict = _verdict(arrival)
    return TraceStatistics(
        num_requests=requests.num_requests,
        span_seconds=requests.span_seconds,
        request_rate_per_second=requests.num_requests / requests.span_seconds,
        peak_to_mean_1s=peaks[1],
        peak_to_mean_5s=peaks[5],
        peak_to_mean_10s=peaks[10],
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
    if num_windows < 1:
        return float("nan")
    window = (arrival_seconds // window_seconds).astype(np.int64)
    sums = np.bincount(window, weights=weights, minlength=num_windows)[:num_windows]
    return float(sums.max() / sums.mean()) if sums.any() else float("nan")


def _verdict(arrival: NDArray[np.float64]) -> tuple[bool, str]:
    """Return whether the trace is bursty, and why.

    The peak-to-mean of 1-s or 5-s windows must stay above 5: in the first half of the trace and in the second, so that
    one odd second does not make a habit.
    """
    middle = arrival[-1] / 2
    halves = (arrival[arrival < middle], arrival[arrival >= middle] - middle)
    lowest = {
        seconds: min((peak_to_mean(half, seconds) for half in halves if half.size), default=float("nan"))
        for seconds in (1, 5)
    }
    seconds = max(lowest, key=lambda s: np.nan_to_num(lowest[s]))
    if lowest[seconds] > BURSTY_PEAK_TO_MEAN:
        return True, (
            f"bursty: in both halves some {seconds}-s window holds at least {lowest[seconds]:.1f} times the mean"
        )
    return False, (f"smooth: no 1-s or 5-s window stays above {BURSTY_PEAK_TO_MEAN:.0f} times the mean in both halves")


def _quantiles(tokens: NDArray[np.int64]) -> TokenQuantiles:
    p50, p90, p95, p99 = np.quantile(tokens, (0.5, 0.9, 0.95, 0.99))
    return TokenQuantiles(mean=float(tokens.mean()), p50=float(p50), p90=float(p90), p95=float(p95), p99=float(p99))
