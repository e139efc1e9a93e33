"""The row of telemetry that is written each second, compiled."""

import numpy as np

from simulator.compiled import inner
from simulator.engine import blocks_taken, count_decoded, steps_done
from simulator.engine_state import DECODING, IDLE, MAX_TTFT_PER_ROW, NONE, NUM_PRIORITIES, EngineState


@inner
def write_row(s: EngineState, now: float) -> None:
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
    sums = s.fleet[0]
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
    count = s.fleet[0].num_ttft
    if count:
        row[15] = ttft_sum / count
        row[16] = _p95(s.row_ttft[: min(count, MAX_TTFT_PER_ROW)])
    if s.fleet[0].num_tpot > 0:
        row[17] = tpot_sum / s.fleet[0].num_tpot
    if s.fleet[0].finished > 0:
        row[18] = e2e_sum / s.fleet[0].finished
    row[19] = sums.retried
    if sums.looked_up_tokens > 0:
        row[20] = sums.hit_tokens / sums.looked_up_tokens
    _reset_sums(s)
    s.fleet[0].next_row += 1


@inner
def _reset_sums(s: EngineState) -> None:
    sums = s.fleet[0]
    sums.arrived = 0.0
    sums.arrived_tokens = 0.0
    sums.retried = 0.0
    sums.rejected = 0.0
    sums.rejected_tokens = 0.0
    sums.finished = 0.0
    sums.finished_tokens = 0.0
    sums.prefilled_tokens = 0.0
    sums.decoded_tokens = 0.0
    sums.preempted = 0.0
    sums.num_tpot = 0.0
    sums.looked_up_tokens = 0.0
    sums.hit_tokens = 0.0
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
        request = s.slot[r, i].chunk_request
        if s.request[request].generated == 0:
            oldest = min(oldest, s.request[request].arrival_at)
    for level in range(NUM_PRIORITIES):
        request = s.replica[r].queue_head[level]
        while request != NONE:
            if s.request[request].generated == 0:  # preempted ones, which come first, had theirs
                oldest = min(oldest, s.request[request].arrival_at)
                break
            request = s.request[request].following
    return oldest
