"""What must add up in a simulated fleet at any time, counted afresh from the engine's records one by one."""

from collections import Counter

import numpy as np

from simulator.engine_state import (
    AT_GATEWAY,
    DECODING,
    DUE_AT,
    FINISHED,
    IDLE,
    KEY,
    MIXED,
    NONE,
    NOWHERE,
    RUNNING,
    UNFINISHED,
    WAITING,
)
from simulator.pod_states import PodState

EMPTY_STATES = (PodState.GONE, PodState.PENDING, PodState.STARTING, PodState.WARM)


class Books:
    """The engine's records as plain Python numbers, at one time."""

    def __init__(self, state):
        self.record = state.request
        self.request = {name: state.request[name].tolist() for name in state.request.dtype.names}
        names = state.replica.dtype.names
        self.replicas = [dict(zip(names, record, strict=True)) for record in state.replica.tolist()]
        self.fleet = dict(zip(state.fleet.dtype.names, state.fleet[0].tolist(), strict=True))
        self.slot = state.slot
        self.group, self.prefix = state.group, state.prefix
        self.due_at = state.board[DUE_AT]

    def queue_from(self, head):
        """Return the requests linked from `head`, in order."""
        seen = []
        while head != NONE:
            seen.append(head)
            assert len(seen) <= len(self.record), "a queue that runs in a circle"
            head = self.request["following"][head]
        return seen

    def blocks_for(self, tokens):
        return -(-tokens // self.fleet["block_size_tokens"])


def check_fleet(fleet):
    """Check everything below, and that only pods in use hold requests."""
    books = Books(fleet._state)
    check_state(books, now=fleet.now)
    for replica, state in zip(books.replicas, fleet.pods.states, strict=True):
        assert not (state in EMPTY_STATES and (replica["num_running"] or replica["num_waiting"]))
        assert bool(replica["routable"]) == (state == PodState.SERVING)
    # nothing may wait at the gateway that could be served
    assert not (books.fleet["num_pending"] and PodState.SERVING in fleet.pods.states)


def check_state(books, *, now):
    """Check every replica, and that every request is in exactly one place."""
    pending = books.queue_from(books.fleet["pending_head"])
    assert len(pending) == books.fleet["num_pending"]
    assert sum(books.request["prompt_tokens"][i] for i in pending) == books.fleet["pending_tokens"]
    places = dict.fromkeys(pending, AT_GATEWAY)
    for r in range(len(books.replicas)):
        running, waiting = check_replica(books, r)
        assert all(books.request["served_by"][i] == r for i in running + waiting)
        assert not places.keys() & (running + waiting)
        places |= dict.fromkeys(running, RUNNING) | dict.fromkeys(waiting, WAITING)
    assert [places.get(i, NOWHERE) for i in range(len(books.record))] == books.request["place"]
    check_outcomes(books, places, now=now)


def check_outcomes(books, places, *, now):
    """Check that what is held has no outcome, and that times are in order."""
    record = books.record
    assert all(books.request["outcome"][i] == UNFINISHED for i in places)
    arrived = int(np.searchsorted(record["arrival_at"], now, side="right")) if now > 0 else 0
    if record["is_free"].all() and books.fleet["max_attempts"] == 1:
        assert books.fleet["next_request"] == arrived
        assert sorted(places) == np.flatnonzero(record["outcome"][:arrived] == UNFINISHED).tolist()
    done = record["outcome"] == FINISHED
    assert (np.isnan(record["finished_at"]) == ~done).all()
    assert (record["arrival_at"][done] < record["first_token_at"][done]).all()
    assert (record["first_token_at"][done] <= record["finished_at"][done]).all()


def check_replica(books, r):
    """Check blocks, sequences and tokens of one replica; return its (running, waiting) requests."""
    replica = books.replicas[r]
    running = books.queue_from(replica["running_head"])
    waiting = [i for head in replica["queue_head"] for i in books.queue_from(head)]
    assert len(running) == replica["num_running"] <= books.fleet["max_num_seqs"]
    assert len(waiting) == replica["num_waiting"]
    chunks = books.slot["chunk_request"][r, : replica["num_chunks"]].tolist()
    decoding = [i for i in running if i not in chunks]
    assert set(chunks) <= set(running)
    assert len(decoding) == replica["num_decoding"] == replica["heap_size"]
    assert sorted(decoding) == sorted((books.slot["finish_key"][r, : replica["heap_size"]] % KEY).tolist())
    kind = MIXED if chunks else DECODING if decoding else IDLE
    assert replica["segment_kind"] == kind
    assert not (kind == IDLE and waiting)
    check_blocks(books, r, decoding=decoding, chunks=chunks)
    check_tokens(books, replica, decoding=decoding, to_prefill=chunks + waiting)
    batch = len(decoding) + int(books.slot["chunk_tokens"][r, : replica["num_chunks"]].sum())
    assert batch <= books.fleet["max_num_batched_tokens"]
    return running, waiting


def check_blocks(books, r, *, decoding, chunks):
    """Check that free blocks, those of the running requests and those of the groups in use are all there are."""
    replica, fleet = books.replicas[r], books.fleet
    own = sum(books.request["kv_held"][i] for i in chunks)
    # a mixed step has taken its blocks; a decode segment takes them when it ends
    under_way = 1 if replica["segment_kind"] == MIXED else 0
    tokens = [books.request["base"][i] + replica["decode_step"] for i in decoding]
    shared = [books.request["prefix_held"][i] * fleet["group_blocks"] for i in decoding]
    own += sum(books.blocks_for(n + under_way) - k for n, k in zip(tokens, shared, strict=True))
    num_used, num_idle = check_groups(books, r, holders=decoding + chunks)
    assert replica["free_blocks"] >= 0
    assert replica["free_blocks"] + own + num_used * fleet["group_blocks"] == fleet["kv_blocks"]
    if replica["segment_kind"] == MIXED:
        assert num_idle * fleet["group_blocks"] <= fleet["kv_blocks"]
    if replica["segment_kind"] == DECODING:
        at_end = sum(books.blocks_for(n + replica["segment_steps"]) - k for n, k in zip(tokens, shared, strict=True))
        assert at_end + num_used * fleet["group_blocks"] <= fleet["kv_blocks"]


def check_groups(books, r, *, holders):
    """Check a replica's cache against what its running requests hold; return the groups in use and the idle ones."""
    replica = books.replicas[r]
    if not books.fleet["has_prefixes"]:
        return 0, 0
    held = Counter()
    for i in holders:
        start, seen = books.request["prefix_start"][i], books.request["prefix_seen"][i]
        mine = [int(p["id"]) for p in books.prefix[start : start + seen] if p["is_held"]]
        assert len(mine) == books.request["prefix_held"][i]
        held.update(mine)
    users = books.group["users"][r]
    assert held == Counter({i: int(n) - 1 for i, n in enumerate(users) if n > 1})
    idle, at = [], replica["idle_head"]
    while at != NONE:
        idle.append(at)
        at = int(books.group["after"][r, at])
    assert sorted(idle) == np.flatnonzero(users == 1).tolist()
    assert len(idle) == replica["num_idle_groups"]
    return len(held), len(idle)


def check_tokens(books, replica, *, decoding, to_prefill):
    """Check a replica's running totals of tokens against its requests."""
    request, step = books.request, replica["decode_step"]
    assert replica["context_tokens"] == sum(request["base"][i] + step for i in decoding)
    left = [request["prompt_tokens"][i] + request["generated"][i] - request["kv_tokens"][i] for i in to_prefill]
    assert min(left, default=1) > 0
    assert replica["unprefilled_tokens"] == sum(left)
    for i in decoding:
        made = request["output_tokens"][i] - (request["finish_step"][i] - step)
        assert 1 <= made < request["output_tokens"][i]
        assert request["base"][i] + step == request["prompt_tokens"][i] + made - 1
