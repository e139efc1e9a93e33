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

from simulator.attempts import end_attempt, settle
from simulator.batch_lists import (
    first_waiting,
    heap_push,
    heap_remove,
    heap_remove_request,
    join_queue,
    join_running,
    leave_queue,
    leave_running,
)
from simulator.compiled import inner
from simulator.engine_state import (
    DECODING,
    DUE_AT,
    FAILED,
    FINISHED,
    IDLE,
    KEY,
    MAX_TTFT_PER_ROW,
    MIXED,
    NONE,
    OUTSTANDING,
    TIMED_OUT,
    WAITING,
    EngineState,
)
from simulator.prefix_cache import (
    cache_computed,
    evict,
    groups_hit,
    hold_groups,
    idle_groups_of,
    release_groups,
)

# What the gateway expects of an answer whose length it cannot know, in the router's count of outstanding tokens.
EXPECTED_OUTPUT_TOKENS = 256


@inner
def advance(s: EngineState, r: int, until: float) -> None:
    """Bring replica `r` to `until`: complete every segment that ends by then and schedule the next."""
    while s.board[DUE_AT, r] <= until:
        at = s.board[DUE_AT, r]
        if s.replica[r].segment_kind != IDLE:
            _complete(s, r, at)
        _schedule(s, r, at)
    update_outstanding(s, r)


@inner
def update_outstanding(s: EngineState, r: int) -> None:
    """Write on the board the prompt tokens without their first token and what the answers in flight may take."""
    rep = s.replica[r]
    tokens = rep.unprefilled_tokens + EXPECTED_OUTPUT_TOKENS * (rep.num_running + rep.num_waiting)
    s.board[OUTSTANDING, r] = float(tokens) if rep.routable else np.inf


@inner
def enqueue(s: EngineState, r: int, request: int, now: float) -> None:
    """Put a request at the end of replica `r`'s queue; the replica must have been advanced to `now`.

    An idle one is due at once: its next step begins when it is advanced.
    """
    rep = s.replica[r]
    s.request[request].served_by = r
    join_queue(s, r, request, False)
    rep.unprefilled_tokens += s.request[request].prompt_tokens
    if rep.segment_kind == IDLE:
        s.board[DUE_AT, r] = now
    elif rep.num_running < s.fleet[0].max_num_seqs:
        _cut_segment(s, r, now)  # the step under way goes on; the queue is looked at when it ends
    update_outstanding(s, r)


@inner
def cancel(s: EngineState, r: int, request: int, now: float) -> None:
    """End the attempt of a request that replica `r`, advanced to `now`, holds: a running one when the step ends."""
    q = s.request[request]
    if q.place == WAITING:
        leave_queue(s, r, request)
        s.replica[r].unprefilled_tokens -= q.prompt_tokens + q.generated
        end_attempt(s, request, TIMED_OUT, now)
    elif not q.is_aborted:
        q.is_aborted = 1
        q.next_abort = s.replica[r].abort_head
        s.replica[r].abort_head = request
    _cut_segment(s, r, now)  # what waited behind it may be admitted in the next step
    update_outstanding(s, r)


@inner
def fail(s: EngineState, r: int, now: float) -> None:
    """Let replica `r`, advanced to `now`, die: what it held has failed, and nothing is cached."""
    rep = s.replica[r]
    if rep.segment_kind == DECODING:
        count_decoded(s, r, steps_done(s, r, now))
    while rep.running_head != NONE:
        request = rep.running_head
        leave_running(s, r, request)
        _forget_batch(s, request)
        end_attempt(s, request, FAILED, now)
    while first_waiting(s, r) != NONE:
        request = first_waiting(s, r)
        leave_queue(s, r, request)
        end_attempt(s, request, FAILED, now)
    rep.segment_kind = IDLE
    rep.num_chunks = 0
    rep.num_decoding = 0
    rep.context_tokens = 0
    rep.unprefilled_tokens = 0
    rep.heap_size = 0
    rep.in_prefill = NONE
    rep.abort_head = NONE
    for i in range(s.slot.shape[1]):
        s.slot[r, i].block_due = 0
    s.board[DUE_AT, r] = np.inf
    evict(s, r, 0)
    rep.free_blocks = s.fleet[0].kv_blocks
    update_outstanding(s, r)


@inner
def _forget_batch(s: EngineState, request: int) -> None:
    """Drop what a request had in the batch of a replica that died; the cache goes as a whole."""
    q = s.request[request]
    if s.fleet[0].has_prefixes:
        release_groups(s, q.served_by, request)
    q.kv_held = 0


@inner
def _cut_segment(s: EngineState, r: int, now: float) -> None:
    """End a run of decode-only steps with the step under way."""
    rep = s.replica[r]
    if rep.segment_kind == DECODING:
        rep.segment_steps = steps_done(s, r, now) + 1
        s.board[DUE_AT, r] = rep.segment_start_at + _steps_seconds(s, r, rep.segment_steps)


@inner
def steps_done(s: EngineState, r: int, now: float) -> int:
    """Return how many steps of the running decode segment are complete at `now`, at most all but the last."""
    rep = s.replica[r]
    growth = rep.step_growth_seconds
    elapsed = now - rep.segment_start_at
    half = rep.first_step_seconds - growth / 2
    # elapsed = k half + growth k^2 / 2, solved without cancellation
    k = floor(2 * elapsed / (half + sqrt(half * half + 2 * growth * elapsed)))
    while _steps_seconds(s, r, k + 1) <= elapsed:
        k += 1
    while k > 0 and _steps_seconds(s, r, k) > elapsed:
        k -= 1
    return min(max(k, 0), rep.segment_steps - 1)


@inner
def blocks_taken(s: EngineState, r: int, steps: int) -> int:
    """Return how many new blocks the next `steps` decode steps of replica `r` need."""
    size = s.fleet[0].block_size_tokens
    first = s.replica[r].decode_step
    taken = (steps // size) * s.replica[r].num_decoding
    for i in range(steps % size):
        taken += s.slot[r, (first + i) % size].block_due
    return taken


@inner
def blocks_used(s: EngineState, r: int, now: float) -> int:
    """Return the blocks that requests hold at `now`, those of the step under way included."""
    used = s.fleet[0].kv_blocks - s.replica[r].free_blocks
    if s.replica[r].segment_kind == DECODING:
        used += blocks_taken(s, r, steps_done(s, r, now) + 1)
    return used


@inner
def count_decoded(s: EngineState, r: int, steps: int) -> None:
    """Count the tokens of the running decode segment's first `steps` steps that were not counted yet."""
    rep = s.replica[r]
    s.fleet[0].decoded_tokens += rep.num_decoding * (steps - rep.segment_counted)
    rep.segment_counted = steps


@inner
def _steps_seconds(s: EngineState, r: int, steps: int) -> float:
    rep = s.replica[r]
    return steps * rep.first_step_seconds + rep.step_growth_seconds * (steps * (steps - 1) / 2)


@inner
def _blocks_for(s: EngineState, tokens: int) -> int:
    size = s.fleet[0].block_size_tokens
    return (tokens + size - 1) // size


@inner
def _schedule(s: EngineState, r: int, now: float) -> None:
    """Start replica `r`'s next segment at `now`, or leave it idle."""
    rep = s.replica[r]
    look_again = _fill_batch(s, r)
    if look_again and rep.num_chunks == 0 and rep.num_decoding == 0:
        look_again = _fill_batch(s, r)  # the one sequence there was has just given its blocks back
    if rep.num_chunks > 0:
        _start_mixed(s, r, now)
    elif rep.num_decoding > 0:
        _start_decoding(s, r, now, look_again)
    else:
        rep.segment_kind = IDLE
        s.board[DUE_AT, r] = np.inf


@inner
def _fill_batch(s: EngineState, r: int) -> bool:
    """Choose the prompt chunks of the next step, preempting where blocks are short.

    True if the queue is to be looked at again in the step after, though nothing else may have happened by then.
    """
    rep = s.replica[r]
    size = s.fleet[0].block_size_tokens
    preempted = False
    while s.slot[r, rep.decode_step % size].block_due > rep.free_blocks:
        _preempt(s, r, 0)
        preempted = True
    budget = s.fleet[0].max_num_batched_tokens - rep.num_decoding
    spare = rep.free_blocks - s.slot[r, rep.decode_step % size].block_due
    rep.num_chunks = 0
    if rep.in_prefill != NONE:
        q = s.request[rep.in_prefill]
        chunk = min(q.prompt_tokens + q.generated - q.kv_tokens, budget)
        needed = _blocks_for(s, q.kv_tokens + chunk) - q.kv_held - q.prefix_held * s.fleet[0].group_blocks
        while needed > spare:
            _preempt(s, r, spare)
            preempted = True
            if rep.in_prefill == NONE:
                return True
            spare = rep.free_blocks - s.slot[r, rep.decode_step % size].block_due
        _take_chunk(s, r, rep.in_prefill, chunk, needed)
        budget -= chunk
        spare -= needed
    return preempted or _admit(s, r, budget, spare)


@inner
def _admit(s: EngineState, r: int, budget: int, spare: int) -> bool:
    """Move waiting requests into the batch, in their order, while tokens, blocks and sequences allow.

    True if the first that is left finds idle groups of its own in the cache: when decoding has taken their blocks it
    needs fewer, and may fit.
    """
    rep, f = s.replica[r], s.fleet[0]
    while budget > 0 and rep.num_running < f.max_num_seqs:
        request = first_waiting(s, r)
        if request == NONE:
            return False
        q = s.request[request]
        total = q.prompt_tokens + q.generated
        hit, idle = 0, 0
        if f.has_prefixes:
            evict(s, r, spare)
            hit = groups_hit(s, r, request)
            idle = idle_groups_of(s, r, request, hit)
        found = hit * f.group_tokens
        chunk = min(total - found, budget)
        needed = _blocks_for(s, found + chunk) - hit * f.group_blocks
        kept = f.watermark_blocks if rep.num_running > 0 else 0
        if needed + idle * f.group_blocks > spare - kept:
            return idle > 0
        leave_queue(s, r, request)
        join_running(s, r, request)
        if f.has_prefixes:
            _use_cache(s, r, request, hit)
            spare -= idle * f.group_blocks
        _take_chunk(s, r, request, chunk, needed)
        budget -= chunk
        spare -= needed
        if found + chunk < total:
            rep.in_prefill = request
    return False


@inner
def _use_cache(s: EngineState, r: int, request: int, num_groups: int) -> None:
    q = s.request[request]
    hold_groups(s, r, request, num_groups)
    q.kv_tokens = num_groups * s.fleet[0].group_tokens
    s.replica[r].unprefilled_tokens -= q.kv_tokens
    s.fleet[0].looked_up_tokens += q.prompt_tokens
    s.fleet[0].hit_tokens += q.kv_tokens


@inner
def _take_chunk(s: EngineState, r: int, request: int, chunk: int, needed_blocks: int) -> None:
    rep = s.replica[r]
    place = s.slot[r, rep.num_chunks]
    place.chunk_request = request
    place.chunk_tokens = chunk
    rep.num_chunks += 1
    s.request[request].kv_held += needed_blocks
    rep.free_blocks -= needed_blocks


@inner
def _start_mixed(s: EngineState, r: int, now: float) -> None:
    """Start one step of the decoding sequences and the chunks taken."""
    rep, f = s.replica[r], s.fleet[0]
    tokens = rep.num_decoding
    pairs = 0.0
    for i in range(rep.num_chunks):
        chunk = s.slot[r, i].chunk_tokens
        tokens += chunk
        pairs += chunk * (s.request[s.slot[r, i].chunk_request].kv_tokens + chunk / 2)
    seconds = (
        s.step_seconds[tokens, 0]
        + f.seconds_per_context_token * rep.context_tokens
        + f.seconds_per_attention_pair * pairs
        + f.seconds_per_sequence * (rep.num_decoding + rep.num_chunks)
    )
    rep.segment_kind = MIXED
    rep.segment_steps = 1
    rep.segment_start_at = now
    s.board[DUE_AT, r] = now + seconds
    rep.free_blocks -= s.slot[r, rep.decode_step % f.block_size_tokens].block_due


@inner
def _start_decoding(s: EngineState, r: int, now: float, look_again: bool) -> None:
    """Start a run of decode-only steps up to the next finish or block shortage."""
    rep = s.replica[r]
    n = rep.num_decoding
    steps = s.slot[r, 0].finish_key // KEY - rep.decode_step
    if look_again and rep.num_waiting > 0:
        steps = 1
    size = s.fleet[0].block_size_tokens
    if n * (steps // size + 1) > rep.free_blocks:
        taken = 0
        for i in range(steps):
            taken += s.slot[r, (rep.decode_step + i) % size].block_due
            if taken > rep.free_blocks:
                steps = i
                break
    rep.first_step_seconds = s.step_seconds[n, 1] + s.step_seconds[n, 2] * rep.context_tokens
    rep.step_growth_seconds = s.step_seconds[n, 2] * n
    rep.segment_kind = DECODING
    rep.segment_steps = steps
    rep.segment_counted = 0
    rep.segment_start_at = now
    s.board[DUE_AT, r] = now + _steps_seconds(s, r, steps)


@inner
def _complete(s: EngineState, r: int, at: float) -> None:
    """Apply the segment that ends at `at`: tokens made, blocks taken, requests gone or finished, prompts done."""
    rep = s.replica[r]
    steps = rep.segment_steps
    if rep.segment_kind == DECODING:
        count_decoded(s, r, steps)
        rep.free_blocks -= blocks_taken(s, r, steps)
    else:
        s.fleet[0].decoded_tokens += rep.num_decoding
    rep.decode_step += steps
    rep.context_tokens += steps * rep.num_decoding
    if s.fleet[0].has_prefixes:
        evict(s, r, rep.free_blocks)
    if rep.abort_head != NONE:
        _drop_aborted(s, r, at)
    while rep.heap_size > 0 and s.slot[r, 0].finish_key < (rep.decode_step + 1) * KEY:
        request = s.slot[r, 0].finish_key % KEY
        heap_remove(s, r, 0)
        _stop_decoding(s, r, request)
        leave_running(s, r, request)
        _finish(s, r, request, at)
    if rep.segment_kind == MIXED:
        for i in range(rep.num_chunks):
            if s.slot[r, i].chunk_request != NONE:
                _complete_chunk(s, r, s.slot[r, i].chunk_request, s.slot[r, i].chunk_tokens, at)
        rep.num_chunks = 0


@inner
def _drop_aborted(s: EngineState, r: int, at: float) -> None:
    """Take the requests whose client has gone out of the batch."""
    rep = s.replica[r]
    while rep.abort_head != NONE:
        request = rep.abort_head
        rep.abort_head = s.request[request].next_abort
        is_chunk = False
        for i in range(rep.num_chunks):
            if s.slot[r, i].chunk_request == request:
                s.slot[r, i].chunk_request = NONE
                is_chunk = True
        _leave_batch(s, r, request, is_chunk)
        q = s.request[request]
        rep.unprefilled_tokens -= q.prompt_tokens + q.generated
        end_attempt(s, request, TIMED_OUT, at)


@inner
def _leave_batch(s: EngineState, r: int, request: int, in_prefill: bool) -> None:
    """Take a running request out of the batch and free its blocks; all its tokens are to be prefilled again."""
    rep, q = s.replica[r], s.request[request]
    if in_prefill:
        if rep.in_prefill == request:
            rep.in_prefill = NONE
        rep.free_blocks += q.kv_held
        if s.fleet[0].has_prefixes:
            release_groups(s, r, request)
        rep.unprefilled_tokens += q.kv_tokens
        q.kv_tokens = 0
        q.kv_held = 0
    else:
        q.generated = q.output_tokens - (q.finish_step - rep.decode_step)
        heap_remove_request(s, r, request)
        _stop_decoding(s, r, request)
        rep.unprefilled_tokens += q.prompt_tokens + q.generated
    leave_running(s, r, request)


@inner
def _complete_chunk(s: EngineState, r: int, request: int, chunk: int, at: float) -> None:
    q, rep = s.request[request], s.replica[r]
    q.kv_tokens += chunk
    rep.unprefilled_tokens -= chunk
    s.fleet[0].prefilled_tokens += chunk
    if s.fleet[0].has_prefixes:
        cache_computed(s, r, request)
    if q.kv_tokens < q.prompt_tokens + q.generated:
        return
    if rep.in_prefill == request:
        rep.in_prefill = NONE
    q.generated += 1
    if q.generated == 1:
        _first_token(s, r, request, at)
    if q.generated >= q.output_tokens:
        rep.free_blocks += q.kv_held
        q.kv_held = 0
        if s.fleet[0].has_prefixes:
            release_groups(s, r, request)
        leave_running(s, r, request)
        _finish(s, r, request, at)
        return
    _start_sequence(s, r, request)


@inner
def _first_token(s: EngineState, r: int, request: int, at: float) -> None:
    s.request[request].first_token_at = at
    ttft = at - s.request[request].arrival_at
    i = s.fleet[0].num_ttft
    if i < MAX_TTFT_PER_ROW:
        s.row_ttft[i] = ttft
    s.fleet[0].num_ttft = i + 1
    s.replica[r].ttft_sum += ttft


@inner
def _finish(s: EngineState, r: int, request: int, at: float) -> None:
    q, sums = s.request[request], s.fleet[0]
    sums.finished += 1
    sums.finished_tokens += q.output_tokens
    s.replica[r].e2e_sum += at - q.arrival_at
    if q.output_tokens > 1:
        s.replica[r].tpot_sum += (at - q.first_token_at) / (q.output_tokens - 1)
        sums.num_tpot += 1
    settle(s, request, FINISHED, at)


@inner
def _start_sequence(s: EngineState, r: int, request: int) -> None:
    """Make a prefilled request decode from the next step on."""
    q, rep = s.request[request], s.replica[r]
    q.base = q.kv_tokens - rep.decode_step
    s.slot[r, (-q.base) % s.fleet[0].block_size_tokens].block_due += 1
    rep.num_decoding += 1
    rep.context_tokens += q.kv_tokens
    q.kv_tokens = 0
    q.kv_held = 0
    q.finish_step = rep.decode_step + q.output_tokens - q.generated
    heap_push(s, r, q.finish_step, request)


@inner
def _stop_decoding(s: EngineState, r: int, request: int) -> None:
    """Take a decoding request out of the step and free its blocks; it is still linked among the running."""
    q, rep = s.request[request], s.replica[r]
    tokens = q.base + rep.decode_step
    rep.free_blocks += _blocks_for(s, tokens) - q.prefix_held * s.fleet[0].group_blocks
    if s.fleet[0].has_prefixes:
        release_groups(s, r, request)
    s.slot[r, (-q.base) % s.fleet[0].block_size_tokens].block_due -= 1
    rep.num_decoding -= 1
    rep.context_tokens -= tokens


@inner
def _preempt(s: EngineState, r: int, available_blocks: int) -> None:
    """Take the blocks of the request that gives way and put it at the head of its queue, to be recomputed."""
    rep = s.replica[r]
    request = _gives_way(s, r)
    if s.fleet[0].has_prefixes:
        evict(s, r, available_blocks)
    _leave_batch(s, r, request, rep.in_prefill == request)
    join_queue(s, r, request, True)
    s.request[request].num_preemptions += 1
    s.fleet[0].preempted += 1


@inner
def _gives_way(s: EngineState, r: int) -> int:
    """Return the request that was admitted last, by priority the last that arrived of the least important class."""
    last = s.replica[r].running_tail
    if not s.fleet[0].is_by_priority:
        return last
    request = s.request[last].preceding
    while request != NONE:
        q, worst = s.request[request], s.request[last]
        if q.priority < worst.priority or (q.priority == worst.priority and q.attempt_at > worst.attempt_at):
            last = request
        request = q.preceding
    return last
