"""The one decision: `plan()` turns what is known at a moment into targets, admission, reasons and the next state.

A chain of small steps: what is known → sizing → rules that raise → rules that hold and limit → admission → TTFT.
"""

from dataclasses import replace
from math import isnan

import numpy as np

from forecaster.admission import decide_admission
from forecaster.config import PlannerConfig
from forecaster.demand import offered_load
from forecaster.forecast import DEMAND, HEADLINE_HORIZON_SECONDS, PREFILL, QuantileForecast
from forecaster.observation import Observation, observe
from forecaster.plan import CapacityPlan, PlanInput, PlanState, Reason, ReasonCode
from forecaster.rules import RAISING, STABILISING, Situation, Targets, apply_rules
from forecaster.rules.burst_memory import remembered
from forecaster.rules.freshness import is_stale
from forecaster.rules.latency import next_episode
from forecaster.rules.limits import bounds
from forecaster.rules.load import is_burst
from forecaster.rules.stabilisation import with_wanted
from forecaster.sizing import TwoTierSize, forecast_demand, past_demand, size_two_tier
from forecaster.ttft import planned_path, ttft_p95_seconds


def plan(inputs: PlanInput, config: PlannerConfig) -> CapacityPlan:
    """Return the capacity plan for `inputs.now`; the same inputs always give the same plan.

    Parameters
    ----------
    inputs : PlanInput
    config : PlannerConfig

    Returns
    -------
    CapacityPlan
        Not valid if too little is known: then it holds what there is. Targets are within the bounds and the GPU
        budget whatever the inputs.
    """
    situation = _situation(inputs, config)
    if is_stale(situation.seen, config.rules, step_seconds=inputs.telemetry.step_seconds):
        return _held_plan(situation)
    sized, reasons = _size(situation, inputs)
    wanted, raised = apply_rules(RAISING, situation, sized)
    history = with_wanted(situation.state.targets, wanted, now=inputs.now, config=config)
    situation = replace(situation, state=replace(situation.state, targets=history))
    targets, stabilised = apply_rules(STABILISING, situation, wanted)
    admission, shedding = decide_admission(situation, targets)
    return CapacityPlan(
        planned_at=inputs.now,
        serving_replicas=targets.serving,
        supply_replicas=targets.supply,
        admission=admission,
        reasons=(*reasons, *raised, *stabilised, *((shedding,) if shedding else ())),
        ttft_p95_seconds=_forecast_ttft(situation, targets, admission.prefill_tokens_per_second),
        forecast=inputs.forecast,
        state=_next_state(situation, targets, shedding=shedding is not None),
    )


def _situation(inputs: PlanInput, config: PlannerConfig) -> Situation:
    """Return what the rules are given: the observation, and the state brought up to now."""
    fleet, previous = inputs.fleet, inputs.previous
    seen = observe(inputs, config)
    if previous is None:
        held = Targets(fleet.active_replicas, fleet.supply_replicas)
        # without a past, what is there is what was wanted: nothing falls on the first tick
        state = PlanState(targets=((inputs.now, held.serving, held.supply),))
    else:
        held = Targets(previous.serving_replicas, previous.supply_replicas)
        state = previous.state
    episode_serving, since_at = next_episode(state, seen, fleet=fleet, config=config, now=inputs.now)
    return Situation(
        now=inputs.now,
        config=config,
        fleet=fleet,
        seen=seen,
        forecast=inputs.forecast,
        held=held,
        state=replace(
            state,
            gradient_episode_serving=episode_serving,
            gradient_since_at=since_at,
            burst_ratios=remembered(state, seen, config=config),
        ),
    )


def _held_plan(situation: Situation) -> CapacityPlan:
    """Return the plan for when too little is known: what is there or was asked for, and nothing is refused."""
    fleet = situation.fleet
    what_is_there = situation.held.raised_to(serving=fleet.active_replicas, supply=fleet.supply_replicas)
    history = with_wanted(situation.state.targets, what_is_there, now=situation.now, config=situation.config)
    targets, limited = bounds(situation, what_is_there)
    age = situation.seen.age_seconds
    known = "no second is fully known" if age == float("inf") else f"the newest known second is {age:.0f} s old"
    reason = Reason(
        code=ReasonCode.STALE_TELEMETRY,
        message=f"{known}: {what_is_there.serving} serving and {what_is_there.supply} in all are held",
        before=situation.held.serving,
        after=what_is_there.serving,
    )
    return CapacityPlan(
        planned_at=situation.now,
        serving_replicas=targets.serving,
        supply_replicas=targets.supply,
        reasons=(reason, limited) if limited else (reason,),
        is_valid=False,
        forecast=situation.forecast,
        state=replace(situation.state, targets=history, shedding=False),
    )


def _size(situation: Situation, inputs: PlanInput) -> tuple[Targets, tuple[Reason, ...]]:
    """Return the sizes that cost least on the forecast; without one, on the demand of the past minutes."""
    config, fleet, forecast = situation.config, situation.fleet, inputs.forecast
    reasons: list[Reason] = []
    if forecast is not None and DEMAND in forecast.values:
        demand = forecast_demand(forecast)
    else:
        past = offered_load(inputs.telemetry, config.capacity).demand_replicas
        if bool(np.isnan(past).all()):
            return situation.held, ()
        demand = past_demand(past)
    size = size_two_tier(
        demand,
        config,
        promotion_seconds=fleet.time_to_promote_seconds,
        ready_seconds=fleet.time_to_ready_seconds,
    )
    reasons += _fallback_reasons(forecast, situation.held)
    reasons += _size_reasons(situation.held, size)
    return Targets(size.serving, size.supply), tuple(reasons)


def _fallback_reasons(forecast: QuantileForecast | None, held: Targets) -> list[Reason]:
    if forecast is None or DEMAND not in forecast.values:
        code, message = ReasonCode.NO_FORECAST, "there is no forecast of demand: sized on the quantiles of the past"
    elif forecast.fallback_reason:
        code = ReasonCode.FORECAST_FALLBACK
        message = f"the forecast is by {forecast.source}: {forecast.fallback_reason}"
    else:
        return []
    return [Reason(code=code, message=message, before=held.serving, after=held.serving)]


def _size_reasons(held: Targets, size: TwoTierSize) -> list[Reason]:
    """Return what the sizing moves away from the last targets."""
    reasons: list[Reason] = []
    if size.serving != held.serving:
        message = f"{size.serving} serving replicas cost least: demand at level {size.serving_level:.3f}"
        reasons.append(Reason(code=ReasonCode.SIZED_SERVING, message=message, before=held.serving, after=size.serving))
    if size.supply != held.supply:
        message = f"a supply of {size.supply} replicas costs least: demand at level {size.supply_level:.3f}"
        reasons.append(Reason(code=ReasonCode.SIZED_SUPPLY, message=message, before=held.supply, after=size.supply))
    return reasons


def _forecast_ttft(situation: Situation, targets: Targets, admitted_tokens_per_second: float) -> float:
    """Return the TTFT p95 of the plan 30 s ahead, of those who are let in."""
    seen = situation.seen
    return ttft_p95_seconds(
        planned_path(situation.fleet, serving_replicas=targets.serving, supply_replicas=targets.supply),
        situation.config.capacity,
        queued_tokens=seen.load.waiting_prompt_tokens,
        arriving_tokens_per_second=min(_arriving(situation.forecast, seen), admitted_tokens_per_second),
        prompt_tokens=seen.prompt_tokens,
    )


def _arriving(forecast: QuantileForecast | None, seen: Observation) -> float:
    """Return the prompt tokens per second to reckon with: the median forecast, or what arrives now."""
    now = seen.load.prefill_tokens_per_second
    if forecast is None or PREFILL not in forecast.values:
        return now
    ahead = forecast.quantile(PREFILL, horizon_seconds=HEADLINE_HORIZON_SECONDS, level=0.5)
    return ahead if isnan(now) else max(ahead, now)


def _next_state(situation: Situation, targets: Targets, *, shedding: bool) -> PlanState:
    """Return what the next tick must know."""
    state = situation.state
    promoted = targets.serving > situation.held.serving
    return replace(
        state,
        last_promotion_at=situation.now if promoted else state.last_promotion_at,
        last_burst_at=situation.now if is_burst(situation) else state.last_burst_at,
        shedding=shedding,
    )
