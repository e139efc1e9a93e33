"""The row of telemetry that is written each second, compiled."""

import numpy as np

from simulator.compiled import inner
from simulator.engine import blocks_used, count_decoded, steps_done
from simulator.engine_state import DECODING, IDLE, MAX_TTFT_PER_ROW, NONE, NUM_PRIORITIES, EngineState


@inner
def write_row(s: EngineState, now: float) -> None:
    """Write the row that ends at `now` and begin the next."""
    f = s.fleet[0]
    row = s.rows[f.next_row]
    row[0] = f.arrived
    row[1] = f.arrived_tokens
    row[2] = f.rejected
    row[3] = f.rejected_tokens
    row[4] = f.finished
    row[5] = f.finished_tokens
    row[8] = f.preempted
    _write_replicas(s, row, now)
    row[6] = f.prefilled_tokens
    row[7] = f.decoded_tokens
    if f.num_ttft:
        row[16] = _p95(s.row_ttft[: min(f.num_ttft, MAX_TTFT_PER_ROW)])
    row[19] = f.retried
    if f.looked_up_tokens > 0:
        row[20] = f.hit_tokens / f.looked_up_tokens
    _reset_sums(s)
    f.next_row += 1


@inner
def _write_replicas(s: EngineState, row: np.ndarray, now: float) -> None:
    """Write what the replicas hold, and the means of what they have finished; count what they have decoded."""
    f = s.fleet[0]
    running, waiting, unprefilled = 0, f.num_pending, f.pending_tokens
    used, total = 0, 0
    ttft_sum, tpot_sum, e2e_sum = 0.0, 0.0, 0.0
    oldest = s.request[f.pending_head].arrival_at if waiting else now
    for r in range(s.replica.size):
        rep = s.replica[r]
        if rep.routable and not rep.is_silent:
            total += f.kv_blocks
        ttft_sum += rep.ttft_sum
        tpot_sum += rep.tpot_sum
        e2e_sum += rep.e2e_sum
        if rep.segment_kind == IDLE:
            continue
        if rep.segment_kind == DECODING:
            count_decoded(s, r, steps_done(s, r, now))
        if rep.is_silent:
            continue
        used += blocks_used(s, r, now)
        running += rep.num_running
        waiting += rep.num_waiting
        unprefilled += rep.unprefilled_tokens
        oldest = min(oldest, _oldest_without_first_token(s, r, now))
    row[9] = running
    row[10] = waiting
    row[11] = unprefilled
    row[12] = now - oldest
    row[13] = used
    row[14] = total
    if f.num_ttft:
        row[15] = ttft_sum / f.num_ttft
    if f.num_tpot > 0:
        row[17] = tpot_sum / f.num_tpot
    if f.finished > 0:
        row[18] = e2e_sum / f.finished


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
