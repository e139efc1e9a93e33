"""Rules on what arrives and what it needs: token floor, token influx, KV exhaustion, the reactive floor."""

from math import isnan

from forecaster.forecast import KV_BLOCKS
from forecaster.plan import ReasonCode
from forecaster.rules.base import Situation, Targets, Verdict, changed
from forecaster.rules.latency import is_urgent
from forecaster.sizing import whole_replicas


def token_floor(situation: Situation, targets: Targets) -> Verdict:
    """Return at least the prompt tokens per second of the last rows over what a replica prefills within its SLO."""
    rate = situation.seen.recent_prompt_tokens / situation.config.rules.influx_seconds
    if isnan(rate):
        return Verdict(targets)
    per_replica = situation.config.capacity.usable_prefill_tokens_per_second
    after = targets.raised_to(serving=whole_replicas(rate / per_replica))
    if after == targets:
        return Verdict(targets)
    message = (
        f"{rate:,.0f} prompt tokens/s arrive and a replica prefills {per_replica:,.0f} tokens/s within its SLO: "
        f"{after.serving} replicas to serve"
    )
    return changed(ReasonCode.TOKEN_FLOOR, message, before=targets, after=after)


def token_influx(situation: Situation, targets: Targets) -> Verdict:
    """Return enough replicas for the blocks that the prompts of the last seconds will need, over what is free.

    Where requests stay for less than that, their prompts are never held all at once: 10 s of prompts of answers that
    take 2 s need a fifth of their blocks.
    """
    seen, capacity = situation.seen, situation.config.capacity
    seconds = situation.config.rules.influx_seconds
    stay = seconds if isnan(seen.residence_seconds) else min(seen.residence_seconds, seconds)
    influx_blocks = seen.recent_prompt_tokens * stay / seconds / capacity.block_size_tokens
    serving = situation.serving_within(seconds)
    free_blocks = serving * capacity.usable_kv_blocks - seen.load.kv_blocks_used
    missing_blocks = influx_blocks - max(free_blocks, 0.0)
    if not missing_blocks > 0:
        return Verdict(targets)
    after = targets.raised_to(serving=serving + whole_replicas(missing_blocks / capacity.usable_kv_blocks))
    if after == targets:
        return Verdict(targets)
    message = (
        f"prompts of the last {seconds:g} s will need {influx_blocks:,.0f} KV blocks and {max(free_blocks, 0):,.0f} "
        f"are free or coming: {after.serving} replicas to serve"
    )
    return changed(ReasonCode.TOKEN_INFLUX, message, before=targets, after=after)


def kv_exhaustion(situation: Situation, targets: Targets) -> Verdict:
    """Return enough replicas for the forecast KV blocks where those that come would run out of blocks."""
    forecast, capacity = situation.forecast, situation.config.capacity
    if forecast is None or KV_BLOCKS not in forecast.values:
        return Verdict(targets)
    horizon = situation.promotion_horizon_seconds
    level = situation.config.rules.exhaustion_level
    blocks = forecast.quantile(KV_BLOCKS, horizon_seconds=horizon, level=level)
    holds = situation.serving_within(horizon) * capacity.kv_blocks
    if blocks <= holds:
        return Verdict(targets)
    after = targets.raised_to(serving=whole_replicas(blocks / capacity.usable_kv_blocks))
    if after == targets:
        return Verdict(targets)
    message = (
        f"{blocks:,.0f} KV blocks are forecast within {horizon:g} s (level {level:g}) and what will serve holds "
        f"{holds:,.0f}: {after.serving} replicas to serve"
    )
    return changed(ReasonCode.KV_EXHAUSTION, message, before=targets, after=after)


def kv_deficit_ratio(situation: Situation) -> float:
    """Return the share of the forecast KV blocks that even the whole pool will not hold, 0 if it will.

    Read at the median: load is refused only for a deficit that is more likely than not.
    """
    forecast, fleet = situation.forecast, situation.fleet
    if forecast is None or KV_BLOCKS not in forecast.values or "kv_exhaustion" in situation.config.rules.disabled:
        return 0.0
    horizon = situation.promotion_horizon_seconds
    blocks = forecast.quantile(KV_BLOCKS, horizon_seconds=horizon, level=0.5)
    holds = (situation.serving_within(horizon) + fleet.warm_replicas) * situation.config.capacity.kv_blocks
    return 1.0 - holds / blocks if blocks > holds else 0.0


def is_burst(situation: Situation) -> bool:
    """Return whether demand now outruns what serves or is about to."""
    return reactive_demand(situation) > situation.fleet.active_replicas * situation.config.rules.burst_ratio


def reactive_demand(situation: Situation) -> float:
    """Return D now; the newest second alone where it is higher and TTFT says that there is no time for means."""
    demand, newest = situation.seen.demand_replicas, situation.seen.newest_demand_replicas
    if is_urgent(situation) and newest > demand:
        return newest
    return demand


def reactive_floor(situation: Situation, targets: Targets) -> Verdict:
    """Return at least the demand measured now, whatever the forecast says."""
    demand = reactive_demand(situation)
    if isnan(demand):
        return Verdict(targets)
    after = targets.raised_to(serving=whole_replicas(demand))
    if after == targets:
        return Verdict(targets)
    message = f"demand is {demand:.1f} replicas now: at least {after.serving} to serve"
    return changed(ReasonCode.REACTIVE_FLOOR, message, before=targets, after=after)


def burst_pool(situation: Situation, targets: Targets) -> Verdict:
    """Return the whole pool to serve while demand outruns what serves; what it lacks is ordered in the same plan.

    It is no part of what is wanted: the promotion sticks for its hold, then what is not needed is given back.
    """
    fleet = situation.fleet
    after = targets.raised_to(serving=fleet.active_replicas + fleet.warm_replicas)
    if after == targets or not is_burst(situation):
        return Verdict(targets)
    message = (
        f"burst: demand is {reactive_demand(situation):.1f} replicas and {fleet.active_replicas} serve or are about "
        f"to: the whole pool of {fleet.warm_replicas} is promoted, {after.supply} replicas are to exist"
    )
    return changed(ReasonCode.BURST, message, before=targets, after=after)
