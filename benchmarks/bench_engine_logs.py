"""The replay of three real vLLM logs: fitted to the first half's requests, scored on the second half's."""

import os
from pathlib import Path

import numpy as np
import pandas as pd

from training.calibration import calibrate
from training.engine_logs import read_engine_log
from training.log_replay import replayed

FOLDER = Path(os.environ.get("FORESHOCK_SHARED", "../shared")) / "calibration"
# name -> (max_num_seqs, max_num_batched_tokens, kv_blocks to choose from), which the logs do not state. Sequences and
# blocks: the README beside the logs says how many ran at once, and "about 44 thousand tokens" (2,750 blocks) of the
# first; of the others 40,000 blocks are more than any moment needs. Tokens: vLLM's defaults, 2,048 below 70 GB of
# GPU memory and 8,192 from there.
ENGINES = {
    "RTX4090_Llama-3.1-8B": (256, 2048, range(2500, 2801, 50)),
    "RTXPRO6000_Llama-3.1-8B": (128, 8192, (40_000,)),
    "RTXPRO6000_Qwen3-30B-A3B-Instruct-2507": (256, 8192, (40_000,)),
}


def best_fit(log, name, form):
    """Return the calibration with as many KV blocks, where that is unknown, as fit the first half best."""
    max_num_seqs, max_num_batched_tokens, kv_blocks = ENGINES[name]
    fits = [
        calibrate(
            log,
            name=name,
            form=form,
            kv_blocks=blocks,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
        )
        for blocks in kv_blocks
    ]
    return min(fits, key=lambda fit: fit.cost)


def series_errors(log, calibration, name):
    """Return the mean absolute error over the mean of running, waiting and, if it was recorded, KV blocks used."""
    measured = pd.read_csv(FOLDER / f"llmservingsim_vllm_{name}_timeseries.csv.gz")
    replay = replayed(log, calibration.profile, overhead_seconds=0.0).telemetry
    pairs = {
        "running_requests": measured.running,
        "waiting_requests": measured.waiting,
        "kv_blocks_used": measured.kv_cache_pct / 100 * calibration.profile.kv_blocks,
    }
    errors = {}
    for column, theirs in pairs.items():
        ours = np.interp(measured.t, replay.row_at, np.nan_to_num(replay.column(column)))
        errors[column] = np.abs(ours - theirs).mean() / theirs.mean() if theirs.any() else np.nan
    return errors


def print_engine_logs():
    """Print the errors of each log and form; targets are 9 % of each quantile and 10 % of each series."""
    quantiles = [f"{measure} {level}" for measure in ("ttft", "e2e") for level in ("p50", "p90", "p99")]
    heads = [*quantiles, "running", "waiting", "KV"]
    print("\nvLLM 0.19 logs, second half's requests, error in % (targets: 9 of quantiles, 10 of series)")
    print(f"{'log':<28}{'form':<8}{'KV blocks':>10}" + "".join(f"{head:>10}" for head in heads))
    for name in ENGINES:
        log = read_engine_log(FOLDER / f"llmservingsim_vllm_{name}_requests.jsonl.gz")
        for form in ("points", "closed"):
            found = best_fit(log, name, form)
            errors = [error.error_ratio for error in found.score] + list(series_errors(log, found, name).values())
            cells = "".join(f"{100 * error:>10.1f}" for error in errors)
            print(f"{name[:26]:<28}{form:<8}{found.profile.kv_blocks:>10}{cells}")


if __name__ == "__main__":
    print_engine_logs()
