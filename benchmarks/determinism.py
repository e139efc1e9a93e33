"""Whether one seed gives one result, byte for byte, in processes of their own."""

import hashlib
import subprocess
import sys
from pathlib import Path

from benchmarks.figure import Figure
from simulator.profiles import DEFAULT_PROFILE, profile_named
from simulator.static_fleet import simulate_static
from training.traces import read_trace

NUM_PROCESSES = 2


def digest(trace: str) -> str:
    """Return the SHA-256 of a trace on 8 replicas of the default profile."""
    requests = read_trace(Path(trace)).requests
    result = simulate_static(requests, profile_named(DEFAULT_PROFILE), num_replicas=8)
    return hashlib.sha256(result.to_bytes()).hexdigest()


def determinism_figures(shared: Path) -> list[Figure]:
    """Return how many different results two processes and a second play give."""
    trace = str(shared / "traces" / "azure_llm_2023_conv.csv.gz")
    call = [sys.executable, "-c", f"from benchmarks.determinism import digest; print(digest({trace!r}))"]
    printed = {
        subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip() for _ in range(NUM_PROCESSES)
    }
    return [
        Figure(
            group="Determinism: Azure conv on 8 replicas",
            name="different results in three processes",
            value=len(printed | {digest(trace)}),
            low=1,
            high=1,
            beside=f"SHA-256 {min(printed)[:16]}",
        )
    ]
