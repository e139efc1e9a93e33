"""What somebody chose of a simulated fleet, and the closed loop that follows from it and some traffic."""

from dataclasses import dataclass, replace

from simulator.fleet import RunSettings
from simulator.gateway import ROUTERS
from simulator.lifecycle import FleetLimits
from simulator.profiles import DEFAULT_PROFILE, EngineProfile, profile_named
from simulator.requests import RequestTable
from training.closed_loop import ClosedLoopRun, closed_loop_run


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """What was chosen; None takes the default of `FleetLimits`, `RunSettings`, the planner or the traffic."""

    profile: str | None = None
    initial: int | None = None
    max_replicas: int | None = None
    cold_start_seconds: float | None = None
    warm_cost_ratio: float | None = None
    duration_seconds: float | None = None
    router: str | None = None

    @property
    def engine_profile(self) -> EngineProfile:
        """The replica type.

        Raises
        ------
        ValueError
            If there is none of that name.
        """
        return profile_named(self.profile or DEFAULT_PROFILE)

    @property
    def limits(self) -> FleetLimits:
        """Of the fleet; the initial number is checked against the others together, once it is known."""
        limits = FleetLimits(initial_replicas=1)
        if self.max_replicas is not None:
            limits = replace(limits, max_replicas=self.max_replicas)
        if self.cold_start_seconds is not None:
            limits = replace(limits, cold_start_seconds=self.cold_start_seconds)
        return limits

    def closed_loop(
        self,
        name: str,
        requests: RequestTable,
        *,
        duration_seconds: float | None,
        policies: tuple[str, ...],
        seed: int,
    ) -> ClosedLoopRun:
        """Return the closed loop of servable `requests`; `duration_seconds` holds unless another was chosen.

        Raises
        ------
        ValueError
            If there is no such profile or router, or no request in the run.
        ConfigError
            If a number is impossible.
        """
        return closed_loop_run(
            name,
            requests,
            profile=self.engine_profile,
            policies=policies,
            duration_seconds=self.duration_seconds or duration_seconds,
            initial=self.initial,
            limits=self.limits,
            settings=RunSettings(router=self.router or ROUTERS[0]),
            warm_cost_ratio=self.warm_cost_ratio,
            seed=seed,
        )
