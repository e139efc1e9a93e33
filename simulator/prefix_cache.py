"""The prefix cache of a replica, compiled: groups of blocks that prompts share, the least recently used evicted first.

As in vLLM's V1, what nobody uses stays cached in blocks that count as free, and goes when those are needed: here whole
groups (Mooncake's 512 tokens) at a time, where vLLM evicts single blocks. Nothing is evicted when blocks are taken but
only before the cache is looked at or changed again; what would have gone by then goes then, in the same order.

Reference: vLLM, "Automatic Prefix Caching" (design documents, V1): hash-based blocks, a free queue in LRU order, a
finished request's blocks freed last to first, at least one token of a prompt always computed.
"""

from simulator.compiled import inner
from simulator.engine_state import NONE, EngineState


@inner
def evict(s: EngineState, r: int, available_blocks: int) -> None:
    """Drop idle groups until those that are left fit into the blocks that are available."""
    rep = s.replica[r]
    while rep.num_idle_groups * s.fleet[0].group_blocks > available_blocks:
        _leave_idle(s, r, rep.idle_head)


@inner
def groups_hit(s: EngineState, r: int, request: int) -> int:
    """Return how many leading groups of a request's prompt replica `r` has, all but its last token at most."""
    q = s.request[request]
    most = min(q.prefix_count, (q.prompt_tokens + q.generated - 1) // s.fleet[0].group_tokens)
    num = 0
    while num < most and s.group[r, s.prefix[q.prefix_start + num].id].users > 0:
        num += 1
    return num


@inner
def idle_groups_of(s: EngineState, r: int, request: int, num_groups: int) -> int:
    """Return how many of a request's first groups nobody uses: their blocks count as free."""
    start = s.request[request].prefix_start
    num = 0
    for k in range(start, start + num_groups):
        if s.group[r, s.prefix[k].id].users == 1:
            num += 1
    return num


@inner
def hold_groups(s: EngineState, r: int, request: int, num_groups: int) -> None:
    """Use a request's first groups, which are cached."""
    q, rep = s.request[request], s.replica[r]
    for k in range(q.prefix_start, q.prefix_start + num_groups):
        group_id = s.prefix[k].id
        if s.group[r, group_id].users == 1:
            _leave_idle(s, r, group_id)
            rep.free_blocks -= s.fleet[0].group_blocks
            s.group[r, group_id].users = 1
        s.group[r, group_id].users += 1
        s.prefix[k].is_held = 1
    q.prefix_seen = num_groups
    q.prefix_held = num_groups


@inner
def cache_computed(s: EngineState, r: int, request: int) -> None:
    """Put the groups that a request has computed by now into the cache, but for those that are there already."""
    q = s.request[request]
    done = min(q.kv_tokens // s.fleet[0].group_tokens, q.prefix_count)
    while q.prefix_seen < done:
        k = q.prefix_start + q.prefix_seen
        group = s.group[r, s.prefix[k].id]
        if group.users == 0:
            group.users = 2
            s.prefix[k].is_held = 1
            q.prefix_held += 1
            q.kv_held -= s.fleet[0].group_blocks
        q.prefix_seen += 1


@inner
def release_groups(s: EngineState, r: int, request: int) -> None:
    """Let go of a request's groups, the last first; those that nobody else uses stay cached in free blocks."""
    q, rep = s.request[request], s.replica[r]
    for k in range(q.prefix_start + q.prefix_seen - 1, q.prefix_start - 1, -1):
        if s.prefix[k].is_held:
            s.prefix[k].is_held = 0
            group_id = s.prefix[k].id
            s.group[r, group_id].users -= 1
            if s.group[r, group_id].users == 1:
                rep.free_blocks += s.fleet[0].group_blocks
                _join_idle(s, r, group_id)
    q.prefix_seen = 0
    q.prefix_held = 0


@inner
def _join_idle(s: EngineState, r: int, group_id: int) -> None:
    rep, group = s.replica[r], s.group[r, group_id]
    group.before = rep.idle_tail
    group.after = NONE
    if rep.idle_tail == NONE:
        rep.idle_head = group_id
    else:
        s.group[r, rep.idle_tail].after = group_id
    rep.idle_tail = group_id
    rep.num_idle_groups += 1


@inner
def _leave_idle(s: EngineState, r: int, group_id: int) -> None:
    rep, group = s.replica[r], s.group[r, group_id]
    if group.before == NONE:
        rep.idle_head = group.after
    else:
        s.group[r, group.before].after = group.after
    if group.after == NONE:
        rep.idle_tail = group.before
    else:
        s.group[r, group.after].before = group.before
    group.users = 0
    rep.num_idle_groups -= 1
