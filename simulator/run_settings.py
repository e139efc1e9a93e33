"""How a run is played, apart from its requests and the fleet."""

from dataclasses import dataclass, field

from simulator.clients import Clients
from simulator.engine_options import EngineOptions
from simulator.faults import Faults
from simulator.gateway import ROUTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a run is played.

    Attributes
    ----------
    plan_interval_seconds : float
        Time between ticks.
    telemetry_lag_seconds : float
        A row is seen this long after it ends.
    window_seconds : float
        How much telemetry a policy is shown.
    drain_seconds : float
        Time given to unfinished requests after the last second of the run, at no cost.
    router : str
        One of `simulator.gateway.ROUTERS`.
    engine : EngineOptions
    clients : Clients
    faults : Faults
    seed : int
        Of what is drawn while it is played: lead times, deaths, who is hit.
    """

    plan_interval_seconds: float = 2.0
    telemetry_lag_seconds: float = 1.0
    window_seconds: float = 300.0
    drain_seconds: float = 90.0
    router: str = ROUTERS[0]
    engine: EngineOptions = field(default_factory=EngineOptions)
    clients: Clients = field(default_factory=Clients)
    faults: Faults = field(default_factory=Faults)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.router not in ROUTERS:
            raise ValueError(f"no router is called {self.router!r}; known: {', '.join(ROUTERS)}")
        if not self.plan_interval_seconds > 0:
            raise ValueError(f"plan_interval_seconds must be > 0, got {self.plan_interval_seconds}")
        durations = (self.telemetry_lag_seconds, self.window_seconds, self.drain_seconds)
        if not all(seconds >= 0 for seconds in durations):
            raise ValueError(f"telemetry_lag_seconds, window_seconds and drain_seconds must be >= 0, got {durations}")
