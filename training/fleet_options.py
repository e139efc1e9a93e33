"""What somebody chose of a simulated fleet, and the closed loop that follows from it and some traffic."""

from dataclasses import dataclass, replace

from simulator.fleet_limits import FleetLimits
from simulator.gateway import ROUTERS
from simulator.profiles import EngineProfile
from simulator.requests import RequestTable
from simulator.run_settings import RunSettings
from training.closed_loop import ClosedLoopRun, closed_loop_run
from training.profile_files import profile_from
from training.traffic import Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """What was chosen; None takes what the traffic says, or the default of the planner."""

    profile: str | None = None
    initial: int | None = None
    max_replicas: int | None = None
    cold_start_seconds: float | None = None
    warm_cost_ratio: float | None = None
    duration_seconds: float | None = None
    router: str | None = None

    def engine_profile(self, traffic: Traffic) -> EngineProfile:
        """Return the replica type.

        Raises
        ------
        ValueError
            If there is none of that name.
        ConfigError
            If it is a file that holds no profile.
        """
        return profile_from(self.profile or traffic.profile)

    def closed_loop(
        self, traffic: Traffic, requests: RequestTable, *, policies: tuple[str, ...], seed: int
    ) -> ClosedLoopRun:
        """Return the closed loop of the servable `requests` of some traffic.

        Raises
        ------
        ValueError
            If there is no such profile or router, or no request in the run.
        ConfigError
            If a number is impossible.
        """
        limits = self._limits(traffic)
        initial = self.initial
        if initial is None and traffic.initial_replicas is not None:
            # fewer may have been allowed than a scenario begins with
            initial = min(traffic.initial_replicas, limits.max_replicas)
        return closed_loop_run(
            traffic.name,
            requests,
            profile=self.engine_profile(traffic),
            policies=policies,
            duration_seconds=self.duration_seconds or traffic.duration_seconds,
            initial=initial,
            limits=limits,
            settings=RunSettings(
                router=self.router or ROUTERS[0],
                engine=traffic.engine,
                clients=traffic.clients,
                faults=traffic.faults,
                seed=seed,
            ),
            warm_cost_ratio=self.warm_cost_ratio,
            seed=seed,
        )

    def _limits(self, traffic: Traffic) -> FleetLimits:
        # the initial number is checked against the others together, once it is known
        limits = replace(traffic.limits, initial_replicas=1)
        if self.max_replicas is not None:
            limits = replace(limits, max_replicas=self.max_replicas)
        if self.cold_start_seconds is not None:
            limits = replace(limits, cold_start_seconds=self.cold_start_seconds)
        return limits
