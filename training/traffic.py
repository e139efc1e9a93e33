"""What is played: requests, and what a scenario says of those who serve and send them."""

from dataclasses import dataclass, field
from pathlib import Path

from simulator.clients import Clients
from simulator.engine_options import EngineOptions
from simulator.faults import Faults
from simulator.fleet_limits import FleetLimits
from simulator.profiles import DEFAULT_PROFILE
from simulator.requests import RequestTable
from training.scenario_files import ScenarioFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Requests to play, what they are called, and their scenario's fleet and clients.

    Attributes
    ----------
    name : str
        Of the file or the scenario.
    meaning : str
        What it is, in a sentence.
    requests : RequestTable
    duration_seconds : float or None
        None: up to the last arrival.
    profile : str
    initial_replicas : int or None
        None: by load.
    limits : FleetLimits
        But for `initial_replicas`.
    engine : EngineOptions
    clients : Clients
    faults : Faults
    """

    name: str
    meaning: str
    requests: RequestTable
    duration_seconds: float | None
    profile: str = DEFAULT_PROFILE
    initial_replicas: int | None = None
    limits: FleetLimits = field(default_factory=lambda: FleetLimits(initial_replicas=1))
    engine: EngineOptions = field(default_factory=EngineOptions)
    clients: Clients = field(default_factory=Clients)
    faults: Faults = field(default_factory=Faults)


def scenario_traffic(scenario: ScenarioFile, seed: int, *, shared: Path) -> Traffic:
    """Return a scenario's traffic; the past that would prime a controller is not drawn.

    Raises
    ------
    TraceFormatError
        If a trace is missing or cannot be read.
    ScenarioFileError
        If the parts of the scenario contradict each other.
    """
    playable = scenario.build(seed, shared=shared, primed=False)
    return Traffic(
        name=scenario.name,
        meaning=scenario.description,
        requests=playable.requests,
        duration_seconds=playable.duration_seconds,
        profile=playable.profile.name,
        initial_replicas=scenario.content.fleet.initial_replicas,
        limits=playable.limits,
        engine=playable.engine,
        clients=playable.clients,
        faults=playable.faults,
    )
