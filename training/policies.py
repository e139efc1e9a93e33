"""Policies that can play a closed loop, by name: Foreshock's planner and the baselines that it is compared with."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil, isnan
from types import MappingProxyType

import numpy as np

from forecaster.config import PlannerConfig
from forecaster.features import FeatureStream
from forecaster.forecast import HEADLINE_HORIZON_SECONDS, Forecaster, QuantileForecast
from forecaster.online import OnlineForecaster
from forecaster.plan import CapacityPlan, PlanInput, Reason, ReasonCode
from forecaster.planner import plan
from forecaster.telemetry import FleetState, TelemetryWindow
from models import load_default
from simulator.fleet import Policy
from simulator.static_fleet import StaticPolicy

# Before that the trailing minute that forecasts are relative to is mostly noise, and a pool ordered on it stands for
# minutes; the planner falls back to what it has seen, and says so.
MIN_HISTORY_ROWS = 30


class ForeshockPolicy:
    """The one decision path: rows into features, features into a forecast, and `plan()`."""

    def __init__(self, config: PlannerConfig, forecaster: Forecaster) -> None:
        self.config = config
        self.online = OnlineForecaster(forecaster, config.capacity)
        self.previous: CapacityPlan | None = None
        self._stream = FeatureStream(config.capacity)
        self._num_rows = 0
        self._last_row_at = float("-inf")

    def observe(self, telemetry: TelemetryWindow) -> None:
        """Bring the features up to the newest row; rows seen before are passed over."""
        first = int(np.searchsorted(telemetry.row_at, self._last_row_at, side="right"))
        for i in range(first, telemetry.num_rows):
            self._num_rows += 1
            self._last_row_at = float(telemetry.row_at[i])
            features = self._stream.update(self._last_row_at, telemetry.values[i])
            if self._num_rows >= MIN_HISTORY_ROWS:
                self.online.observe(features, row_at=self._last_row_at)

    def decide(self, *, now: float, telemetry: TelemetryWindow, fleet: FleetState) -> CapacityPlan:
        """Return the planner's plan for `now`."""
        self.observe(telemetry)
        inputs = PlanInput(
            now=now,
            telemetry=telemetry,
            fleet=fleet,
            forecast=self._forecast(now, fleet),
            previous=self.previous,
        )
        self.previous = plan(inputs, self.config)
        return self.previous

    def _forecast(self, now: float, fleet: FleetState) -> QuantileForecast | None:
        interval = self.config.plan_interval_seconds
        promotion, ready = fleet.time_to_promote_seconds + interval, fleet.time_to_ready_seconds + interval
        return self.online.forecast(
            made_at=now, horizons_seconds=tuple(sorted({promotion, HEADLINE_HORIZON_SECONDS, ready}))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaSettings:
    """A plain HorizontalPodAutoscaler (autoscaling/v2) on a per-pod average, with Kubernetes' own defaults.

    Sync period 15 s, tolerance 0.1, scale-down stabilisation 300 s, scale-up at most double or 4 pods per 15 s: the
    documented defaults of kube-controller-manager and of HPA `behavior`. The target is prompt tokens per second per
    pod at 70 % of what a replica prefills within its SLO, a usual rule of thumb.
    """

    target_tokens_per_second: float
    sync_seconds: float = 15.0
    tolerance_ratio: float = 0.1
    down_stabilisation_seconds: float = 300.0
    metric_seconds: float = 30.0  # the usual rate(...[30s]) behind such a metric
    min_replicas: int = 1
    max_replicas: int = 48


class HpaPolicy:
    """What a HorizontalPodAutoscaler does with the prompt tokens per second per pod."""

    def __init__(self, settings: HpaSettings) -> None:
        self.settings = settings
        self._synced_at = float("-inf")
        self._wanted: deque[tuple[float, int]] = deque()
        self._target: int | None = None

    def decide(self, *, now: float, telemetry: TelemetryWindow, fleet: FleetState) -> CapacityPlan:
        """Return the HPA's target; between two syncs it is the last one."""
        current = self._target if self._target is not None else fleet.supply_replicas
        reasons: tuple[Reason, ...] = ()
        if now - self._synced_at >= self.settings.sync_seconds:
            self._synced_at = now
            wanted, reasons = self._sync(now, telemetry, current, max(fleet.serving_replicas, 1))
            current = wanted
        self._target = current
        return CapacityPlan(planned_at=now, serving_replicas=current, supply_replicas=current, reasons=reasons)

    def _sync(self, now: float, telemetry: TelemetryWindow, current: int, ready: int) -> tuple[int, tuple[Reason, ...]]:
        settings = self.settings
        recent = telemetry.column("prompt_tokens_per_second")[-int(settings.metric_seconds) :]
        tokens = float(np.nanmean(recent)) if recent.size and not np.isnan(recent).all() else float("nan")
        if isnan(tokens):
            return current, ()
        ratio = tokens / ready / settings.target_tokens_per_second
        wanted = current if abs(ratio - 1) <= settings.tolerance_ratio else ceil(ready * ratio)
        wanted = min(max(wanted, settings.min_replicas), settings.max_replicas)
        self._wanted.append((now, wanted))
        while self._wanted[0][0] < now - settings.down_stabilisation_seconds:
            self._wanted.popleft()
        allowed = min(max(number for _, number in self._wanted), max(2 * current, current + 4))
        target = max(wanted if wanted > current else min(allowed, current), 0)
        target = min(target, max(2 * current, current + 4))
        if target == current:
            return current, ()
        message = f"HPA: {tokens / ready:,.0f} prompt tokens/s per pod against {settings.target_tokens_per_second:,.0f}"
        return target, (Reason(code=ReasonCode.POLICY, message=message, before=current, after=target),)


def _foreshock(config: PlannerConfig, argument: str) -> Policy:
    return ForeshockPolicy(config, load_default())


def _hpa(config: PlannerConfig, argument: str) -> Policy:
    usable = 0.7 * config.capacity.prefill_tokens_per_second
    settings = HpaSettings(target_tokens_per_second=usable)
    return HpaPolicy(replace(settings, min_replicas=config.min_replicas, max_replicas=config.max_replicas))


def _static(config: PlannerConfig, argument: str) -> Policy:
    if not argument.isdigit() or not 1 <= int(argument) <= config.max_replicas:
        raise ValueError(f"static:N needs N from 1 to max_replicas={config.max_replicas}, got {argument!r}")
    return StaticPolicy(int(argument))


POLICIES: Mapping[str, Callable[[PlannerConfig, str], Policy]] = MappingProxyType(
    {"foreshock": _foreshock, "hpa": _hpa, "static": _static}
)


def policy_named(name: str, config: PlannerConfig) -> Policy:
    """Return the policy called `name`: foreshock, hpa or static:N.

    Raises
    ------
    ValueError
        If there is none; the message lists those there are.
    """
    kind, _, argument = name.partition(":")
    if kind not in POLICIES or (argument and kind != "static"):
        raise ValueError(f"no policy is called {name!r}; known: foreshock, hpa, static:N")
    return POLICIES[kind](config, argument)


def initial_replicas(name: str, default: int) -> int:
    """Return how many replicas a run under policy `name` starts with: static:N has its N from the start."""
    kind, _, argument = name.partition(":")
    return int(argument) if kind == "static" and argument.isdigit() else default
