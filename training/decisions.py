"""What a run's plans decided and why: every change of target once, and every reason for as long as it was repeated."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isnan

from forecaster.plan import CapacityPlan, Reason, ReasonCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One reason for as long as consecutive plans repeated it.

    Attributes
    ----------
    first_at, last_at : float, seconds
        When the first and the last of these plans were made.
    num_plans : int
    code : ReasonCode
    message : str
        Of the first plan.
    before, after : float
        What the rule was given and what it made of it.
    """

    first_at: float
    last_at: float
    num_plans: int
    code: ReasonCode
    message: str
    before: float
    after: float

    @property
    def is_change(self) -> bool:
        """Whether the rule moved a target; what is not known did not move."""
        return self.before != self.after and not (isnan(self.before) and isnan(self.after))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A plan whose targets, or whose admission, differ from those of the plan before.

    Attributes
    ----------
    at : float, seconds
    before, after : str
        Replicas as serving + reserve ("5+1"), or what admission does ("admits all", "sheds").
    code : ReasonCode or None
        Of the rule that had the last word; None if the plan gives no reason.
    why : str
        Its sentence.
    """

    at: float
    before: str
    after: str
    code: ReasonCode | None
    why: str


_Key = tuple[ReasonCode, str, str]


class DecisionLog:
    """Collects decisions and changes from plans in the order in which they were made.

    Two reasons are the same if code, before and after are; the figures in a sentence change from tick to tick.

    Parameters
    ----------
    initial_replicas : int, optional
        What served before the first plan; by default the first plan changes nothing.

    Attributes
    ----------
    decisions : list of Decision
        By the time of their first plan.
    changes : list of Change
    """

    def __init__(self, initial_replicas: int | None = None) -> None:
        self.decisions: list[Decision] = []
        self.changes: list[Change] = []
        self._running: dict[_Key, int] = {}
        self._targets = None if initial_replicas is None else (initial_replicas, initial_replicas)
        self._sheds = False

    def add(self, plan: CapacityPlan) -> None:
        """Take in the next plan."""
        self._add_changes(plan)
        running: dict[_Key, int] = {}
        for reason in plan.reasons:
            # written out: an unknown amount is not equal to itself
            key = (reason.code, f"{reason.before:g}", f"{reason.after:g}")
            if key not in running:
                running[key] = self._continued(key, reason, plan.planned_at)
        self._running = running

    def _continued(self, key: _Key, reason: Reason, planned_at: float) -> int:
        index = self._running.get(key)
        if index is None:
            self.decisions.append(
                Decision(
                    first_at=planned_at,
                    last_at=planned_at,
                    num_plans=1,
                    code=reason.code,
                    message=reason.message,
                    before=reason.before,
                    after=reason.after,
                )
            )
            return len(self.decisions) - 1
        known = self.decisions[index]
        self.decisions[index] = replace(known, last_at=planned_at, num_plans=known.num_plans + 1)
        return index

    def _add_changes(self, plan: CapacityPlan) -> None:
        targets = (plan.serving_replicas, plan.supply_replicas)
        if self._targets is not None and targets != self._targets:
            reason = _decisive_reason(plan, is_serving=targets[0] != self._targets[0])
            self._append(plan, _in_words(*self._targets), _in_words(*targets), reason)
        self._targets = targets
        reason = _reason_of(plan, ReasonCode.SHEDDING)
        sheds = reason is not None
        if sheds != self._sheds:
            states = ("admits all", "sheds") if sheds else ("sheds", "admits all")
            self._append(plan, *states, reason)
        self._sheds = sheds

    def _append(self, plan: CapacityPlan, before: str, after: str, reason: Reason | None) -> None:
        self.changes.append(
            Change(
                at=plan.planned_at,
                before=before,
                after=after,
                code=reason.code if reason else None,
                why=reason.message if reason else "",
            )
        )


def _in_words(serving: int, supply: int) -> str:
    return f"{serving}+{supply - serving}"


def _decisive_reason(plan: CapacityPlan, *, is_serving: bool) -> Reason | None:
    """Return the last reason that arrived at the plan's target, else the last one that moved anything."""
    target = plan.serving_replicas if is_serving else plan.supply_replicas
    moved = [r for r in plan.reasons if r.before != r.after and r.code != ReasonCode.SHEDDING]
    arrived = [r for r in moved if r.after == target and not (is_serving and r.code == ReasonCode.SIZED_SUPPLY)]
    return next(reversed(arrived or moved), None)


def _reason_of(plan: CapacityPlan, code: ReasonCode) -> Reason | None:
    return next((reason for reason in plan.reasons if reason.code == code), None)


def decision_log(plans: Iterable[CapacityPlan], *, initial_replicas: int | None = None) -> DecisionLog:
    """Return the decisions and changes of a whole run."""
    log = DecisionLog(initial_replicas)
    for plan in plans:
        log.add(plan)
    return log
