"""The reference requests on static fleets, beside what NVIDIA Dynamo's mocker and Microsoft's Vidur make of them."""

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.figure import Figure, number
from simulator.profiles import profile_named
from simulator.requests import RequestTable
from simulator.static_fleet import simulate_static

PROFILE = profile_named("llama-3.1-8b-a100-tp1")
LEVELS = (50, 90, 99)
NAMES = {"ttft": "TTFT", "e2e": "end-to-end"}
END_TO_END_BAND = 0.15
TTFT_BELOW_DYNAMO, TTFT_ABOVE_VIDUR = 0.7, 1.3
SATURATED_FACTOR = 2.0


def reference_requests(shared: Path) -> RequestTable:
    """Return the 2,000 requests that the other simulators were given."""
    table = pd.read_csv(shared / "reference" / "requests.csv")
    return RequestTable.from_columns(
        table.arrival_s.to_numpy(), table.prompt_tokens.to_numpy(), table.output_tokens.to_numpy()
    )


def agreement_figures(shared: Path) -> list[Figure]:
    """Return quantiles of TTFT and of end-to-end time on four replicas and on two, which are nearly saturated."""
    summary = pd.read_csv(shared / "reference" / "reference_summary.csv")
    requests = reference_requests(shared)
    figures = []
    for num_replicas in (4, 2):
        result = simulate_static(requests, PROFILE, num_replicas=num_replicas, router="round_robin")
        seconds = {
            "ttft": result.first_token_at - result.arrival_at,
            "e2e": result.finished_at - result.arrival_at,
        }
        rows = summary[summary.config.str.endswith(f"n{num_replicas}")].set_index("tool")
        (dynamo,) = (row for tool, row in rows.iterrows() if tool.startswith("dynamo"))
        (vidur,) = (row for tool, row in rows.iterrows() if tool.startswith("vidur"))
        for measure, values in seconds.items():
            for level in LEVELS:
                theirs = (float(dynamo[f"{measure}_p{level}"]), float(vidur[f"{measure}_p{level}"]))
                low, high = _band(measure, num_replicas, *theirs)
                figures.append(
                    Figure(
                        group=f"Llama 3.1 8B on A100, {num_replicas} replicas, round-robin, 2,000 bursty requests",
                        name=f"{NAMES[measure]} p{level}",
                        value=1e3 * float(np.percentile(values, level)),
                        unit="ms",
                        low=low,
                        high=high,
                        beside=f"Dynamo {number(theirs[0])}, Vidur {number(theirs[1])}",
                    )
                )
    return figures


def _band(measure: str, num_replicas: int, dynamo: float, vidur: float) -> tuple[float, float]:
    if measure == "ttft" and num_replicas == 4:
        return TTFT_BELOW_DYNAMO * dynamo, TTFT_ABOVE_VIDUR * vidur
    if measure == "ttft":  # within the factor of either; the two bands overlap
        return min(dynamo, vidur) / SATURATED_FACTOR, max(dynamo, vidur) * SATURATED_FACTOR
    if num_replicas == 4:
        return (1 - END_TO_END_BAND) * max(dynamo, vidur), (1 + END_TO_END_BAND) * min(dynamo, vidur)
    return -np.inf, np.inf
