"""Sessions, agents and closed users: who waits for whom, what prompts hold, and what they share."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.errors import ConfigError
from simulator.requests import NO_REQUEST
from simulator.workload.agents import Agents
from simulator.workload.closed_users import ClosedUsers
from simulator.workload.lengths import TokenLengths
from simulator.workload.sessions import Sessions

MESSAGE = TokenLengths(median=200, sigma=0.8, largest=5000)
OUTPUT = TokenLengths(median=100, sigma=0.8, largest=5000)


def made(kind, starts, seed):
    return kind.requests(np.array(starts), message=MESSAGE, output=OUTPUT, rng=np.random.default_rng(seed))


def prefix_of(table, i):
    return table.prefixes.ids[table.prefixes.starts[i] : table.prefixes.starts[i + 1]].tolist()


def chain(table, i):
    """The requests that lead to `i`, the first one first."""
    found = [i]
    while table.follows[found[0]] != NO_REQUEST:
        found.insert(0, int(table.follows[found[0]]))
    return found


starts = st.lists(st.floats(0, 100), min_size=1, max_size=8).map(sorted)
seeds = st.integers(0, 2**32)
shared = st.sampled_from([0, 100, 1000])


class TestSessions:
    @settings(max_examples=40, deadline=None)
    @given(starts, seeds, shared, st.sampled_from([16, 128]))
    def test_a_prompt_holds_the_history_and_its_groups_begin_with_those_of_the_turn_before(
        self, at, seed, shared_tokens, group
    ):
        table = made(Sessions(shared_prompt_tokens=shared_tokens, group_tokens=group), at, seed)
        for i in range(table.num_requests):
            before = table.follows[i]
            ids = prefix_of(table, i)
            assert len(ids) == table.prompt_tokens[i] // group == len(set(ids))
            if before == NO_REQUEST:
                assert table.prompt_tokens[i] > shared_tokens
                assert ids[: shared_tokens // group] == list(range(shared_tokens // group))
                continue
            assert table.prompt_tokens[i] > table.prompt_tokens[before] + table.output_tokens[before]
            assert ids[: len(prefix_of(table, before))] == prefix_of(table, before)
            assert table.arrival_seconds[i] == pytest.approx(table.arrival_seconds[before] + table.think_seconds[i])

    @settings(max_examples=40, deadline=None)
    @given(starts, seeds, shared)
    def test_different_sessions_share_the_system_prompt_and_no_more(self, at, seed, shared_tokens):
        table = made(Sessions(shared_prompt_tokens=shared_tokens, group_tokens=16), at, seed)
        owner = {}
        for i in range(table.num_requests):
            for group_id in prefix_of(table, i)[shared_tokens // 16 :]:
                assert owner.setdefault(group_id, chain(table, i)[0]) == chain(table, i)[0]

    def test_there_are_as_many_turns_and_as_long_thoughts_as_told(self):
        kind = Sessions(mean_turns=4.0, think_seconds=15.0)
        table = made(kind, np.zeros(20_000), 0)
        follows = table.follows != NO_REQUEST
        assert table.num_requests / 20_000 == pytest.approx(kind.mean_requests, rel=0.03)
        assert table.think_seconds[follows].mean() == pytest.approx(15.0, rel=0.03)
        assert (table.think_seconds[~follows] == 0).all()


class TestAgents:
    @settings(max_examples=40, deadline=None)
    @given(starts, seeds, shared, st.floats(1, 6))
    def test_children_follow_the_root_and_the_join_follows_the_child_with_the_longest_answer(
        self, at, seed, shared_tokens, mean_children
    ):
        kind = Agents(mean_children=mean_children, shared_prompt_tokens=shared_tokens, group_tokens=16)
        table = made(kind, at, seed)
        roots = np.flatnonzero(table.follows == NO_REQUEST)
        assert table.arrival_seconds[roots].tolist() == at
        for root in roots.tolist():
            children = np.flatnonzero(table.follows == root)
            joins = np.flatnonzero(np.isin(table.follows, children))
            assert len(children) >= 1
            assert len(joins) == 1
            assert table.output_tokens[table.follows[joins[0]]] == table.output_tokens[children].max()
            context = table.prompt_tokens[root] + table.output_tokens[root]
            assert (table.prompt_tokens[children] > context).all()
            assert table.prompt_tokens[joins[0]] > context + table.output_tokens[children].sum()
            for row in (*children.tolist(), joins[0]):
                own, common = prefix_of(table, row), prefix_of(table, children[0])[: context // 16]
                assert own[: context // 16] == common
                assert own[: table.prompt_tokens[root] // 16] == prefix_of(table, root)
                assert len(own) == table.prompt_tokens[row] // 16 == len(set(own))

    @settings(max_examples=20, deadline=None)
    @given(starts, seeds)
    def test_what_a_child_is_told_alone_is_shared_with_nobody(self, at, seed):
        table = made(Agents(group_tokens=16), at, seed)
        ids, times = np.unique(table.prefixes.ids, return_counts=True)
        used = dict(zip(ids.tolist(), times.tolist(), strict=True))
        for row in range(table.num_requests):
            before = table.follows[row]
            if before != NO_REQUEST and table.follows[before] == NO_REQUEST:
                context = table.prompt_tokens[before] + table.output_tokens[before]
                assert all(used[group_id] == 1 for group_id in prefix_of(table, row)[context // 16 :])

    def test_there_are_as_many_requests_as_told(self):
        kind = Agents(mean_children=3.5)
        assert made(kind, np.zeros(20_000), 0).num_requests / 20_000 == pytest.approx(kind.mean_requests, rel=0.03)


class TestClosedUsers:
    def requests(self, seed=0, **kind):
        rng = np.random.default_rng(seed)
        return ClosedUsers(**kind).requests(600, prompt=MESSAGE, output=OUTPUT, rng=rng)

    @given(seeds, st.integers(1, 30), st.floats(5, 2000))
    def test_a_user_asks_one_thing_at_a_time_within_the_run(self, seed, num_users, think_seconds):
        table = self.requests(seed, num_users=num_users, think_seconds=think_seconds)
        follows = table.follows[table.follows != NO_REQUEST]
        assert np.unique(follows).size == follows.size
        assert (table.follows == NO_REQUEST).sum() <= num_users
        assert (table.arrival_seconds < 600).all()

    def test_fast_answers_give_the_rate_of_the_users_over_their_think_time(self):
        table = self.requests(num_users=200, think_seconds=20.0)
        assert table.num_requests == pytest.approx(200 * 600 / 20, rel=0.05)
        assert (table.follows == NO_REQUEST).sum() == 200


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (Sessions, {"mean_turns": 0.5}, "mean_turns must be in"),
        (Sessions, {"think_seconds": -1.0}, "think_seconds must be finite"),
        (Agents, {"mean_children": 0.0}, "mean_children must be in"),
        (Agents, {"group_tokens": 0}, "group_tokens must be >= 1"),
        (ClosedUsers, {"num_users": 0, "think_seconds": 0.0}, "num_users must be >= 1, got 0; think_seconds must"),
    ],
)
def test_impossible_numbers_are_refused(kind, values, message):
    with pytest.raises(ConfigError, match=message):
        kind(**values)
