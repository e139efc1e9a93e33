"""The life of pods: ordered, starting, serving, promoted and demoted, drained, gone; and what each state costs."""

from dataclasses import dataclass, field
from math import inf

from numpy.random import Generator

from simulator.faults import RollingUpdate
from simulator.fleet_limits import FleetLimits
from simulator.history import History
from simulator.lead_times import Duration, lead_time, remaining_seconds
from simulator.pod_states import ACTIVE, DRAINING, EVENT_KINDS, SUPPLY, PodState

# fewer measured start-ups than this say less than what the operator knows of them
MIN_MEASURED = 5


@dataclass(slots=True)
class Pods:
    """The pods of one fleet. It decides which pod changes, never how many should.

    Attributes
    ----------
    states : list of PodState
        By slot; a slot holds one pod after the other.
    due_at : list of float
        When the pod of a slot becomes ready or serves, or is killed while it drains; inf if never.
    dies_at : list of float
        When it fails by chance, inf if never.
    pod_ids : list of int
        Pods are numbered as they are ordered, -1 before the first.
    forgotten : set of int
        Slots that have lost what they held, requests and prefix cache, since somebody last cleared this.
    """

    limits: FleetLimits
    lead_rng: Generator | None = None
    death_rng: Generator | None = None
    pod_mtbf_seconds: float = inf
    states: list[PodState] = field(init=False)
    due_at: list[float] = field(init=False)
    dies_at: list[float] = field(init=False)
    pod_ids: list[int] = field(init=False)
    scheduled_at: list[float] = field(init=False)
    is_old: list[bool] = field(init=False)
    wanted_serving: int = field(init=False)
    wanted_supply: int = field(init=False)
    _spent_seconds: dict[PodState, float] = field(init=False)  # in states that have been left
    _since: list[float] = field(init=False)  # when the slot came into its state
    history: History = field(default_factory=History)
    forgotten: set[int] = field(default_factory=set)
    times_to_ready: list[float] = field(default_factory=list)
    rollout: RollingUpdate | None = None
    lost_gpu_replicas: int = 0
    num_pods: int = 0
    num_actions: int = 0

    def __post_init__(self) -> None:
        # draining pods may outlive the order of their successors: twice the fleet is room for all of them
        slots = 2 * self.limits.max_replicas
        self.states = [PodState.GONE] * slots
        self.due_at = [inf] * slots
        self.dies_at = [inf] * slots
        self.pod_ids = [-1] * slots
        self.scheduled_at = [0.0] * slots
        self.is_old = [False] * slots
        self.wanted_serving = self.wanted_supply = self.limits.initial_replicas
        self._spent_seconds = dict.fromkeys(PodState, 0.0)
        self._since = [0.0] * slots
        for i in range(self.limits.initial_replicas):
            self._new_pod(i)
            self._give_gpus(i, 0.0)
            self._move(i, PodState.SERVING, 0.0)

    def in_state(self, *states: PodState) -> list[int]:
        """Return the slots that are in one of `states`."""
        return [i for i, state in enumerate(self.states) if state in states]

    def count(self, *states: PodState) -> int:
        """Return how many pods are in one of `states`."""
        return sum(self.states.count(state) for state in states)

    @property
    def num_supply(self) -> int:
        """Pods that serve, can be promoted or are coming; pending ones are not."""
        return self.count(*SUPPLY)

    @property
    def next_due_at(self) -> float:
        """When the next pod becomes ready or promoted, or fails; inf if none is on its way."""
        return min(*self.due_at, *self.dies_at)

    @property
    def schedulable_replicas(self) -> float:
        """For how many replicas there are GPUs now, inf if there are always enough."""
        stock = self.limits.gpu_stock_replicas
        # GPUs are lost from a stock; where none was named, what is lost is lost of what the fleet may have at most
        if stock is None:
            return inf if self.lost_gpu_replicas == 0 else self.limits.max_replicas - self.lost_gpu_replicas
        return stock - self.lost_gpu_replicas

    def replica_seconds(self, now: float) -> dict[PodState, float]:
        """Return the time that slots have spent in each state up to `now`."""
        seconds = dict(self._spent_seconds)
        for state, since in zip(self.states, self._since, strict=True):
            seconds[state] += now - since
        return seconds

    def settle(self, now: float, *, is_empty: list[bool]) -> None:
        """Make the changes that are due at `now`.

        Pods fail, become ready or promoted; empty draining ones are warm or gone; what died is ordered anew, as a
        ReplicaSet does; pending ones get GPUs that have become free.
        """
        for i, state in enumerate(self.states):
            if self.dies_at[i] <= now:
                self.die(i, now)
            elif self.due_at[i] <= now:
                self._come_due(i, state, now)
            elif state in DRAINING and is_empty[i]:
                self._finish_draining(i, state, now)
        self.order(self.wanted_supply - self.num_supply - self.count(PodState.PENDING), now)

    def _come_due(self, i: int, state: PodState, now: float) -> None:
        if state == PodState.REMOVING:
            self._move(i, PodState.GONE, now, kind="killed")
            return
        if state == PodState.STARTING:
            self.times_to_ready.append(now - self.scheduled_at[i])
            self.history.note(now, "ready", i)
        # a pod that becomes ready serves, unless enough do already: then it is surplus and stands by
        most = self.wanted_serving + self.surge
        is_surplus = state == PodState.STARTING and self.count(*ACTIVE) >= most
        self._move(i, PodState.WARM if is_surplus else PodState.SERVING, now)

    def _finish_draining(self, i: int, state: PodState, now: float) -> None:
        self._move(i, PodState.WARM if state == PodState.DEMOTING else PodState.GONE, now)

    def die(self, i: int, now: float) -> None:
        """Let the pod in slot `i` die; what it holds fails."""
        self._move(i, PodState.GONE, now, kind="died")

    def with_gpus(self) -> list[int]:
        """Return the slots whose pods are on a node."""
        return [i for i, state in enumerate(self.states) if state not in (PodState.GONE, PodState.PENDING)]

    def steer(self, *, serving: int, supply: int, now: float, outstanding: list[int]) -> None:
        """Move the fleet towards `serving` replicas that serve and `supply` that exist.

        Promote before ordering, demote before removing, the idlest first; what starts is cancelled before anything
        that is loaded is removed. A rolling update's surge is left to it.
        """
        supply = min(max(supply, serving), self.limits.max_replicas)
        self.wanted_serving = min(serving, supply)
        self.wanted_supply = supply
        active = self.count(*ACTIVE)
        self.num_actions += self.promote(self.wanted_serving - active, now)
        self.num_actions += self._demote(active - self.wanted_serving - self.surge, now, outstanding)
        missing = supply - self.num_supply - self.count(PodState.PENDING)
        self.num_actions += self.order(missing, now)
        for i in self.removal_order(outstanding)[: max(-missing - self.surge, 0)]:
            self.remove(i, now)
            self.num_actions += 1

    @property
    def surge(self) -> int:
        """How many pods there may be above what is wanted, for a rolling update."""
        return self.rollout.surge(self.wanted_supply) if self.rollout else 0

    def expected_ready_in_seconds(self, now: float) -> tuple[float, ...]:
        """Return the expected seconds until each starting pod is ready, soonest first, from how long it has been."""
        lead = lead_time(self.limits.cold_start_seconds)
        left = (remaining_seconds(lead, now - self.scheduled_at[i]) for i in self.in_state(PodState.STARTING))
        return tuple(sorted(left))

    def time_to_ready_seconds(self) -> float:
        """Return the 0.9 quantile of the start-ups measured in this run; of what is known beforehand, while few are."""
        if len(self.times_to_ready) < MIN_MEASURED:
            return lead_time(self.limits.cold_start_seconds).quantile(0.9)
        ordered = sorted(self.times_to_ready)
        return ordered[int(0.9 * (len(ordered) - 1) + 0.5)]

    def promote(self, how_many: int, now: float) -> int:
        """Promote up to so many of what is loaded; return how many there were."""
        chosen = (self.in_state(PodState.WARM) + self.in_state(PodState.DEMOTING))[: max(how_many, 0)]
        for i in chosen:
            self._move(i, PodState.PROMOTING, now, due_in_seconds=self._draw(self.limits.promotion_seconds))
        return len(chosen)

    def _demote(self, how_many: int, now: float, outstanding: list[int]) -> int:
        serving = sorted(self.in_state(PodState.SERVING), key=lambda i: outstanding[i])
        chosen = (self.in_state(PodState.PROMOTING) + serving)[: max(how_many, 0)]
        for i in chosen:
            self._move(i, PodState.DEMOTING, now)
        return len(chosen)

    def order(self, how_many: int, now: float) -> int:
        """Order up to so many pods, start those for which there are GPUs, and return how many slots there were."""
        chosen = self.in_state(PodState.GONE)[: max(how_many, 0)]
        for i in chosen:
            self._new_pod(i)
            self.history.note(now, "ordered", i)
            self._move(i, PodState.PENDING, now)
        self._schedule(now)
        return len(chosen)

    def _schedule(self, now: float) -> None:
        """Give pending pods the GPUs that are free, the oldest first."""
        pending = sorted(self.in_state(PodState.PENDING), key=lambda i: self.pod_ids[i])
        if not pending:
            return
        room = self.schedulable_replicas - len(self.with_gpus())
        for rank, i in enumerate(pending):
            if rank < room:
                self._give_gpus(i, now)
                self._move(i, PodState.STARTING, now, due_in_seconds=self._draw(self.limits.cold_start_seconds))
            elif self.scheduled_at[i] < 0:
                self.scheduled_at[i] = inf  # this once
                self.history.note(now, "pending", i, "no GPUs")

    def removal_order(self, outstanding: list[int]) -> list[int]:
        """Return the slots that can be removed, the least loss first; serving ones are not among them."""
        pending = sorted(self.in_state(PodState.PENDING), key=lambda i: -self.pod_ids[i])
        starting = sorted(self.in_state(PodState.STARTING), key=lambda i: -self.scheduled_at[i])
        draining = sorted(self.in_state(PodState.DEMOTING), key=lambda i: outstanding[i])
        return pending + starting + self.in_state(PodState.WARM) + draining

    def remove(self, i: int, now: float) -> None:
        """Remove the pod in slot `i`: at once if it holds nothing, otherwise when it is drained."""
        holds_work = self.states[i] in (PodState.DEMOTING, PodState.SERVING)
        if holds_work:
            self._move(i, PodState.REMOVING, now, due_in_seconds=self.limits.drain_grace_seconds)
        else:
            self._move(i, PodState.GONE, now)

    def _new_pod(self, i: int) -> None:
        self.pod_ids[i] = self.num_pods
        self.num_pods += 1
        self.is_old[i] = False
        self.scheduled_at[i] = -1.0

    def _give_gpus(self, i: int, now: float) -> None:
        self.scheduled_at[i] = now
        if self.pod_mtbf_seconds < inf and self.death_rng is not None:
            self.dies_at[i] = now + self.death_rng.exponential(self.pod_mtbf_seconds)

    def _draw(self, duration: Duration) -> float:
        if isinstance(duration, int | float):
            return float(duration)
        if self.lead_rng is None:
            raise ValueError("lead times are distributions; give Pods a lead_rng to draw from them")
        return duration.draw(self.lead_rng)

    def _move(self, i: int, state: PodState, now: float, *, due_in_seconds: float = inf, kind: str = "") -> None:
        self._spent_seconds[self.states[i]] += now - self._since[i]
        self._since[i] = now
        self.states[i] = state
        self.due_at[i] = now + due_in_seconds
        if state == PodState.GONE:
            self.dies_at[i] = inf
        if state == PodState.GONE or (state == PodState.WARM and self.limits.warm_replicas_sleep):
            self.forgotten.add(i)
        self.history.changes.append((now, i, self.pod_ids[i], int(state)))
        if state != PodState.PENDING:
            self.history.note(now, kind or EVENT_KINDS[state], i)
