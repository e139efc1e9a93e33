"""The simulator's speed and its agreement with two other simulators, side by side; times are medians of five runs."""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd

from simulator.profiles import DEFAULT_PROFILE, profile_named
from simulator.requests import RequestTable
from simulator.static_fleet import simulate_static
from training.traces import read_trace

SHARED = Path(os.environ.get("FORESHOCK_SHARED", "../shared"))
CONV = SHARED / "traces" / "azure_llm_2023_conv.csv.gz"
NUM_RUNS = 5
LEVELS = (0.5, 0.9, 0.99)


def timed(requests, profile, *, num_replicas, router):
    """Return (median seconds, result); the first run, which may compile, is not counted."""
    seconds = []
    for _ in range(NUM_RUNS + 1):
        start = time.perf_counter()
        result = simulate_static(requests, profile, num_replicas=num_replicas, router=router)
        seconds.append(time.perf_counter() - start)
    return median(seconds[1:]), result


def conv_digest():
    """Return the SHA-256 of Azure conv on 8 replicas of the default profile."""
    requests = read_trace(CONV).requests
    return hashlib.sha256(
        simulate_static(requests, profile_named(DEFAULT_PROFILE), num_replicas=8).to_bytes()
    ).hexdigest()


def bench_speed():
    """Print requests per wall second."""
    print(f"{'requests':>9}  {'replicas':>8}  {'seconds':>8}  {'requests/s':>10}  what")
    conv = read_trace(CONV).requests
    seconds, _ = timed(conv, profile_named(DEFAULT_PROFILE), num_replicas=8, router="least_outstanding_tokens")
    rows = [(conv.num_requests, 8, seconds, f"Azure conv, {DEFAULT_PROFILE}, target < 1 s")]
    base = reference_requests()
    copies = 50
    shifts = np.repeat(np.arange(copies) * (base.span_seconds + 0.1), base.num_requests)
    many = RequestTable.from_columns(
        np.tile(base.arrival_seconds, copies) + shifts,
        np.tile(base.prompt_tokens, copies),
        np.tile(base.output_tokens, copies),
    )
    seconds, _ = timed(many, profile_named("llama-3.1-8b-a100-tp1"), num_replicas=4, router="round_robin")
    rows.append(
        (many.num_requests, 4, seconds, "reference requests x 50, 8B A100 (NVIDIA Dynamo's mocker: 10-17 thousand/s)")
    )
    for n, replicas, seconds, what in rows:
        print(f"{n:>9,}  {replicas:>8}  {seconds:>8.3f}  {n / seconds:>10,.0f}  {what}")


def reference_requests():
    """Return the 2,000 requests that the other simulators were given."""
    table = pd.read_csv(SHARED / "reference" / "requests.csv")
    return RequestTable.from_columns(
        table.arrival_s.to_numpy(), table.prompt_tokens.to_numpy(), table.output_tokens.to_numpy()
    )


def bench_agreement():
    """Print TTFT and end-to-end quantiles beside those of Dynamo's mocker and Vidur."""
    summary = pd.read_csv(SHARED / "reference" / "reference_summary.csv")
    columns = [f"{kind}_{level}" for kind in ("ttft", "e2e") for level in ("p50", "p90", "p99")]
    requests = reference_requests()
    print(f"\n{'ms':<34}" + "".join(f"{name:>11}" for name in columns))
    for num_replicas in (4, 2):
        _, result = timed(
            requests, profile_named("llama-3.1-8b-a100-tp1"), num_replicas=num_replicas, router="round_robin"
        )
        ttft = result.first_token_at - requests.arrival_seconds
        e2e = result.finished_at - requests.arrival_seconds
        ours = [1e3 * value for values in (ttft, e2e) for value in np.quantile(values, LEVELS)]
        others = summary[summary.config.str.endswith(f"n{num_replicas}")]
        for _, row in others.iterrows():
            print(f"{row.tool + f', N={num_replicas}':<34}" + "".join(f"{row[name]:>11,.0f}" for name in columns))
        print(f"{f'Foreshock, N={num_replicas}':<34}" + "".join(f"{value:>11,.0f}" for value in ours))


def bench_determinism():
    """Print whether two processes give the same bytes."""
    call = [sys.executable, "-c", "from benchmarks.bench_simulator import conv_digest; print(conv_digest())"]
    digests = {subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip() for _ in range(2)}
    verdict = "the same bytes" if len(digests) == 1 else "DIFFERENT BYTES"
    print(f"\ntwo processes, Azure conv: {verdict}, {min(digests)[:16]}")


if __name__ == "__main__":
    bench_speed()
    bench_agreement()
    bench_determinism()
