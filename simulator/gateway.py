"""What stands before the replicas, compiled: arrivals, admission, routing, and the row of telemetry each second."""

import numpy as np

from simulator.engine import advance, blocks_taken, compiled, count_decoded, enqueue, inner, steps_done
from simulator.engine_state import DECODING, IDLE, MAX_TTFT_PER_ROW, NONE, SHED, EngineState

ROUTERS = ("least_outstanding_tokens", "round_robin")
ROUND_ROBIN = 1

# What the gateway expects of an answer whose length it cannot know, in the router's count of outstanding tokens.
EXPECTED_OUTPUT_TOKENS = 256


@compiled
def run_until(s: EngineState, until: float) -> None:
    """Play arrivals and write telemetry rows up to and including second `until`."""
    n = s.request.size
    while True:
        request = s.fleet[0].next_request
        arrival = s.request[request].arrival_at if request < n else np.inf
        row_end = float(s.fleet[0].next_row + 1)
        now = min(arrival, row_end)
        if now > until:
            break
        _advance_all(s, now)
        if arrival <= row_end:
            s.fleet[0].next_request = request + 1
            _arrive(s, request, arrival)
        else:
            _write_row(s, row_end)
    _advance_all(s, until)


@compiled
def release_pending(s: EngineState, now: float) -> None:
    """Route what waited at the gateway for want of a routable replica."""
    while s.fleet[0].pending_head != NONE:
        request = s.fleet[0].pending_head
        r = _route(s)
        if r == NONE:
            return
        s.fleet[0].pending_head = s.request[request].following
        if s.fleet[0].pending_head == NONE:
            s.fleet[0].pending_tail = NONE
        s.fleet[0].num_pending -= 1
        s.fleet[0].pending_tokens -= s.request[request].prompt_tokens
        advance(s, r, now)
        enqueue(s, r, request, now)


@inner
def _advance_all(s: EngineState, until: float) -> None:
    for r in range(s.replica.size):
        if s.replica[r].segment_end_at <= until:
            advance(s, r, until)


@inner
def _arrive(s: EngineState, request: int, now: float) -> None:
    tokens = s.request[request].prompt_tokens
    s.row_sum[0].arrived += 1
    s.row_sum[0].arrived_tokens += tokens
    if not _admitted(s, request, now):
        s.request[request].outcome = SHED
        s.row_sum[0].rejected += 1
        s.row_sum[0].rejected_tokens += tokens
        return
    r = _route(s)
    if r != NONE:
        enqueue(s, r, request, now)
        return
    s.request[request].following = NONE
    if s.fleet[0].pending_tail == NONE:
        s.fleet[0].pending_head = request
    else:
        s.request[s.fleet[0].pending_tail].following = request
    s.fleet[0].pending_tail = request
    s.fleet[0].num_pending += 1
    s.fleet[0].pending_tokens += tokens


@inner
def _admitted(s: EngineState, request: int, now: float) -> bool:
    """Return whether the plan in force lets the request in, and take its tokens from the bucket."""
    priority = s.request[request].priority
    if _fraction_of(request) >= s.admitted_ratio[priority]:
        return False
    if s.fleet[0].refill_tokens_per_second == np.inf:
        return True
    level = s.fleet[0].bucket_tokens + (now - s.fleet[0].refilled_at) * s.fleet[0].refill_tokens_per_second
    level = min(level, s.fleet[0].burst_tokens)
    s.fleet[0].bucket_tokens = level
    s.fleet[0].refilled_at = now
    tokens = float(s.request[request].prompt_tokens)
    # a prompt larger than the bucket passes when the bucket is as full as its class may need
    room = s.fleet[0].burst_tokens * (1.0 - s.reserve_ratio[priority])
    if level - s.fleet[0].burst_tokens * s.reserve_ratio[priority] < min(tokens, room):
        return False
    s.fleet[0].bucket_tokens = level - tokens
    return True


@inner
def _fraction_of(request: int) -> float:
    """Return a number in [0, 1) that is the same for a request in every run (splitmix64; Steele et al. 2014)."""
    z = np.uint64(request) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) / 9007199254740992.0


@inner
def _route(s: EngineState) -> int:
    """Return the replica for the next request, `NONE` if none is routable."""
    num_replicas = s.replica.size
    if s.fleet[0].router == ROUND_ROBIN:
        for i in range(num_replicas):
            r = (s.fleet[0].next_in_turn + i) % num_replicas
            if s.replica[r].routable:
                s.fleet[0].next_in_turn = r + 1
                return r
        return NONE
    best, least = NONE, np.iinfo(np.int64).max
    for r in range(num_replicas):
        if s.replica[r].routable:
            outstanding = outstanding_tokens(s, r)
            if outstanding < least:
                best, least = r, outstanding
    return best


@compiled
def outstanding_tokens(s: EngineState, r: int) -> int:
    """Return prompt tokens without their first token plus what the answers in flight are expected to take."""
    return s.replica[r].unprefilled_tokens + EXPECTED_OUTPUT_TOKENS * (
        s.replica[r].num_running + s.replica[r].num_waiting
    )


@inner
def _write_row(s: EngineState, now: float) -> None:
    """Write the row that ends at `now` and begin the next."""
    row = s.rows[s.fleet[0].next_row]
    running, waiting, unprefilled = 0, s.fleet[0].num_pending, s.fleet[0].pending_tokens
    used, total = 0, 0
    ttft_sum, tpot_sum, e2e_sum = 0.0, 0.0, 0.0
    oldest = s.request[s.fleet[0].pending_head].arrival_at if waiting else now
    for r in range(s.replica.size):
        if s.replica[r].routable:
            total += s.fleet[0].kv_blocks
        ttft_sum += s.replica[r].ttft_sum
        tpot_sum += s.replica[r].tpot_sum
        e2e_sum += s.replica[r].e2e_sum
        if s.replica[r].segment_kind == IDLE:
            continue
        used += s.fleet[0].kv_blocks - s.replica[r].free_blocks
        if s.replica[r].segment_kind == DECODING:
            steps = steps_done(s, r, now)
            count_decoded(s, r, steps)
            used += blocks_taken(s, r, steps + 1)
        running += s.replica[r].num_running
        waiting += s.replica[r].num_waiting
        unprefilled += s.replica[r].unprefilled_tokens
        oldest = min(oldest, _oldest_without_first_token(s, r, now))
    sums = s.row_sum[0]
    row[0] = sums.arrived
    row[1] = sums.arrived_tokens
    row[2] = sums.rejected
    row[3] = sums.rejected_tokens
    row[4] = sums.finished
    row[5] = sums.finished_tokens
    row[6] = sums.prefilled_tokens
    row[7] = sums.decoded_tokens
    row[8] = sums.preempted
    row[9] = running
    row[10] = waiting
    row[11] = unprefilled
    row[12] = now - oldest
    row[13] = used
    row[14] = total
    count = s.row_sum[0].num_ttft
    if count:
        row[15] = ttft_sum / count
        row[16] = _p95(s.row_ttft[: min(count, MAX_TTFT_PER_ROW)])
    if s.row_sum[0].num_tpot > 0:
        row[17] = tpot_sum / s.row_sum[0].num_tpot
    if s.row_sum[0].finished > 0:
        row[18] = e2e_sum / s.row_sum[0].finished
    _reset_sums(s)
    s.fleet[0].next_row += 1


@inner
def _reset_sums(s: EngineState) -> None:
    sums = s.row_sum[0]
    sums.arrived = 0.0
    sums.arrived_tokens = 0.0
    sums.rejected = 0.0
    sums.rejected_tokens = 0.0
    sums.finished = 0.0
    sums.finished_tokens = 0.0
    sums.prefilled_tokens = 0.0
    sums.decoded_tokens = 0.0
    sums.preempted = 0.0
    sums.num_tpot = 0.0
    sums.num_ttft = 0
    for r in range(s.replica.size):
        s.replica[r].ttft_sum = 0.0
        s.replica[r].tpot_sum = 0.0
        s.replica[r].e2e_sum = 0.0


@inner
def _p95(values: np.ndarray) -> float:
    """Return the 0.95 quantile, linear between order statistics."""
    ordered = np.sort(values)
    at = 0.95 * (ordered.size - 1)
    low = int(at)
    high = min(low + 1, ordered.size - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


@inner
def _oldest_without_first_token(s: EngineState, r: int, now: float) -> float:
    """Return the arrival of the oldest request on replica `r` that has no first token, `now` if all have one."""
    oldest = now
    for i in range(s.replica[r].num_chunks):
        request = s.chunk_request[r, i]
        if s.request[request].generated == 0:
            oldest = min(oldest, s.request[request].arrival_at)
    request = s.replica[r].waiting_head
    while request != NONE:
        if s.request[request].generated == 0:  # preempted ones, which come first, had theirs
            return min(oldest, s.request[request].arrival_at)
        request = s.request[request].following
    return oldest
