"""Scorecards, runs and tasks of sweeps for tests."""

import os
from math import nan
from pathlib import Path

from training.fleet_options import FleetOptions
from training.scorecard import Scorecard
from training.sweep_scenarios import sweep_scenario
from training.sweep_tasks import SweepRun, sweep_tasks

SHARED = Path(os.environ.get("FORESHOCK_SHARED", "../shared"))


def card(policy="hpa", **figures):
    known = {
        "num_requests": 1234,
        "attainment_ratio": 0.9876,
        "attainment_ratio_by_priority": (0.97, nan, 1.0),
        "ttft_p50_seconds": 0.111,
        "ttft_p95_seconds": 0.522,
        "ttft_p99_seconds": 1.733,
        "tpot_p50_seconds": 0.024,
        "tpot_p95_seconds": nan,
        "replica_hours": 2.5,
        "gpu_hours": 10.25,
        "warm_cost_ratio": 0.3,
        "preemptions": 7,
        "shed_requests": 1212,
        "unfinished_requests": 3,
        "scaling_actions": 41,
    }
    return Scorecard(policy=policy, **{**known, **figures})


def a_run(key="a", *, scenario="surge", policy="hpa", seed=0, **figures):
    return SweepRun(key=key, scenario=scenario, policy=policy, seed=seed, scorecard=card(policy, **figures))


def a_failure(key="a", *, scenario="surge", policy="hpa", seed=0, error="ValueError: no"):
    return SweepRun(key=key, scenario=scenario, policy=policy, seed=seed, error=error)


def tasks(scenarios=("surge", "steady"), policies=("hpa", "static:2"), seeds=(0, 1), *, seconds=10.0, **options):
    fleet = FleetOptions(duration_seconds=seconds, **options)
    return sweep_tasks([sweep_scenario(name, shared=SHARED) for name in scenarios], policies, seeds, fleet)
