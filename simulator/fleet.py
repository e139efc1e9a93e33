"""A simulated fleet under one policy: the engine, the pods and the telemetry, a tick at a time."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil, floor, inf
from typing import Protocol

import numpy as np

from forecaster.plan import Admission, CapacityPlan
from forecaster.telemetry import FleetState, TelemetryWindow
from simulator.engine import EXPECTED_OUTPUT_TOKENS
from simulator.engine_state import new_state
from simulator.faults import GpuLoss, Happening, PodDeath, RollingUpdate
from simulator.fleet_limits import FleetLimits
from simulator.gateway import ROUTERS, run_until
from simulator.history import WHOLE_FLEET
from simulator.lead_times import lead_time
from simulator.lifecycle import Pods
from simulator.observer import Observer
from simulator.pod_states import DRAINING, PodState
from simulator.profiles import EngineProfile
from simulator.requests import RequestTable
from simulator.result import SimulationResult
from simulator.rollout import begin_rollout, step_rollout
from simulator.run_settings import RunSettings


class Policy(Protocol):
    """Decides how many replicas serve and exist, a tick at a time, from what it is shown."""

    def decide(self, *, now: float, telemetry: TelemetryWindow, fleet: FleetState) -> CapacityPlan:
        """Return the plan for `now`."""
        ...


class Fleet:
    """A fleet in the middle of its run; `simulate` drives it, and so may a live view."""

    def __init__(
        self,
        requests: RequestTable,
        profile: EngineProfile,
        *,
        limits: FleetLimits,
        duration_seconds: float,
        settings: RunSettings,
    ) -> None:
        self.requests = requests
        self.profile = profile
        self.limits = limits
        self.settings = settings
        self.duration_seconds = duration_seconds
        streams = (np.random.default_rng(child) for child in np.random.SeedSequence(settings.seed).spawn(4))
        lead_rng, death_rng, self._victim_rng, self._silence_rng = streams
        faults = settings.faults
        self.pods = Pods(limits, lead_rng, death_rng, pod_mtbf_seconds=faults.pod_mtbf_seconds)
        self._schedule = faults.schedule()
        self.now = 0.0
        self.plans: list[CapacityPlan] = []
        self._observer = Observer(
            faults.scrapes, duration_seconds=duration_seconds, lag_seconds=settings.telemetry_lag_seconds
        )
        self._state = new_state(
            requests,
            profile,
            num_slots=len(self.pods.states),
            num_rows=ceil(duration_seconds) + ceil(settings.drain_seconds) + 1,
            router_code=ROUTERS.index(settings.router),
            options=settings.engine,
            clients=settings.clients,
        )
        self._route_to_serving()

    def advance(self, until: float) -> None:
        """Play the fleet up to `until`: requests, pods becoming ready or empty, and a row of telemetry a second.

        Raises
        ------
        ValueError
            If `until` is after the end of the run.
        """
        if until > self.duration_seconds:
            raise ValueError(f"the run ends at {self.duration_seconds} s, cannot advance to {until} s")
        while self.now < until:
            # what changes the pods has its own times, so that a run is the same in whatever steps it is played
            next_change_at = min(self.pods.next_due_at, self._next_drain_check(), self._next_happening_at())
            pause = min(until, next_change_at)
            run_until(self._state, self.now, pause)
            self._observer.copy_rows(self._state, self.pods)
            self.now = pause
            if pause < next_change_at:
                continue
            while self._next_happening_at() <= pause:
                self._let_happen(self._schedule.pop(0)[1])
            nothing_seen = [False] * len(self.pods.states)
            self._settle(is_empty=self._is_empty() if pause == floor(pause) else nothing_seen)

    def apply(self, plan: CapacityPlan) -> None:
        """Carry out a plan: steer the pods and set the gateway's admission."""
        self.plans.append(plan)
        self.pods.steer(
            serving=plan.serving_replicas,
            supply=plan.supply_replicas,
            now=self.now,
            outstanding=self._outstanding(),
        )
        self._settle(is_empty=self._is_empty())
        self._set_admission(plan.admission)

    def _settle(self, *, is_empty: list[bool]) -> None:
        self.pods.settle(self.now, is_empty=is_empty)
        if self.pods.rollout:
            step_rollout(self.pods, self.now, self._outstanding())
        self._route_to_serving()

    def _next_happening_at(self) -> float:
        return self._schedule[0][0] if self._schedule else inf

    def _let_happen(self, happening: Happening) -> None:
        """Let a fault begin, or end."""
        fault = happening.fault
        if isinstance(fault, PodDeath):
            self._kill(fault.num_pods)
        elif isinstance(fault, GpuLoss):
            self.pods.lost_gpu_replicas += -fault.num_replicas if happening.is_end else fault.num_replicas
            begins = "node_lost" if fault.kills else "gpus_short"
            self._note("gpus_back" if happening.is_end else begins, f"{fault.num_replicas} replicas' GPUs")
            if fault.kills and not happening.is_end:
                self._kill(fault.num_replicas)
        elif isinstance(fault, RollingUpdate):
            begin_rollout(self.pods, fault, self.now)
        else:
            self._note(f"{fault.kind}_{'ended' if happening.is_end else 'started'}")
            if fault.kind == "partial":
                draws = self._silence_rng.random(len(self.pods.states))
                self._state.replica["is_silent"] = (draws >= fault.reporting_ratio) & (not happening.is_end)

    def _kill(self, how_many: int) -> None:
        alive = self.pods.with_gpus()
        for i in sorted(self._victim_rng.permutation(alive)[:how_many].tolist()):
            self.pods.die(i, self.now)

    def _note(self, kind: str, detail: str = "") -> None:
        self.pods.history.note(self.now, kind, WHOLE_FLEET, detail)

    def _set_admission(self, admission: Admission) -> None:
        gateway = self._state.fleet[0]
        if gateway["refill_tokens_per_second"] == inf:  # a bucket that is put in place is full
            gateway["bucket_tokens"] = admission.burst_tokens
        else:  # up to now it has filled at the old rate
            elapsed = self.now - gateway["refilled_at"]
            level = gateway["bucket_tokens"] + elapsed * gateway["refill_tokens_per_second"]
            gateway["bucket_tokens"] = min(level, gateway["burst_tokens"])
        gateway["refilled_at"] = self.now
        gateway["refill_tokens_per_second"] = admission.prefill_tokens_per_second
        gateway["burst_tokens"] = admission.burst_tokens
        gateway["reserve_ratio"] = admission.reserve_ratio_by_priority
        gateway["admitted_ratio"] = admission.admitted_ratio_by_priority

    def telemetry(self) -> TelemetryWindow:
        """Return the rows that have been seen by now, the newest `window_seconds` of them."""
        return self._observer.seen_by(self.now, window_seconds=self.settings.window_seconds)

    def fleet_state(self) -> FleetState:
        """Return the pods there are, as the cluster would list them."""
        pods = self.pods
        serving = pods.count(PodState.SERVING)
        return FleetState(
            serving_replicas=serving,
            warm_replicas=pods.count(PodState.WARM, PodState.DEMOTING),
            promoting_replicas=pods.count(PodState.PROMOTING),
            draining_replicas=pods.count(PodState.REMOVING),
            starting_ready_in_seconds=pods.expected_ready_in_seconds(self.now),
            unschedulable_replicas=pods.count(PodState.PENDING),
            reporting_replicas=self._observer.num_reporting(self._state, serving),
            time_to_ready_seconds=pods.time_to_ready_seconds(),
            time_to_promote_seconds=lead_time(self.limits.promotion_seconds).quantile(0.9),
            rollout_in_progress=pods.rollout is not None,
        )

    def result(self) -> SimulationResult:
        """Return the outcome; what is still running gets `drain_seconds` to finish first, uncosted."""
        run_until(self._state, self.now, self.now + self.settings.drain_seconds)
        record = self._state.request
        num_attempts = record["num_attempts"].astype(np.int32)
        return SimulationResult(
            requests=replace(self.requests, output_tokens=record["output_tokens"].astype(np.int64)),
            profile=self.profile,
            arrival_at=np.where(num_attempts > 0, record["arrival_at"], np.nan),
            first_token_at=record["first_token_at"].copy(),
            finished_at=record["finished_at"].copy(),
            outcome=record["outcome"].copy(),
            served_by=record["served_by"].copy(),
            num_attempts=num_attempts,
            num_preemptions=record["num_preemptions"].copy(),
            telemetry=self._observer.everything(),
            plans=tuple(self.plans),
            replica_seconds=self.pods.replica_seconds(self.now),
            costed_seconds=self.now,
            num_actions=self.pods.num_actions,
            timeline=self.pods.history.timeline(),
            events=self.pods.history.events(),
        )

    def _next_drain_check(self) -> float:
        """Return the next whole second if there are pods that drain, which are looked at then; otherwise inf."""
        return floor(self.now) + 1.0 if self.pods.count(*DRAINING) else inf

    def _is_empty(self) -> list[bool]:
        replica = self._state.replica
        return [bool(held == 0) for held in replica["num_running"] + replica["num_waiting"]]

    def _outstanding(self) -> list[int]:
        replica = self._state.replica
        held = replica["num_running"] + replica["num_waiting"]
        tokens: list[int] = (replica["unprefilled_tokens"] + EXPECTED_OUTPUT_TOKENS * held).tolist()
        return tokens

    def _route_to_serving(self) -> None:
        self._state.replica["routable"] = [state == PodState.SERVING for state in self.pods.states]
        self._state.replica["is_dead"][list(self.pods.forgotten)] = 1
        self.pods.forgotten.clear()
        run_until(self._state, self.now, self.now)


def ticks(fleet: Fleet, policy: Policy) -> Iterator[CapacityPlan]:
    """Play a fleet to its end under a policy, yielding each plan as it is made and applied."""
    while fleet.now < fleet.duration_seconds:
        plan = policy.decide(now=fleet.now, telemetry=fleet.telemetry(), fleet=fleet.fleet_state())
        fleet.apply(plan)
        yield plan
        fleet.advance(min(fleet.now + fleet.settings.plan_interval_seconds, fleet.duration_seconds))


def simulate(
    requests: RequestTable,
    profile: EngineProfile,
    *,
    policy: Policy,
    duration_seconds: float | None = None,
    limits: FleetLimits | None = None,
    settings: RunSettings | None = None,
    on_tick: Callable[[Fleet], None] | None = None,
) -> SimulationResult:
    """Return the outcome of `requests` on a fleet of `profile` replicas under `policy`.

    Parameters
    ----------
    duration_seconds : float, optional
        Length of the costed run; by default up to the last arrival, rounded up to a second.
    on_tick : callable, optional
        Called after each plan, for progress.

    Raises
    ------
    ValueError
        If a request can never be served, or the fleet is impossible.
    """
    settings = settings or RunSettings()
    if duration_seconds is None:
        last = requests.arrival_seconds[-1] if requests.num_requests else 0.0
        duration_seconds = float(ceil(last))
    fleet = Fleet(
        requests,
        profile,
        limits=limits or FleetLimits(),
        duration_seconds=duration_seconds,
        settings=settings,
    )
    for _ in ticks(fleet, policy):
        if on_tick:
            on_tick(fleet)
    return fleet.result()
