"""Rules on TTFT: its gradient, and the target it has missed."""

from math import inf, isnan

from forecaster.config import PlannerConfig
from forecaster.observation import Observation
from forecaster.plan import PlanState, ReasonCode
from forecaster.rules.base import Situation, Targets, Verdict, changed
from forecaster.sizing import MOST_REPLICAS, whole_replicas
from forecaster.telemetry import FleetState


def next_episode(
    state: PlanState, seen: Observation, *, fleet: FleetState, config: PlannerConfig, now: float
) -> tuple[int, float]:
    """Return ready-serving at the start of the running TTFT episode (0 outside one), and since when it is urgent.

    An episode begins when TTFT climbs fast and is no longer far below its target. It ends once TTFT is below the target
    and does not climb: between two waves of one queue the replicas of the first are not counted again. An unknown
    TTFT changes nothing.
    """
    rules = config.rules
    gradient, ttft = seen.ttft_gradient, seen.ttft_seconds
    if isnan(gradient) or isnan(ttft):
        return state.gradient_episode_serving, state.gradient_since_at
    near = ttft >= rules.gradient_min_ttft_ratio * config.slo.ttft_seconds
    climbs = near and gradient > rules.gradient_episode_seconds_per_second
    serving = state.gradient_episode_serving
    if climbs and serving == 0:
        serving = max(fleet.serving_replicas, 1)
    elif not climbs and ttft < config.slo.ttft_seconds:
        serving = 0
    urgent = near and gradient > rules.gradient_urgent_seconds_per_second
    return serving, min(state.gradient_since_at, now) if urgent else inf


def is_urgent(situation: Situation) -> bool:
    """Return whether TTFT has climbed so fast for so long that the queue is the bottleneck."""
    if "ttft_gradient" in situation.config.rules.disabled:
        return False
    return situation.now - situation.state.gradient_since_at >= situation.config.rules.gradient_urgent_for_seconds


def sheds_lowest_class(situation: Situation) -> bool:
    """Return whether TTFT climbs so fast that the whole pool is promoted and the lowest class refused."""
    rules = situation.config.rules
    if "ttft_gradient" in rules.disabled or situation.state.gradient_episode_serving == 0:
        return False
    return situation.seen.ttft_gradient > rules.gradient_pool_seconds_per_second


def ttft_gradient(situation: Situation, targets: Targets) -> Verdict:
    """Return half as many replicas again as served when TTFT began to climb, the whole pool if it climbs steeply."""
    rules, seen = situation.config.rules, situation.seen
    start = situation.state.gradient_episode_serving
    if start == 0 or not seen.ttft_gradient > rules.gradient_episode_seconds_per_second:
        return Verdict(targets)
    # 8 ready at the start: ceil(8 x 1.5) = 12, however many have become ready since
    wanted = whole_replicas(start * rules.gradient_episode_factor)
    code, what = ReasonCode.TTFT_GRADIENT, f"{rules.gradient_episode_factor:g} x the {start} that served at its start"
    if is_urgent(situation):
        code = ReasonCode.TTFT_GRADIENT_URGENT
        what += f", at once: above {rules.gradient_urgent_seconds_per_second:g} s/s for too long"
    if sheds_lowest_class(situation):
        code, what = ReasonCode.TTFT_GRADIENT_POOL, "the whole warm pool"
        wanted = max(wanted, situation.fleet.active_replicas + situation.fleet.warm_replicas)
    after = targets.raised_to(serving=wanted)
    if after == targets:
        return Verdict(targets)
    message = f"TTFT climbs by {seen.ttft_gradient:.2f} s/s: {wanted} replicas to serve, {what}"
    return changed(code, message, before=targets, after=after)


def ttft_over_target(situation: Situation, targets: Targets) -> Verdict:
    """Return ready-serving times TTFT over its target, but no more than the demand and the queue there is call for.

    TTFT tells of requests that have waited; where the queue is known to be short again, it is over.
    """
    config, seen = situation.config, situation.seen
    target = config.slo.ttft_seconds
    if not seen.ttft_seconds > target:
        return Verdict(targets)
    # 8 ready and 1.6 s against 0.8 s: 16
    wanted = whole_replicas(situation.fleet.serving_replicas * seen.ttft_seconds / target)
    wanted = min(wanted, _most_useful(situation))
    after = targets.raised_to(serving=wanted)
    if after == targets:
        return Verdict(targets)
    message = (
        f"TTFT is {seen.ttft_seconds:.2f} s against {target:g} s with {situation.fleet.serving_replicas} replicas "
        f"serving: {wanted} to serve"
    )
    return changed(ReasonCode.TTFT_OVER_TARGET, message, before=targets, after=after)


def _most_useful(situation: Situation) -> int:
    """Return how many replicas can still help: no bound if demand or queue are unknown.

    No more than carry the demand and work off the queue in time; and for the queue only those that exist, as those
    ordered now find it gone.
    """
    load, config = situation.seen.load, situation.config
    queued_tokens_per_second = load.waiting_prompt_tokens / config.rules.backlog_drain_seconds
    clearing = load.demand_replicas + queued_tokens_per_second / config.capacity.usable_prefill_tokens_per_second
    if isnan(clearing):
        return MOST_REPLICAS
    if situation.fleet.time_to_ready_seconds <= config.rules.backlog_drain_seconds:
        return whole_replicas(clearing)
    return min(whole_replicas(clearing), max(whole_replicas(load.demand_replicas), situation.fleet.supply_replicas))
