"""What must add up in a simulated fleet at any time, counted afresh from the engine's records one by one."""

from collections import Counter

import numpy as np

from simulator.engine_state import DECODING, DUE_AT, FINISHED, IDLE, KEY, MIXED, NONE, SHED, UNFINISHED
from simulator.lifecycle import PodState

EMPTY_STATES = (PodState.GONE, PodState.STARTING, PodState.WARM)


class Books:
    """The engine's records as plain Python numbers, at one time."""

    def __init__(self, state):
        self.record = state.request
        self.request = {name: state.request[name].tolist() for name in state.request.dtype.names}
        names = state.replica.dtype.names
        self.replicas = [dict(zip(names, record, strict=True)) for record in state.replica.tolist()]
        self.fleet = dict(zip(state.fleet.dtype.names, state.fleet[0].tolist(), strict=True))
        self.slot = state.slot
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
    pending = books.queue_from(books.fleet["pending_head"])
    assert len(pending) == books.fleet["num_pending"]
    assert sum(books.request["prompt_tokens"][i] for i in pending) == books.fleet["pending_tokens"]
    places = Counter(pending)
    for r, replica in enumerate(books.replicas):
        running, waiting = check_replica(books, r)
        places.update(running + waiting)
        assert all(books.request["served_by"][i] == r for i in running + waiting)
        assert not (fleet.pods.states[r] in EMPTY_STATES and (running or waiting))
        assert bool(replica["routable"]) == (fleet.pods.states[r] == PodState.SERVING)
    # nothing may wait at the gateway that could be served
    assert not (pending and PodState.SERVING in fleet.pods.states)
    check_places(books, places, now=fleet.now)


def check_places(books, places, *, now):
    """Check that every request is in exactly one place: not arrived, in one queue or batch, finished or shed."""
    record = books.record
    arrived = int(np.searchsorted(record["arrival_at"], now, side="right")) if now > 0 else 0
    assert books.fleet["next_request"] == arrived
    assert max(places.values(), default=0) <= 1
    settled = np.isin(record["outcome"], (FINISHED, SHED))
    assert sorted(places) == np.flatnonzero(~settled[:arrived]).tolist()
    assert (record["outcome"][arrived:] == UNFINISHED).all()
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
    check_blocks(books, replica, decoding=decoding, chunks=chunks)
    check_tokens(books, replica, decoding=decoding, to_prefill=chunks + waiting)
    batch = len(decoding) + int(books.slot["chunk_tokens"][r, : replica["num_chunks"]].sum())
    assert batch <= books.fleet["max_num_batched_tokens"]
    return running, waiting


def check_blocks(books, replica, *, decoding, chunks):
    """Check that free blocks and the blocks of the running requests are all the blocks there are."""
    in_prefill = sum(books.request["kv_held"][i] for i in chunks)
    tokens = [books.request["base"][i] + replica["decode_step"] for i in decoding]
    # a mixed step has taken its blocks; a decode segment takes them when it ends
    under_way = 1 if replica["segment_kind"] == MIXED else 0
    held = in_prefill + sum(books.blocks_for(n + under_way) for n in tokens)
    assert replica["free_blocks"] >= 0
    assert replica["free_blocks"] + held == books.fleet["kv_blocks"]
    if replica["segment_kind"] == DECODING:
        at_end = sum(books.blocks_for(n + replica["segment_steps"]) for n in tokens)
        assert at_end <= books.fleet["kv_blocks"]


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
