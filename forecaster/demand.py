"""Offered load: what traffic would hold and need if nothing queued and nothing were refused; and from it D.

Two forms that agree: `offered_load` over a window at once, `OfferedLoadStream` row by row. Both use only the row and
the rows before it. All sums are of non-negative values, made anew from at most two minutes of rows, so there is no
rounding error to drift.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil, isnan, nan
from typing import NamedTuple

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
_SLOW_COLUMNS = (_PROMPT, _REQUESTS, _E2E, _TTFT)
_PRESENT_COLUMNS = (_KV_USED, _WAITING_TOKENS, _WAITING, _PROMPT)
_OUTPUT_COLUMNS = [_FINISHED, _FINISHED_TOKENS]


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

    queued = _queued_of(queued, waiting, prompt_tokens=prompt, requests=requests) * imputed
    rejected = [0.0 if isnan(x) else x for x in values[-REJECTED_ROWS:, _REJECTED].tolist()]
    refused = _refused_of(rejected, e2e_seconds=e2e, ttft_seconds=ttft, step_seconds=step_seconds)
    kv_blocks = used * imputed + (queued + refused) / capacity.block_size_tokens
    decode = _larger(decoded * imputed, requests * (tokens / finished) if finished > 0 else nan)
    demand = _larger(
        kv_blocks / capacity.usable_kv_blocks,
        _larger(arriving / capacity.usable_prefill_tokens_per_second, decode / capacity.decode_tokens_per_second),
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


def _queued_of(tokens: float, waiting: float, *, prompt_tokens: float, requests: float) -> float:
    """Return the prompt tokens that wait, from the number of waiting requests where only that is known."""
    if not isnan(tokens):
        return tokens
    if waiting == 0:
        return 0.0
    return waiting * (prompt_tokens / requests) if requests > 0 else nan


def _refused_of(rejected: Sequence[float], *, e2e_seconds: float, ttft_seconds: float, step_seconds: float) -> float:
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


class OfferedLoadStream:
    """The same as `offered_load`, a row at a time at a constant cost."""

    __slots__ = (
        "_block_size",
        "_decode",
        "_decode_capacity",
        "_e2e",
        "_finished",
        "_finished_tokens",
        "_prefill_capacity",
        "_prompt",
        "_prompt_long",
        "_rejected",
        "_requests",
        "_step_seconds",
        "_ttft",
        "_usable_kv_blocks",
    )

    def __init__(self, capacity: ReplicaCapacity, *, step_seconds: float = 1.0) -> None:
        self._block_size = capacity.block_size_tokens
        self._usable_kv_blocks = capacity.usable_kv_blocks
        self._prefill_capacity = capacity.usable_prefill_tokens_per_second
        self._decode_capacity = capacity.decode_tokens_per_second
        self._step_seconds = step_seconds
        self._prompt = _Trailing(RATE_ROWS)
        self._decode = _Trailing(RATE_ROWS)
        self._prompt_long = _Trailing(REQUEST_ROWS)
        self._requests = _Trailing(REQUEST_ROWS)
        self._e2e = _Trailing(REQUEST_ROWS)
        self._ttft = _Trailing(REQUEST_ROWS)
        self._finished = _Trailing(OUTPUT_ROWS)
        self._finished_tokens = _Trailing(OUTPUT_ROWS)
        self._rejected: deque[float] = deque(maxlen=REJECTED_ROWS)

    def update(self, row_values: Floats) -> tuple[float, float, float, float]:
        """Take the next row and return its load.

        Parameters
        ----------
        row_values : ndarray of shape (n_signals,)
            In the order of `SIGNALS`, NaN where unknown.

        Returns
        -------
        tuple of (kv_blocks, prefill_tokens_per_second, decode_tokens_per_second, demand_replicas)
        """
        row: list[float] = row_values.tolist()
        self._take(row)
        requests = self._requests.mean()
        queued = _queued_of(
            row[_WAITING_TOKENS], row[_WAITING], prompt_tokens=self._prompt_long.mean(), requests=requests
        )
        refused = _refused_of(
            self._rejected,
            e2e_seconds=self._e2e.mean(),
            ttft_seconds=self._ttft.mean(),
            step_seconds=self._step_seconds,
        )
        kv_blocks = row[_KV_USED] + (queued + refused) / self._block_size
        prefill = self._prompt.mean()
        finished = self._finished.total()
        arriving = requests * (self._finished_tokens.total() / finished) if finished > 0 else nan
        decode = _larger(self._decode.mean(), arriving)
        by_tokens = _larger(prefill / self._prefill_capacity, decode / self._decode_capacity)
        return kv_blocks, prefill, decode, _larger(kv_blocks / self._usable_kv_blocks, by_tokens)

    def _take(self, row: list[float]) -> None:
        self._prompt.push(row[_PROMPT])
        self._prompt_long.push(row[_PROMPT])
        self._requests.push(row[_REQUESTS])
        self._decode.push(row[_DECODE])
        self._e2e.push(row[_E2E])
        self._ttft.push(row[_TTFT])
        unknown = isnan(row[_FINISHED]) or isnan(row[_FINISHED_TOKENS])
        self._finished.push(nan if unknown else row[_FINISHED])
        self._finished_tokens.push(nan if unknown else row[_FINISHED_TOKENS])
        self._rejected.append(0.0 if isnan(row[_REJECTED]) else row[_REJECTED])


class _Trailing:
    """The known values of the last rows."""

    __slots__ = ("_known", "_values")

    def __init__(self, rows: int) -> None:
        self._values: deque[float] = deque(maxlen=rows)
        self._known: deque[int] = deque(maxlen=rows)

    def push(self, value: float) -> None:
        unknown = isnan(value)
        self._values.append(0.0 if unknown else value)
        self._known.append(0 if unknown else 1)

    def total(self) -> float:
        """Return the sum of the known values."""
        return sum(self._values)

    def mean(self) -> float:
        """Return the mean of the known values, NaN without one."""
        known = sum(self._known)
        return sum(self._values) / known if known else nan


def _larger(a: float, b: float) -> float:
    """Return the larger; an unknown one is left out."""
    if isnan(a):
        return b
    return b if b > a else a
