"""One seed, one result, byte for byte: in this process twice, and in another."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from forecaster.plan import Admission, CapacityPlan
from simulator.fleet import simulate
from simulator.fleet_limits import FleetLimits
from simulator.profiles import profile_named
from simulator.requests import RequestTable


class Seesaw:
    """A policy that goes up and down and sheds now and then."""

    def decide(self, *, now, telemetry, fleet):
        serving = 1 + int(now // 6) % 4
        limited = Admission(prefill_tokens_per_second=9000.0, burst_tokens=9000.0)
        return CapacityPlan(
            planned_at=now,
            serving_replicas=serving,
            supply_replicas=serving + int(now // 10) % 2,
            admission=limited if int(now // 20) % 2 else Admission(),
        )


def run(seed):
    rng = np.random.default_rng(seed)
    n = 1500
    requests = RequestTable.from_columns(
        np.cumsum(rng.exponential(0.04, n)),
        rng.lognormal(6.5, 1.0, n).clip(1, 8000).astype(np.int64),
        rng.lognormal(5.0, 0.8, n).clip(1, 2000).astype(np.int64),
        priority=rng.integers(0, 3, n).astype(np.int8),
    )
    limits = FleetLimits(initial_replicas=2, max_replicas=6, cold_start_seconds=8.0)
    return simulate(requests, profile_named("llama-3.1-8b-a100-tp1"), policy=Seesaw(), limits=limits)


def digest(seed):
    return hashlib.sha256(run(seed).to_bytes()).hexdigest()


def test_same_seed_gives_the_same_bytes():
    assert digest(20) == digest(20)


def test_another_seed_gives_others():
    assert digest(20) != digest(21)


def test_another_process_gives_the_same_bytes():
    command = "import sys; sys.path.insert(0, sys.argv[1]); import test_result; print(test_result.digest(20))"
    here = str(Path(__file__).parent)
    printed = subprocess.run(
        [sys.executable, "-c", command, here],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.strip() == digest(20)


def test_anything_that_went_otherwise_changes_the_bytes():
    result = run(20)
    before = result.to_bytes()
    columns = ("arrival_at", "first_token_at", "finished_at", "outcome", "served_by", "num_attempts", "num_preemptions")
    for name in columns:
        column = getattr(result, name)
        kept = column[7]
        column[7] = 1 if name == "outcome" and kept != 1 else 2
        assert result.to_bytes() != before, name
        column[7] = kept
    assert result.to_bytes() == before
