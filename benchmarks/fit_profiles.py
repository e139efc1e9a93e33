"""Fit the step times of simulator/profiles.py to the public calibration points and print them as Python."""

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from simulator.profiles import TOKEN_KNOTS

POINTS = Path(os.environ.get("FORESHOCK_SHARED", "../shared")) / "reference" / "calibration.csv"
KV_BLOCKS = {("8b", 1): 27_000, ("70b", 4): 28_000, ("70b", 8): 83_000}
MIXED = re.compile(r"mixed_step\(ctx_tokens=(\d+),gen=(\d+),isl=(\d+),osl=(\d+)\)")


def batch_of(point):
    """Return (tokens, decode context, prefill attention pairs, sequences) of a calibration point's step."""
    if point.kind == "decode":
        return point.batch_size, point.batch_size * point.tokens_or_context, 0.0, point.batch_size
    mixed = MIXED.match(point.kind)
    if mixed:
        chunk, num_decodes, prompt, output = map(int, mixed.groups())
        context = num_decodes * (prompt + output / 2)
        return chunk + num_decodes, context, chunk * min(chunk, prompt) / 2, num_decodes + 1
    chunk = point.tokens_or_context - point.prefix_tokens
    return chunk, 0.0, chunk * (point.prefix_tokens + chunk / 2), 1


def knot_weights(tokens):
    """Return the weights of g's increments at the knots, so that non-negative ones make g monotone."""
    basis = np.eye(len(TOKEN_KNOTS))
    hat = np.array([np.interp(tokens, TOKEN_KNOTS, row) for row in basis])
    return np.cumsum(hat[::-1])[::-1]


def fit(points):
    """Return (knot seconds, a, b, c, mean error ratio, largest error ratio) by non-negative relative least squares."""
    rows, seconds = [], points.latency_ms.to_numpy() / 1e3
    for point in points.itertuples():
        tokens, context, pairs, sequences = batch_of(point)
        rows.append(np.r_[knot_weights(tokens), context * 1e-6, pairs * 1e-6, sequences * 1e-3])
    design = np.array(rows)
    solution, _ = nnls(design / seconds[:, None], np.ones(len(seconds)))
    error = np.abs(design @ solution / seconds - 1)
    knots = np.cumsum(solution[: len(TOKEN_KNOTS)])
    a, b, c = solution[len(TOKEN_KNOTS) :] * (1e-6, 1e-6, 1e-3)
    return knots, a, b, c, error.mean(), error.max()


def main():
    """Print one `_profile(...)` call per model, GPU and tensor parallelism."""
    table = pd.read_csv(POINTS)
    for (model, gpu, tp), points in table.groupby(["model", "gpu", "tp"]):
        size = model.rsplit("-", 1)[1].lower()
        knots, a, b, c, mean_error, max_error = fit(points)
        print(f"""    _profile(
        "llama-3.1-{size}-{gpu.split("_")[0]}-tp{tp}",
        gpus_per_replica={tp},
        kv_blocks={KV_BLOCKS[size, tp]:_},
        knot_seconds={tuple(float(f"{k:.4g}") for k in knots)},
        coefficients=({a:.4g}, {b:.4g}, {c:.4g}),
        fit_error_ratio=({mean_error:.3f}, {max_error:.3f}),
    ),""")


if __name__ == "__main__":
    main()
