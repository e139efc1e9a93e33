"""Rules against flapping: what was wanted a short while ago is not given back yet."""

from forecaster.config import PlannerConfig
from forecaster.plan import ReasonCode
from forecaster.rules.base import Situation, Targets, Verdict, changed

TargetHistory = tuple[tuple[float, int, int], ...]


def with_wanted(history: TargetHistory, wanted: Targets, *, now: float, config: PlannerConfig) -> TargetHistory:
    """Return the history with the newest wanted targets.

    What is older than the longest window goes, and so does what later targets reach in both numbers: it can decide
    nothing any more. Two plans of one moment leave the larger of their targets.
    """
    oldest = now - max(config.demotion_window_seconds, config.removal_window_seconds)
    newest = (now, wanted.serving, wanted.supply)
    if history and history[-1][0] == now:
        newest = (now, max(wanted.serving, history[-1][1]), max(wanted.supply, history[-1][2]))
    kept = [
        entry for entry in history if entry[0] >= oldest and (entry[1] > wanted.serving or entry[2] > wanted.supply)
    ]
    if kept and kept[-1][0] == now:
        kept.pop()
    return (*kept, newest)


def rollout(situation: Situation, targets: Targets) -> Verdict:
    """Return no less than was asked for before, while a rolling update replaces pods."""
    if not situation.fleet.rollout_in_progress:
        return Verdict(targets)
    after = targets.raised_to(serving=situation.held.serving, supply=situation.held.supply)
    if after == targets:
        return Verdict(targets)
    message = "a rolling update is in progress: nothing is scaled down"
    return changed(ReasonCode.ROLLOUT_FREEZE, message, before=targets, after=after)


def promotion_hold(situation: Situation, targets: Targets) -> Verdict:
    """Return no fewer serving replicas than before, for a while after a promotion."""
    since = situation.now - situation.state.last_promotion_at
    hold = situation.config.promotion_hold_seconds
    after = targets.raised_to(serving=situation.held.serving)
    if since >= hold or after == targets:
        return Verdict(targets)
    message = f"the last promotion was {since:.0f} s ago and sticks for {hold:g} s"
    return changed(ReasonCode.PROMOTION_HOLD, message, before=targets, after=after)


def demotion_window(situation: Situation, targets: Targets) -> Verdict:
    """Return no fewer serving replicas than the most that were wanted within the demotion window."""
    window = situation.config.demotion_window_seconds
    oldest = situation.now - window
    most = max((entry[1] for entry in situation.state.targets if entry[0] >= oldest), default=0)
    # a floor for what falls: what was never reached is not asked for again
    after = targets.raised_to(serving=min(most, max(situation.held.serving, targets.serving)))
    if after == targets:
        return Verdict(targets)
    message = f"{most} serving replicas were wanted within the last {window:g} s"
    return changed(ReasonCode.DEMOTION_WINDOW, message, before=targets, after=after)


def removal_window(situation: Situation, targets: Targets) -> Verdict:
    """Return no smaller supply than the largest wanted within the removal window.

    Nor a smaller one than before, until a burst has been over for its cooldown and TTFT is back below its target.
    """
    config = situation.config
    window = config.removal_window_seconds
    oldest = situation.now - window
    most = max((entry[2] for entry in situation.state.targets if entry[0] >= oldest), default=0)
    message = f"a supply of {most} replicas was wanted within the last {window:g} s"
    strained = _strained(situation)
    if strained and situation.held.supply > most:
        most, message = situation.held.supply, strained
    after = targets.raised_to(supply=min(most, max(situation.held.supply, targets.supply)))
    if after == targets:
        return Verdict(targets)
    return changed(ReasonCode.REMOVAL_WINDOW, message, before=targets, after=after)


def _strained(situation: Situation) -> str:
    """Return why nothing must be removed yet, or an empty string."""
    config = situation.config
    since_burst = situation.now - situation.state.last_burst_at
    if since_burst < config.burst_cooldown_seconds:
        return f"the last burst was {since_burst:.0f} s ago: nothing is removed for {config.burst_cooldown_seconds:g} s"
    if situation.seen.ttft_seconds > config.slo.ttft_seconds:
        return f"TTFT is {situation.seen.ttft_seconds:.2f} s, over its target: nothing is removed"
    return ""
