"""What a simulated run leaves behind: per-request outcomes, telemetry, plans and what the pods cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from forecaster.plan import CapacityPlan
from forecaster.telemetry import TelemetryWindow
from simulator.history import FleetEvents, ReplicaTimeline, events_of, timeline_of
from simulator.lifecycle import PodState
from simulator.profiles import EngineProfile
from simulator.requests import RequestTable


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """One run.

    Attributes
    ----------
    requests : RequestTable
        What was asked; answers that max_model_len cut have the length they got.
    profile : EngineProfile
    arrival_at : ndarray of float64, shape (n,), seconds from the start
        When its first attempt arrived: of a request that follows another the run decides, not the table. NaN if it has
        not, because what it follows has not ended.
    first_token_at, finished_at : ndarray of float64, shape (n,), seconds from the start
        Of the attempt that was served; NaN where it never came.
    outcome : ndarray of int8, shape (n,)
        A place in `simulator.engine_state.OUTCOMES`.
    served_by : ndarray of int32, shape (n,)
        Replica slot, -1 if none.
    num_attempts : ndarray of int32, shape (n,)
        More than one: retries. 0 if it has not arrived.
    num_preemptions : ndarray of int32, shape (n,)
    telemetry : TelemetryWindow
        One row a second; row_at is seconds from the start of the run.
    plans : tuple of CapacityPlan
        One a tick.
    replica_seconds : mapping of PodState to float
        Up to `costed_seconds`; the time given to finish afterwards costs nothing.
    costed_seconds : float
    num_actions : int
        Promotions, demotions, orders and removals of single pods that the plans asked for.
    timeline : ReplicaTimeline
    events : FleetEvents
    """

    requests: RequestTable
    profile: EngineProfile
    arrival_at: NDArray[np.float64]
    first_token_at: NDArray[np.float64]
    finished_at: NDArray[np.float64]
    outcome: NDArray[np.int8]
    served_by: NDArray[np.int32]
    num_attempts: NDArray[np.int32]
    num_preemptions: NDArray[np.int32]
    telemetry: TelemetryWindow
    plans: tuple[CapacityPlan, ...]
    replica_seconds: Mapping[PodState, float]
    costed_seconds: float
    num_actions: int
    timeline: ReplicaTimeline = field(default_factory=lambda: timeline_of([]))
    events: FleetEvents = field(default_factory=lambda: events_of([]))

    def to_bytes(self) -> bytes:
        """Return the run's outcome as bytes: equal for two runs if and only if they went the same way."""
        parts = (
            self.arrival_at,
            self.first_token_at,
            self.finished_at,
            self.outcome,
            self.served_by,
            self.num_attempts,
            self.num_preemptions,
            self.telemetry.values,
            np.array([self.replica_seconds[state] for state in PodState]),
        )
        return b"".join(part.tobytes() for part in parts)
