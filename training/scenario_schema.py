"""What a scenario file may say, part by part. What is made of it is in `training.scenario_traffic`."""

from math import isclose
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from simulator.clients import Clients
from simulator.engine_options import EngineOptions
from simulator.faults import Faults
from simulator.fleet_limits import FleetLimits
from simulator.lead_times import Empirical, LogNormal
from simulator.profiles import DEFAULT_PROFILE, profile_named
from simulator.workload.agents import Agents
from simulator.workload.lengths import CONV_OUTPUT, CONV_PROMPT, TokenLengths
from simulator.workload.sessions import Sessions
from training.scenario_changes import (
    MAX_DURATION_SECONDS,
    Change,
    Factor,
    Part,
    Poisson,
    PositiveSeconds,
    Process,
    Seconds,
)
from training.servegen import WINDOW_SECONDS, WITHOUT_LENGTHS, DataSet

PRIMED_SECONDS = 3600.0
"""`primed: true` is one hour of the past (BENCHMARK)."""


class Lengths(Part):
    """Log-normal lengths of prompts and answers; by default those of the Azure trace "conv"."""

    prompt: TokenLengths = CONV_PROMPT
    output: TokenLengths = CONV_OUTPUT


class TraceTraffic(Part):
    """A recorded trace, possibly in several copies shifted around a circle of `period_seconds`.

    `file` is looked for beside the scenario file, then among the public traces. Where changes raise the traffic above
    `num_copies`, further copies at drawn shifts are played for as long as they do.
    """

    kind: Literal["trace"]
    file: str = Field(min_length=1)
    num_copies: int = Field(default=1, ge=1, le=1000)
    shifts: Literal["none", "even", "drawn"] = "none"
    period_seconds: PositiveSeconds | None = None
    first_requests: int | None = Field(default=None, ge=1)
    rate_ratio: Factor = 1.0
    spread_over_grid: bool = False

    @model_validator(mode="after")
    def _refuse_stacked_copies(self) -> "TraceTraffic":
        if self.num_copies > 1 and self.shifts == "none":
            raise ValueError(f"num_copies={self.num_copies} without shifts would arrive together; set shifts to even")
        return self


class GeneratedTraffic(Part):
    """An arrival process around a rate; its arrivals are single requests, or begin sessions or agents."""

    kind: Literal["generated"]
    rate_per_second: float = Field(ge=0, le=1_000_000)
    process: Process = Poisson()
    lengths: Lengths = Lengths()
    sessions: Sessions | None = None
    agents: Agents | None = None

    @model_validator(mode="after")
    def _refuse_two_structures(self) -> "GeneratedTraffic":
        if self.sessions and self.agents:
            raise ValueError("sessions and agents are both given; keep one of them")
        return self


class UserTraffic(Part):
    """A fixed number of users who think, ask and wait."""

    kind: Literal["users"]
    num_users: int = Field(ge=1, le=1_000_000)
    think_seconds: float = Field(gt=0, le=86_400)
    lengths: Lengths = Lengths()


class ServeGenTraffic(Part):
    """The clients of a ServeGen data set; each of its 10-minute windows is played in `seconds_per_window`."""

    kind: Literal["servegen"]
    data_set: DataSet
    start_seconds: int = Field(default=0, ge=0, multiple_of=WINDOW_SECONDS)
    seconds_per_window: int = Field(default=WINDOW_SECONDS, ge=1, le=WINDOW_SECONDS)
    rate_ratio: Factor = 1.0
    lengths: Lengths | None = None

    @model_validator(mode="after")
    def _refuse_missing_lengths(self) -> "ServeGenTraffic":
        if self.data_set in WITHOUT_LENGTHS and self.lengths is None:
            raise ValueError(f"{self.data_set} has no lengths of its own; give lengths")
        return self


Traffic = Annotated[TraceTraffic | GeneratedTraffic | UserTraffic | ServeGenTraffic, Field(discriminator="kind")]


class PriorityShares(Part):
    """Shares of the requests; a session or an agent has one priority throughout."""

    batch: float = Field(default=0.0, ge=0, le=1)
    normal: float = Field(default=0.0, ge=0, le=1)
    core: float = Field(default=0.0, ge=0, le=1)

    @model_validator(mode="after")
    def _refuse_other_sums(self) -> "PriorityShares":
        if not isclose(sum(self.by_priority), 1.0, abs_tol=1e-9):
            raise ValueError(f"batch, normal and core must sum to 1, got {sum(self.by_priority):g}")
        return self

    @property
    def by_priority(self) -> tuple[float, ...]:
        """The shares in the order of the priorities' numbers."""
        return (self.batch, self.normal, self.core)


class FleetPart(Part):
    """The replicas that serve; without `initial_replicas` as many as the first minute's load asks for."""

    profile: str = DEFAULT_PROFILE
    initial_replicas: int | None = Field(default=None, ge=1)
    max_replicas: int = Field(default=FleetLimits().max_replicas, ge=1, le=100_000)
    cold_start_seconds: Seconds | LogNormal | Empirical = FleetLimits().cold_start_seconds
    promotion_seconds: Seconds | LogNormal | Empirical = FleetLimits().promotion_seconds
    gpu_stock_replicas: int | None = Field(default=None, ge=1)
    drain_grace_seconds: Seconds | None = None
    warm_replicas_sleep: bool = False

    @field_validator("profile")
    @classmethod
    def _refuse_unknown_profile(cls, name: str) -> str:
        return profile_named(name).name

    @model_validator(mode="after")
    def _refuse_more_than_all(self) -> "FleetPart":
        if self.initial_replicas is not None and self.initial_replicas > self.max_replicas:
            raise ValueError(
                f"initial_replicas={self.initial_replicas} is more than max_replicas={self.max_replicas}; lower one of "
                "them or raise the other"
            )
        return self


class EventPart(Part):
    """Something that the operator has announced; `height` is how many times the usual traffic is expected."""

    name: str = Field(min_length=1)
    start_seconds: Seconds
    length_seconds: PositiveSeconds | None = None
    height: Factor | None = None
    note: str = ""


class ScenarioContent(Part):
    """A whole scenario file."""

    description: str = Field(min_length=1)
    duration_seconds: int = Field(ge=1, le=MAX_DURATION_SECONDS)
    traffic: Traffic
    changes: tuple[Change, ...] = ()
    priority_shares: PriorityShares | None = None
    engine: EngineOptions = EngineOptions()
    clients: Clients = Clients()
    fleet: FleetPart = FleetPart()
    faults: Faults = Faults()
    events: tuple[EventPart, ...] = ()
    primed: bool | PositiveSeconds = False

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> "ScenarioContent":
        if self.changes and isinstance(self.traffic, UserTraffic):
            raise ValueError("changes multiply a rate, and users in a closed loop have none; take one of the two out")
        late = [event.name for event in self.events if event.start_seconds >= self.duration_seconds]
        if late:
            raise ValueError(
                f"events {', '.join(late)} begin after the end; raise duration_seconds={self.duration_seconds}"
            )
        return self

    @property
    def past_seconds(self) -> float:
        """How much of the same service's past a primed controller has seen, 0 for none."""
        if isinstance(self.primed, bool):
            return PRIMED_SECONDS if self.primed else 0.0
        return self.primed
