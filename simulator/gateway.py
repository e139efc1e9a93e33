"""What stands before the replicas, compiled: arrivals, admission, routing, clients that give up or come back."""

import numpy as np

from simulator.attempts import begin_attempt, drop_first_event, end_attempt, fraction_of, settle, sort_announced
from simulator.compiled import compiled, inner
from simulator.engine import advance, blocks_used, cancel, enqueue, fail, update_outstanding
from simulator.engine_state import (
    ARRIVE,
    AT_GATEWAY,
    DUE_AT,
    GIVE_UP,
    NONE,
    NOWHERE,
    OUTSTANDING,
    REFUSED,
    SHED,
    TIMED_OUT,
    UNFINISHED,
    EngineState,
)
from simulator.prefix_cache import evict, groups_hit
from simulator.telemetry_rows import write_row

ROUTERS = ("least_outstanding_tokens", "round_robin", "power_of_two", "prefix_aware", "least_kv")
_ROUND_ROBIN, _POWER_OF_TWO, _PREFIX_AWARE, _LEAST_KV = 1, 2, 3, 4


@compiled
def run_until(s: EngineState, start: float, until: float) -> None:
    """Play on from `start`, up to which all was played, up to and including second `until`.

    Between two calls the caller may mark replicas as routable or dead, and change the admission.
    """
    _change_replicas(s, start)
    f = s.fleet[0]
    while until > start:
        _skip_followers(s)
        sort_announced(s)
        request = f.next_request
        arrival = s.request[request].arrival_at if request < s.request.size else np.inf
        event_at = s.event[0].at if f.num_events > 0 else np.inf
        row_end = float(f.next_row + 1)
        now = min(arrival, event_at, row_end)
        if f.reacts:
            # what ends on the way may bring about an arrival before `now`
            due = min(_next_due(s), until)
            if due < now:
                _advance_all(s, due)
                if due == until:
                    break
                continue
        if now > until:
            break
        _advance_all(s, now)
        if arrival == now:
            f.next_request = request + 1
            _arrive(s, request, now)
        elif event_at == now:
            _happen(s, now)
        else:
            write_row(s, row_end)
    _advance_all(s, until)


@inner
def _change_replicas(s: EngineState, now: float) -> None:
    """Take note of what has become of the replicas, and route what waited at the gateway for want of one."""
    for r in range(s.replica.size):
        rep = s.replica[r]
        if rep.is_dead:
            fail(s, r, now)
            rep.is_dead = 0
        update_outstanding(s, r)
    f = s.fleet[0]
    while f.pending_head != NONE:
        request = f.pending_head
        r = _route(s, request, now)
        if r == NONE:
            return
        _leave_gateway(s, request)
        enqueue(s, r, request, now)


@inner
def _skip_followers(s: EngineState) -> None:
    """Pass over requests of the table that come by an event, when what they follow has ended."""
    f = s.fleet[0]
    while f.next_request < s.request.size and not s.request[f.next_request].is_free:
        f.next_request += 1


@inner
def _next_due(s: EngineState) -> float:
    least = np.inf
    for r in range(s.replica.size):
        least = min(least, s.board[DUE_AT, r])
    return least


@inner
def _advance_all(s: EngineState, until: float) -> None:
    for r in range(s.replica.size):
        if s.board[DUE_AT, r] <= until:
            advance(s, r, until)


@inner
def _happen(s: EngineState, now: float) -> None:
    """Let the first event happen: an attempt arrives, or a client's patience ends."""
    e = s.event[0]
    request, kind, attempt = e.request, e.kind, e.attempt
    drop_first_event(s)
    q = s.request[request]
    if kind == ARRIVE:
        _arrive(s, request, now)
    elif kind == GIVE_UP:
        if q.outcome == UNFINISHED:
            if q.place == NOWHERE:
                settle(s, request, TIMED_OUT, now)
            else:
                _hang_up(s, request, now)
    elif q.outcome == UNFINISHED and q.num_attempts == attempt and np.isnan(q.first_token_at) and q.place != NOWHERE:
        _hang_up(s, request, now)


@inner
def _hang_up(s: EngineState, request: int, now: float) -> None:
    """End the attempt under way, wherever it is."""
    if s.request[request].place == AT_GATEWAY:
        _leave_gateway(s, request)
        end_attempt(s, request, TIMED_OUT, now)
    else:
        cancel(s, s.request[request].served_by, request, now)


@inner
def _arrive(s: EngineState, request: int, now: float) -> None:
    q, sums = s.request[request], s.fleet[0]
    if q.outcome != UNFINISHED:
        return  # given up before it came back
    if q.num_attempts == 0:
        sums.arrived += 1
        sums.arrived_tokens += q.prompt_tokens
    else:
        sums.retried += 1
    begin_attempt(s, request, now)
    if q.prompt_tokens >= s.fleet[0].max_model_len:
        settle(s, request, REFUSED, now)
        return
    if not _admitted(s, request, now):
        sums.rejected += 1
        sums.rejected_tokens += q.prompt_tokens
        end_attempt(s, request, SHED, now)
        return
    r = _route(s, request, now)
    if r != NONE:
        enqueue(s, r, request, now)
    else:
        _wait_at_gateway(s, request)


@inner
def _wait_at_gateway(s: EngineState, request: int) -> None:
    q, f = s.request[request], s.fleet[0]
    q.place = AT_GATEWAY
    q.following = NONE
    q.preceding = f.pending_tail
    if f.pending_tail == NONE:
        f.pending_head = request
    else:
        s.request[f.pending_tail].following = request
    f.pending_tail = request
    f.num_pending += 1
    f.pending_tokens += q.prompt_tokens


@inner
def _leave_gateway(s: EngineState, request: int) -> None:
    q, f = s.request[request], s.fleet[0]
    if q.preceding == NONE:
        f.pending_head = q.following
    else:
        s.request[q.preceding].following = q.following
    if q.following == NONE:
        f.pending_tail = q.preceding
    else:
        s.request[q.following].preceding = q.preceding
    q.place = NOWHERE
    f.num_pending -= 1
    f.pending_tokens -= q.prompt_tokens


@inner
def _admitted(s: EngineState, request: int, now: float) -> bool:
    """Return whether the plan in force lets the request in, and take its tokens from the bucket."""
    f, priority = s.fleet[0], s.request[request].priority
    if fraction_of(request, 0) >= f.admitted_ratio[priority]:  # a retry fares like its first attempt
        return False
    if f.refill_tokens_per_second == np.inf:
        return True
    level = f.bucket_tokens + (now - f.refilled_at) * f.refill_tokens_per_second
    level = min(level, f.burst_tokens)
    f.bucket_tokens = level
    f.refilled_at = now
    tokens = float(s.request[request].prompt_tokens)
    # a prompt larger than the bucket passes when the bucket is as full as its class may need
    room = f.burst_tokens * (1.0 - f.reserve_ratio[priority])
    if level - f.burst_tokens * f.reserve_ratio[priority] < min(tokens, room):
        return False
    f.bucket_tokens = level - tokens
    return True


@inner
def _route(s: EngineState, request: int, now: float) -> int:
    """Return the replica for a request, `NONE` if none is routable."""
    router = s.fleet[0].router
    if router == _ROUND_ROBIN:
        return _next_in_turn(s)
    if router == _POWER_OF_TWO:
        return _lesser_of_two(s, request)
    best, least = NONE, np.inf
    for r in range(s.replica.size):
        cost = s.board[OUTSTANDING, r]
        if cost < np.inf and router == _PREFIX_AWARE:
            cost -= _cached_tokens(s, r, request, now)
        elif cost < np.inf and router == _LEAST_KV:
            cost = blocks_used(s, r, now) + s.replica[r].unprefilled_tokens // s.fleet[0].block_size_tokens
        if cost < least:
            best, least = r, cost
    return best


@inner
def _cached_tokens(s: EngineState, r: int, request: int, now: float) -> int:
    """Return the tokens of a prompt that replica `r` need not compute, as NVIDIA Dynamo's KV router reckons."""
    if not s.fleet[0].has_prefixes:
        return 0
    evict(s, r, s.fleet[0].kv_blocks - blocks_used(s, r, now))
    return groups_hit(s, r, request) * s.fleet[0].group_tokens


@inner
def _next_in_turn(s: EngineState) -> int:
    f, num_replicas = s.fleet[0], s.replica.size
    for i in range(num_replicas):
        r = (f.next_in_turn + i) % num_replicas
        if s.replica[r].routable:
            f.next_in_turn = r + 1
            return r
    return NONE


@inner
def _lesser_of_two(s: EngineState, request: int) -> int:
    """Return the less loaded of two replicas drawn at random (Mitzenmacher, IEEE TPDS 12(10), 2001)."""
    num_routable = 0
    for r in range(s.replica.size):
        num_routable += s.replica[r].routable
    if num_routable == 0:
        return NONE
    attempt = s.request[request].num_attempts
    first = _routable(s, int(fraction_of(request, 2 * attempt + 101) * num_routable))
    second = _routable(s, int(fraction_of(request, 2 * attempt + 102) * num_routable))
    return second if s.board[OUTSTANDING, second] < s.board[OUTSTANDING, first] else first


@inner
def _routable(s: EngineState, k: int) -> int:
    """Return the k-th routable replica."""
    for r in range(s.replica.size):
        if s.replica[r].routable:
            if k == 0:
                return r
            k -= 1
    return NONE
