"""Offered load a row at a time: the same as `forecaster.demand.offered_load`, at a constant cost."""

from collections import deque
from math import isnan, nan

from forecaster.capacity import ReplicaCapacity
from forecaster.demand import OUTPUT_ROWS, RATE_ROWS, REJECTED_ROWS, REQUEST_ROWS
from forecaster.present_load import larger, queued_of, refused_of
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
        queued = queued_of(
            row[_WAITING_TOKENS], row[_WAITING], prompt_tokens=self._prompt_long.mean(), requests=requests
        )
        refused = refused_of(
            self._rejected,
            e2e_seconds=self._e2e.mean(),
            ttft_seconds=self._ttft.mean(),
            step_seconds=self._step_seconds,
        )
        kv_blocks = row[_KV_USED] + (queued + refused) / self._block_size
        prefill = self._prompt.mean()
        finished = self._finished.total()
        arriving = requests * (self._finished_tokens.total() / finished) if finished > 0 else nan
        decode = larger(self._decode.mean(), arriving)
        by_tokens = larger(prefill / self._prefill_capacity, decode / self._decode_capacity)
        return kv_blocks, prefill, decode, larger(kv_blocks / self._usable_kv_blocks, by_tokens)

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
