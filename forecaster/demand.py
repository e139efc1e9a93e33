"""Offered load: what traffic would hold and need if nothing queued and nothing were refused; and from it D.

Two forms that agree: `offered_load` over a window at once, and `demand_stream.OfferedLoadStream` row by row. Both use
only the row and the rows before it. All sums are of non-negative values, made anew from at most two minutes of rows, so
there is no rounding error to drift.
"""

from dataclasses import dataclass
from math import nan

import numpy as np

from forecaster.capacity import ReplicaCapacity
from forecaster.telemetry import SIGNAL_INDEX, Floats, TelemetryWindow

RATE_ROWS = 5  # token rates: a prompt of thousands of tokens arrives in one row and is prefilled over several
REQUEST_ROWS = 30  # arrivals and times in flight
OUTPUT_ROWS = 120  # output lengths: short answers finish first, so a short window sees too few of the long ones
REJECTED_ROWS = 60  # the longest window over refused prompts
RESIDENCE_SECONDS = 10.0  # taken for the time in flight until a first request has finished
MAX_RESIDENCE_SECONDS = 600.0

CONTEXT_ROWS = max(RATE_ROWS, REQUEST_ROWS, OUTPUT_ROWS, REJECTED_ROWS)
"""How many rows a row's values depend on, itself included."""

_PROMPT = SIGNAL_INDEX["prompt_tokens_per_second"]
_REQUESTS = SIGNAL_INDEX["request_rate_per_second"]
_DECODE = SIGNAL_INDEX["decode_tokens_per_second"]
_FINISHED = SIGNAL_INDEX["finished_rate_per_second"]
_FINISHED_TOKENS = SIGNAL_INDEX["finished_output_tokens_per_second"]
_E2E = SIGNAL_INDEX["e2e_mean_seconds"]
_TTFT = SIGNAL_INDEX["ttft_mean_seconds"]
_REJECTED = SIGNAL_INDEX["rejected_prompt_tokens_per_second"]
_KV_USED = SIGNAL_INDEX["kv_blocks_used"]
_WAITING = SIGNAL_INDEX["waiting_requests"]
_WAITING_TOKENS = SIGNAL_INDEX["waiting_prompt_tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedLoad:
    """What was asked of the fleet, row by row; NaN where it is not known.

    Attributes
    ----------
    kv_blocks : ndarray of shape (n_rows,), blocks
        What running, waiting and refused requests would hold if nothing queued: the blocks held, and the prompts that
        wait or were refused within the last mean time in flight (Little's law), in blocks. A source that never tells
        of rejections has none: there an unknown rejected rate adds nothing. An unknown queue length is taken from the
        number of waiting requests and the mean prompt; without both the row is unknown.
    prefill_tokens_per_second : ndarray of shape (n_rows,), tokens/s
        5-row mean of the prompt tokens that arrived.
    decode_tokens_per_second : ndarray of shape (n_rows,), tokens/s
        The larger of what was decoded (5-row mean) and what arrivals (30-row mean) times output tokens per finished
        request (120 rows) will need: under overload the first stays at what the fleet can do.
    demand_replicas : ndarray of shape (n_rows,), replicas
        D of these three (`ReplicaCapacity.demand_replicas`).
    """

    kv_blocks: Floats
    prefill_tokens_per_second: Floats
    decode_tokens_per_second: Floats
    demand_replicas: Floats


def offered_load(window: TelemetryWindow, capacity: ReplicaCapacity) -> OfferedLoad:
    """Return the offered load at every row of a window; no value depends on a later row."""
    values = window.values
    prefill = _mean(values[:, _PROMPT], RATE_ROWS)
    requests = _mean(values[:, _REQUESTS], REQUEST_ROWS)
    decode = np.fmax(_mean(values[:, _DECODE], RATE_ROWS), requests * _output_tokens(values))
    queued = _queued_tokens(values) + _refused_tokens(values, window.step_seconds)
    kv_blocks = values[:, _KV_USED] + queued / capacity.block_size_tokens
    return OfferedLoad(
        kv_blocks=kv_blocks,
        prefill_tokens_per_second=prefill,
        decode_tokens_per_second=decode,
        demand_replicas=capacity.demand_replicas(
            kv_blocks=kv_blocks, prefill_tokens_per_second=prefill, decode_tokens_per_second=decode
        ),
    )


def _sums(column: Floats, rows: int) -> tuple[Floats, Floats]:
    """Return sum and number of the known values of the trailing rows, each of shape (n_rows,)."""
    if column.size == 0:
        return np.zeros(0), np.zeros(0)
    known = ~np.isnan(column)
    ones = np.ones(rows)
    return (
        np.convolve(np.where(known, column, 0.0), ones)[: column.size],
        np.convolve(known.astype(np.float64), ones)[: column.size],
    )


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Return the elementwise ratio, NaN where the denominator is 0."""
    out: Floats = np.full(numerator.shape, nan)
    return np.divide(numerator, denominator, out=out, where=denominator > 0)


def _mean(column: Floats, rows: int) -> Floats:
    total, known = _sums(column, rows)
    return _ratio(total, known)


def _output_tokens(values: Floats) -> Floats:
    """Return output tokens per finished request, over the rows in which both are known."""
    known = ~np.isnan(values[:, _FINISHED] + values[:, _FINISHED_TOKENS])
    tokens, _ = _sums(np.where(known, values[:, _FINISHED_TOKENS], nan), OUTPUT_ROWS)
    finished, _ = _sums(np.where(known, values[:, _FINISHED], nan), OUTPUT_ROWS)
    return _ratio(tokens, finished)


def _queued_tokens(values: Floats) -> Floats:
    """Return the prompt tokens that wait, from the number of waiting requests where only that is known."""
    tokens = values[:, _WAITING_TOKENS]
    unknown = np.isnan(tokens)
    if not unknown.any():
        return tokens
    waiting = values[:, _WAITING]
    prompt = _ratio(_mean(values[:, _PROMPT], REQUEST_ROWS), _mean(values[:, _REQUESTS], REQUEST_ROWS))
    estimated = np.where(waiting == 0, 0.0, waiting * prompt)
    return np.where(unknown, estimated, tokens)


def _refused_tokens(values: Floats, step_seconds: float) -> Floats:
    """Return the prompt tokens that refused requests would still hold: those of the last mean time in flight."""
    rejected = np.nan_to_num(values[:, _REJECTED])
    if not rejected.any():
        return np.zeros(rejected.size)
    # a request that queues for its first token holds next to nothing, so the time up to it does not count
    queueing = np.nan_to_num(_mean(values[:, _TTFT], REQUEST_ROWS))
    residence = _mean(values[:, _E2E], REQUEST_ROWS) - queueing
    residence = np.where(np.isnan(residence), RESIDENCE_SECONDS, residence)
    residence = np.clip(residence, step_seconds, MAX_RESIDENCE_SECONDS)
    rows = np.clip(np.ceil(residence / step_seconds), 1, REJECTED_ROWS)
    padded = np.concatenate([np.zeros(REJECTED_ROWS - 1), rejected])
    ages = np.arange(REJECTED_ROWS)[::-1]
    trailing = np.lib.stride_tricks.sliding_window_view(padded, REJECTED_ROWS)
    held = np.where(ages < rows[:, None], trailing, 0.0).sum(axis=1)
    return np.asarray(held / rows * residence, dtype=np.float64)
