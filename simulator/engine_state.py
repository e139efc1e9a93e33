"""The arrays that the compiled engine works on: requests, replicas, and what is being measured.

The engine's functions take them all as one tuple. Compiling costs by the number of arrays in it, so what belongs
together is one array of records.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forecaster.plan import NUM_PRIORITIES
from forecaster.telemetry import Floats
from simulator.clients import Clients
from simulator.engine_options import EngineOptions
from simulator.extrapolation import warn_of_extrapolation
from simulator.profiles import EngineProfile
from simulator.requests import NO_REQUEST, RequestTable

NONE = -1

# What a replica is doing until its board says.
IDLE = 0
DECODING = 1  # a run of steps that only decode, jumped over at once
MIXED = 2  # one step with at least one prompt chunk

# Rows of the board.
DUE_AT = 0  # when the segment that is computed ends, inf if idle
OUTSTANDING = 1  # tokens, for the router; inf if not routable

# outcome of a request
UNFINISHED = 0
FINISHED = 1
SHED = 2
TIMED_OUT = 3
FAILED = 4  # its replica died
REFUSED = 5  # longer than max_model_len
OUTCOMES = ("unfinished", "finished", "shed", "timed_out", "failed", "refused")

# Where the attempt under way is.
NOWHERE = 0
AT_GATEWAY = 1  # no replica is routable
WAITING = 2
RUNNING = 3

# kind of an event
ARRIVE = 0
TIME_OUT = 1
GIVE_UP = 2

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
    "retry_rate_per_second",
    "prefix_cache_hit_ratio",
)

# first tokens remembered within one row for its 0.95 quantile; more than a thousand replicas produce
MAX_TTFT_PER_ROW = 65_536

REQUEST = np.dtype(
    [
        ("arrival_at", np.float64),
        ("attempt_at", np.float64),
        ("first_token_at", np.float64),
        ("finished_at", np.float64),
        ("think_seconds", np.float64),
        ("base", np.int64),  # decoding: KV tokens less the replica's decode step, constant while it decodes
        ("finish_step", np.int64),  # decoding: the replica's decode step at which it is done
        ("prefix_start", np.int64),
        ("prompt_tokens", np.int32),
        ("output_tokens", np.int32),
        ("generated", np.int32),  # output tokens made before the present stay in a batch
        ("kv_tokens", np.int32),  # in prefill: tokens computed
        ("kv_held", np.int32),  # in prefill: blocks held by itself alone
        ("prefix_count", np.int32),  # whole groups of its prompt that can be shared
        ("prefix_seen", np.int32),  # of those, looked up or computed in this stay
        ("prefix_held", np.int32),  # of those, held in the cache
        ("num_preemptions", np.int32),
        ("following", np.int32),  # links of the list it is in: gateway, waiting or running
        ("preceding", np.int32),
        ("served_by", np.int32),
        ("first_after", np.int32),  # requests that wait for its end: the first of them, and its next sibling
        ("next_after", np.int32),
        ("next_abort", np.int32),
        ("priority", np.int8),
        ("outcome", np.int8),
        ("num_attempts", np.int8),
        ("place", np.int8),
        ("is_aborted", np.int8),
        ("is_free", np.int8),  # waits for no other request
    ],
    align=True,
)

REPLICA = np.dtype(
    [
        # the batch being computed
        ("segment_start_at", np.float64),
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
        ("free_blocks", np.int64),  # those of cached groups that nobody uses are among them
        # waiting requests by class, all of class 0 unless scheduled by priority
        ("queue_head", np.int64, (NUM_PRIORITIES,)),
        ("queue_tail", np.int64, (NUM_PRIORITIES,)),
        ("running_head", np.int64),
        ("running_tail", np.int64),
        ("in_prefill", np.int64),  # the one running request whose prompt is not done
        ("abort_head", np.int64),  # running requests that leave when the step ends
        ("heap_size", np.int64),
        ("routable", np.int64),
        ("is_dead", np.int64),  # set from outside: all that it holds has failed
        ("is_silent", np.int64),  # set from outside: telemetry misses what it holds
        # cached groups that nobody uses, least recently used first
        ("num_idle_groups", np.int64),
        ("idle_head", np.int64),
        ("idle_tail", np.int64),
        # sums over the row of telemetry that is running; a replica each, as their rounding depends on the order
        ("ttft_sum", np.float64),
        ("tpot_sum", np.float64),
        ("e2e_sum", np.float64),
    ],
    align=True,
)

_SUMS = (
    "arrived",
    "arrived_tokens",
    "retried",
    "rejected",
    "rejected_tokens",
    "finished",
    "finished_tokens",
    "prefilled_tokens",
    "decoded_tokens",
    "preempted",
    "num_tpot",
    "looked_up_tokens",
    "hit_tokens",
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
        ("is_by_priority", np.int64),
        ("watermark_blocks", np.int64),
        ("max_model_len", np.int64),
        ("has_prefixes", np.int64),
        ("group_tokens", np.int64),
        ("group_blocks", np.int64),
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
        # by priority: share of the bucket that is kept for others, and the fraction admitted
        ("reserve_ratio", np.float64, (NUM_PRIORITIES,)),
        ("admitted_ratio", np.float64, (NUM_PRIORITIES,)),
        # clients
        ("timeout_seconds", np.float64),
        ("deadline_seconds", np.float64),
        ("max_attempts", np.int64),
        ("backoff_seconds", np.float64),
        ("jitter_ratio", np.float64),
        ("reacts", np.int64),  # an end may bring about an arrival, so that time must not pass it
        ("num_events", np.int64),
        ("num_announced", np.int64),  # behind the heap, not yet sorted into it
        # sums over the row of telemetry that is running
        ("num_ttft", np.int64),
        *((name, np.float64) for name in _SUMS),
        ("num_events_ever", np.int64),
    ],
    align=True,
)

# What a replica keeps by number: the decoding requests that need a new block when decode_step % block_size is that; a
# heap of the decoding requests by the step at which they finish, and
# the prompt chunks of the step being computed.
SLOT = np.dtype(
    [
        ("block_due", np.int64),
        ("finish_key", np.int64),  # finish step * KEY + request: of two that finish together, the older one first
        ("chunk_request", np.int64),
        ("chunk_tokens", np.int64),
    ]
)

KEY = 1 << 32

GROUP = np.dtype([("users", np.int32), ("before", np.int32), ("after", np.int32)])  # users: 0 absent, 1 idle, n + 1

PREFIX = np.dtype([("id", np.int32), ("is_held", np.int32)])

EVENT = np.dtype(
    [("at", np.float64), ("order", np.int64), ("request", np.int32), ("kind", np.int16), ("attempt", np.int16)]
)


class EngineState(NamedTuple):
    """Everything the compiled engine reads and writes; one instance is one running fleet.

    Attributes
    ----------
    request : ndarray of REQUEST, shape (n,)
    replica : ndarray of REPLICA, shape (r,)
    fleet : ndarray of FLEET, shape (1,)
    board : ndarray of float64, shape (2, r)
        Of every replica, what all of them are searched for: DUE_AT and OUTSTANDING.
    slot : ndarray of SLOT, shape (r, max_num_seqs or block_size, the larger)
    step_seconds : ndarray of float64, shape (max_num_batched_tokens + max_num_seqs + 1, 3)
        Column 0: of a step with a prompt chunk, by its tokens, without attention. Columns 1 and 2: of a step that only
        decodes, by batch size, without context and for each token of it.
    rows : ndarray of float64, shape (n_rows, len(ROW_COLUMNS))
        Telemetry written so far.
    row_ttft : ndarray of float64
        TTFTs of the running row.
    group : ndarray of GROUP, shape (r, number of ids)
        The prefix cache of each replica.
    prefix : ndarray of PREFIX
        The groups of every prompt, one request after the other.
    event : ndarray of EVENT
        Binary heap of what is still to happen at the gateway: retries, followers, time-outs.
    """

    request: NDArray[np.void]
    replica: NDArray[np.void]
    fleet: NDArray[np.void]
    board: Floats
    slot: NDArray[np.void]
    step_seconds: Floats
    rows: Floats
    row_ttft: Floats
    group: NDArray[np.void]
    prefix: NDArray[np.void]
    event: NDArray[np.void]


def new_state(
    requests: RequestTable,
    profile: EngineProfile,
    *,
    num_slots: int,
    num_rows: int,
    router_code: int,
    options: EngineOptions | None = None,
    clients: Clients | None = None,
) -> EngineState:
    """Return the state of an empty fleet of `num_slots` replica slots, at second 0, none routable.

    Raises
    ------
    ValueError
        If there is no slot, a request is longer than a whole replica's KV cache, or the groups of prefixes are no
        whole number of blocks.
    """
    if num_slots < 1:
        raise ValueError(f"a fleet needs at least one replica, got {num_slots}")
    options = options or EngineOptions()
    clients = clients or Clients()
    _refuse_impossible_requests(requests, profile, options)
    warn_of_extrapolation(requests, profile)
    state = EngineState(
        request=_request_records(requests),
        replica=_replica_records(num_slots, profile),
        fleet=_fleet_record(profile, router_code),
        board=np.full((2, num_slots), np.inf),
        slot=np.zeros((num_slots, max(profile.max_num_seqs, profile.block_size_tokens)), dtype=SLOT),
        step_seconds=_step_table(profile),
        rows=np.full((num_rows, len(ROW_COLUMNS)), np.nan),
        row_ttft=np.zeros(MAX_TTFT_PER_ROW),
        group=np.zeros((1, 1), dtype=GROUP),
        prefix=np.zeros(1, dtype=PREFIX),
        event=_event_heap(requests, clients),
    )
    _set_options(state, profile, options)
    _set_clients(state, requests, clients)
    return _with_prefixes(state, requests, profile) if options.enable_prefix_caching else state


def _step_table(profile: EngineProfile) -> Floats:
    most = profile.max_num_batched_tokens + profile.max_num_seqs
    table = np.full((most + 1, 3), np.nan)
    table[:, 0] = profile.step_time.token_seconds(most)
    table[: profile.max_num_seqs + 1, 1:] = profile.step_time.decode_seconds(profile.max_num_seqs)
    return table


def _request_records(requests: RequestTable) -> NDArray[np.void]:
    records = np.zeros(requests.num_requests, dtype=REQUEST)
    records["arrival_at"] = requests.arrival_seconds
    for name in ("prompt_tokens", "output_tokens", "priority", "think_seconds"):
        records[name] = getattr(requests, name)
    for name in ("first_token_at", "finished_at"):
        records[name] = np.nan
    for name in ("following", "preceding", "served_by", "first_after", "next_after", "next_abort"):
        records[name] = NONE
    records["is_free"] = requests.follows == NO_REQUEST
    for i in np.flatnonzero(requests.follows != NO_REQUEST)[::-1]:  # backwards, so that siblings keep their order
        records["next_after"][i] = records["first_after"][requests.follows[i]]
        records["first_after"][requests.follows[i]] = i
    return records


def _replica_records(num_slots: int, profile: EngineProfile) -> NDArray[np.void]:
    records = np.zeros(num_slots, dtype=REPLICA)
    records["free_blocks"] = profile.kv_blocks
    for name in (
        "queue_head",
        "queue_tail",
        "running_head",
        "running_tail",
        "in_prefill",
        "abort_head",
        "idle_head",
        "idle_tail",
    ):
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
    record["admitted_ratio"] = 1.0
    for name in ("pending_head", "pending_tail"):
        record[name] = NONE
    for name in ("bucket_tokens", "refill_tokens_per_second", "burst_tokens"):
        record[name] = np.inf
    return record


def _set_options(state: EngineState, profile: EngineProfile, options: EngineOptions) -> None:
    fleet = state.fleet[0]
    fleet["is_by_priority"] = options.scheduling_policy == "priority"
    fleet["watermark_blocks"] = int(options.watermark_ratio * profile.kv_blocks)
    fleet["max_model_len"] = options.max_model_len or np.iinfo(np.int64).max
    if options.max_model_len is not None:
        longest = np.maximum(options.max_model_len - state.request["prompt_tokens"], 1)
        state.request["output_tokens"] = np.minimum(state.request["output_tokens"], longest)


def _set_clients(state: EngineState, requests: RequestTable, clients: Clients) -> None:
    fleet = state.fleet[0]
    for name in ("timeout_seconds", "deadline_seconds", "max_attempts", "backoff_seconds", "jitter_ratio"):
        fleet[name] = getattr(clients, name)
    fleet["reacts"] = clients.max_attempts > 1 or bool((requests.follows != NO_REQUEST).any())


def _event_heap(requests: RequestTable, clients: Clients) -> NDArray[np.void]:
    """Return room for one time-out of every attempt, one deadline and one arrival of every request."""
    return np.zeros(requests.num_requests * (clients.max_attempts + 2) + 1, dtype=EVENT)


def _with_prefixes(state: EngineState, requests: RequestTable, profile: EngineProfile) -> EngineState:
    prefixes = requests.prefixes
    if prefixes.group_tokens % profile.block_size_tokens:
        raise ValueError(
            f"prefix groups of {prefixes.group_tokens} tokens are no whole number of {profile.name}'s blocks of "
            f"{profile.block_size_tokens} tokens; choose a profile whose block size divides them"
        )
    ids, dense = np.unique(prefixes.ids, return_inverse=True)
    prefix = np.zeros(max(dense.size, 1), dtype=PREFIX)
    prefix["id"][: dense.size] = dense
    state.request["prefix_start"] = prefixes.starts[:-1]
    # a group that the prompt does not fill is not cached
    whole = requests.prompt_tokens // prefixes.group_tokens
    state.request["prefix_count"] = np.minimum(np.diff(prefixes.starts), whole)
    fleet = state.fleet[0]
    fleet["has_prefixes"] = 1
    fleet["group_tokens"] = prefixes.group_tokens
    fleet["group_blocks"] = prefixes.group_tokens // profile.block_size_tokens
    group = np.zeros((state.replica.size, max(ids.size, 1)), dtype=GROUP)
    return state._replace(group=group, prefix=prefix)


def _refuse_impossible_requests(requests: RequestTable, profile: EngineProfile, options: EngineOptions) -> None:
    if requests.num_requests == 0:
        return
    total = requests.prompt_tokens + requests.output_tokens
    if options.max_model_len is not None:
        total = np.minimum(total, options.max_model_len)
    capacity = profile.kv_blocks * profile.block_size_tokens
    too_long = int(np.argmax(total))
    if total[too_long] > capacity:
        raise ValueError(
            f"request {too_long} needs {total[too_long]} tokens of KV cache but a replica of {profile.name} holds "
            f"{capacity}; filter such requests out or choose a profile with more memory"
        )
