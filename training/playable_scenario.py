"""A scenario with its requests drawn, ready for a closed loop."""

from dataclasses import dataclass

from simulator.clients import Clients
from simulator.engine_options import EngineOptions
from simulator.faults import Faults
from simulator.fleet_limits import FleetLimits
from simulator.profiles import EngineProfile
from simulator.requests import RequestTable


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedEvent:
    """Something that the operator's calendar names.

    Attributes
    ----------
    name : str
    start_seconds : float
    length_seconds : float or None
    height : float or None
        Times the usual traffic that are expected.
    note : str
    """

    name: str
    start_seconds: float
    length_seconds: float | None = None
    height: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayableScenario:
    """A scenario with its requests drawn: all that a closed loop needs.

    Attributes
    ----------
    name : str
    requests : RequestTable
    duration_seconds : float
    profile : EngineProfile
    limits : FleetLimits
    engine : EngineOptions
    clients : Clients
    faults : Faults
    events : tuple of AnnouncedEvent
        What the controller may know of before.
    past_seconds : float
        How much of the same service's past a primed controller has seen, 0: none.
    past_requests : RequestTable or None
        That past, counted from its own begin.
    """

    name: str
    requests: RequestTable
    duration_seconds: float
    profile: EngineProfile
    limits: FleetLimits
    engine: EngineOptions
    clients: Clients
    faults: Faults
    events: tuple[AnnouncedEvent, ...]
    past_seconds: float = 0.0
    past_requests: RequestTable | None = None
