"""Configuration of the planner: one frozen dataclass, its defaults, and why each has its value."""

from dataclasses import dataclass, field
from math import isfinite

from forecaster.capacity import ReplicaCapacity
from forecaster.errors import ConfigError
from forecaster.telemetry import SIGNAL_INDEX


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What the operator promised: targets per request and the share of requests that must meet them."""

    ttft_seconds: float = 0.8
    tpot_seconds: float = 0.1
    attainment_ratio: float = 0.99
    long_prompt_tokens: float = 4096.0  # beyond it the TTFT target grows with the prompt: an idle replica needs as long

    def ttft_scale(self, prompt_tokens: float) -> float:
        """Return by what the TTFT target of a prompt is to be multiplied, 1 if its length is unknown.

        Examples
        --------
        >>> Slo(long_prompt_tokens=4096).ttft_scale(8192)
        2.0
        """
        return max(1.0, prompt_tokens / self.long_prompt_tokens) if prompt_tokens > 0 else 1.0


RULE_NAMES: tuple[str, ...] = (
    "burst_memory",
    "ttft_gradient",
    "ttft_over_target",
    "token_floor",
    "token_influx",
    "kv_exhaustion",
    "reactive_floor",
    "freshness",
    "coverage",
    "rollout",
    "burst_pool",
    "promotion_hold",
    "demotion_window",
    "removal_window",
    "capacity_limited",
    "step_limit",
)
"""Every rule that may be disabled, in the order in which they run. Bounds and budget always hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSettings:
    """Numbers of the guardrails (DESIGN section 6). A rule named in `disabled` (of `RULE_NAMES`) does not run."""

    disabled: frozenset[str] = frozenset()
    gradient_episode_seconds_per_second: float = 0.2  # TTFT gaining 0.2 s each second: the queue outruns the fleet
    gradient_episode_factor: float = 1.5
    gradient_urgent_seconds_per_second: float = 0.3
    gradient_urgent_for_seconds: float = 5.0
    gradient_pool_seconds_per_second: float = 0.5  # promote the whole pool and start shedding the lowest class
    gradient_mean_seconds: float = 3.0  # between means of 3 s: a single slow second of 1 s moves it by 0.1 s/s only
    gradient_min_ttft_ratio: float = 0.5  # of the target: below it TTFT may jump about, that is no episode
    ttft_mean_seconds: float = 3.0
    backlog_drain_seconds: float = 10.0  # TTFT lags the queue: no more replicas than clear a known queue in 10 s
    influx_seconds: float = 10.0  # prompt tokens of the last 10 s are the blocks decode needs next
    exhaustion_level: float = 0.9  # of forecast KV blocks: promote
    reactive_mean_seconds: float = 3.0  # D measured now: a 3-s mean rides out single-second spikes
    burst_ratio: float = 1.25  # demand now over what serves: above it the whole pool is promoted
    late_after_seconds: float = 5.0  # older than this, telemetry is late: nothing is scaled down (CASES 10)
    stale_after_seconds: float = 15.0  # some five missed scrapes at a usual 3-s lag
    min_coverage_ratio: float = 0.5  # below half of the replicas reporting: never down (CASES 5)
    fresh_rows_before_scale_down: int = 5  # after a gap (CASES 1)
    # a row without one of these is unknown; drop what an engine never exports, or nothing is ever scaled down
    required_signals: tuple[str, ...] = ("prompt_tokens_per_second", "kv_blocks_used", "waiting_requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionSettings:
    """When and how the gateway is told to hold back; ratios are of demand over what serves."""

    enabled: bool = True
    standing: bool = True  # keep a bucket at the fleet's full prefill rate even while demand is low
    engage_ratio: float = 0.9  # from here on the bucket is filled at the rate at which TPOT holds
    release_ratio: float = 0.75  # well below: the bucket is not put up and taken down by noise
    engage_backlog_ratio: float = 0.5  # of the TTFT target, in seconds of queued prefill
    # Of the prefill rate: at the full rate every step is a full one and TPOT goes. On seckill3 0.8 gave 97.6 % where
    # 0.9 gave 96.5 and 1.0 gave 95.9 at the same cost.
    utilisation_ratio: float = 0.8
    base_step_seconds: float = 0.4  # of the TTFT target is gone without a queue: a step or two and the prompt's own
    min_burst_seconds: float = 0.2
    drain_seconds: float = 3.0  # a queue over the target is worked off within this; a tick and a telemetry lag


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
    # c_v: a replica-second of unmet demand in active replica-seconds. On the generated surge 6, 10, 15 and 30 gave
    # 95.1, 96.0, 98.4 and 98.5 % within the SLO for 4.5, 4.7, 5.3 and 5.5 GPU-hours.
    unmet_cost: float = 15.0
    typical_burst_seconds: float = 60.0  # T_b: seckill-like impulses last one to two minutes
    plan_interval_seconds: float = 2.0
    promotion_hold_seconds: float = 30.0  # a promotion sticks 20-40 s (DESIGN section 5)
    demotion_window_seconds: float = 45.0  # highest target of the last 30-60 s
    removal_window_seconds: float = 300.0  # highest target of the last 300 s
    burst_cooldown_seconds: float = 120.0  # a pod is removed only once a burst is over this long
    burst_memory: bool = True  # keep what past bursts would have needed
    burst_memory_seconds: float = 86_400.0  # a day: sales and cron batches come back daily
    burst_memory_level: float = 0.99  # R_q of DESIGN section 5
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
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
    return [*_number_problems(config), *_fleet_problems(config), *_rule_problems(config.rules)]


def _number_problems(config: PlannerConfig) -> list[str]:
    positive = (
        "active_cost",
        "unmet_cost",
        "typical_burst_seconds",
        "plan_interval_seconds",
        "gpus_per_replica",
        "burst_memory_seconds",
    )
    problems = [
        f"{name} must be > 0, got {getattr(config, name)}"
        for name in positive
        if not (isfinite(getattr(config, name)) and getattr(config, name) > 0)
    ]
    windows = ("promotion_hold_seconds", "demotion_window_seconds", "removal_window_seconds", "burst_cooldown_seconds")
    problems += [
        f"{name} must be >= 0, got {getattr(config, name)}" for name in windows if not getattr(config, name) >= 0
    ]
    if not 0 <= config.warm_cost_ratio <= 1:
        problems.append(f"warm_cost_ratio must be in [0, 1], got {config.warm_cost_ratio}")
    levels = {
        "slo.attainment_ratio": config.slo.attainment_ratio,
        "burst_memory_level": config.burst_memory_level,
        "rules.exhaustion_level": config.rules.exhaustion_level,
    }
    problems += [f"{name} must be in (0, 1), got {level}" for name, level in levels.items() if not 0 < level < 1]
    if not (config.slo.ttft_seconds > 0 and config.slo.tpot_seconds > 0 and config.slo.long_prompt_tokens > 0):
        problems.append("slo.ttft_seconds, slo.tpot_seconds and slo.long_prompt_tokens must be > 0")
    admission = config.admission
    if not 0 <= admission.release_ratio <= admission.engage_ratio:
        problems.append(
            f"admission.release_ratio must be in [0, engage_ratio={admission.engage_ratio}], "
            f"got {admission.release_ratio}"
        )
    if not 0 < admission.utilisation_ratio <= 1:
        problems.append(f"admission.utilisation_ratio must be in (0, 1], got {admission.utilisation_ratio}")
    if not (admission.drain_seconds > 0 and admission.min_burst_seconds > 0):
        problems.append("admission.drain_seconds and admission.min_burst_seconds must be > 0")
    return problems


def _fleet_problems(config: PlannerConfig) -> list[str]:
    problems = []
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
    return problems


def _rule_problems(rules: RuleSettings) -> list[str]:
    problems = []
    unknown = sorted(rules.disabled - set(RULE_NAMES))
    if unknown:
        problems.append(f"rules.disabled names no rule: {', '.join(unknown)}; known: {', '.join(RULE_NAMES)}")
    strange = sorted(set(rules.required_signals) - set(SIGNAL_INDEX))
    if strange:
        problems.append(f"rules.required_signals names no signal: {', '.join(strange)}")
    positive = (
        "gradient_mean_seconds",
        "ttft_mean_seconds",
        "backlog_drain_seconds",
        "influx_seconds",
        "reactive_mean_seconds",
        "late_after_seconds",
        "stale_after_seconds",
        "burst_ratio",
    )
    problems += [
        f"rules.{name} must be > 0, got {getattr(rules, name)}" for name in positive if not getattr(rules, name) > 0
    ]
    return problems
