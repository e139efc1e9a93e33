"""A policy that plans by the clock alone, with forecasts and reasons, for what only looks at plans."""

import numpy as np

from forecaster.forecast import DEMAND, KV_BLOCKS, LEVELS, PREFILL, QuantileForecast
from forecaster.plan import Admission, CapacityPlan, Reason, ReasonCode
from forecaster.telemetry import FleetState, TelemetryWindow


class ScriptedPolicy:
    """Serves 2 replicas, from `jump_at` on 4 with one in reserve, and sheds for 10 s from then on."""

    def __init__(self, jump_at: float = 10.0, message: str = "the script says so") -> None:
        self.jump_at, self.message = jump_at, message

    def decide(self, *, now: float, telemetry: TelemetryWindow, fleet: FleetState) -> CapacityPlan:
        """Return the scripted plan."""
        serving, supply = (2, 2) if now < self.jump_at else (4, 5)
        sheds = self.jump_at <= now < self.jump_at + 10
        reason = Reason(code=ReasonCode.SIZED_SERVING, message=f"{self.message} at {now:.0f}", before=2, after=serving)
        shedding = Reason(code=ReasonCode.SHEDDING, message="the script sheds", before=1.0, after=0.2)
        return CapacityPlan(
            planned_at=now,
            serving_replicas=serving,
            supply_replicas=supply,
            admission=Admission(admitted_ratio_by_priority=(0.2, 0.2, 1.0)) if sheds else Admission(),
            reasons=(reason, *([shedding] if sheds else [])),
            forecast=forecast_at(now),
        )


def forecast_at(now: float) -> QuantileForecast:
    """Return a forecast whose KV quantile at level q is 1,000 x (1 + now) x q at every horizon."""
    row = 1000.0 * (1 + now) * np.array(LEVELS)
    values = np.array([row, row, row])
    return QuantileForecast(
        made_at=now,
        horizons_seconds=(6.0, 30.0, 32.0),
        values={KV_BLOCKS: values, DEMAND: values / 1000, PREFILL: values},
        source="script",
    )
