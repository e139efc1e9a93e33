"""What a run was worth: SLO attainment, latency quantiles, what it cost; the definitions are the benchmark's."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecaster.config import Slo
from simulator.engine_state import FINISHED, SHED
from simulator.pod_states import DRAINING, PodState
from simulator.result import SimulationResult

# An idle replica prefills some 4,096 tokens within the TTFT target; a longer prompt gets proportionally more time.
SLO_PROMPT_TOKENS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorecard:
    """One row of a comparison.

    Attributes
    ----------
    policy : str
    num_requests, shed_requests, unfinished_requests, preemptions, scaling_actions : int
        Of requests that arrived in the costed time, each counted once, from its first attempt.
    attainment_ratio : float
        Share of them that met both targets; shed and unfinished ones are misses.
    attainment_ratio_by_priority : tuple of float
        The same for batch, normal and core requests; NaN where there were none.
    ttft_p50_seconds, ttft_p95_seconds, ttft_p99_seconds, tpot_p50_seconds, tpot_p95_seconds : float
        Over the requests served; NaN if none were.
    gpu_hours, replica_hours : float
        GPUs x (serving + promoting + draining + starting + warm_cost_ratio x warm) hours.
    warm_cost_ratio : float
    """

    policy: str
    num_requests: int
    attainment_ratio: float
    attainment_ratio_by_priority: tuple[float, ...]
    ttft_p50_seconds: float
    ttft_p95_seconds: float
    ttft_p99_seconds: float
    tpot_p50_seconds: float
    tpot_p95_seconds: float
    replica_hours: float
    gpu_hours: float
    warm_cost_ratio: float
    preemptions: int
    shed_requests: int
    unfinished_requests: int
    scaling_actions: int


def score(result: SimulationResult, *, policy: str, slo: Slo, warm_cost_ratio: float) -> Scorecard:
    """Return the scorecard of a run.

    Followers that arrive while the last requests are given time to finish, or not at all, are no part of it.
    """
    with np.errstate(invalid="ignore"):
        counted = result.arrival_at <= result.costed_seconds
    met = requests_within_slo(result, slo)[counted]
    ttft, tpot = (seconds[counted] for seconds in latencies(result))
    priority, outcome = result.requests.priority[counted], result.outcome[counted]
    hours = replica_hours(result, warm_cost_ratio)
    return Scorecard(
        policy=policy,
        num_requests=int(counted.sum()),
        attainment_ratio=_mean(met),
        attainment_ratio_by_priority=tuple(_mean(met[priority == k]) for k in range(3)),
        ttft_p50_seconds=_quantile(ttft, 0.5),
        ttft_p95_seconds=_quantile(ttft, 0.95),
        ttft_p99_seconds=_quantile(ttft, 0.99),
        tpot_p50_seconds=_quantile(tpot, 0.5),
        tpot_p95_seconds=_quantile(tpot, 0.95),
        replica_hours=hours,
        gpu_hours=hours * result.profile.gpus_per_replica,
        warm_cost_ratio=warm_cost_ratio,
        preemptions=int(result.num_preemptions[counted].sum()),
        shed_requests=int((outcome == SHED).sum()),
        unfinished_requests=int(((outcome != SHED) & (outcome != FINISHED)).sum()),
        scaling_actions=result.num_actions,
    )


def latencies(result: SimulationResult) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return TTFT and TPOT of every request in seconds, each of shape (n,), NaN where it has none.

    TTFT counts from the arrival of the first attempt. TPOT is the mean time per output token after the first, NaN for
    one-token answers.
    """
    ttft = result.first_token_at - result.arrival_at
    further = result.requests.output_tokens - 1
    with np.errstate(invalid="ignore", divide="ignore"):
        tpot = np.where(further > 0, (result.finished_at - result.first_token_at) / further, np.nan)
    return ttft, tpot


def requests_within_slo(result: SimulationResult, slo: Slo) -> NDArray[np.bool_]:
    """Return which requests met both targets, shape (n,); a one-token answer meets the TPOT target."""
    ttft, tpot = latencies(result)
    allowed = slo.ttft_seconds * np.maximum(result.requests.prompt_tokens / SLO_PROMPT_TOKENS, 1.0)
    with np.errstate(invalid="ignore"):
        in_time = (ttft <= allowed) & ((tpot <= slo.tpot_seconds) | (result.requests.output_tokens == 1))
    return np.asarray(in_time & (result.outcome == FINISHED))


def replica_hours(result: SimulationResult, warm_cost_ratio: float) -> float:
    """Return serving + promoting + draining + starting + `warm_cost_ratio` x warm replica-hours."""
    return weighted_replica_hours(result.replica_seconds, warm_cost_ratio)


def weighted_replica_hours(replica_seconds: Mapping[PodState, float], warm_cost_ratio: float) -> float:
    """Return the same from the time that replicas spent in each state, in seconds."""
    active = sum(replica_seconds[s] for s in (PodState.SERVING, PodState.PROMOTING, PodState.STARTING, *DRAINING))
    return (active + warm_cost_ratio * replica_seconds[PodState.WARM]) / 3600


def _quantile(values: NDArray[np.float64], level: float) -> float:
    known = values[~np.isnan(values)]
    return float(np.quantile(known, level)) if known.size else float("nan")


def _mean(values: NDArray[np.bool_]) -> float:
    return float(values.mean()) if values.size else float("nan")
