"""An engine's log replayed on one simulated replica, and how far the times of both are apart."""

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from forecaster.telemetry import Floats, TelemetryWindow
from simulator.profiles import EngineProfile
from simulator.static_fleet import simulate_static
from training.engine_logs import EngineLog

LEVELS = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a simulated replica makes of a log.

    Attributes
    ----------
    ttft_seconds, e2e_seconds : ndarray of float64, shape (n,)
        Overhead included.
    telemetry : TelemetryWindow
        A row a second.
    """

    ttft_seconds: Floats
    e2e_seconds: Floats
    telemetry: TelemetryWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileError:
    """One quantile, measured and replayed, in seconds.

    Attributes
    ----------
    measure : str
        "ttft" or "e2e".
    level : float
    measured_seconds, replayed_seconds : float
    """

    measure: str
    level: float
    measured_seconds: float
    replayed_seconds: float

    @property
    def error_ratio(self) -> float:
        """Relative error of the replay, signed."""
        return self.replayed_seconds / self.measured_seconds - 1


def halves(log: EngineLog) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of the first and of the second half of the requests, by arrival."""
    rows = np.arange(log.requests.num_requests)
    middle = rows.size // 2
    return rows[:middle], rows[middle:]


def replayed(log: EngineLog, profile: EngineProfile, *, overhead_seconds: float) -> Replay:
    """Return what one replica of `profile` makes of the log; a request that does not end in time ends at the limit.

    Raises
    ------
    ValueError
        If a request is longer than the whole KV cache.
    """
    # far slower than the log is as bad as it gets; the bound keeps a bad guess from running for ever
    limit = float(ceil(2 * log.finished_at.max()) + 10)
    result = simulate_static(log.requests, profile, num_replicas=1, duration_seconds=limit)
    arrival = log.requests.arrival_seconds
    return Replay(
        ttft_seconds=np.nan_to_num(result.first_token_at, nan=limit) - arrival + overhead_seconds,
        e2e_seconds=np.nan_to_num(result.finished_at, nan=limit) - arrival + overhead_seconds,
        telemetry=result.telemetry,
    )


def quantile_errors(log: EngineLog, replay: Replay, rows: NDArray[np.int64]) -> tuple[QuantileError, ...]:
    """Return p50, p90 and p99 of TTFT and of end-to-end time of the requests at `rows`."""
    pairs = (
        ("ttft", log.ttft_seconds, replay.ttft_seconds),
        ("e2e", log.e2e_seconds, replay.e2e_seconds),
    )
    return tuple(
        QuantileError(
            measure=measure,
            level=level,
            measured_seconds=float(np.quantile(measured[rows], level)),
            replayed_seconds=float(np.quantile(seconds[rows], level)),
        )
        for measure, measured, seconds in pairs
        for level in LEVELS
    )
