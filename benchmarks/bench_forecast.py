"""How good the forecast is: beside five trivial ones, real and generated traffic apart, and what it costs.

Run by `make bench-forecast`; figures are saved as JSON to out/bench_forecast.json.
"""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from forecaster.features import FeatureStream, build_features
from forecaster.forecast import KV_BLOCKS, LEVELS, PREFILL
from forecaster.online import OnlineForecaster, loads_of
from models.demand_forecaster import load_default
from simulator.profiles import profile_named
from simulator.requests import RequestTable
from simulator.static_fleet import simulate_static
from simulator.workload.arrivals import poisson_arrivals
from training.backtest import backtest, ratio_interval
from training.datasets import maximum_ahead
from training.generated_fleets import LENGTHS
from training.traces import read_trace

SHARED = Path(os.environ.get("FORESHOCK_SHARED", "../shared"))
OUT = Path("out/bench_forecast.json")
PROFILE = profile_named("llama-3.1-70b-h100-tp4")
NUM_REPLICAS = 32  # so many that nothing queues: what is asked can be read off
SCORED = (KV_BLOCKS, PREFILL)
MODEL = "Foreshock"
FLOOR_REPLAYS = 15
REAL = {
    "Azure code": "azure_llm_2023_code.csv.gz",
    "Azure conv": "azure_llm_2023_conv.csv.gz",
    "Mooncake": "mooncake_conversation.jsonl.gz",
}
SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSet:
    """Traffic to forecast, and its intensity as far as it is known."""

    name: str
    is_real: bool
    requests: RequestTable
    rate_per_second: np.ndarray


def real_sets():
    """Return the public traces; their intensity is taken as the centred mean of a minute."""
    found = []
    for name, file in REAL.items():
        requests = read_trace(SHARED / "traces" / file).requests
        counts = np.bincount(requests.arrival_seconds.astype(int))
        rate = np.convolve(counts, np.ones(61) / 61, mode="same")
        found.append(TrafficSet(name=name, is_real=True, requests=requests, rate_per_second=rate))
    return found


def generated_sets():
    """Return an hour each of a recurring seckill, a day's wave in small, and ramps, with chat lengths."""
    second = np.arange(SECONDS)
    in_period = second % 450
    seckill = 4.0 * (1 + 3.0 * np.clip(in_period / 5, 0, 1) * (in_period < 60))
    diurnal = 8.0 * (1 + 0.7 * np.sin(2 * np.pi * second / 1800))
    ramp = np.interp(second % 1200, [0, 300, 600, 800, 1000, 1200], [4, 4, 14, 14, 4, 4])
    found = []
    for i, (name, rate) in enumerate((("seckill", seckill), ("diurnal", diurnal), ("ramp", ramp))):
        rng = np.random.default_rng([11, i])
        found.append(
            TrafficSet(name=name, is_real=False, requests=drawn(rate, lengths("chat", rng), rng), rate_per_second=rate)
        )
    return found


def lengths(kind, rng):
    """Return 20,000 (prompt, output) lengths."""
    of = LENGTHS[kind]
    prompt = of.prompt_median * np.exp(rng.normal(0, of.prompt_sigma, 20_000))
    output = of.output_median * np.exp(rng.normal(0, of.output_sigma, 20_000))
    return np.column_stack([np.clip(prompt, 1, 60_000), np.clip(output, 1, 10_000)]).astype(np.int64)


def drawn(rate, pairs, rng):
    """Return Poisson arrivals at a rate, lengths drawn from `pairs`."""
    arrival = poisson_arrivals(rate, rng)
    rows = pairs[rng.integers(len(pairs), size=arrival.size)]
    return RequestTable.from_columns(arrival, rows[:, 0], rows[:, 1])


def played(requests, seconds=None):
    """Return the telemetry on a fleet where nothing queues."""
    return simulate_static(requests, PROFILE, num_replicas=NUM_REPLICAS, duration_seconds=seconds).telemetry


def floor_wape(traffic, num_rows):
    """Return the WAPE of a median that knows the intensity and the lengths: what Poisson arrivals leave to nobody."""
    rng = np.random.default_rng(23)
    pairs = np.column_stack([traffic.requests.prompt_tokens, traffic.requests.output_tokens])
    scored = slice(num_rows // 2, num_rows - 30)
    runs = []
    for _ in range(FLOOR_REPLAYS):
        telemetry = played(drawn(traffic.rate_per_second, pairs, rng), num_rows)
        loads = loads_of(build_features(telemetry, PROFILE.capacity))
        runs.append([maximum_ahead(loads[:, i], 30)[scored] for i in range(len(SCORED))])
    made = np.array(runs)
    median = np.nanmedian(made, axis=0)
    return np.nanmean(np.abs(made - median), axis=(0, 2)) / np.nanmean(made, axis=(0, 2))


def cost(telemetry):
    """Return seconds of features + forecast per row (median, 0.99 quantile), and of 1,000 deployments' next row."""
    stream, online = FeatureStream(PROFILE.capacity), OnlineForecaster(load_default(), PROFILE.capacity)
    seconds = []
    for row in range(900):
        start = time.perf_counter()
        features = stream.update(float(telemetry.row_at[row]), telemetry.values[row])
        online.observe(features, row_at=float(telemetry.row_at[row]))
        online.forecast(made_at=float(row), horizons_seconds=(6.0, 30.0, 120.0))
        seconds.append(time.perf_counter() - start)
    fleet = [(FeatureStream(PROFILE.capacity), OnlineForecaster(load_default(), PROFILE.capacity)) for _ in range(1000)]
    for row in range(3):
        start = time.perf_counter()
        for stream, online in fleet:
            features = stream.update(float(telemetry.row_at[row]), telemetry.values[row])
            online.observe(features, row_at=float(telemetry.row_at[row]))
            online.forecast(made_at=float(row), horizons_seconds=(6.0, 30.0, 120.0))
        batch = time.perf_counter() - start
    return float(np.median(seconds[300:])), float(np.quantile(seconds[300:], 0.99)), batch


def scored_sets(progress):
    """Return (traffic set, backtests of the scored targets, WAPE floors) of every set."""
    sets = ([] if not (SHARED / "traces").is_dir() else real_sets()) + generated_sets()
    task = progress.add_task("backtests", total=len(sets))
    found = []
    for traffic in sets:
        telemetry = played(traffic.requests)
        tests = backtest(telemetry, PROFILE.capacity, {MODEL: load_default()})
        kept = [test for test in tests if test.target in SCORED]
        found.append((traffic, kept, floor_wape(traffic, telemetry.num_rows)))
        progress.advance(task)
    return found


def record(traffic, test, floor):
    """Return the figures of one set and target as JSON values."""
    best = test.best_trivial
    low, high = ratio_interval(test.losses(MODEL), test.losses(best), np.random.default_rng(5))
    error = test.coverage_error()
    coverage = test.coverage_ratio(MODEL)
    return {
        "set": traffic.name,
        "is_real": traffic.is_real,
        "target": test.target,
        "num_rows": int(test.actual.size),
        "best_trivial": best,
        "pinball_best_trivial": float(test.losses(best).mean()),
        "pinball": float(test.losses(MODEL).mean()),
        "ratio": test.ratio(MODEL),
        "ratio_interval": [low, high],
        "ratio_model_alone": test.ratio(f"{MODEL}, alone"),
        "ratio_trivial": {name: test.ratio(name) for name in test.trivial},
        "coverage_ratio": coverage.tolist(),
        "coverage_gap_in_standard_errors": ((coverage - np.array(LEVELS)) / error).tolist(),
        "wape": test.wape(MODEL),
        "wape_floor": float(floor),
    }


def table_of(records, title):
    """Return a table of some records with their macro mean."""
    table = Table(title=title, title_justify="left", box=None)
    for name in ("set", "target", "best trivial", "its pinball", "Foreshock", "ratio", "95 % interval", "model alone"):
        table.add_column(name, justify="left" if name in ("set", "target", "best trivial") else "right")
    for level in LEVELS:
        table.add_column(f"cov {level}", justify="right")
    table.add_column("WAPE", justify="right")
    table.add_column("floor", justify="right")
    for one in records:
        low, high = one["ratio_interval"]
        cells = [one["set"], one["target"].split("_tokens")[0], one["best_trivial"]]
        cells += [f"{one['pinball_best_trivial']:.4f}", f"{one['pinball']:.4f}", f"{one['ratio']:.3f}"]
        cells += [f"{low:.2f} to {high:.2f}", f"{one['ratio_model_alone']:.3f}"]
        cells += [f"{value:.3f}" for value in one["coverage_ratio"]]
        table.add_row(*cells, f"{one['wape']:.3f}", f"{one['wape_floor']:.3f}")
    pooled = np.average(
        [one["coverage_ratio"] for one in records], axis=0, weights=[one["num_rows"] for one in records]
    )
    macro = float(np.mean([one["ratio"] for one in records]))
    alone = float(np.mean([one["ratio_model_alone"] for one in records]))
    table.add_row("mean", "", "", "", "", f"{macro:.3f}", "", f"{alone:.3f}", *[f"{value:.3f}" for value in pooled])
    return table


def main():
    """Print the tables, with --json the figures alone; save them either way."""
    console = Console(width=None if sys.stdout.isatty() else 190)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        found = scored_sets(progress)
    records = [
        record(traffic, test, floor)
        for traffic, tests, floors in found
        for test, floor in zip(tests, floors, strict=True)
    ]
    p50, p99, batch = cost(played(found[-1][0].requests))
    costs = {"p50_seconds": p50, "p99_seconds": p99, "thousand_deployments_seconds": batch}
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"records": records, "cost": costs}, indent=1) + "\n", encoding="utf-8")
    if "--json" in sys.argv:
        print(json.dumps({"records": records, "cost": costs}))
        return
    for title, is_real in (("real (target: <= 1.02 each, <= 0.95 mean)", True), ("generated (<= 0.80 mean)", False)):
        some = [one for one in records if one["is_real"] == is_real]
        if some:
            console.print(table_of(some, title), "")
    console.print(
        f"features + forecast of a row: p50 {1e3 * p50:.2f} ms, p99 {1e3 * p99:.2f} ms (targets with the plan: 2, 10); "
        f"1,000 deployments' next row: {batch:.2f} s (target 1)"
    )
    console.print(f"figures: {OUT}")


if __name__ == "__main__":
    main()
