"""What every rule is given and gives back."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from forecaster.config import PlannerConfig
from forecaster.forecast import QuantileForecast
from forecaster.observation import Observation
from forecaster.plan import PlanState, Reason, ReasonCode
from forecaster.telemetry import FleetState


class Targets(NamedTuple):
    """Replicas that should serve, and replicas that should exist."""

    serving: int
    supply: int

    def raised_to(self, *, serving: int = 0, supply: int = 0) -> "Targets":
        """Return targets no lower than these; what should serve must exist."""
        more_serving = max(self.serving, serving)
        return Targets(more_serving, max(self.supply, supply, more_serving))


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What rules may depend on.

    Attributes
    ----------
    now : float, POSIX seconds
    config : PlannerConfig
    fleet : FleetState
    seen : Observation
    forecast : QuantileForecast or None
    held : Targets
        What the last plan asked for; at the first tick, what is there.
    state : PlanState
        Brought up to `now`; once targets are to be stabilised, the newest of `state.targets` are the wanted ones.
    """

    now: float
    config: PlannerConfig
    fleet: FleetState
    seen: Observation
    forecast: QuantileForecast | None
    held: Targets
    state: PlanState

    @property
    def promotion_horizon_seconds(self) -> float:
        """How far ahead a promotion must look: its lead and a tick."""
        return self.fleet.time_to_promote_seconds + self.config.plan_interval_seconds

    def serving_within(self, seconds: float) -> int:
        """Return how many replicas serve in a while without a further promotion: what starts serves when ready."""
        starting = sum(ready_in <= seconds for ready_in in self.fleet.starting_ready_in_seconds)
        return self.fleet.active_replicas + starting


class Verdict(NamedTuple):
    """What a rule makes of the targets, and why if it changed or held anything."""

    value: Targets
    reason: Reason | None = None


class Rule(Protocol):
    """One guardrail: a pure function of the situation and the targets so far."""

    def __call__(self, situation: Situation, targets: Targets, /) -> Verdict:
        """Return the rule's targets and its reason."""
        ...


def changed(code: ReasonCode, message: str, *, before: Targets, after: Targets) -> Verdict:
    """Return a verdict whose reason tells of serving replicas if they changed, else of supply."""
    if before.serving != after.serving:
        return Verdict(after, Reason(code=code, message=message, before=before.serving, after=after.serving))
    return Verdict(after, Reason(code=code, message=message, before=before.supply, after=after.supply))
