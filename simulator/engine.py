"""One vLLM-like replica, compiled: continuous batching, chunked prefill, paged KV blocks, recompute preemption.

A step is what vLLM's scheduler makes of it (V1, FCFS): every decoding sequence computes one token; what is left of
`max_num_batched_tokens` goes to the prompt in prefill, then to waiting ones in order of arrival, while blocks and
`max_num_seqs` allow. When decoding needs more blocks than are free, the last admitted sequence loses its blocks and
goes back to the head of the queue to be recomputed.

Steps that only decode differ by a known growth of the context, so a whole run of them, up to the next finish, block
shortage or arrival, is one segment: the cost is per event, not per step.
"""

from math import floor, sqrt

import numpy as np
from numba import njit

from simulator.engine_state import DECODING, FINISHED, IDLE, MAX_TTFT_PER_ROW, MIXED, NONE, EngineState

compiled = njit(cache=True, error_model="numpy", nogil=True)
inner = njit(cache=True, error_model="numpy", nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


@inner
def advance(s: EngineState, r: int, until: float) -> None:
    """Bring replica `r` to `until`: complete every segment that ends by then and schedule the next."""
    while s.replica[r].segment_end_at <= until:
        at = s.replica[r].segment_end_at
        _complete(s, r, at)
        _schedule(s, r, at)


@inner
def enqueue(s: EngineState, r: int, request: int, now: float) -> None:
    """Put a request at the end of replica `r`'s queue; the replica must have been advanced to `now`."""
    s.request[request].served_by = r
    s.request[request].preceding = s.replica[r].waiting_tail
    s.request[request].following = NONE
    if s.replica[r].waiting_tail == NONE:
        s.replica[r].waiting_head = request
    else:
        s.request[s.replica[r].waiting_tail].following = request
    s.replica[r].waiting_tail = request
    s.replica[r].num_waiting += 1
    s.replica[r].unprefilled_tokens += s.request[request].prompt_tokens
    if s.replica[r].segment_kind == IDLE:
        _schedule(s, r, now)
    elif s.replica[r].segment_kind == DECODING and s.replica[r].num_running < s.fleet[0].max_num_seqs:
        # the step under way goes on; the queue is looked at when it ends
        steps = steps_done(s, r, now) + 1
        s.replica[r].segment_steps = steps
        s.replica[r].segment_end_at = s.replica[r].segment_start_at + _steps_seconds(s, r, steps)


@inner
def steps_done(s: EngineState, r: int, now: float) -> int:
    """Return how many steps of the running decode segment are complete at `now`, at most all but the last."""
    growth = s.replica[r].step_growth_seconds
    elapsed = now - s.replica[r].segment_start_at
    half = s.replica[r].first_step_seconds - growth / 2
    # elapsed = k half + growth k^2 / 2, solved without cancellation
    k = floor(2 * elapsed / (half + sqrt(half * half + 2 * growth * elapsed)))
    while _steps_seconds(s, r, k + 1) <= elapsed:
        k += 1
    while k > 0 and _steps_seconds(s, r, k) > elapsed:
        k -= 1
    return min(max(k, 0), s.replica[r].segment_steps - 1)


@inner
def blocks_taken(s: EngineState, r: int, steps: int) -> int:
    """Return how many new blocks the next `steps` decode steps of replica `r` need."""
    size = s.fleet[0].block_size_tokens
    taken = (steps // size) * s.replica[r].num_decoding
    for i in range(steps % size):
        taken += s.block_due[r, (s.replica[r].decode_step + i) % size]
    return taken


@inner
def count_decoded(s: EngineState, r: int, steps: int) -> None:
    """Count the tokens of the running decode segment's first `steps` steps that were not counted yet."""
    s.row_sum[0].decoded_tokens += s.replica[r].num_decoding * (steps - s.replica[r].segment_counted)
    s.replica[r].segment_counted = steps


@inner
def _steps_seconds(s: EngineState, r: int, steps: int) -> float:
    return steps * s.replica[r].first_step_seconds + s.replica[r].step_growth_seconds * (steps * (steps - 1) / 2)


@inner
def _blocks_for(s: EngineState, tokens: int) -> int:
    size = s.fleet[0].block_size_tokens
    return (tokens + size - 1) // size


@inner
def _schedule(s: EngineState, r: int, now: float) -> None:
    """Start replica `r`'s next segment at `now`, or leave it idle."""
    preempted = _fill_batch(s, r)
    if preempted and s.replica[r].num_chunks == 0 and s.replica[r].num_decoding == 0:
        preempted = _fill_batch(s, r)  # the one sequence there was has just given its blocks back
    if s.replica[r].num_chunks > 0:
        _start_mixed(s, r, now)
    elif s.replica[r].num_decoding > 0:
        _start_decoding(s, r, now, preempted)
    else:
        s.replica[r].segment_kind = IDLE
        s.replica[r].segment_end_at = np.inf


@inner
def _fill_batch(s: EngineState, r: int) -> bool:
    """Choose the prompt chunks of the next step, preempting where blocks are short; True if anything was preempted."""
    size = s.fleet[0].block_size_tokens
    preempted = False
    while s.block_due[r, s.replica[r].decode_step % size] > s.replica[r].free_blocks:
        _preempt_last(s, r)
        preempted = True
    budget = s.fleet[0].max_num_batched_tokens - s.replica[r].num_decoding
    spare = s.replica[r].free_blocks - s.block_due[r, s.replica[r].decode_step % size]
    s.replica[r].num_chunks = 0
    if s.replica[r].in_prefill != NONE:
        request = s.replica[r].in_prefill
        chunk = min(
            s.request[request].prompt_tokens + s.request[request].generated - s.request[request].kv_tokens, budget
        )
        needed = _blocks_for(s, s.request[request].kv_tokens + chunk) - s.request[request].kv_held
        if needed > spare:
            _preempt_last(s, r)
            return True
        _take_chunk(s, r, request, chunk, needed)
        budget -= chunk
        spare -= needed
    if not preempted:
        _admit(s, r, budget, spare)
    return preempted


@inner
def _admit(s: EngineState, r: int, budget: int, spare: int) -> None:
    """Move waiting requests into the batch, first come first served, while tokens, blocks and sequences allow."""
    while budget > 0 and s.replica[r].waiting_head != NONE and s.replica[r].num_running < s.fleet[0].max_num_seqs:
        request = s.replica[r].waiting_head
        total = s.request[request].prompt_tokens + s.request[request].generated
        chunk = min(total, budget)
        needed = _blocks_for(s, chunk)
        if needed > spare:
            return
        _leave_queue_head(s, r)
        _join_running(s, r, request)
        _take_chunk(s, r, request, chunk, needed)
        budget -= chunk
        spare -= needed
        if chunk < total:
            s.replica[r].in_prefill = request


@inner
def _take_chunk(s: EngineState, r: int, request: int, chunk: int, needed_blocks: int) -> None:
    i = s.replica[r].num_chunks
    s.chunk_request[r, i] = request
    s.chunk_tokens[r, i] = chunk
    s.replica[r].num_chunks = i + 1
    s.request[request].kv_held += needed_blocks
    s.replica[r].free_blocks -= needed_blocks


@inner
def _start_mixed(s: EngineState, r: int, now: float) -> None:
    """Start one step of the decoding sequences and the chunks taken."""
    tokens = s.replica[r].num_decoding
    pairs = 0.0
    for i in range(s.replica[r].num_chunks):
        chunk = s.chunk_tokens[r, i]
        tokens += chunk
        pairs += chunk * (s.request[s.chunk_request[r, i]].kv_tokens + chunk / 2)
    seconds = (
        s.token_seconds[tokens]
        + s.fleet[0].seconds_per_context_token * s.replica[r].context_tokens
        + s.fleet[0].seconds_per_attention_pair * pairs
        + s.fleet[0].seconds_per_sequence * (s.replica[r].num_decoding + s.replica[r].num_chunks)
    )
    s.replica[r].segment_kind = MIXED
    s.replica[r].segment_steps = 1
    s.replica[r].segment_start_at = now
    s.replica[r].segment_end_at = now + seconds
    s.replica[r].free_blocks -= s.block_due[r, s.replica[r].decode_step % s.fleet[0].block_size_tokens]


@inner
def _start_decoding(s: EngineState, r: int, now: float, preempted: bool) -> None:
    """Start a run of decode-only steps up to the next finish or block shortage."""
    n = s.replica[r].num_decoding
    steps = s.heap_step[r, 0] - s.replica[r].decode_step
    if preempted and s.replica[r].waiting_head != NONE:
        steps = 1  # the queue was not looked at in this step, so it is in the next
    size = s.fleet[0].block_size_tokens
    if n * (steps // size + 1) > s.replica[r].free_blocks:
        taken = 0
        for i in range(steps):
            taken += s.block_due[r, (s.replica[r].decode_step + i) % size]
            if taken > s.replica[r].free_blocks:
                steps = i
                break
    s.replica[r].first_step_seconds = s.decode_seconds[n, 0] + s.decode_seconds[n, 1] * s.replica[r].context_tokens
    s.replica[r].step_growth_seconds = s.decode_seconds[n, 1] * n
    s.replica[r].segment_kind = DECODING
    s.replica[r].segment_steps = steps
    s.replica[r].segment_counted = 0
    s.replica[r].segment_start_at = now
    s.replica[r].segment_end_at = now + _steps_seconds(s, r, steps)


@inner
def _complete(s: EngineState, r: int, at: float) -> None:
    """Apply the segment that ends at `at`: tokens made, blocks taken, requests finished, prompts done."""
    steps = s.replica[r].segment_steps
    if s.replica[r].segment_kind == DECODING:
        count_decoded(s, r, steps)
        s.replica[r].free_blocks -= blocks_taken(s, r, steps)
    else:
        s.row_sum[0].decoded_tokens += s.replica[r].num_decoding
    s.replica[r].decode_step += steps
    s.replica[r].context_tokens += steps * s.replica[r].num_decoding
    while s.replica[r].heap_size > 0 and s.heap_step[r, 0] <= s.replica[r].decode_step:
        request = s.heap_request[r, 0]
        _heap_remove(s, r, 0)
        _stop_decoding(s, r, request)
        _leave_running(s, r, request)
        _finish(s, r, request, at)
    if s.replica[r].segment_kind == MIXED:
        for i in range(s.replica[r].num_chunks):
            _complete_chunk(s, r, s.chunk_request[r, i], s.chunk_tokens[r, i], at)
        s.replica[r].num_chunks = 0


@inner
def _complete_chunk(s: EngineState, r: int, request: int, chunk: int, at: float) -> None:
    s.request[request].kv_tokens += chunk
    s.replica[r].unprefilled_tokens -= chunk
    s.row_sum[0].prefilled_tokens += chunk
    if s.request[request].kv_tokens < s.request[request].prompt_tokens + s.request[request].generated:
        return
    if s.replica[r].in_prefill == request:
        s.replica[r].in_prefill = NONE
    s.request[request].generated += 1
    if s.request[request].generated == 1:
        _first_token(s, r, request, at)
    if s.request[request].generated >= s.request[request].output_tokens:
        s.replica[r].free_blocks += s.request[request].kv_held
        s.request[request].kv_held = 0
        _leave_running(s, r, request)
        _finish(s, r, request, at)
        return
    _start_sequence(s, r, request)


@inner
def _first_token(s: EngineState, r: int, request: int, at: float) -> None:
    s.request[request].first_token_at = at
    ttft = at - s.request[request].arrival_at
    i = s.row_sum[0].num_ttft
    if i < MAX_TTFT_PER_ROW:
        s.row_ttft[i] = ttft
    s.row_sum[0].num_ttft = i + 1
    s.replica[r].ttft_sum += ttft


@inner
def _finish(s: EngineState, r: int, request: int, at: float) -> None:
    s.request[request].finished_at = at
    s.request[request].outcome = FINISHED
    s.row_sum[0].finished += 1
    s.row_sum[0].finished_tokens += s.request[request].output_tokens
    s.replica[r].e2e_sum += at - s.request[request].arrival_at
    if s.request[request].output_tokens > 1:
        s.replica[r].tpot_sum += (at - s.request[request].first_token_at) / (s.request[request].output_tokens - 1)
        s.row_sum[0].num_tpot += 1


@inner
def _start_sequence(s: EngineState, r: int, request: int) -> None:
    """Make a prefilled request decode from the next step on."""
    tokens = s.request[request].kv_tokens
    s.request[request].base = tokens - s.replica[r].decode_step
    s.block_due[r, (-s.request[request].base) % s.fleet[0].block_size_tokens] += 1
    s.replica[r].num_decoding += 1
    s.replica[r].context_tokens += tokens
    s.request[request].kv_tokens = 0
    s.request[request].kv_held = 0
    s.request[request].finish_step = (
        s.replica[r].decode_step + s.request[request].output_tokens - s.request[request].generated
    )
    _heap_push(s, r, s.request[request].finish_step, request)


@inner
def _stop_decoding(s: EngineState, r: int, request: int) -> None:
    """Take a decoding request out of the step and free its blocks; it is still linked among the running."""
    tokens = s.request[request].base + s.replica[r].decode_step
    s.replica[r].free_blocks += _blocks_for(s, tokens)
    s.block_due[r, (-s.request[request].base) % s.fleet[0].block_size_tokens] -= 1
    s.replica[r].num_decoding -= 1
    s.replica[r].context_tokens -= tokens


@inner
def _preempt_last(s: EngineState, r: int) -> None:
    """Take the last admitted request's blocks and put it at the head of the queue, to be recomputed."""
    request = s.replica[r].running_tail
    if s.replica[r].in_prefill == request:
        s.replica[r].in_prefill = NONE
        s.replica[r].free_blocks += s.request[request].kv_held
        s.replica[r].unprefilled_tokens += s.request[request].kv_tokens
        s.request[request].kv_tokens = 0
        s.request[request].kv_held = 0
    else:
        s.request[request].generated = s.request[request].output_tokens - (
            s.request[request].finish_step - s.replica[r].decode_step
        )
        for i in range(s.replica[r].heap_size):
            if s.heap_request[r, i] == request:
                _heap_remove(s, r, i)
                break
        _stop_decoding(s, r, request)
        s.replica[r].unprefilled_tokens += s.request[request].prompt_tokens + s.request[request].generated
    _leave_running(s, r, request)
    s.request[request].preceding = NONE
    s.request[request].following = s.replica[r].waiting_head
    if s.replica[r].waiting_head == NONE:
        s.replica[r].waiting_tail = request
    else:
        s.request[s.replica[r].waiting_head].preceding = request
    s.replica[r].waiting_head = request
    s.replica[r].num_waiting += 1
    s.request[request].num_preemptions += 1
    s.row_sum[0].preempted += 1


@inner
def _leave_queue_head(s: EngineState, r: int) -> None:
    request = s.replica[r].waiting_head
    s.replica[r].waiting_head = s.request[request].following
    if s.replica[r].waiting_head == NONE:
        s.replica[r].waiting_tail = NONE
    else:
        s.request[s.replica[r].waiting_head].preceding = NONE
    s.replica[r].num_waiting -= 1


@inner
def _join_running(s: EngineState, r: int, request: int) -> None:
    s.request[request].preceding = s.replica[r].running_tail
    s.request[request].following = NONE
    if s.replica[r].running_tail == NONE:
        s.replica[r].running_head = request
    else:
        s.request[s.replica[r].running_tail].following = request
    s.replica[r].running_tail = request
    s.replica[r].num_running += 1


@inner
def _leave_running(s: EngineState, r: int, request: int) -> None:
    before, after = s.request[request].preceding, s.request[request].following
    if before == NONE:
        s.replica[r].running_head = after
    else:
        s.request[before].following = after
    if after == NONE:
        s.replica[r].running_tail = before
    else:
        s.request[after].preceding = before
    s.replica[r].num_running -= 1


@inner
def _heap_push(s: EngineState, r: int, step: int, request: int) -> None:
    i = s.replica[r].heap_size
    s.replica[r].heap_size = i + 1
    _heap_up(s, r, i, step, request)


@inner
def _heap_up(s: EngineState, r: int, i: int, step: int, request: int) -> None:
    while i > 0:
        parent = (i - 1) // 2
        if s.heap_step[r, parent] <= step:
            break
        s.heap_step[r, i] = s.heap_step[r, parent]
        s.heap_request[r, i] = s.heap_request[r, parent]
        i = parent
    s.heap_step[r, i] = step
    s.heap_request[r, i] = request


@inner
def _heap_remove(s: EngineState, r: int, i: int) -> None:
    """Remove entry `i` of the heap of finish steps: the last entry takes its place and sinks or rises."""
    last = s.replica[r].heap_size - 1
    s.replica[r].heap_size = last
    if i == last:
        return
    step, request = s.heap_step[r, last], s.heap_request[r, last]
    while 2 * i + 1 < last:
        child = 2 * i + 1
        if child + 1 < last and s.heap_step[r, child + 1] < s.heap_step[r, child]:
            child += 1
        if s.heap_step[r, child] >= step:
            break
        s.heap_step[r, i] = s.heap_step[r, child]
        s.heap_request[r, i] = s.heap_request[r, child]
        i = child
    _heap_up(s, r, i, step, request)
