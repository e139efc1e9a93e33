"""Rules on what may be asked for: GPUs that cannot be had, steps a tick, bounds and budget."""

from forecaster.plan import ReasonCode
from forecaster.rules.base import Situation, Targets, Verdict, changed
from forecaster.rules.latency import is_urgent


def capacity_limited(situation: Situation, targets: Targets) -> Verdict:
    """Return no more than exists and is pending, while pods are pending because no GPU can be had.

    What is pending is no supply, and no more is ordered. Once less is wanted than exists, the pending ones go first
    and at once: nobody loses by it.
    """
    fleet = situation.fleet
    if fleet.unschedulable_replicas == 0:
        return Verdict(targets)
    wanted = situation.state.targets[-1][2] if situation.state.targets else targets.supply
    most = min(fleet.supply_replicas + fleet.unschedulable_replicas, max(wanted, fleet.supply_replicas))
    after = Targets(min(targets.serving, most), min(targets.supply, most))
    if after == targets:
        return Verdict(targets)
    message = f"{fleet.unschedulable_replicas} replicas are pending for want of GPUs: no more than {most} are asked for"
    return changed(ReasonCode.CAPACITY_LIMITED, message, before=targets, after=after)


def step_limit(situation: Situation, targets: Targets) -> Verdict:
    """Return targets within one step of what is there; promoting what is loaded is no step.

    Where the queue is the bottleneck (TTFT climbing steeply for seconds) the step up is not limited.
    """
    config, fleet = situation.config, situation.fleet
    exists = fleet.supply_replicas + fleet.unschedulable_replicas
    supply = max(targets.supply, fleet.supply_replicas - config.max_step_down)
    if not is_urgent(situation):
        # what was asked for before and has gone since may come back at once
        supply = min(supply, max(exists + config.max_step_up, situation.held.supply))
    serving = max(targets.serving, min(fleet.active_replicas - config.max_step_down, supply))
    after = Targets(min(serving, supply), supply)
    if after == targets:
        return Verdict(targets)
    message = (
        f"{fleet.active_replicas} replicas serve and {exists} exist: at most {config.max_step_up} more or "
        f"{config.max_step_down} fewer a tick"
    )
    return changed(ReasonCode.STEP_LIMIT, message, before=targets, after=after)


def bounds(situation: Situation, targets: Targets) -> Verdict:
    """Return targets within min_replicas and what max_replicas and the GPU budget allow; it cannot be disabled."""
    config = situation.config
    least, most = config.min_replicas, config.largest_fleet
    serving = min(max(targets.serving, least), most)
    after = Targets(serving, min(max(targets.supply, serving), most))
    if after == targets:
        return Verdict(targets)
    budget = "" if config.gpu_budget is None else f" within a budget of {config.gpu_budget} GPUs"
    message = f"between {least} and {most} replicas are allowed{budget}"
    return changed(ReasonCode.BOUNDS, message, before=targets, after=after)
