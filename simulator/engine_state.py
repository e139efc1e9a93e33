"""The arrays that the compiled engine works on: requests, replicas, and what is being measured."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forecaster.plan import NUM_PRIORITIES
from forecaster.telemetry import Floats
from simulator.profiles import EngineProfile
from simulator.requests import RequestTable

I8 = NDArray[np.int64]

NONE = -1

# What a replica is doing until `segment_end_at`.
IDLE = 0
DECODING = 1  # a run of steps that only decode, jumped over at once
MIXED = 2  # one step with at least one prompt chunk

# outcome of a request
UNFINISHED = 0
FINISHED = 1
SHED = 2

ROW_COLUMNS = (
    "request_rate_per_second",
    "prompt_tokens_per_second",
    "rejected_rate_per_second",
    "rejected_prompt_tokens_per_second",
    "finished_rate_per_second",
    "finished_output_tokens_per_second",
    "prefill_tokens_per_second",
    "decode_tokens_per_second",
    "preemptions_per_second",
    "running_requests",
    "waiting_requests",
    "waiting_prompt_tokens",
    "oldest_waiting_age_seconds",
    "kv_blocks_used",
    "kv_blocks_total",
    "ttft_mean_seconds",
    "ttft_p95_seconds",
    "tpot_mean_seconds",
    "e2e_mean_seconds",
)

# first tokens remembered within one row for its 0.95 quantile; more than a thousand replicas produce
MAX_TTFT_PER_ROW = 65_536

REQUEST = np.dtype(
    [
        ("arrival_at", np.float64),
        ("prompt_tokens", np.int64),
        ("output_tokens", np.int64),
        ("first_token_at", np.float64),
        ("finished_at", np.float64),
        ("generated", np.int64),  # output tokens made before the present stay in a batch
        ("kv_tokens", np.int64),  # in prefill: tokens computed
        ("kv_held", np.int64),  # in prefill: blocks held
        ("base", np.int64),  # decoding: KV tokens less the replica's decode step, constant while it decodes
        ("finish_step", np.int64),  # decoding: the replica's decode step at which it is done
        ("following", np.int32),  # links of the list it is in, waiting or running
        ("preceding", np.int32),
        ("served_by", np.int32),
        ("num_preemptions", np.int32),
        ("priority", np.int8),
        ("outcome", np.int8),
    ],
    align=True,
)

REPLICA = np.dtype(
    [
        # the batch being computed
        ("segment_start_at", np.float64),
        ("segment_end_at", np.float64),
        ("first_step_seconds", np.float64),
        ("step_growth_seconds", np.float64),  # each decode step of a segment is this much longer than the last
        ("segment_kind", np.int64),
        ("segment_steps", np.int64),
        ("segment_counted", np.int64),  # steps whose tokens telemetry has counted
        ("num_chunks", np.int64),
        # what it holds
        ("decode_step", np.int64),
        ("num_running", np.int64),
        ("num_decoding", np.int64),
        ("num_waiting", np.int64),
        ("context_tokens", np.int64),  # KV tokens of the decoding sequences
        ("unprefilled_tokens", np.int64),
        ("free_blocks", np.int64),
        ("running_head", np.int64),
        ("running_tail", np.int64),
        ("waiting_head", np.int64),
        ("waiting_tail", np.int64),
        ("in_prefill", np.int64),  # the one running request whose prompt is not done
        ("heap_size", np.int64),
        ("routable", np.int64),
        # sums over the row of telemetry that is running; a replica each, as their rounding depends on the order
        ("ttft_sum", np.float64),
        ("tpot_sum", np.float64),
        ("e2e_sum", np.float64),
    ],
    align=True,
)

FLEET = np.dtype(
    [
        ("block_size_tokens", np.int64),
        ("kv_blocks", np.int64),
        ("max_num_seqs", np.int64),
        ("max_num_batched_tokens", np.int64),
        ("seconds_per_context_token", np.float64),
        ("seconds_per_attention_pair", np.float64),
        ("seconds_per_sequence", np.float64),
        ("router", np.int64),
        ("next_request", np.int64),
        ("next_row", np.int64),
        ("next_in_turn", np.int64),
        # requests held at the gateway because no replica is routable
        ("pending_head", np.int64),
        ("pending_tail", np.int64),
        ("num_pending", np.int64),
        ("pending_tokens", np.int64),
        # the admission bucket
        ("bucket_tokens", np.float64),
        ("refill_tokens_per_second", np.float64),
        ("burst_tokens", np.float64),
        ("refilled_at", np.float64),
    ],
    align=True,
)

ROW = np.dtype(
    [
        (name, np.float64)
        for name in (
            "arrived",
            "arrived_tokens",
            "rejected",
            "rejected_tokens",
            "finished",
            "finished_tokens",
            "prefilled_tokens",
            "decoded_tokens",
            "preempted",
            "num_tpot",
        )
    ]
    + [("num_ttft", np.int64)],
    align=True,
)


class EngineState(NamedTuple):
    """Everything the compiled engine reads and writes; one instance is one running fleet.

    Attributes
    ----------
    request : ndarray of REQUEST, shape (n,)
    replica : ndarray of REPLICA, shape (r,)
    fleet : ndarray of FLEET, shape (1,)
    row_sum : ndarray of ROW, shape (1,)
        Sums over the row of telemetry that is running.
    block_due : ndarray of int64, shape (r, block_size)
        Decoding requests that need a new block when decode_step % block_size is the column.
    heap_step, heap_request : ndarray of int64, shape (r, max_num_seqs)
        Binary heap of the decoding requests by the step at which they finish.
    chunk_request, chunk_tokens : ndarray of int64, shape (r, max_num_seqs)
        The prompt chunks of the step being computed.
    token_seconds : ndarray of float64
        Step time by number of tokens in the step, for steps with a prompt chunk.
    decode_seconds : ndarray of float64, shape (max_num_seqs + 1, 2)
        Of a step that only decodes, by batch size: without context, and for each token of context.
    reserve_ratio, admitted_ratio : ndarray of float64, shape (3,)
        Admission by priority.
    rows : ndarray of float64, shape (n_rows, len(ROW_COLUMNS))
        Telemetry written so far.
    row_ttft : ndarray of float64
        TTFTs of the running row.
    """

    request: NDArray[np.void]
    replica: NDArray[np.void]
    fleet: NDArray[np.void]
    row_sum: NDArray[np.void]
    block_due: I8
    heap_step: I8
    heap_request: I8
    chunk_request: I8
    chunk_tokens: I8
    token_seconds: Floats
    decode_seconds: Floats
    reserve_ratio: Floats
    admitted_ratio: Floats
    rows: Floats
    row_ttft: Floats


def new_state(
    requests: RequestTable, profile: EngineProfile, *, num_slots: int, num_rows: int, router_code: int
) -> EngineState:
    """Return the state of an empty fleet of `num_slots` replica slots, at second 0, none routable.

    Raises
    ------
    ValueError
        If there is no slot, or a request is longer than a whole replica's KV cache.
    """
    if num_slots < 1:
        raise ValueError(f"a fleet needs at least one replica, got {num_slots}")
    _refuse_impossible_requests(requests, profile)
    per_sequence = (num_slots, profile.max_num_seqs)
    step = profile.step_time
    return EngineState(
        request=_request_records(requests),
        replica=_replica_records(num_slots, profile),
        fleet=_fleet_record(profile, router_code),
        row_sum=np.zeros(1, dtype=ROW),
        block_due=np.zeros((num_slots, profile.block_size_tokens), dtype=np.int64),
        heap_step=np.zeros(per_sequence, dtype=np.int64),
        heap_request=np.zeros(per_sequence, dtype=np.int64),
        chunk_request=np.zeros(per_sequence, dtype=np.int64),
        chunk_tokens=np.zeros(per_sequence, dtype=np.int64),
        token_seconds=step.token_seconds(profile.max_num_batched_tokens + profile.max_num_seqs),
        decode_seconds=step.decode_seconds(profile.max_num_seqs),
        reserve_ratio=np.zeros(NUM_PRIORITIES),
        admitted_ratio=np.ones(NUM_PRIORITIES),
        rows=np.full((num_rows, len(ROW_COLUMNS)), np.nan),
        row_ttft=np.zeros(MAX_TTFT_PER_ROW),
    )


def _request_records(requests: RequestTable) -> NDArray[np.void]:
    records = np.zeros(requests.num_requests, dtype=REQUEST)
    records["arrival_at"] = requests.arrival_seconds
    records["prompt_tokens"] = requests.prompt_tokens
    records["output_tokens"] = requests.output_tokens
    records["priority"] = requests.priority
    for name in ("first_token_at", "finished_at"):
        records[name] = np.nan
    for name in ("following", "preceding", "served_by"):
        records[name] = NONE
    return records


def _replica_records(num_slots: int, profile: EngineProfile) -> NDArray[np.void]:
    records = np.zeros(num_slots, dtype=REPLICA)
    records["segment_end_at"] = np.inf
    records["free_blocks"] = profile.kv_blocks
    for name in ("running_head", "running_tail", "waiting_head", "waiting_tail", "in_prefill"):
        records[name] = NONE
    return records


def _fleet_record(profile: EngineProfile, router_code: int) -> NDArray[np.void]:
    step = profile.step_time
    record = np.zeros(1, dtype=FLEET)
    record["block_size_tokens"] = profile.block_size_tokens
    record["kv_blocks"] = profile.kv_blocks
    record["max_num_seqs"] = profile.max_num_seqs
    record["max_num_batched_tokens"] = profile.max_num_batched_tokens
    record["seconds_per_context_token"] = step.seconds_per_decode_context_token
    record["seconds_per_attention_pair"] = step.seconds_per_prefill_attention
    record["seconds_per_sequence"] = step.seconds_per_sequence
    record["router"] = router_code
    for name in ("pending_head", "pending_tail"):
        record[name] = NONE
    for name in ("bucket_tokens", "refill_tokens_per_second", "burst_tokens"):
        record[name] = np.inf
    return record


def _refuse_impossible_requests(requests: RequestTable, profile: EngineProfile) -> None:
    total = requests.prompt_tokens + requests.output_tokens
    capacity = profile.kv_blocks * profile.block_size_tokens
    too_long = int(np.argmax(total)) if requests.num_requests else 0
    if requests.num_requests and total[too_long] > capacity:
        raise ValueError(
            f"request {too_long} needs {total[too_long]} tokens of KV cache but a replica of {profile.name} holds "
            f"{capacity}; filter such requests out or choose a profile with more memory"
        )
