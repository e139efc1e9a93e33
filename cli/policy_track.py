"""What one policy's fleet has shown so far, collected tick by tick while it is played."""

import numpy as np

from forecaster.config import PlannerConfig
from forecaster.plan import CapacityPlan
from forecaster.telemetry import SIGNALS, Floats, TelemetryWindow
from simulator.fleet import Fleet
from training.decisions import DecisionLog
from training.scorecard import weighted_replica_hours
from training.timeline import BAND_LEVELS, ForecastBand, Timeline, forecast_band, timeline


class PolicyTrack:
    """Rows, forecasts and decisions of a fleet that is being played.

    Parameters
    ----------
    policy : str
    fleet : Fleet
    config : PlannerConfig
        For the capacity of a replica, the SLO and what a warm replica costs.
    keep_seconds : float
        Older rows and forecasts are let go; decisions and sums are kept.

    Attributes
    ----------
    log : DecisionLog
    shed_requests : int
        Refused so far.
    seconds_over_target : int
        Rows so far with a TTFT p95 over the target.
    """

    def __init__(
        self,
        policy: str,
        fleet: Fleet,
        *,
        config: PlannerConfig,
        keep_seconds: float,
    ) -> None:
        self.policy, self.fleet, self.config, self.keep_seconds = policy, fleet, config, keep_seconds
        self.log = DecisionLog(fleet.limits.initial_replicas)
        self.shed_requests = 0
        self.seconds_over_target = 0
        self._num_plans = 0
        self._row_at: Floats = np.zeros(0)
        self._values: Floats = np.zeros((0, len(SIGNALS)))
        self._band = ForecastBand(at=np.zeros(0), kv_blocks=np.zeros((0, len(BAND_LEVELS))))

    def update(self) -> tuple[CapacityPlan, ...]:
        """Take in what the fleet has done since the last call and return its new plans."""
        plans = tuple(self.fleet.plans[self._num_plans :])
        self._num_plans += len(plans)
        for plan in plans:
            self.log.add(plan)
        self._extend_band(forecast_band(plans))
        self._extend_rows(self.fleet.telemetry())
        return plans

    @property
    def gpu_hours(self) -> float:
        """GPU-hours spent so far."""
        hours = weighted_replica_hours(self.fleet.pods.replica_seconds(self.fleet.now), self.config.warm_cost_ratio)
        return hours * self.config.gpus_per_replica

    @property
    def curves(self) -> Timeline:
        """The rows that are kept, as curves."""
        window = TelemetryWindow(deployment=self.policy, row_at=self._row_at, values=self._values, seen_at=self._row_at)
        return timeline(window, self.config.capacity)

    @property
    def band(self) -> ForecastBand:
        """The forecasts that are kept."""
        return self._band

    def _extend_rows(self, seen: TelemetryWindow) -> None:
        new = seen.since(float(self._row_at[-1])) if self._row_at.size else seen
        self._row_at = np.concatenate([self._row_at, new.row_at])
        self._values = np.concatenate([self._values, new.values])
        kept = int(np.searchsorted(self._row_at, self.fleet.now - self.keep_seconds))
        self._row_at, self._values = self._row_at[kept:], self._values[kept:]
        self.shed_requests += int(np.nansum(new.column("rejected_rate_per_second")))
        over = timeline(new, self.config.capacity).ttft_p95_seconds > self.config.slo.ttft_seconds
        self.seconds_over_target += int(over.sum())

    def _extend_band(self, new: ForecastBand) -> None:
        at = np.concatenate([self._band.at, new.at])
        kept = int(np.searchsorted(at, self.fleet.now - self.keep_seconds))
        blocks = np.concatenate([self._band.kv_blocks, new.kv_blocks])
        self._band = ForecastBand(at=at[kept:], kv_blocks=blocks[kept:])
