"""Rules on what is known: on late, partial or just returned telemetry nothing is scaled down."""

from forecaster.config import RuleSettings
from forecaster.observation import Observation
from forecaster.plan import ReasonCode
from forecaster.rules.base import Situation, Targets, Verdict, changed


def is_stale(seen: Observation, rules: RuleSettings, *, step_seconds: float) -> bool:
    """Return whether too little is known to plan at all; rows longer than usual are given three of their own."""
    return not seen.age_seconds <= max(rules.stale_after_seconds, 3 * step_seconds)


def freshness(situation: Situation, targets: Targets) -> Verdict:
    """Return no less than was asked for before, while telemetry is late or has only just come back."""
    rules, seen = situation.config.rules, situation.seen
    late = seen.age_seconds > rules.late_after_seconds
    if not late and seen.num_fresh_rows >= rules.fresh_rows_before_scale_down:
        return Verdict(targets)
    after = targets.raised_to(serving=situation.held.serving, supply=situation.held.supply)
    if after == targets:
        return Verdict(targets)
    if late:
        message = f"the newest known second is {seen.age_seconds:.1f} s old: nothing is scaled down"
        return changed(ReasonCode.STALE_TELEMETRY, message, before=targets, after=after)
    message = (
        f"{seen.num_fresh_rows} of {rules.fresh_rows_before_scale_down} seconds in a row are fully known: "
        "nothing is scaled down"
    )
    return changed(ReasonCode.RECOVERING_TELEMETRY, message, before=targets, after=after)


def coverage(situation: Situation, targets: Targets) -> Verdict:
    """Return no less than was asked for before, while too few replicas report.

    Above that, what the others hold is imputed from those that report (`Observation.load`).
    """
    seen, fleet = situation.seen, situation.fleet
    if seen.coverage_ratio >= situation.config.rules.min_coverage_ratio:
        return Verdict(targets)
    after = targets.raised_to(serving=situation.held.serving, supply=situation.held.supply)
    if after == targets:
        return Verdict(targets)
    message = (
        f"{fleet.reporting_replicas} of {fleet.serving_replicas} serving replicas report: nothing is scaled down below "
        f"{situation.config.rules.min_coverage_ratio:.0%}"
    )
    return changed(ReasonCode.PARTIAL_TELEMETRY, message, before=targets, after=after)
