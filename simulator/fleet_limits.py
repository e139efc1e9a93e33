"""What a fleet may have, and how long its changes take."""

from dataclasses import dataclass
from math import inf

from forecaster.errors import ConfigError
from simulator.lead_times import Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLimits:
    """How many pods there may be and how long their changes take.

    Attributes
    ----------
    initial_replicas, max_replicas : int
    cold_start_seconds, promotion_seconds : float, LogNormal or Empirical
        From having GPUs to ready, and from warm to serving (waking included, where warm replicas sleep).
    gpu_stock_replicas : int, optional
        For how many replicas there are GPUs; pods beyond them stay pending. By default there are always enough.
    drain_grace_seconds : float
        A pod that is removed is killed after so long, whatever it holds (Kubernetes: terminationGracePeriodSeconds).
    warm_replicas_sleep : bool
        Warm replicas sleep as vLLM's do (sleep mode): what their prefix caches held is lost.
    """

    initial_replicas: int = 8
    max_replicas: int = 48
    cold_start_seconds: Duration = 30.0
    promotion_seconds: Duration = 4.0
    gpu_stock_replicas: int | None = None
    drain_grace_seconds: float = inf
    warm_replicas_sleep: bool = False

    def __post_init__(self) -> None:
        problems = []
        if not 1 <= self.initial_replicas <= self.max_replicas:
            problems.append(
                f"initial_replicas must be in [1, max_replicas={self.max_replicas}], got {self.initial_replicas}"
            )
        leads = (self.cold_start_seconds, self.promotion_seconds)
        if not all(0 <= lead < inf for lead in leads if isinstance(lead, int | float)):
            problems.append(
                f"cold_start_seconds and promotion_seconds must be >= 0 and finite, got {leads[0]}, {leads[1]}"
            )
        if self.gpu_stock_replicas is not None and self.gpu_stock_replicas < self.initial_replicas:
            problems.append(
                f"gpu_stock_replicas must be >= initial_replicas={self.initial_replicas}, got {self.gpu_stock_replicas}"
            )
        if not self.drain_grace_seconds >= 0:
            problems.append(f"drain_grace_seconds must be >= 0, got {self.drain_grace_seconds}")
        if problems:
            raise ConfigError.from_problems("simulated fleet", problems)
