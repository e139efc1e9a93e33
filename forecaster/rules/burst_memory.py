"""A slow memory of bursts: how far demand has jumped within a cold lead, kept for a day and over restarts.

Quantiles that adapt forget a burst within the hour; the next one then meets an empty pool. So the peaks of past bursts
over the level before them are kept, and the supply is held at R_q times today's level (DESIGN section 5). A rise that
takes longer than a cold lead is no burst: supply can follow it.
"""

from math import ceil, isnan

from forecaster.config import PlannerConfig
from forecaster.observation import Observation
from forecaster.plan import PlanState, ReasonCode
from forecaster.rules.base import Situation, Targets, Verdict, changed
from forecaster.sizing import whole_replicas

LEAST_RATIO = 1.5  # below it the forecast's upper quantiles do
LEAST_REPLICAS = 1.0  # and at least one more: a service that hardly runs doubles all the time
EPISODE_SECONDS = 60.0  # two peaks closer than this are one burst
MOST_BURSTS = 32

Bursts = tuple[tuple[float, float], ...]


def remembered(state: PlanState, seen: Observation, *, config: PlannerConfig) -> Bursts:
    """Return the bursts of the past day, with the one that is on now."""
    bursts = state.burst_ratios
    if bursts and bursts[0][0] < seen.seen_at - config.burst_memory_seconds:
        bursts = tuple(burst for burst in bursts if burst[0] >= seen.seen_at - config.burst_memory_seconds)
    demand, before = seen.demand_replicas, seen.level_before_replicas
    # unknown compares as no burst
    if not (demand >= LEAST_RATIO * before and demand >= before + LEAST_REPLICAS):
        return bursts
    ratio = demand / max(before, 1.0)
    if bursts and seen.seen_at - bursts[-1][0] <= EPISODE_SECONDS:
        return (*bursts[:-1], (seen.seen_at, max(ratio, bursts[-1][1])))
    return (*bursts[1 - MOST_BURSTS :], (seen.seen_at, ratio))


def burst_memory(situation: Situation, targets: Targets) -> Verdict:
    """Return at least the supply that past bursts would need at today's level; an idle service has no level."""
    bursts, level = situation.state.burst_ratios, situation.seen.level_replicas
    if not situation.config.burst_memory or not bursts or isnan(level) or level == 0:
        return Verdict(targets)
    ratios = sorted(ratio for _, ratio in bursts)
    ratio = ratios[ceil(situation.config.burst_memory_level * len(ratios)) - 1]
    after = targets.raised_to(supply=whole_replicas(ratio * max(level, 1.0)))
    if after == targets:
        return Verdict(targets)
    message = (
        f"demand has jumped to {ratio:.1f} x its level in {len(bursts)} remembered bursts; at a level of {level:.1f} "
        f"replicas that is a supply of {after.supply}"
    )
    return changed(ReasonCode.BURST_MEMORY, message, before=targets, after=after)
