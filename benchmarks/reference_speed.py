"""How many requests a wall second: the reference requests repeated to 100,000, on four replicas, compile time apart."""

import time
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.figure import Figure
from benchmarks.reference_agreement import PROFILE, reference_requests
from simulator.requests import RequestTable
from simulator.static_fleet import simulate_static

NUM_COPIES = 50
NUM_RUNS = 5


def repeated(base: RequestTable, num_copies: int) -> RequestTable:
    """Return the requests one copy after the other."""
    shifts = np.repeat(np.arange(num_copies) * (base.span_seconds + 0.1), base.num_requests)
    return RequestTable.from_columns(
        np.tile(base.arrival_seconds, num_copies) + shifts,
        np.tile(base.prompt_tokens, num_copies),
        np.tile(base.output_tokens, num_copies),
    )


def reference_speed_figures(shared: Path) -> list[Figure]:
    """Return the median speed of five runs, of which the first, which may compile, is not counted."""
    requests = repeated(reference_requests(shared), NUM_COPIES)
    seconds = []
    for _ in range(NUM_RUNS + 1):
        start = time.perf_counter()
        simulate_static(requests, PROFILE, num_replicas=4, router="round_robin")
        seconds.append(time.perf_counter() - start)
    return [
        Figure(
            group="Speed on one core",
            name=f"{requests.num_requests:,} reference requests, 4 replicas",
            value=requests.num_requests / median(seconds[1:]),
            unit="requests/s",
            low=200_000,
            beside="Dynamo's mocker (Rust) 10,000 to 17,000, Vidur 200 to 700",
        )
    ]
