"""Admission: what the gateway may let in while demand outruns what serves.

A bucket of prefill tokens, filled at the rate at which the serving replicas prefill and as large as what they prefill
within the TTFT target, keeps the queue of those who are let in within the target; its reserves make the least
important class feel it first. While demand is well below what serves, the bucket stands at all that the fleet can
prefill: the first seconds of a burst that nobody announced meet it before telemetry tells of them.
"""

from math import isnan
from typing import NamedTuple

from forecaster.forecast import DEMAND
from forecaster.plan import ADMIT_ALL, Admission, Reason, ReasonCode
from forecaster.rules.base import Situation, Targets
from forecaster.rules.latency import sheds_lowest_class
from forecaster.rules.load import kv_deficit_ratio, reactive_demand


class Strain(NamedTuple):
    """How near the fleet is to its limit: demand over what serves, and seconds of queued prefill."""

    demand_ratio: float
    backlog_seconds: float


def decide_admission(situation: Situation, targets: Targets) -> tuple[Admission, Reason | None]:
    """Return what the gateway lets in until the next plan, and why it holds back if it does."""
    settings = situation.config.admission
    serving = serving_soon(situation, targets)
    # nothing serves: the gateway holds requests and the first one brings a replica back; refusing them helps nobody
    if not settings.enabled or serving <= 0:
        return ADMIT_ALL, None
    strain = strain_of(situation, serving)
    deficit = kv_deficit_ratio(situation)
    sheds_lowest = sheds_lowest_class(situation)
    rate = serving * situation.config.capacity.prefill_tokens_per_second
    if not (_is_engaged(situation, strain) or deficit > 0 or sheds_lowest):
        return _standing(situation, rate, strain.backlog_seconds), None
    refill, burst = _bucket(situation, rate, strain.backlog_seconds)
    if deficit > 0:
        offered = situation.seen.load.prefill_tokens_per_second
        refill = min(refill, (1.0 - deficit) * offered) if offered > 0 else refill
    admission = Admission(
        prefill_tokens_per_second=refill,
        burst_tokens=burst,
        admitted_ratio_by_priority=admitted_ratios(deficit, sheds_lowest=sheds_lowest),
    )
    message = (
        f"demand is {strain.demand_ratio:.2f} of what serves and {strain.backlog_seconds:.2f} s of prefill wait: up to "
        f"{refill:,.0f} prompt tokens/s are let in"
    )
    if deficit > 0:
        message += f", {deficit:.0%} of the forecast KV blocks will be missing"
    return admission, Reason(code=ReasonCode.SHEDDING, message=message, before=1.0, after=_let_in(situation, refill))


def _standing(situation: Situation, rate: float, backlog_seconds: float) -> Admission:
    """Return the bucket that an unannounced burst meets: it never lets in less than the fleet can prefill.

    It is larger than the bucket of a strained fleet: without a queue less of the target is gone before the prompt, and
    two long prompts at once on a small fleet should both pass. Azure conv on one replica: 98.3 % within the SLO with
    the smaller bucket, 99.5 % with this one.
    """
    settings = situation.config.admission
    if not settings.standing:
        return ADMIT_ALL
    allowed = _ttft_target(situation) - settings.base_step_seconds / 2
    burst = rate * max(allowed - backlog_seconds, settings.min_burst_seconds)
    return Admission(prefill_tokens_per_second=rate, burst_tokens=burst)


def _let_in(situation: Situation, refill: float) -> float:
    """Return the share of the offered prompt tokens that the bucket lets in for long, in tenths; 1 if unknown."""
    offered = situation.seen.load.prefill_tokens_per_second
    return round(min(refill / offered, 1.0), 1) if offered > 0 else 1.0


def serving_soon(situation: Situation, targets: Targets) -> float:
    """Return how many replicas serve until the next plan, those that begin to within it for the part that they do."""
    fleet, tick = situation.fleet, situation.config.plan_interval_seconds
    promoted_in = situation.state.last_promotion_at + fleet.time_to_promote_seconds - situation.now
    coming = fleet.promoting_replicas * _part_of_tick(promoted_in, tick)
    coming += sum(_part_of_tick(ready_in, tick) for ready_in in fleet.starting_ready_in_seconds)
    return min(fleet.serving_replicas + coming, float(targets.serving))


def _part_of_tick(begins_in_seconds: float, tick_seconds: float) -> float:
    return min(max(1.0 - begins_in_seconds / tick_seconds, 0.0), 1.0)


def strain_of(situation: Situation, serving: float) -> Strain:
    """Return the strain on a number of serving replicas; an unknown part strains nothing."""
    demands = [reactive_demand(situation)]
    if situation.forecast is not None and DEMAND in situation.forecast.values:
        horizon = situation.promotion_horizon_seconds
        demands.append(situation.forecast.quantile(DEMAND, horizon_seconds=horizon, level=0.5))
    demand = max((value for value in demands if not isnan(value)), default=0.0)
    waiting = situation.seen.load.waiting_prompt_tokens
    rate = serving * situation.config.capacity.prefill_tokens_per_second
    return Strain(demand / serving, 0.0 if isnan(waiting) else waiting / rate)


def _is_engaged(situation: Situation, strain: Strain) -> bool:
    settings = situation.config.admission
    backlog_limit = settings.engage_backlog_ratio * _ttft_target(situation)
    if situation.state.shedding:
        return strain.demand_ratio > settings.release_ratio or strain.backlog_seconds > backlog_limit / 2
    return strain.demand_ratio > settings.engage_ratio or strain.backlog_seconds > backlog_limit


def _ttft_target(situation: Situation) -> float:
    """Return the TTFT target of the mean prompt: long ones are given longer, and fill a larger bucket."""
    slo = situation.config.slo
    return slo.ttft_seconds * slo.ttft_scale(situation.seen.prompt_tokens)


def _bucket(situation: Situation, rate: float, backlog_seconds: float) -> tuple[float, float]:
    """Return refill rate and size of the bucket.

    What waits already is taken off: a queue over the target is worked off within `drain_seconds`, for all who are let
    in behind it would miss the target too.
    """
    settings = situation.config.admission
    allowed = max(_ttft_target(situation) - settings.base_step_seconds, settings.min_burst_seconds)
    excess = max(backlog_seconds - allowed, 0.0)
    refill = rate * settings.utilisation_ratio * max(1.0 - excess / settings.drain_seconds, 0.0)
    burst = rate * max(allowed - backlog_seconds, settings.min_burst_seconds)
    return refill, burst


def admitted_ratios(deficit_ratio: float, *, sheds_lowest: bool) -> tuple[float, float, float]:
    """Return the share of each class that is let in at all: a deficit takes the lowest first, none is inverted.

    The mix of classes is not known; each is taken for a third of the load.

    Examples
    --------
    >>> admitted_ratios(0.5, sheds_lowest=False)
    (0.0, 0.5, 1.0)
    >>> admitted_ratios(0.0, sheds_lowest=True)
    (0.0, 1.0, 1.0)
    """
    batch, normal, core = (min(max(1.0 - (3.0 * deficit_ratio - above), 0.0), 1.0) for above in (0.0, 1.0, 2.0))
    return (0.0 if sheds_lowest else batch), normal, core
