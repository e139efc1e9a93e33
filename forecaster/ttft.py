"""TTFT p95 from physics: a fluid queue of prompt tokens against a path of capacity, and noise on top.

The queue is drained at the prefill rate of what serves and filled at the forecast rate; what is left of it at the
horizon, over the rate there, is how long the next prompt waits. On top comes the time its own prefill takes and the
wait from chance alone.

References
----------
L. Kleinrock, "Queueing Systems", vol. 2, 1976, chapter 2: the fluid approximation, and heavy traffic, where the wait
of a single server is exponential with mean s (1 + c^2) / (2 (1 - rho)).
"""

from dataclasses import dataclass
from itertools import pairwise
from math import isnan, log, nan

from forecaster.capacity import ReplicaCapacity
from forecaster.forecast import HEADLINE_HORIZON_SECONDS
from forecaster.telemetry import FleetState

LONGEST_TTFT_SECONDS = 3600.0  # a queue that nothing drains: said as an hour, never as infinity
BASE_STEP_SECONDS = 0.05  # the step that is running when a request arrives, and its first output token
P95_OVER_MEAN = 3.0  # of exponential prompt lengths and waits: -ln 0.05
HIGHEST_UTILISATION_RATIO = 0.98  # beyond it the fluid queue tells, not the stationary one


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPath:
    """How many replicas serve from now on.

    Attributes
    ----------
    serving_replicas : float
        Now.
    arrivals : tuple of (seconds from now, replicas)
        Replicas that begin to serve, soonest first.
    """

    serving_replicas: float
    arrivals: tuple[tuple[float, float], ...] = ()

    def serving_at(self, seconds: float) -> float:
        """Return how many replicas serve at a time from now."""
        return self.serving_replicas + sum(replicas for at, replicas in self.arrivals if at <= seconds)


def planned_path(fleet: FleetState, *, serving_replicas: int, supply_replicas: int) -> CapacityPath:
    """Return what will serve under a plan: promotions after their lead, then what starts, then what is ordered.

    What becomes ready serves only up to the planned number; a planned demotion is immediate.
    """
    wanted = serving_replicas
    serving = min(fleet.serving_replicas, wanted)
    arrivals: list[tuple[float, float]] = []
    missing = wanted - serving
    ordered = max(supply_replicas - fleet.supply_replicas, 0)
    sources = [
        (fleet.time_to_promote_seconds, fleet.promoting_replicas + fleet.warm_replicas),
        *((seconds, 1) for seconds in fleet.starting_ready_in_seconds),
        (fleet.time_to_ready_seconds, ordered),
    ]
    for seconds, replicas in sorted(sources):
        taken = min(replicas, missing)
        if taken > 0:
            arrivals.append((max(seconds, 0.0), float(taken)))
            missing -= taken
    return CapacityPath(serving_replicas=float(serving), arrivals=tuple(arrivals))


def queued_tokens_after(
    path: CapacityPath,
    capacity: ReplicaCapacity,
    *,
    queued_tokens: float,
    arriving_tokens_per_second: float,
    seconds: float,
) -> float:
    """Return the prompt tokens that still wait after some time, of those that wait now and those that arrive.

    Between changes of capacity the fluid queue is linear and stops at 0.
    """
    times = sorted({min(at, seconds) for at, _ in path.arrivals} | {0.0, seconds})
    queue = queued_tokens
    for start, end in pairwise(times):
        net = arriving_tokens_per_second - path.serving_at(start) * capacity.prefill_tokens_per_second
        queue = max(queue + net * (end - start), 0.0)
    return queue


def wait_p95_seconds(utilisation_ratio: float, *, service_seconds: float, servers: float, variability: float) -> float:
    """Return the 0.95 quantile of the wait that chance alone makes.

    Heavy traffic: P(W > x) = rho exp(-2 (1 - rho) x / ((1 + c^2) s)); the work of one queue is shared by all servers.

    Parameters
    ----------
    utilisation_ratio : float
        rho; above `HIGHEST_UTILISATION_RATIO` it is taken as that.
    service_seconds : float
        s, the mean time of one request at one server.
    variability : float
        c^2, the squared coefficient of variation of the service time: 0 is M/D/1, 1 is M/M/1.

    Examples
    --------
    >>> wait_p95_seconds(0.04, service_seconds=0.1, servers=1, variability=1.0)
    0.0
    >>> round(wait_p95_seconds(0.8, service_seconds=0.1, servers=1, variability=1.0), 3)
    1.386
    """
    rho = min(utilisation_ratio, HIGHEST_UTILISATION_RATIO)
    if rho <= 0.05 or servers <= 0:
        return 0.0
    return service_seconds * (1 + variability) / 2 / (1 - rho) * log(rho / 0.05) / servers


def ttft_p95_seconds(
    path: CapacityPath,
    capacity: ReplicaCapacity,
    *,
    queued_tokens: float,
    arriving_tokens_per_second: float,
    prompt_tokens: float,
    horizon_seconds: float = HEADLINE_HORIZON_SECONDS,
    variability: float = 1.0,
) -> float:
    """Return the TTFT p95 of requests that arrive at the horizon; NaN if the queue or the arrivals are unknown.

    More capacity, sooner, never raises it; more queue, more arrivals or longer prompts never lower it.

    Parameters
    ----------
    path : CapacityPath
    queued_tokens : float
        Prompt tokens that wait now.
    arriving_tokens_per_second : float
        Offered prompt tokens from now to the horizon, as far as they are admitted.
    prompt_tokens : float
        Mean prompt; NaN if unknown, then its own prefill is left out.
    """
    if isnan(queued_tokens) or isnan(arriving_tokens_per_second):
        return nan
    servers = path.serving_at(horizon_seconds)
    if servers <= 0:
        idle = queued_tokens <= 0 and arriving_tokens_per_second <= 0
        return BASE_STEP_SECONDS if idle else LONGEST_TTFT_SECONDS
    rate = servers * capacity.prefill_tokens_per_second
    queue = queued_tokens_after(
        path,
        capacity,
        queued_tokens=queued_tokens,
        arriving_tokens_per_second=arriving_tokens_per_second,
        seconds=horizon_seconds,
    )
    service = 0.0 if isnan(prompt_tokens) else prompt_tokens / capacity.prefill_tokens_per_second
    wait = wait_p95_seconds(
        arriving_tokens_per_second / rate, service_seconds=service, servers=servers, variability=variability
    )
    ttft = queue / rate + BASE_STEP_SECONDS + P95_OVER_MEAN * service + wait
    return min(ttft, LONGEST_TTFT_SECONDS)
