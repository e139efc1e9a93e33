"""The lists of a replica, compiled: its waiting queues, its running batch, and the heap of what finishes next."""

from simulator.compiled import inner
from simulator.engine_state import KEY, NONE, NOWHERE, NUM_PRIORITIES, RUNNING, WAITING, EngineState


@inner
def class_of(s: EngineState, request: int) -> int:
    """Return the queue that a request waits in."""
    return s.request[request].priority if s.fleet[0].is_by_priority else 0


@inner
def first_waiting(s: EngineState, r: int) -> int:
    """Return the request that is admitted next, NONE if none waits."""
    for level in range(NUM_PRIORITIES - 1, -1, -1):
        if s.replica[r].queue_head[level] != NONE:
            return s.replica[r].queue_head[level]
    return NONE


@inner
def join_queue(s: EngineState, r: int, request: int, at_head: bool) -> None:
    """Put a request at the end of its queue, or back to the head of it."""
    q = s.request[request]
    level = class_of(s, request)
    q.place = WAITING
    q.following = s.replica[r].queue_head[level] if at_head else NONE
    q.preceding = NONE if at_head else s.replica[r].queue_tail[level]
    if q.following != NONE:
        s.request[q.following].preceding = request
    else:
        s.replica[r].queue_tail[level] = request
    if q.preceding != NONE:
        s.request[q.preceding].following = request
    else:
        s.replica[r].queue_head[level] = request
    s.replica[r].num_waiting += 1


@inner
def leave_queue(s: EngineState, r: int, request: int) -> None:
    """Take a request out of its queue."""
    q = s.request[request]
    level = class_of(s, request)
    if q.preceding == NONE:
        s.replica[r].queue_head[level] = q.following
    else:
        s.request[q.preceding].following = q.following
    if q.following == NONE:
        s.replica[r].queue_tail[level] = q.preceding
    else:
        s.request[q.following].preceding = q.preceding
    q.place = NOWHERE
    s.replica[r].num_waiting -= 1


@inner
def join_running(s: EngineState, r: int, request: int) -> None:
    """Put a request at the end of the batch."""
    q, rep = s.request[request], s.replica[r]
    q.place = RUNNING
    q.preceding = rep.running_tail
    q.following = NONE
    if rep.running_tail == NONE:
        rep.running_head = request
    else:
        s.request[rep.running_tail].following = request
    rep.running_tail = request
    rep.num_running += 1


@inner
def leave_running(s: EngineState, r: int, request: int) -> None:
    """Take a request out of the batch."""
    q, rep = s.request[request], s.replica[r]
    if q.preceding == NONE:
        rep.running_head = q.following
    else:
        s.request[q.preceding].following = q.following
    if q.following == NONE:
        rep.running_tail = q.preceding
    else:
        s.request[q.following].preceding = q.preceding
    q.place = NOWHERE
    rep.num_running -= 1


@inner
def heap_push(s: EngineState, r: int, step: int, request: int) -> None:
    """Add a decoding request to the heap of finish steps."""
    i = s.replica[r].heap_size
    s.replica[r].heap_size = i + 1
    _heap_up(s, r, i, step * KEY + request)


@inner
def heap_remove(s: EngineState, r: int, i: int) -> None:
    """Remove entry `i` of the heap of finish steps: the last entry takes its place and sinks or rises."""
    last = s.replica[r].heap_size - 1
    s.replica[r].heap_size = last
    if i == last:
        return
    key = s.slot[r, last].finish_key
    while 2 * i + 1 < last:
        child = 2 * i + 1
        if child + 1 < last and s.slot[r, child + 1].finish_key < s.slot[r, child].finish_key:
            child += 1
        if s.slot[r, child].finish_key >= key:
            break
        s.slot[r, i].finish_key = s.slot[r, child].finish_key
        i = child
    _heap_up(s, r, i, key)


@inner
def heap_remove_request(s: EngineState, r: int, request: int) -> None:
    """Remove a request from the heap of finish steps."""
    key = s.request[request].finish_step * KEY + request
    for i in range(s.replica[r].heap_size):
        if s.slot[r, i].finish_key == key:
            heap_remove(s, r, i)
            return


@inner
def _heap_up(s: EngineState, r: int, i: int, key: int) -> None:
    while i > 0:
        parent = (i - 1) // 2
        if s.slot[r, parent].finish_key <= key:
            break
        s.slot[r, i].finish_key = s.slot[r, parent].finish_key
        i = parent
    s.slot[r, i].finish_key = key
