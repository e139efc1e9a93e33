"""The load at the newest row, in plain numbers: cheap enough for every tick and every row of a stream."""

from collections.abc import Sequence
from itertools import islice
from math import ceil, isnan, nan
from typing import NamedTuple

import numpy as np

from forecaster.capacity import ReplicaCapacity
from forecaster.demand import (
    MAX_RESIDENCE_SECONDS,
    OUTPUT_ROWS,
    RATE_ROWS,
    REJECTED_ROWS,
    REQUEST_ROWS,
    RESIDENCE_SECONDS,
)
from forecaster.telemetry import SIGNAL_INDEX, Floats

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
_SLOW_COLUMNS = (_PROMPT, _REQUESTS, _E2E, _TTFT)
_PRESENT_COLUMNS = (_KV_USED, _WAITING_TOKENS, _WAITING, _PROMPT)
_OUTPUT_COLUMNS = [_FINISHED, _FINISHED_TOKENS]


class PresentLoad(NamedTuple):
    """The load at the newest row, for decisions that must not wait for the 5-row mean of arrivals."""

    kv_blocks: float
    prefill_tokens_per_second: float
    decode_tokens_per_second: float
    demand_replicas: float
    waiting_prompt_tokens: float
    kv_blocks_used: float


def present_load(
    values: Floats, capacity: ReplicaCapacity, *, mean_rows: int, step_seconds: float = 1.0, imputed: float = 1.0
) -> PresentLoad:
    """Return the load of the last `mean_rows` rows: like `offered_load`, but blocks and arrivals are means over them.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_signals)
        At least the last `CONTEXT_ROWS` rows where there are that many; more are not looked at.
    imputed : float
        By what the engines' sums are multiplied for the replicas that did not report.
    """
    prompt, requests, e2e, ttft = _known_means(values[-REQUEST_ROWS:], _SLOW_COLUMNS)
    used, queued, waiting, arriving = _known_means(values[-mean_rows:], _PRESENT_COLUMNS)
    (decoded,) = _known_means(values[-RATE_ROWS:], (_DECODE,))
    outputs = values[-OUTPUT_ROWS:, _OUTPUT_COLUMNS]
    finished, tokens = outputs[~np.isnan(outputs).any(axis=1)].sum(axis=0).tolist()

    queued = queued_of(queued, waiting, prompt_tokens=prompt, requests=requests) * imputed
    rejected = [0.0 if isnan(x) else x for x in values[-REJECTED_ROWS:, _REJECTED].tolist()]
    refused = refused_of(rejected, e2e_seconds=e2e, ttft_seconds=ttft, step_seconds=step_seconds)
    kv_blocks = used * imputed + (queued + refused) / capacity.block_size_tokens
    decode = larger(decoded * imputed, requests * (tokens / finished) if finished > 0 else nan)
    demand = larger(
        kv_blocks / capacity.usable_kv_blocks,
        larger(arriving / capacity.usable_prefill_tokens_per_second, decode / capacity.decode_tokens_per_second),
    )
    return PresentLoad(kv_blocks, arriving, decode, demand, queued, used * imputed)


def measured_demand(values: Floats, capacity: ReplicaCapacity) -> Floats:
    """Return D of each row by itself, shape (n_rows,), without what was refused: cheap, for levels over long spans.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_signals)
    """
    return capacity.demand_replicas(
        kv_blocks=values[:, _KV_USED],
        prefill_tokens_per_second=values[:, _PROMPT],
        decode_tokens_per_second=values[:, _DECODE],
    )


def _known_means(rows: Floats, columns: tuple[int, ...]) -> list[float]:
    """Return the mean of the known values of each column, NaN where there is none."""
    means: list[float] = []
    for column in columns:
        values: list[float] = rows[:, column].tolist()
        total = sum(values)
        if isnan(total):
            values = [value for value in values if not isnan(value)]
            total = sum(values)
        means.append(total / len(values) if values else nan)
    return means


def queued_of(tokens: float, waiting: float, *, prompt_tokens: float, requests: float) -> float:
    """Return the prompt tokens that wait, from the number of waiting requests where only that is known."""
    if not isnan(tokens):
        return tokens
    if waiting == 0:
        return 0.0
    return waiting * (prompt_tokens / requests) if requests > 0 else nan


def refused_of(rejected: Sequence[float], *, e2e_seconds: float, ttft_seconds: float, step_seconds: float) -> float:
    """Return the prompt tokens that refused requests would still hold, from the rejected rate, oldest first."""
    if not any(rejected):
        return 0.0
    residence = e2e_seconds
    if isnan(residence):
        residence = RESIDENCE_SECONDS
    elif not isnan(ttft_seconds):
        residence -= ttft_seconds
    residence = min(max(residence, step_seconds), MAX_RESIDENCE_SECONDS)
    rows = min(max(ceil(residence / step_seconds), 1), REJECTED_ROWS)
    return sum(islice(reversed(rejected), rows)) / rows * residence


def larger(a: float, b: float) -> float:
    """Return the larger; an unknown one is left out."""
    if isnan(a):
        return b
    return b if b > a else a
