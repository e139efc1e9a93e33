"""The rules by name, in the order in which they run."""

from collections.abc import Mapping
from types import MappingProxyType

from forecaster.plan import Reason
from forecaster.rules.base import Rule, Situation, Targets
from forecaster.rules.burst_memory import burst_memory
from forecaster.rules.freshness import coverage, freshness
from forecaster.rules.latency import ttft_gradient, ttft_over_target
from forecaster.rules.limits import bounds, capacity_limited, step_limit
from forecaster.rules.load import burst_pool, kv_exhaustion, reactive_floor, token_floor, token_influx
from forecaster.rules.stabilisation import demotion_window, promotion_hold, removal_window, rollout

RAISING: Mapping[str, Rule] = MappingProxyType(
    {
        "burst_memory": burst_memory,
        "ttft_gradient": ttft_gradient,
        "ttft_over_target": ttft_over_target,
        "token_floor": token_floor,
        "token_influx": token_influx,
        "kv_exhaustion": kv_exhaustion,
        "reactive_floor": reactive_floor,
        "freshness": freshness,
        "coverage": coverage,
        "rollout": rollout,
    }
)
"""What is wanted: none of them lowers a target. What is held for want of knowledge counts as wanted."""

STABILISING: Mapping[str, Rule] = MappingProxyType(
    {
        "burst_pool": burst_pool,
        "promotion_hold": promotion_hold,
        "demotion_window": demotion_window,
        "removal_window": removal_window,
        "capacity_limited": capacity_limited,
        "step_limit": step_limit,
        "bounds": bounds,
    }
)
"""How far what is wanted is followed: first what holds it up, then what limits it."""


def apply_rules(
    rules: Mapping[str, Rule], situation: Situation, targets: Targets
) -> tuple[Targets, tuple[Reason, ...]]:
    """Return the targets that the rules make one after another of `targets`, and the reasons of those that did."""
    reasons: list[Reason] = []
    disabled = situation.config.rules.disabled
    for name, rule in rules.items():
        if name in disabled:
            continue
        targets, reason = rule(situation, targets)
        if reason is not None:
            reasons.append(reason)
    return targets, tuple(reasons)
