"""Two small fleets that a test plays by hand, tick by tick, with forecasts and reasons."""

import numpy as np

from cli.policy_track import PolicyTrack
from forecaster.config import PlannerConfig
from forecaster.forecast import KV_BLOCKS, LEVELS, QuantileForecast
from forecaster.plan import Admission, CapacityPlan, Reason, ReasonCode
from simulator.fleet import Fleet
from simulator.fleet_limits import FleetLimits
from simulator.profiles import DEFAULT_PROFILE, profile_named
from simulator.requests import RequestTable
from simulator.run_settings import RunSettings

PROFILE = profile_named(DEFAULT_PROFILE)
CONFIG = PlannerConfig(capacity=PROFILE.capacity, gpus_per_replica=PROFILE.gpus_per_replica)
SECONDS = 60


def hand_driven_tracks(*policies: str, keep_seconds: float = 900.0) -> tuple[PolicyTrack, ...]:
    """Return a track for each policy; nothing has been played yet."""
    requests = RequestTable.from_columns(np.arange(40 * SECONDS) / 40, np.full(2400, 900), np.full(2400, 60))
    return tuple(
        PolicyTrack(
            policy,
            Fleet(
                requests,
                PROFILE,
                limits=FleetLimits(initial_replicas=2, max_replicas=12, cold_start_seconds=10.0),
                duration_seconds=float(SECONDS),
                settings=RunSettings(),
            ),
            config=CONFIG,
            keep_seconds=keep_seconds,
        )
        for policy in policies
    )


def play_until(tracks: tuple[PolicyTrack, ...], until: float) -> None:
    """Plan and advance every 2 s: two replicas, from 20 s on five and one warm; the first policy explains and sheds."""
    for i, track in enumerate(tracks):
        while track.fleet.now < until:
            now = track.fleet.now
            track.fleet.apply(_plan(now, explains=i == 0))
            track.update()
            track.fleet.advance(now + 2.0)
        track.update()


def _plan(now: float, *, explains: bool) -> CapacityPlan:
    serving, supply = (2, 2) if now < 20 else (5, 6)
    sheds = explains and now >= 20
    reason = Reason(
        code=ReasonCode.SIZED_SERVING, message="demand is expected to reach 4.2 replicas", before=2, after=serving
    )
    shedding = Reason(code=ReasonCode.SHEDDING, message="demand outruns what serves", before=1.0, after=0.5)
    row = 20_000.0 * np.array(LEVELS)
    forecast = QuantileForecast(made_at=now, horizons_seconds=(30.0,), values={KV_BLOCKS: row[None, :]})
    return CapacityPlan(
        planned_at=now,
        serving_replicas=serving,
        supply_replicas=supply,
        reasons=(reason, *([shedding] if sheds else [])) if explains else (),
        forecast=forecast if explains else None,
        admission=Admission(admitted_ratio_by_priority=(0.5, 0.5, 0.5)) if sheds else Admission(),
    )
