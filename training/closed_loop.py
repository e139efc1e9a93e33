"""Closed loops: the same requests on the same kind of fleet under one policy after another, or side by side."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from forecaster.capacity import ReplicaCapacity
from forecaster.config import PlannerConfig
from simulator.fleet import Fleet, Policy, simulate, ticks
from simulator.fleet_limits import FleetLimits
from simulator.profiles import TYPICAL_CONTEXT_TOKENS, TYPICAL_NUM_DECODES, EngineProfile
from simulator.requests import RequestTable
from simulator.result import SimulationResult
from simulator.run_settings import RunSettings
from training.policies import initial_replicas, policy_named
from training.scorecard import Scorecard, score

INITIAL_SPAN_SECONDS = 60.0
# Room for noise above the mean demand, so that no side starts overwhelmed and none starts with a reserve for a burst.
INITIAL_HEADROOM = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoopRun:
    """What is played: everything that two people need in common to get the same figures.

    Attributes
    ----------
    name : str
        Of the scenario or the trace.
    requests : RequestTable
        None arrives after `duration_seconds`, none is longer than a replica's KV cache.
    duration_seconds : float
        Length of the costed run.
    profile : EngineProfile
    policies : tuple of str
        By the names of `training.policies`.
    limits : FleetLimits
        `initial_replicas` holds for every policy but static:N.
    settings : RunSettings
    config : PlannerConfig
        Of Foreshock's planner; the SLO and the warm cost also score every policy.
    seed : int
        What a generated scenario was drawn with.
    """

    name: str
    requests: RequestTable
    duration_seconds: float
    profile: EngineProfile
    policies: tuple[str, ...]
    limits: FleetLimits
    settings: RunSettings
    config: PlannerConfig
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedPolicy:
    """One policy's part in a closed loop: its figures and everything that they were taken from."""

    scorecard: Scorecard
    result: SimulationResult


MakePolicy = Callable[[str, PlannerConfig], Policy]


def closed_loop_run(
    name: str,
    requests: RequestTable,
    *,
    profile: EngineProfile,
    policies: tuple[str, ...],
    duration_seconds: float | None = None,
    initial: int | None = None,
    limits: FleetLimits | None = None,
    settings: RunSettings | None = None,
    warm_cost_ratio: float | None = None,
    seed: int = 0,
) -> ClosedLoopRun:
    """Return a run whose planner knows the profile's capacity, lead times and limits.

    Parameters
    ----------
    duration_seconds : float, optional
        By default up to the last arrival, rounded up to a second; later requests are left out.
    initial : int, optional
        Replicas that serve at the start, by default `sensible_initial_replicas`.
    limits : FleetLimits, optional
        Its `initial_replicas` is replaced.
    warm_cost_ratio : float, optional
        By default the planner's own.

    Raises
    ------
    ValueError
        If a policy is unknown, or there is no request in the run.
    ConfigError
        If a number is impossible.
    """
    limits = limits or FleetLimits()
    settings = settings or RunSettings()
    if duration_seconds is None:
        duration_seconds = float(ceil(requests.arrival_seconds[-1])) if requests.num_requests else 0.0
    requests = selected(requests, requests.arrival_seconds <= duration_seconds)
    if requests.num_requests == 0:
        raise ValueError(f"{name}: no request arrives in the first {duration_seconds:g} s; nothing to play")
    if initial is None:
        initial = min(sensible_initial_replicas(requests, profile), limits.max_replicas)
    config = PlannerConfig(
        capacity=profile.capacity,
        gpus_per_replica=profile.gpus_per_replica,
        max_replicas=limits.max_replicas,
        max_step_up=limits.max_replicas,
        plan_interval_seconds=settings.plan_interval_seconds,
    )
    if warm_cost_ratio is not None:
        config = replace(config, warm_cost_ratio=warm_cost_ratio)
    return ClosedLoopRun(
        name=name,
        requests=requests,
        duration_seconds=duration_seconds,
        profile=profile,
        policies=policies,
        limits=replace(limits, initial_replicas=initial),
        settings=settings,
        config=config,
        seed=seed,
    )


def servable_requests(requests: RequestTable, profile: EngineProfile) -> tuple[RequestTable, int]:
    """Return the requests that fit into one replica's KV cache, and how many do not."""
    fits = requests.prompt_tokens + requests.output_tokens <= profile.kv_blocks * profile.block_size_tokens
    return selected(requests, fits), int((~fits).sum())


def selected(requests: RequestTable, mask: NDArray[np.bool_]) -> RequestTable:
    """Return the requests at which `mask`, of shape (n,), is true."""
    return requests.take(np.flatnonzero(mask))


def sensible_initial_replicas(requests: RequestTable, profile: EngineProfile) -> int:
    """Return the mean demand D of the first minute times 1.3, rounded up, at least 1.

    B is by Little's law: requests per second x the time that an answer takes at a typical batch x the blocks that it
    holds on average (its prompt and half of its answer).
    """
    first = requests.arrival_seconds < INITIAL_SPAN_SECONDS
    if not first.any():
        return 1
    prompt, output = requests.prompt_tokens[first], requests.output_tokens[first]
    capacity: ReplicaCapacity = profile.capacity
    step_seconds = profile.step_time.seconds(
        num_decodes=TYPICAL_NUM_DECODES, mean_context_tokens=TYPICAL_CONTEXT_TOKENS
    )
    block_seconds = (prompt + output / 2) / capacity.block_size_tokens * output * step_seconds
    demand = capacity.demand_replicas(
        kv_blocks=np.asarray(block_seconds.sum() / INITIAL_SPAN_SECONDS),
        prefill_tokens_per_second=np.asarray(prompt.sum() / INITIAL_SPAN_SECONDS),
        decode_tokens_per_second=np.asarray(output.sum() / INITIAL_SPAN_SECONDS),
    )
    return max(ceil(float(demand) * INITIAL_HEADROOM), 1)


def play(
    run: ClosedLoopRun,
    policy_name: str,
    *,
    on_tick: Callable[[Fleet], None] | None = None,
    make_policy: MakePolicy = policy_named,
) -> SimulationResult:
    """Return the outcome of a run under one policy.

    Raises
    ------
    ValueError
        If there is no such policy.
    """
    return simulate(
        run.requests,
        run.profile,
        policy=make_policy(policy_name, run.config),
        duration_seconds=run.duration_seconds,
        limits=_limits(run, policy_name),
        settings=run.settings,
        on_tick=on_tick,
    )


def compare(
    run: ClosedLoopRun,
    *,
    on_tick: Callable[[str, Fleet], None] | None = None,
    make_policy: MakePolicy = policy_named,
) -> tuple[PlayedPolicy, ...]:
    """Return every policy of a run, played one after the other, in the run's order.

    Raises
    ------
    ValueError
        If a policy is unknown; before anything is played.
    """
    for name in run.policies:
        make_policy(name, run.config)
    played = []
    for name in run.policies:
        tick = (lambda fleet, name=name: on_tick(name, fleet)) if on_tick else None
        played.append(_scored(run, name, play(run, name, on_tick=tick, make_policy=make_policy)))
    return tuple(played)


class Lockstep:
    """Every policy of a run side by side, a tick at a time; it may be left at any tick and still be scored.

    Attributes
    ----------
    run : ClosedLoopRun
    fleets : dict of policy name to Fleet
    """

    def __init__(self, run: ClosedLoopRun, *, make_policy: MakePolicy = policy_named) -> None:
        self.run = run
        self.fleets = {
            name: Fleet(
                run.requests,
                run.profile,
                limits=_limits(run, name),
                duration_seconds=run.duration_seconds,
                settings=run.settings,
            )
            for name in run.policies
        }
        self._ticks = [ticks(fleet, make_policy(name, run.config)) for name, fleet in self.fleets.items()]

    @property
    def reached_seconds(self) -> float:
        """Up to when every fleet has been played."""
        return min(fleet.now for fleet in self.fleets.values())

    def __iter__(self) -> Iterator[float]:
        """Play on, yielding the simulated time in seconds at which all policies have just made a plan."""
        for plans in zip(*self._ticks, strict=True):
            yield plans[0].planned_at

    def played(self) -> tuple[PlayedPolicy, ...]:
        """Return the policies' figures over the requests that have arrived; this ends the run."""
        reached = self.reached_seconds
        results = {name: fleet.result() for name, fleet in self.fleets.items()}
        if reached < self.run.duration_seconds:
            results = {name: _arrived_by(result, reached) for name, result in results.items()}
        return tuple(_scored(self.run, name, result) for name, result in results.items())


def _limits(run: ClosedLoopRun, policy_name: str) -> FleetLimits:
    return replace(run.limits, initial_replicas=initial_replicas(policy_name, run.limits.initial_replicas))


def _scored(run: ClosedLoopRun, policy_name: str, result: SimulationResult) -> PlayedPolicy:
    card = score(result, policy=policy_name, slo=run.config.slo, warm_cost_ratio=run.config.warm_cost_ratio)
    return PlayedPolicy(scorecard=card, result=result)


def _arrived_by(result: SimulationResult, reached_seconds: float) -> SimulationResult:
    """Return a result without the requests that had not arrived at `reached_seconds`."""
    with np.errstate(invalid="ignore"):
        arrived = result.arrival_at <= reached_seconds
    columns = ("arrival_at", "first_token_at", "finished_at", "outcome", "served_by", "num_attempts", "num_preemptions")
    kept = {name: getattr(result, name)[arrived] for name in columns}
    return replace(result, requests=selected(result.requests, arrived), **kept)
