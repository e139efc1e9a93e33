"""What was seen of one model deployment: 1-s rows of named signals, and the fleet's state now.

Every source (simulator, replay, Prometheus, scrape, events) produces these two types and nothing else reads a
source. **Unknown is never zero**: an unknown value is NaN here, and everything downstream treats it as unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import InvalidTelemetryError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One column of a telemetry window."""

    name: str
    unit: str
    meaning: str
    maximum: float = inf


def _signals() -> tuple[Signal, ...]:
    rows = (
        # arrivals: offered load, so rejected requests count and retries are told apart
        ("request_rate_per_second", "requests/s", "first attempts that arrived, rejected ones included"),
        ("retry_rate_per_second", "requests/s", "further attempts of requests that arrived before"),
        ("rejected_rate_per_second", "requests/s", "requests refused by admission"),
        (
            "prompt_tokens_per_second",
            "tokens/s",
            "prompt tokens of first attempts that arrived, rejected included",
        ),
        ("rejected_prompt_tokens_per_second", "tokens/s", "prompt tokens of requests refused by admission"),
        ("finished_rate_per_second", "requests/s", "requests that finished"),
        ("finished_output_tokens_per_second", "tokens/s", "output tokens of the requests that finished"),
        # engine, summed over the serving and draining replicas
        ("running_requests", "requests", "in the engines' batches"),
        ("waiting_requests", "requests", "queued for prefill"),
        ("waiting_prompt_tokens", "tokens", "prompt tokens queued and not yet prefilled"),
        ("oldest_waiting_age_seconds", "s", "age of the oldest request without its first token"),
        ("kv_blocks_used", "blocks", "KV-cache blocks held"),
        ("kv_blocks_total", "blocks", "KV-cache blocks of the serving replicas"),
        ("preemptions_per_second", "1/s", "requests that lost their blocks and will be recomputed"),
        ("prefix_cache_hit_ratio", "ratio", "share of prompt tokens found in the prefix cache"),
        ("prefill_tokens_per_second", "tokens/s", "prompt tokens computed"),
        ("decode_tokens_per_second", "tokens/s", "output tokens computed"),
        # latency, over what happened in the row's second
        ("ttft_mean_seconds", "s", "time to first token, from the user's first attempt"),
        ("ttft_p95_seconds", "s", "time to first token, 0.95 quantile"),
        ("tpot_mean_seconds", "s", "mean time per output token of requests that finished"),
        ("e2e_mean_seconds", "s", "arrival to last token of requests that finished"),
        # fleet
        ("desired_replicas", "replicas", "what the last plan asked to serve"),
        ("serving_replicas", "replicas", "ready and routed to"),
        ("warm_replicas", "replicas", "ready, weights loaded, not routed to"),
        ("starting_replicas", "replicas", "ordered and not ready"),
        ("draining_replicas", "replicas", "not routed to, finishing what they hold"),
        ("unschedulable_replicas", "replicas", "pending because no GPU could be had"),
        ("reporting_replicas", "replicas", "serving replicas whose metrics arrived"),
        # resources, where there is an exporter
        ("cpu_utilisation_ratio", "ratio", "CPU used over requested"),
        ("gpu_utilisation_ratio", "ratio", "GPU busy"),
        ("memory_utilisation_ratio", "ratio", "host memory used over requested"),
    )
    return tuple(
        Signal(name=name, unit=unit, meaning=meaning, maximum=1.0 if name.endswith("_ratio") else inf)
        for name, unit, meaning in rows
    )


SIGNALS: tuple[Signal, ...] = _signals()
SIGNAL_INDEX: Mapping[str, int] = {signal.name: i for i, signal in enumerate(SIGNALS)}
_MAXIMA: Floats = np.array([signal.maximum for signal in SIGNALS])

# A source's clock may run a little ahead of ours; beyond this a sample is from the future and a mistake (CASES 16).
MAX_CLOCK_SKEW_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryWindow:
    """Rows of every signal of one deployment, oldest first; the last row is the newest seen.

    Attributes
    ----------
    deployment : str
        Whose telemetry this is.
    row_at : ndarray of shape (n_rows,), POSIX seconds, UTC
        End of each row; row i covers (row_at[i] - step_seconds, row_at[i]]. Strictly increasing; a missing second is
        a missing row or a row of NaN.
    values : ndarray of shape (n_rows, n_signals)
        In the order of `SIGNALS`; NaN where unknown.
    seen_at : ndarray of shape (n_rows,), POSIX seconds, UTC
        When each row reached us.
    step_seconds : float
        Length of a row.
    """

    deployment: str
    row_at: Floats
    values: Floats
    seen_at: Floats
    step_seconds: float = 1.0

    def __post_init__(self) -> None:
        problem = _window_problem(self)
        if problem:
            raise InvalidTelemetryError(f"telemetry of deployment {self.deployment!r}: {problem}")

    @classmethod
    def from_columns(
        cls, deployment: str, row_at: Floats, *, columns: Mapping[str, Floats], seen_at: Floats | None = None
    ) -> "TelemetryWindow":
        """Return a window with the named columns known and every other signal unknown.

        Raises
        ------
        InvalidTelemetryError
            If a name is no signal, or a value cannot be true.
        """
        unknown = sorted(set(columns) - set(SIGNAL_INDEX))
        if unknown:
            raise InvalidTelemetryError(
                f"telemetry of deployment {deployment!r}: no signal is called {', '.join(unknown)}; "
                f"known: {', '.join(SIGNAL_INDEX)}"
            )
        at = np.asarray(row_at, dtype=np.float64)
        values = np.full((at.size, len(SIGNALS)), np.nan)
        for name, column in columns.items():
            values[:, SIGNAL_INDEX[name]] = column
        return cls(deployment=deployment, row_at=at, values=values, seen_at=at if seen_at is None else seen_at)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self.row_at.size)

    def column(self, name: str) -> Floats:
        """Return one signal over the window, shape (n_rows,), NaN where unknown."""
        return self.values[:, SIGNAL_INDEX[name]]

    def since(self, start_at: float) -> "TelemetryWindow":
        """Return the rows that end after `start_at` (POSIX seconds)."""
        first = int(np.searchsorted(self.row_at, start_at, side="right"))
        return TelemetryWindow(
            deployment=self.deployment,
            row_at=self.row_at[first:],
            values=self.values[first:],
            seen_at=self.seen_at[first:],
            step_seconds=self.step_seconds,
        )


def _window_problem(window: TelemetryWindow) -> str:
    """Return what is wrong with a window in one sentence, or an empty string."""
    n = window.row_at.size
    if window.row_at.ndim != 1 or window.seen_at.shape != (n,) or window.values.shape != (n, len(SIGNALS)):
        return (
            f"shapes do not fit: row_at {window.row_at.shape}, seen_at {window.seen_at.shape}, values "
            f"{window.values.shape}, expected (n,), (n,), (n, {len(SIGNALS)})"
        )
    if not (isfinite(window.step_seconds) and window.step_seconds > 0):
        return f"step_seconds must be > 0, got {window.step_seconds}"
    if n == 0:
        return ""
    if not (np.isfinite(window.row_at).all() and np.isfinite(window.seen_at).all()):
        return "row_at and seen_at must be finite"
    if n > 1 and (np.diff(window.row_at) <= 0).any():
        return "row_at must increase; sort the rows by sample time and drop duplicates"
    ahead = float((window.row_at - window.seen_at).max())
    if ahead > MAX_CLOCK_SKEW_SECONDS:
        return f"a row is {ahead:.1f} s in the future of when it was seen; check the source's clock"
    with np.errstate(invalid="ignore"):
        bad = np.isinf(window.values) | (window.values < 0) | (window.values > _MAXIMA)
    if bad.any():
        row, signal = np.argwhere(bad)[0]
        return (
            f"{SIGNALS[signal].name} is {window.values[row, signal]} at {window.row_at[row]:.0f}; expected "
            f"0 to {SIGNALS[signal].maximum} {SIGNALS[signal].unit}, or NaN for unknown"
        )
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """What pods exist now, from the cluster's own records (never from counting metric series).

    Attributes
    ----------
    serving_replicas, warm_replicas, promoting_replicas, draining_replicas : int
        Ready and routed to; loaded and not routed to; on the way from warm to serving; finishing what they hold.
    starting_ready_in_seconds : tuple of float
        One entry per starting replica: expected seconds until it is ready, soonest first.
    unschedulable_replicas : int
        Pending because no GPU can be had: not supply.
    reporting_replicas : int
        Serving replicas whose metrics arrived in the last interval.
    time_to_ready_seconds : float
        P90 of the measured order-to-ready time, the cold lead time.
    time_to_promote_seconds : float
        Measured warm-to-serving time, the promotion lead.
    rollout_in_progress : bool
        A rolling update is replacing pods.
    """

    serving_replicas: int
    warm_replicas: int = 0
    promoting_replicas: int = 0
    draining_replicas: int = 0
    starting_ready_in_seconds: tuple[float, ...] = ()
    unschedulable_replicas: int = 0
    reporting_replicas: int
    time_to_ready_seconds: float
    time_to_promote_seconds: float
    rollout_in_progress: bool = False

    def __post_init__(self) -> None:
        counts = (
            self.serving_replicas,
            self.warm_replicas,
            self.promoting_replicas,
            self.draining_replicas,
            self.unschedulable_replicas,
            self.reporting_replicas,
        )
        if min(counts) < 0:
            raise InvalidTelemetryError(f"fleet state: replica counts must be >= 0, got {counts}")
        leads = (self.time_to_ready_seconds, self.time_to_promote_seconds)
        if not all(isfinite(lead) and lead >= 0 for lead in leads):
            raise InvalidTelemetryError(f"fleet state: lead times must be finite and >= 0 s, got {leads}")

    @property
    def starting_replicas(self) -> int:
        """Number of replicas ordered and not ready."""
        return len(self.starting_ready_in_seconds)

    @property
    def active_replicas(self) -> int:
        """Replicas that serve now or will within a promotion lead."""
        return self.serving_replicas + self.promoting_replicas

    @property
    def supply_replicas(self) -> int:
        """Everything that serves, can be promoted or is coming."""
        return self.active_replicas + self.warm_replicas + self.starting_replicas
