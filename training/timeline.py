"""A run second by second, as people look at it: the curves that the report and the live view both draw."""

from dataclasses import dataclass

import numpy as np

from forecaster.capacity import ReplicaCapacity
from forecaster.demand import offered_load
from forecaster.forecast import KV_BLOCKS
from forecaster.plan import CapacityPlan
from forecaster.telemetry import Floats, TelemetryWindow

BAND_HORIZON_SECONDS = 30.0
BAND_LEVELS = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastBand:
    """What was forecast for each moment `BAND_HORIZON_SECONDS` before it.

    Attributes
    ----------
    at : ndarray of shape (n_plans,), seconds
        The end of the span that is spoken of: made_at + horizon.
    kv_blocks : ndarray of shape (n_plans, n_levels), blocks
        Quantiles at `BAND_LEVELS` of the largest number of offered KV blocks in the `BAND_HORIZON_SECONDS` up to `at`.
    """

    at: Floats
    kv_blocks: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The curves of one run, each of shape (n_rows,); NaN where unknown.

    Attributes
    ----------
    at : seconds
        End of each row.
    requests_per_second, prompt_tokens_per_second, shed_per_second
        Offered load, and what admission refused of it.
    kv_blocks_used, kv_blocks_offered, kv_blocks_total : blocks
    ttft_mean_seconds, ttft_p95_seconds : seconds
        While nothing has its first token and somebody waits, the age of the oldest waiting request: a stall is not
        silence.
    serving_replicas, warm_replicas, starting_replicas, draining_replicas, demand_replicas : replicas
    """

    at: Floats
    requests_per_second: Floats
    prompt_tokens_per_second: Floats
    shed_per_second: Floats
    kv_blocks_used: Floats
    kv_blocks_offered: Floats
    kv_blocks_total: Floats
    ttft_mean_seconds: Floats
    ttft_p95_seconds: Floats
    serving_replicas: Floats
    warm_replicas: Floats
    starting_replicas: Floats
    draining_replicas: Floats
    demand_replicas: Floats


def timeline(telemetry: TelemetryWindow, capacity: ReplicaCapacity) -> Timeline:
    """Return the curves of the rows of `telemetry`."""
    offered = offered_load(telemetry, capacity)
    return Timeline(
        at=telemetry.row_at,
        requests_per_second=telemetry.column("request_rate_per_second"),
        prompt_tokens_per_second=telemetry.column("prompt_tokens_per_second"),
        shed_per_second=telemetry.column("rejected_rate_per_second"),
        kv_blocks_used=telemetry.column("kv_blocks_used"),
        kv_blocks_offered=offered.kv_blocks,
        kv_blocks_total=telemetry.column("kv_blocks_total"),
        ttft_mean_seconds=_or_stall(telemetry, "ttft_mean_seconds"),
        ttft_p95_seconds=_or_stall(telemetry, "ttft_p95_seconds"),
        serving_replicas=telemetry.column("serving_replicas"),
        warm_replicas=telemetry.column("warm_replicas"),
        starting_replicas=telemetry.column("starting_replicas"),
        draining_replicas=telemetry.column("draining_replicas"),
        demand_replicas=offered.demand_replicas,
    )


def _or_stall(telemetry: TelemetryWindow, name: str) -> Floats:
    seconds = telemetry.column(name)
    age = telemetry.column("oldest_waiting_age_seconds")
    stalled = np.isnan(seconds) & (age > 0)
    return np.where(stalled, age, seconds)


def seconds_over_target(curves: Timeline, target_seconds: float) -> int:
    """Return in how many seconds the TTFT p95 was over the target."""
    with np.errstate(invalid="ignore"):
        return int((curves.ttft_p95_seconds > target_seconds).sum())


def forecast_band(plans: tuple[CapacityPlan, ...]) -> ForecastBand:
    """Return what the plans' forecasts said of the moments 30 s after them; plans without a forecast are left out."""
    made = [plan.forecast for plan in plans if plan.forecast is not None and KV_BLOCKS in plan.forecast.values]
    quantiles = [
        [forecast.quantile(KV_BLOCKS, horizon_seconds=BAND_HORIZON_SECONDS, level=level) for level in BAND_LEVELS]
        for forecast in made
    ]
    return ForecastBand(
        at=np.array([forecast.made_at + BAND_HORIZON_SECONDS for forecast in made]),
        kv_blocks=np.array(quantiles, dtype=np.float64).reshape(len(made), len(BAND_LEVELS)),
    )


def thinned(at: Floats, columns: tuple[Floats, ...], *, max_points: int) -> tuple[Floats, tuple[Floats, ...]]:
    """Return the curves in at most `max_points` points, each the largest known value of its span.

    Parameters
    ----------
    at : ndarray of shape (n,)
        Each span is given by its last moment.
    columns : tuple of ndarray of shape (n,)

    Examples
    --------
    >>> at, (column,) = thinned(np.arange(4.0), (np.array([1.0, 5.0, np.nan, np.nan]),), max_points=2)
    >>> at.tolist(), column.tolist()
    ([1.0, 3.0], [5.0, nan])
    """
    if at.size <= max_points:
        return at, columns
    stride = -(-at.size // max_points)
    starts = np.arange(0, at.size, stride)
    ends = np.minimum(starts + stride, at.size) - 1
    return at[ends], tuple(_largest(column, starts) for column in columns)


def _largest(column: Floats, starts: np.ndarray) -> Floats:
    highest = np.maximum.reduceat(np.where(np.isnan(column), -np.inf, column), starts)
    return np.where(np.isneginf(highest), np.nan, highest)
