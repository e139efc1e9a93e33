"""A fleet of a fixed size, played without planning: for training data and for checks of the engine."""

from math import inf

from forecaster.plan import CapacityPlan
from forecaster.telemetry import FleetState, TelemetryWindow
from simulator.fleet import simulate
from simulator.fleet_limits import FleetLimits
from simulator.gateway import ROUTERS
from simulator.profiles import EngineProfile
from simulator.requests import RequestTable
from simulator.result import SimulationResult
from simulator.run_settings import RunSettings


class StaticPolicy:
    """Always the same number of serving replicas, and none in reserve."""

    def __init__(self, num_replicas: int) -> None:
        self.num_replicas = num_replicas

    def decide(self, *, now: float, telemetry: TelemetryWindow, fleet: FleetState) -> CapacityPlan:
        """Return the fixed plan."""
        return CapacityPlan(planned_at=now, serving_replicas=self.num_replicas, supply_replicas=self.num_replicas)


def simulate_static(
    requests: RequestTable,
    profile: EngineProfile,
    *,
    num_replicas: int,
    duration_seconds: float | None = None,
    router: str = ROUTERS[0],
) -> SimulationResult:
    """Return the outcome of `requests` on `num_replicas` replicas that never change.

    Raises
    ------
    ValueError
        If `num_replicas` < 1, or a request can never be served.
    """
    if num_replicas < 1:
        raise ValueError(f"num_replicas must be >= 1, got {num_replicas}")
    return simulate(
        requests,
        profile,
        policy=StaticPolicy(num_replicas),
        duration_seconds=duration_seconds,
        limits=FleetLimits(initial_replicas=num_replicas, max_replicas=num_replicas),
        # one tick for the whole run: there is nothing to plan
        settings=RunSettings(plan_interval_seconds=inf, router=router),
    )
