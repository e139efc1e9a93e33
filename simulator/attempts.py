"""The clients' side, compiled: attempts that begin and end, retries, followers, and the heap of what is to come."""

import numpy as np

from simulator.compiled import inner
from simulator.engine_state import (
    ARRIVE,
    FAILED,
    FINISHED,
    GIVE_UP,
    NONE,
    NOWHERE,
    SHED,
    TIME_OUT,
    TIMED_OUT,
    EngineState,
)


@inner
def begin_attempt(s: EngineState, request: int, now: float) -> None:
    """Begin a request's next attempt, and its time-outs."""
    q, f = s.request[request], s.fleet[0]
    if q.num_attempts == 0:
        q.arrival_at = now
        if f.deadline_seconds < np.inf:
            announce(s, now + f.deadline_seconds, request, GIVE_UP)
    q.num_attempts += 1
    q.attempt_at = now
    if f.timeout_seconds < np.inf:
        announce(s, now + f.timeout_seconds, request, TIME_OUT)


@inner
def end_attempt(s: EngineState, request: int, outcome: int, now: float) -> None:
    """End an attempt that came to nothing: another follows, or the request has ended."""
    q, f = s.request[request], s.fleet[0]
    q.place = NOWHERE
    q.is_aborted = 0
    q.generated = 0
    q.kv_tokens = 0
    q.first_token_at = np.nan
    if (outcome in (SHED, TIMED_OUT, FAILED)) and q.num_attempts < f.max_attempts:
        doubled = f.backoff_seconds * 2.0 ** (q.num_attempts - 1)
        at = now + doubled * (1.0 + f.jitter_ratio * (2.0 * fraction_of(request, q.num_attempts) - 1.0))
        if at < q.arrival_at + f.deadline_seconds:
            announce(s, at, request, ARRIVE)
            return
    settle(s, request, outcome, now)


@inner
def settle(s: EngineState, request: int, outcome: int, now: float) -> None:
    """Give a request its outcome; those that wait for its end come after their think time."""
    q = s.request[request]
    q.place = NOWHERE
    q.outcome = outcome
    if outcome == FINISHED:
        q.finished_at = now
    follower = q.first_after
    while follower != NONE:
        announce(s, now + s.request[follower].think_seconds, follower, ARRIVE)
        follower = s.request[follower].next_after


@inner
def fraction_of(request: int, attempt: int) -> float:
    """Return a number in [0, 1) that is the same for an attempt in every run (splitmix64; Steele et al. 2014)."""
    z = np.uint64(request) + np.uint64(attempt) * np.uint64(0xD1B54A32D192ED03)
    z = z * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) / 9007199254740992.0


@inner
def announce(s: EngineState, at: float, request: int, kind: int) -> None:
    """Note what happens to a request at `at`; `sort_announced` puts it into its order."""
    f = s.fleet[0]
    e = s.event[f.num_events + f.num_announced]
    f.num_announced += 1
    e.at = at
    e.order = f.num_events_ever
    e.request = request
    e.kind = kind
    e.attempt = s.request[request].num_attempts
    f.num_events_ever += 1


@inner
def sort_announced(s: EngineState) -> None:
    """Let what was announced rise in the heap; of two at one time the first that was announced comes first."""
    f = s.fleet[0]
    while f.num_announced > 0:
        i = f.num_events
        f.num_events = i + 1
        f.num_announced -= 1
        moving = s.event[i : i + 1].copy()
        while i > 0 and s.event[(i - 1) // 2].at > moving[0].at:
            s.event[i] = s.event[(i - 1) // 2]
            i = (i - 1) // 2
        s.event[i] = moving[0]


@inner
def drop_first_event(s: EngineState) -> None:
    """Remove the event that comes first."""
    f = s.fleet[0]
    last = f.num_events - 1
    f.num_events = last
    i = 0
    while 2 * i + 1 < last:
        child = 2 * i + 1
        if child + 1 < last and _is_before(s, child + 1, child):
            child += 1
        if not _is_before(s, child, last):
            break
        s.event[i] = s.event[child]
        i = child
    s.event[i] = s.event[last]


@inner
def _is_before(s: EngineState, i: int, k: int) -> bool:
    a, b = s.event[i], s.event[k]
    return a.at < b.at or (a.at == b.at and a.order < b.order)
