"""The pure core: telemetry in, a capacity plan out. No I/O, no clock, no environment; standard library, numpy, pandas.

`plan` is the one decision path. Whatever observes, forecasts or acts on a fleet does it with the types named here.
"""

from forecaster.capacity import ReplicaCapacity
from forecaster.config import AdmissionSettings, PlannerConfig, RuleSettings, Slo
from forecaster.demand import OfferedLoad, offered_load
from forecaster.demand_stream import OfferedLoadStream
from forecaster.errors import (
    ArtifactMismatchError,
    ConfigError,
    ForecasterError,
    InsufficientHistoryError,
    InvalidTelemetryError,
    TraceFormatError,
)
from forecaster.forecast import Forecaster, QuantileForecast, repaired_quantiles
from forecaster.plan import ADMIT_ALL, Admission, CapacityPlan, PlanInput, PlanState, Reason, ReasonCode
from forecaster.planner import plan
from forecaster.sizing import TwoTierSize, size_two_tier
from forecaster.telemetry import SIGNALS, FleetState, Signal, TelemetryWindow
from forecaster.ttft import ttft_p95_seconds

__all__ = [
    "ADMIT_ALL",
    "SIGNALS",
    "Admission",
    "AdmissionSettings",
    "ArtifactMismatchError",
    "CapacityPlan",
    "ConfigError",
    "FleetState",
    "Forecaster",
    "ForecasterError",
    "InsufficientHistoryError",
    "InvalidTelemetryError",
    "OfferedLoad",
    "OfferedLoadStream",
    "PlanInput",
    "PlanState",
    "PlannerConfig",
    "QuantileForecast",
    "Reason",
    "ReasonCode",
    "ReplicaCapacity",
    "RuleSettings",
    "Signal",
    "Slo",
    "TelemetryWindow",
    "TraceFormatError",
    "TwoTierSize",
    "offered_load",
    "plan",
    "repaired_quantiles",
    "size_two_tier",
    "ttft_p95_seconds",
]
