"""Configuration of the planner: one frozen dataclass, its defaults, and why each has its value."""

from dataclasses import dataclass, field
from math import isfinite

from forecaster.capacity import ReplicaCapacity
from forecaster.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What the operator promised: targets per request and the share of requests that must meet them."""

    ttft_seconds: float = 0.8
    tpot_seconds: float = 0.1
    attainment_ratio: float = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSettings:
    """Numbers of the guardrails (DESIGN section 6). A rule named in `disabled` does not run."""

    disabled: frozenset[str] = frozenset()
    gradient_episode_seconds_per_second: float = 0.2  # TTFT gaining 0.2 s each second: the queue outruns the fleet
    gradient_episode_factor: float = 1.5
    gradient_urgent_seconds_per_second: float = 0.3
    gradient_urgent_for_seconds: float = 5.0
    gradient_pool_seconds_per_second: float = 0.5  # promote the whole pool and start shedding the lowest class
    influx_seconds: float = 10.0  # prompt tokens of the last 10 s are the blocks decode needs next
    reactive_mean_seconds: float = 3.0  # D measured now: a 3-s mean rides out single-second spikes
    stale_after_seconds: float = 15.0  # some five missed scrapes at a usual 3-s lag
    min_coverage_ratio: float = 0.5  # below half of the replicas reporting: never down (CASES 5)
    fresh_rows_before_scale_down: int = 5  # after a gap (CASES 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerConfig:
    """Everything `plan()` may be told; the core sees no other setting.

    Costs are prices per replica-second relative to an active replica (`active_cost` = 1).
    """

    capacity: ReplicaCapacity
    slo: Slo = field(default_factory=Slo)
    min_replicas: int = 1
    max_replicas: int = 48
    gpus_per_replica: int = 1
    gpu_budget: int | None = None  # None: max_replicas alone bounds the fleet
    max_step_up: int = 48  # bursts arrive at once; limit it where GPUs are shared
    max_step_down: int = 4
    active_cost: float = 1.0
    warm_cost_ratio: float = 0.3  # what a warm replica costs of an active one; the operator knows, 1 = the same GPU
    unmet_cost: float = 30.0  # c_v: a replica-second of unmet demand in active replica-seconds
    typical_burst_seconds: float = 60.0  # T_b: seckill-like impulses last one to two minutes
    plan_interval_seconds: float = 2.0
    promotion_hold_seconds: float = 30.0  # a promotion sticks 20-40 s (DESIGN section 5)
    demotion_window_seconds: float = 45.0  # highest target of the last 30-60 s
    removal_window_seconds: float = 300.0  # highest target of the last 300 s
    burst_cooldown_seconds: float = 120.0  # a pod is removed only once a burst is over this long
    rules: RuleSettings = field(default_factory=RuleSettings)

    def __post_init__(self) -> None:
        problems = _config_problems(self)
        if problems:
            raise ConfigError.from_problems("planner configuration", problems)

    @property
    def largest_fleet(self) -> int:
        """Most replicas that bounds and GPU budget allow together."""
        if self.gpu_budget is None:
            return self.max_replicas
        return min(self.max_replicas, self.gpu_budget // self.gpus_per_replica)


def _config_problems(config: PlannerConfig) -> list[str]:
    """Return every contradiction, each as: what must hold, the value seen."""
    problems = []
    positive = (
        "active_cost",
        "unmet_cost",
        "typical_burst_seconds",
        "plan_interval_seconds",
        "gpus_per_replica",
    )
    problems += [
        f"{name} must be > 0, got {getattr(config, name)}"
        for name in positive
        if not (isfinite(getattr(config, name)) and getattr(config, name) > 0)
    ]
    if not 0 <= config.warm_cost_ratio <= 1:
        problems.append(f"warm_cost_ratio must be in [0, 1], got {config.warm_cost_ratio}")
    if config.min_replicas < 0:
        problems.append(f"min_replicas must be >= 0, got {config.min_replicas}")
    if config.max_replicas < max(config.min_replicas, 1):
        problems.append(
            f"max_replicas must be >= min_replicas and >= 1, got {config.max_replicas} < {config.min_replicas}"
        )
    if config.max_step_up < 1 or config.max_step_down < 1:
        problems.append(f"max_step_up and max_step_down must be >= 1, got {config.max_step_up}, {config.max_step_down}")
    if config.gpu_budget is not None and config.gpus_per_replica > 0:
        affordable = config.gpu_budget // config.gpus_per_replica
        if affordable < max(config.min_replicas, 1):
            problems.append(
                f"gpu_budget {config.gpu_budget} allows {affordable} replicas of {config.gpus_per_replica} GPUs but "
                f"min_replicas is {config.min_replicas}; raise the budget or lower min_replicas"
            )
    if not 0 < config.slo.attainment_ratio < 1:
        problems.append(f"slo.attainment_ratio must be in (0, 1), got {config.slo.attainment_ratio}")
    if not (config.slo.ttft_seconds > 0 and config.slo.tpot_seconds > 0):
        problems.append("slo.ttft_seconds and slo.tpot_seconds must be > 0")
    return problems
