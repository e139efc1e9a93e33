"""A simulated fleet under one policy: the engine, the pods and the telemetry, a tick at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil, floor, inf
from typing import Protocol

import numpy as np

from forecaster.plan import Admission, CapacityPlan
from forecaster.telemetry import SIGNAL_INDEX, SIGNALS, FleetState, TelemetryWindow
from simulator.clients import Clients
from simulator.engine import EXPECTED_OUTPUT_TOKENS
from simulator.engine_options import EngineOptions
from simulator.engine_state import ROW_COLUMNS, new_state
from simulator.gateway import ROUTERS, run_until
from simulator.lifecycle import DRAINING, FleetLimits, Pods, PodState
from simulator.profiles import EngineProfile
from simulator.requests import RequestTable
from simulator.result import SimulationResult

_ENGINE_COLUMNS = np.array([SIGNAL_INDEX[name] for name in ROW_COLUMNS])
_FLEET_COLUMNS = np.array(
    [
        SIGNAL_INDEX[name]
        for name in (
            "serving_replicas",
            "warm_replicas",
            "starting_replicas",
            "draining_replicas",
            "desired_replicas",
            "reporting_replicas",
            "unschedulable_replicas",
        )
    ]
)


class Policy(Protocol):
    """Decides how many replicas serve and exist, a tick at a time, from what it is shown."""

    def decide(self, *, now: float, telemetry: TelemetryWindow, fleet: FleetState) -> CapacityPlan:
        """Return the plan for `now`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a run is played.

    Attributes
    ----------
    plan_interval_seconds : float
        Time between ticks.
    telemetry_lag_seconds : float
        A row is seen this long after it ends.
    window_seconds : float
        How much telemetry a policy is shown.
    drain_seconds : float
        Time given to unfinished requests after the last second of the run, at no cost.
    router : str
        One of `simulator.gateway.ROUTERS`.
    engine : EngineOptions
    clients : Clients
    """

    plan_interval_seconds: float = 2.0
    telemetry_lag_seconds: float = 1.0
    window_seconds: float = 300.0
    drain_seconds: float = 90.0
    router: str = ROUTERS[0]
    engine: EngineOptions = field(default_factory=EngineOptions)
    clients: Clients = field(default_factory=Clients)

    def __post_init__(self) -> None:
        if self.router not in ROUTERS:
            raise ValueError(f"no router is called {self.router!r}; known: {', '.join(ROUTERS)}")
        if not self.plan_interval_seconds > 0:
            raise ValueError(f"plan_interval_seconds must be > 0, got {self.plan_interval_seconds}")
        durations = (self.telemetry_lag_seconds, self.window_seconds, self.drain_seconds)
        if not all(seconds >= 0 for seconds in durations):
            raise ValueError(f"telemetry_lag_seconds, window_seconds and drain_seconds must be >= 0, got {durations}")


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
        self.pods = Pods(limits)
        self.now = 0.0
        self.plans: list[CapacityPlan] = []
        num_rows = ceil(duration_seconds)
        self._row_at = np.arange(1, num_rows + 1, dtype=np.float64)
        self._values = np.full((num_rows, len(SIGNALS)), np.nan)
        self._num_rows = 0
        self._state = new_state(
            requests,
            profile,
            num_slots=len(self.pods.states),
            num_rows=num_rows + ceil(settings.drain_seconds) + 1,
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
            pause = min(until, self.pods.next_due_at, self._next_drain_check())
            run_until(self._state, self.now, pause)
            self._copy_rows()
            self.pods.pass_time(pause)
            self.now = pause
            # draining pods are looked at on whole seconds, so that a run is the same in whatever steps it is played
            nothing_seen = [False] * len(self.pods.states)
            self.pods.settle(pause, is_empty=self._is_empty() if pause == floor(pause) else nothing_seen)
            self._route_to_serving()

    def apply(self, plan: CapacityPlan) -> None:
        """Carry out a plan: steer the pods and set the gateway's admission."""
        self.plans.append(plan)
        self.pods.steer(
            serving=plan.serving_replicas,
            supply=plan.supply_replicas,
            now=self.now,
            outstanding=self._outstanding(),
        )
        self.pods.settle(self.now, is_empty=self._is_empty())
        self._route_to_serving()
        self._set_admission(plan.admission)

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
        seen = min(self._num_rows, int(self.now - self.settings.telemetry_lag_seconds))
        last = max(seen, 0)
        first = max(last - int(self.settings.window_seconds), 0)
        row_at = self._row_at[first:last]
        return TelemetryWindow(
            deployment="simulated",
            row_at=row_at,
            values=self._values[first:last],
            seen_at=row_at + self.settings.telemetry_lag_seconds,
        )

    def fleet_state(self) -> FleetState:
        """Return the pods there are, as the cluster would list them."""
        pods = self.pods
        starting = sorted(pods.due_at[i] - self.now for i in pods.in_state(PodState.STARTING))
        serving = pods.count(PodState.SERVING)
        return FleetState(
            serving_replicas=serving,
            warm_replicas=pods.count(PodState.WARM, PodState.DEMOTING),
            promoting_replicas=pods.count(PodState.PROMOTING),
            draining_replicas=pods.count(PodState.REMOVING),
            starting_ready_in_seconds=tuple(max(seconds, 0.0) for seconds in starting),
            reporting_replicas=serving,
            time_to_ready_seconds=self.limits.cold_start_seconds,
            time_to_promote_seconds=self.limits.promotion_seconds,
        )

    def result(self) -> SimulationResult:
        """Return the outcome; what is still running gets `drain_seconds` to finish first, uncosted."""
        costed = dict(self.pods.replica_seconds)
        run_until(self._state, self.now, self.now + self.settings.drain_seconds)
        record = self._state.request
        return SimulationResult(
            requests=self.requests,
            profile=self.profile,
            first_token_at=record["first_token_at"].copy(),
            finished_at=record["finished_at"].copy(),
            outcome=record["outcome"].copy(),
            served_by=record["served_by"].copy(),
            num_preemptions=record["num_preemptions"].copy(),
            telemetry=TelemetryWindow(
                deployment="simulated",
                row_at=self._row_at[: self._num_rows],
                values=self._values[: self._num_rows],
                seen_at=self._row_at[: self._num_rows] + self.settings.telemetry_lag_seconds,
            ),
            plans=tuple(self.plans),
            replica_seconds=costed,
            costed_seconds=self.now,
            num_actions=self.pods.num_actions,
        )

    def _next_drain_check(self) -> float:
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
        run_until(self._state, self.now, self.now)

    def _copy_rows(self) -> None:
        """Copy the rows that the engine has written since the last call, and add the pods, which it does not know."""
        written = min(int(self._state.fleet[0]["next_row"]), self._row_at.size)
        if written == self._num_rows:
            return
        rows = slice(self._num_rows, written)
        self._values[rows, _ENGINE_COLUMNS] = self._state.rows[rows]
        pods = self.pods
        serving = pods.count(PodState.SERVING)
        self._values[rows, _FLEET_COLUMNS] = (
            serving,
            pods.count(PodState.WARM),
            pods.count(PodState.STARTING),
            pods.count(*DRAINING) + pods.count(PodState.PROMOTING),
            pods.wanted_serving,
            serving,
            0,
        )
        self._num_rows = written


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
