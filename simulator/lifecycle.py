"""The life of pods: ordered, starting, serving, promoted and demoted, drained, gone; and what each state costs."""

from dataclasses import dataclass, field
from enum import IntEnum
from math import inf

from forecaster.errors import ConfigError


class PodState(IntEnum):
    """Where a replica slot is in its life."""

    GONE = 0
    STARTING = 1
    WARM = 2
    PROMOTING = 3
    SERVING = 4
    DEMOTING = 5  # not routed to, finishing what it holds, then warm
    REMOVING = 6  # not routed to, finishing what it holds, then gone


DRAINING = (PodState.DEMOTING, PodState.REMOVING)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLimits:
    """How many pods there may be and how long their changes take."""

    initial_replicas: int = 8
    max_replicas: int = 48
    cold_start_seconds: float = 30.0
    promotion_seconds: float = 4.0

    def __post_init__(self) -> None:
        problems = []
        if not 1 <= self.initial_replicas <= self.max_replicas:
            problems.append(
                f"initial_replicas must be in [1, max_replicas={self.max_replicas}], got {self.initial_replicas}"
            )
        if not (self.cold_start_seconds >= 0 and self.promotion_seconds >= 0):
            problems.append(
                f"cold_start_seconds and promotion_seconds must be >= 0, got {self.cold_start_seconds}, "
                f"{self.promotion_seconds}"
            )
        if problems:
            raise ConfigError.from_problems("simulated fleet", problems)


@dataclass(slots=True)
class Pods:
    """The pods of one fleet. It decides which pod changes, never how many should."""

    limits: FleetLimits
    states: list[PodState] = field(init=False)
    due_at: list[float] = field(init=False)
    wanted_serving: int = field(init=False)
    replica_seconds: dict[PodState, float] = field(init=False)
    num_actions: int = 0
    clock_seconds: float = 0.0

    def __post_init__(self) -> None:
        # draining pods may outlive the order of their successors: twice the fleet is room for all of them
        slots = 2 * self.limits.max_replicas
        initial = self.limits.initial_replicas
        self.states = [PodState.SERVING] * initial + [PodState.GONE] * (slots - initial)
        self.due_at = [inf] * slots
        self.wanted_serving = initial
        self.replica_seconds = dict.fromkeys(PodState, 0.0)

    def in_state(self, *states: PodState) -> list[int]:
        """Return the slots that are in one of `states`."""
        return [i for i, state in enumerate(self.states) if state in states]

    def count(self, *states: PodState) -> int:
        """Return how many pods are in one of `states`."""
        return sum(self.states.count(state) for state in states)

    @property
    def next_due_at(self) -> float:
        """When the next pod becomes ready or promoted, inf if none is on its way."""
        return min(self.due_at)

    def pass_time(self, now: float) -> None:
        """Charge every pod for the time up to `now`."""
        elapsed = now - self.clock_seconds
        for state in PodState:
            self.replica_seconds[state] += elapsed * self.states.count(state)
        self.clock_seconds = now

    def settle(self, now: float, *, is_empty: list[bool]) -> None:
        """Make the changes that are due at `now`: pods become ready or promoted, empty draining ones warm or gone."""
        for i, state in enumerate(self.states):
            if self.due_at[i] <= now:
                self.due_at[i] = inf
                self._become_ready(i, state)
            elif state in DRAINING and is_empty[i]:
                self.states[i] = PodState.WARM if state == PodState.DEMOTING else PodState.GONE

    def _become_ready(self, i: int, state: PodState) -> None:
        # a pod that becomes ready serves, unless enough do already: then it is surplus and stands by
        surplus = state == PodState.STARTING and self.count(PodState.SERVING, PodState.PROMOTING) >= self.wanted_serving
        self.states[i] = PodState.WARM if surplus else PodState.SERVING

    def steer(self, *, serving: int, supply: int, now: float, outstanding: list[int]) -> None:
        """Move the fleet towards `serving` replicas that serve and `supply` that exist.

        Promote before ordering, demote before removing, the idlest first; what starts is cancelled before anything
        that is loaded is removed.
        """
        supply = min(max(supply, serving), self.limits.max_replicas)
        self.wanted_serving = min(serving, supply)
        self._promote(self.wanted_serving - self.count(PodState.SERVING, PodState.PROMOTING), now)
        self._demote(self.count(PodState.SERVING, PodState.PROMOTING) - self.wanted_serving, outstanding)
        missing = supply - self.num_supply
        self._order(missing, now)
        self._remove(-missing, outstanding)

    @property
    def num_supply(self) -> int:
        """Pods that serve, can be promoted or are coming."""
        return self.count(PodState.STARTING, PodState.WARM, PodState.PROMOTING, PodState.SERVING, PodState.DEMOTING)

    def _change(self, i: int, state: PodState, due_at: float = inf) -> None:
        self.states[i] = state
        self.due_at[i] = due_at
        self.num_actions += 1

    def _promote(self, how_many: int, now: float) -> None:
        loaded = self.in_state(PodState.WARM) + self.in_state(PodState.DEMOTING)
        for i in loaded[: max(how_many, 0)]:
            self._change(i, PodState.PROMOTING, now + self.limits.promotion_seconds)

    def _demote(self, how_many: int, outstanding: list[int]) -> None:
        serving = sorted(self.in_state(PodState.SERVING), key=lambda i: outstanding[i])
        for i in (self.in_state(PodState.PROMOTING) + serving)[: max(how_many, 0)]:
            self._change(i, PodState.DEMOTING)

    def _order(self, how_many: int, now: float) -> None:
        for i in self.in_state(PodState.GONE)[: max(how_many, 0)]:
            self._change(i, PodState.STARTING, now + self.limits.cold_start_seconds)

    def _remove(self, how_many: int, outstanding: list[int]) -> None:
        starting = sorted(self.in_state(PodState.STARTING), key=lambda i: -self.due_at[i])
        draining = sorted(self.in_state(PodState.DEMOTING), key=lambda i: outstanding[i])
        for i in (starting + self.in_state(PodState.WARM) + draining)[: max(how_many, 0)]:
            leaves_work = self.states[i] == PodState.DEMOTING
            self._change(i, PodState.REMOVING if leaves_work else PodState.GONE)
