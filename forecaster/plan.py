"""What goes into a decision and what comes out of it; `planner.plan` turns the one into the other."""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf, nan

from forecaster.forecast import QuantileForecast
from forecaster.telemetry import FleetState, TelemetryWindow

NUM_PRIORITIES = 3
"""Request classes: 0 batch, 1 normal, 2 core. Higher is more important; vLLM's own `priority` runs the other way."""


class ReasonCode(StrEnum):
    """Why a plan is as it is: the closed vocabulary of reasons, the same in reports, metrics and events."""

    SIZED_SERVING = "sized_serving"
    SIZED_SUPPLY = "sized_supply"
    BURST = "burst"
    BURST_MEMORY = "burst_memory"
    TTFT_GRADIENT = "ttft_gradient"
    TTFT_GRADIENT_URGENT = "ttft_gradient_urgent"
    TTFT_GRADIENT_POOL = "ttft_gradient_pool"
    TTFT_OVER_TARGET = "ttft_over_target"
    TOKEN_FLOOR = "token_floor"
    TOKEN_INFLUX = "token_influx"
    KV_EXHAUSTION = "kv_exhaustion"
    REACTIVE_FLOOR = "reactive_floor"
    STALE_TELEMETRY = "stale_telemetry"
    PARTIAL_TELEMETRY = "partial_telemetry"
    RECOVERING_TELEMETRY = "recovering_telemetry"
    FORECAST_FALLBACK = "forecast_fallback"
    NO_FORECAST = "no_forecast"
    ROLLOUT_FREEZE = "rollout_freeze"
    CAPACITY_LIMITED = "capacity_limited"
    PROMOTION_HOLD = "promotion_hold"
    DEMOTION_WINDOW = "demotion_window"
    REMOVAL_WINDOW = "removal_window"
    STEP_LIMIT = "step_limit"
    BOUNDS = "bounds"
    SHEDDING = "shedding"
    POLICY = "policy"  # a baseline policy's own rule, named in the message


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One step of a decision: which rule moved which target from what to what, in a sentence."""

    code: ReasonCode
    message: str
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What the gateway lets in until the next plan: a bucket of prefill tokens, and fractions by priority.

    A request of p prompt tokens in class k is admitted if the bucket holds min(p, burst_tokens) above the class's
    reserve, and if its id's hash falls inside the class's fraction; the bucket then loses p.

    Attributes
    ----------
    prefill_tokens_per_second : float
        Refill rate; inf admits everything.
    burst_tokens : float
        Size of the bucket.
    reserve_ratio_by_priority : tuple of float
        Share of the bucket kept for more important classes, per class.
    admitted_ratio_by_priority : tuple of float
        Share of each class let in at all.
    """

    prefill_tokens_per_second: float = inf
    burst_tokens: float = inf
    reserve_ratio_by_priority: tuple[float, ...] = (0.5, 0.1, 0.0)
    admitted_ratio_by_priority: tuple[float, ...] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        ratios = self.reserve_ratio_by_priority + self.admitted_ratio_by_priority
        if len(ratios) != 2 * NUM_PRIORITIES or not all(0 <= ratio <= 1 for ratio in ratios):
            raise ValueError(f"admission ratios must be {NUM_PRIORITIES} values in [0, 1] each, got {ratios}")
        if list(self.admitted_ratio_by_priority) != sorted(self.admitted_ratio_by_priority):
            raise ValueError("admitted_ratio_by_priority must not fall with importance")
        if not (self.prefill_tokens_per_second >= 0 and self.burst_tokens >= 0):
            raise ValueError("admission rate and bucket must be >= 0")


ADMIT_ALL = Admission()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanState:
    """What a plan must remember; it goes out in the plan, comes back in the next input and survives a restart.

    Attributes
    ----------
    targets : tuple of (planned_at, serving, supply)
        Wanted targets before stabilisation, oldest first, no older than the longest window.
    last_promotion_at : float
        When serving was last raised; -inf if never.
    last_burst_at : float
        When demand last outran what served; -inf if never.
    gradient_episode_serving : int
        Ready-serving at the start of the running TTFT episode, 0 outside one.
    gradient_since_at : float
        Since when the TTFT gradient has been urgent; inf if it is not.
    burst_ratios : tuple of (last_seen_at, ratio)
        Peaks of demand over its level before, one a burst, for the slow memory of bursts.
    shedding : bool
        Whether admission was limited in the last plan.
    """

    targets: tuple[tuple[float, int, int], ...] = ()
    last_promotion_at: float = -inf
    last_burst_at: float = -inf
    gradient_episode_serving: int = 0
    gradient_since_at: float = inf
    burst_ratios: tuple[tuple[float, float], ...] = ()
    shedding: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """Targets and their explanation.

    Attributes
    ----------
    planned_at : float, POSIX seconds
    serving_replicas : int
        Replicas that should serve.
    supply_replicas : int
        Replicas that should exist: serving, warm and starting together; never below `serving_replicas`.
    admission : Admission
        What the gateway lets in.
    reasons : tuple of Reason
        In the order in which the rules ran.
    is_valid : bool
        False: too little is known to plan, hold what is there.
    ttft_p95_seconds : float
        Forecast TTFT p95 30 s ahead under this plan; NaN if unknown.
    forecast : QuantileForecast or None
        What it was sized on.
    state : PlanState
        For the next tick.
    """

    planned_at: float
    serving_replicas: int
    supply_replicas: int
    admission: Admission = ADMIT_ALL
    reasons: tuple[Reason, ...] = ()
    is_valid: bool = True
    ttft_p95_seconds: float = nan
    forecast: QuantileForecast | None = None
    state: PlanState = field(default_factory=PlanState)

    def __post_init__(self) -> None:
        if not 0 <= self.serving_replicas <= self.supply_replicas:
            raise ValueError(
                f"plan must have 0 <= serving <= supply, got {self.serving_replicas} and {self.supply_replicas}"
            )

    @property
    def warm_replicas(self) -> int:
        """Replicas that should stand by, loaded or on their way."""
        return self.supply_replicas - self.serving_replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """Everything a decision may depend on.

    Attributes
    ----------
    now : float, POSIX seconds
    telemetry : TelemetryWindow
        At least the last two minutes where there are that many.
    fleet : FleetState
    forecast : QuantileForecast or None
        None: the forecaster gave nothing usable; the plan falls back and says so.
    previous : CapacityPlan or None
        The last plan; None at the first tick.
    """

    now: float
    telemetry: TelemetryWindow
    fleet: FleetState
    forecast: QuantileForecast | None = None
    previous: CapacityPlan | None = None
