"""Prefix caches, priorities, impatient clients and dying replicas: the compiled engine against the naive fleet."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from books import Books, check_state
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from naive_fleet import Change, NaiveFleet
from test_engine import STEP_TIME

from simulator.clients import Clients
from simulator.engine_options import EngineOptions
from simulator.engine_state import OUTCOMES, new_state
from simulator.gateway import ROUTERS, run_until
from simulator.profiles import EngineProfile
from simulator.requests import Prefixes, RequestTable

BLOCK_SIZE_TOKENS = 4
GROUP_TOKENS = 8
GRID_SECONDS = 0.00717
SPAN_SECONDS = 40.0


@dataclass(frozen=True, kw_only=True)
class Case:
    requests: RequestTable
    profile: EngineProfile
    num_replicas: int
    router: str
    options: EngineOptions
    clients: Clients
    changes: tuple


def groups_of(document, num_groups):
    """Return ids that a prompt shares with those of the same document up to where they part."""
    trunk, branch = document
    return [trunk * 1000 + k if k < 2 else trunk * 1000 + 100 * branch + k for k in range(num_groups)]


rows = st.tuples(
    st.one_of(st.just(0), st.integers(0, 40), st.integers(0, 300)),  # gap in grid steps
    st.one_of(st.integers(1, 20), st.integers(1, 90)),
    st.one_of(st.just(1), st.integers(1, 12), st.integers(1, 50)),
    st.integers(0, 2),  # priority
    st.tuples(st.integers(0, 2), st.integers(1, 2)),  # document
    st.one_of(st.none(), st.none(), st.integers(1, 4)),  # how far back the request is that it follows
    st.integers(0, 90),  # think time in grid steps
)


def table_of(drawn):
    gaps, prompts, outputs, priorities, documents, back, think = zip(*drawn, strict=True)
    n = len(drawn)
    follows = [i - b if b is not None and b <= i else -1 for i, b in enumerate(back)]
    prefixes = Prefixes.from_lists(
        [groups_of(d, -(-p // GROUP_TOKENS)) for d, p in zip(documents, prompts, strict=True)],
        group_tokens=GROUP_TOKENS,
    )
    return RequestTable.from_columns(
        np.cumsum(gaps) * GRID_SECONDS,
        np.array(prompts),
        np.array(outputs),
        priority=np.array(priorities),
        follows=np.array(follows),
        think_seconds=np.array(think) * GRID_SECONDS * 1.0137 if n else np.zeros(0),
        prefixes=prefixes,
    )


@st.composite
def cases(draw, *, options=None, clients=None, with_changes=True):
    requests = table_of(draw(st.lists(rows, min_size=1, max_size=25)))
    num_replicas = draw(st.integers(1, 3))
    longest = int((requests.prompt_tokens + requests.output_tokens).max())
    profile = EngineProfile(
        name="tiny",
        gpus_per_replica=1,
        kv_blocks=-(-longest // BLOCK_SIZE_TOKENS) + draw(st.one_of(st.integers(0, 6), st.integers(0, 120))),
        block_size_tokens=BLOCK_SIZE_TOKENS,
        max_num_seqs=draw(st.sampled_from((2, 3, 8, 256))),
        max_num_batched_tokens=draw(st.sampled_from((3, 16, 64, 300))),
        step_time=STEP_TIME,
        fit_error_ratio=(0.0, 0.0),
    )
    change = st.builds(
        Change,
        at=st.integers(1, 800).map(lambda k: k * GRID_SECONDS + 0.0023),
        replica=st.integers(0, num_replicas - 1),
        is_routable=st.booleans(),
        dies=st.booleans(),
    )
    changes = draw(st.lists(change, max_size=4, unique_by=lambda c: c.at)) if with_changes else []
    return Case(
        requests=requests,
        profile=profile,
        num_replicas=num_replicas,
        router=draw(st.sampled_from(ROUTERS)),
        options=options or draw(some_options),
        clients=clients or draw(some_clients),
        changes=tuple(sorted(changes, key=lambda c: c.at)),
    )


some_options = st.builds(
    EngineOptions,
    scheduling_policy=st.sampled_from(("fcfs", "priority")),
    enable_prefix_caching=st.booleans(),
    watermark_ratio=st.sampled_from((0.0, 0.0, 0.05, 0.3)),
    max_model_len=st.sampled_from((None, None, 40, 100)),
)
some_clients = st.builds(
    Clients,
    timeout_seconds=st.sampled_from((np.inf, 0.0531, 0.3037, 1.5011)),
    deadline_seconds=st.sampled_from((np.inf, 0.8057, 3.0093)),
    max_attempts=st.sampled_from((1, 2, 4)),
    backoff_seconds=st.sampled_from((0.0519, 0.4027)),
    jitter_ratio=st.sampled_from((0.0, 0.5)),
)


def naively(case):
    return NaiveFleet(
        case.requests,
        case.profile,
        num_replicas=case.num_replicas,
        router=case.router,
        options=case.options,
        clients=case.clients,
        changes=case.changes,
    ).play(SPAN_SECONDS)


def compiled(case, *, look_every_seconds=SPAN_SECONDS):
    """Return the state after a case was played; the books are checked at every change and every look."""
    state = new_state(
        case.requests,
        case.profile,
        num_slots=case.num_replicas,
        num_rows=int(SPAN_SECONDS) + 1,
        router_code=ROUTERS.index(case.router),
        options=case.options,
        clients=case.clients,
    )
    state.replica["routable"] = 1
    looks = [Change(at=float(at), replica=0, is_routable=True) for at in np.arange(0, SPAN_SECONDS, look_every_seconds)]
    now = 0.0
    for change in sorted((*looks[1:], *case.changes), key=lambda c: c.at):
        run_until(state, now, change.at)
        check_state(Books(state), now=change.at)
        now = change.at
        if change in case.changes:
            state.replica["routable"][change.replica] = change.is_routable
            state.replica["is_dead"][change.replica] = change.dies
    run_until(state, now, SPAN_SECONDS)
    check_state(Books(state), now=SPAN_SECONDS)
    return state


def assert_same(state, naive):
    sequences = naive.sequences
    request = state.request
    assert [OUTCOMES[code] for code in request["outcome"]] == [s.outcome for s in sequences]
    np.testing.assert_array_equal(request["num_attempts"], [s.num_attempts for s in sequences])
    np.testing.assert_array_equal(request["served_by"], [s.served_by for s in sequences])
    np.testing.assert_array_equal(request["num_preemptions"], [s.num_preemptions for s in sequences])
    for name in ("first_token_at", "finished_at"):
        np.testing.assert_allclose(request[name], [getattr(s, name) for s in sequences], rtol=1e-9, err_msg=name)
    arrived = request["num_attempts"] > 0
    np.testing.assert_allclose(
        request["arrival_at"][arrived], [s.arrival_at for s in sequences if s.num_attempts], rtol=1e-9
    )


@settings(max_examples=600, deadline=None, derandomize=True)
@given(case=cases())
def test_agrees_with_the_naive_fleet_in_every_detail(case):
    naive = naively(case)
    assume(not naive.has_a_tie)
    assert_same(compiled(case), naive)


PATIENT = Clients()
CACHING = EngineOptions(enable_prefix_caching=True)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(case=cases(options=CACHING, clients=PATIENT, with_changes=False))
def test_caches_the_same_prefixes_as_the_naive_fleet(case):
    naive = naively(case)
    assume(not naive.has_a_tie)
    state = compiled(case)
    assert_same(state, naive)
    prefilled = np.nansum(state.rows[:, 6])
    assert prefilled == sum(r.prefilled_tokens for r in naive.replicas)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(case=cases())
def test_looking_more_often_changes_nothing_and_the_books_balance_at_every_look(case):
    once, often = compiled(case), compiled(case, look_every_seconds=0.25)
    assert once.request.tobytes() == often.request.tobytes()
    assert once.rows.tobytes() == often.rows.tobytes()


def test_the_cases_above_meet_every_outcome_preemption_and_cache_hit():
    """What is never drawn is never tested: a sweep of the same kind of cases has them all."""
    rng = np.random.default_rng(4)
    seen, num_preempted, num_hits = set(), 0, 0
    for number in range(60):
        drawn = [
            (
                int(rng.integers(0, 20)),
                int(rng.integers(1, 90)),
                int(rng.integers(1, 50)),
                int(rng.integers(0, 3)),
                (int(rng.integers(0, 2)), int(rng.integers(1, 3))),
                None,
                0,
            )
            for _ in range(25)
        ]
        case = Case(
            requests=table_of(drawn),
            profile=EngineProfile(
                name="tiny",
                gpus_per_replica=1,
                kv_blocks=45,
                block_size_tokens=BLOCK_SIZE_TOKENS,
                max_num_batched_tokens=32,
                step_time=STEP_TIME,
                fit_error_ratio=(0.0, 0.0),
            ),
            num_replicas=2,
            router=ROUTERS[number % len(ROUTERS)],
            options=EngineOptions(
                scheduling_policy=("fcfs", "priority")[number % 2], enable_prefix_caching=True, max_model_len=85
            ),
            clients=Clients(timeout_seconds=1.5011, max_attempts=1 + number % 3, backoff_seconds=0.1013),
            changes=(
                Change(at=1.0023, replica=0, is_routable=False, dies=True),
                Change(at=2.0023, replica=0, is_routable=True),
                Change(at=3.0023, replica=1, is_routable=True, dies=True),
            ),
        )
        naive, state = naively(case), compiled(case)
        assert_same(state, naive)
        seen |= {OUTCOMES[code] for code in state.request["outcome"]}
        num_preempted += int(state.request["num_preemptions"].sum())
        num_hits += sum(r.hit_tokens for r in naive.replicas)
    assert seen >= {"finished", "timed_out", "failed", "refused"}
    assert num_preempted > 100
    assert num_hits > 1000


class TestByHand:
    """Small cases with one replica that is idle but for them."""

    profile = EngineProfile(
        name="tiny", gpus_per_replica=1, kv_blocks=100, block_size_tokens=4, step_time=STEP_TIME, fit_error_ratio=(0, 0)
    )

    def run(self, requests, *, options=None, clients=None, changes=()):
        case = Case(
            requests=requests,
            profile=self.profile,
            num_replicas=1,
            router=ROUTERS[0],
            options=options or EngineOptions(),
            clients=clients or Clients(),
            changes=changes,
        )
        return compiled(case)

    def test_prompt_that_was_cached_computes_only_its_rest(self):
        prefixes = Prefixes.from_lists([[1, 2, 3], [1, 2, 3]], group_tokens=GROUP_TOKENS)
        requests = RequestTable.from_columns(
            np.array([0.5, 5.1]), np.array([24, 24]), np.array([2, 2]), prefixes=prefixes
        )
        s = self.run(requests, options=CACHING)
        first, second = s.request["first_token_at"] - s.request["arrival_at"]
        # 24 tokens, then the last group alone: at least one token of a prompt is always computed
        assert second == pytest.approx(STEP_TIME.seconds(prefill_tokens=8, prefix_tokens=16))
        assert first == pytest.approx(STEP_TIME.seconds(prefill_tokens=24))
        assert s.rows[5, 20] == pytest.approx(16 / 24)

    def test_prompt_longer_than_the_model_allows_is_refused_and_an_answer_is_cut(self):
        requests = RequestTable.from_columns(np.array([0.5, 1.0]), np.array([50, 30]), np.array([5, 40]))
        s = self.run(requests, options=EngineOptions(max_model_len=50))
        assert [OUTCOMES[code] for code in s.request["outcome"]] == ["refused", "finished"]
        assert s.request["output_tokens"][1] == 20
        # an answer of one token needs no room beyond its prompt's 50 but one
        assert s.request["num_attempts"].tolist() == [1, 1]

    def test_follower_comes_its_think_time_after_the_end(self):
        requests = RequestTable.from_columns(
            np.array([0.5, 0.5]),
            np.array([8, 8]),
            np.array([3, 3]),
            follows=np.array([-1, 0]),
            think_seconds=np.array([0.0, 2.0]),
        )
        s = self.run(requests)
        assert s.request["arrival_at"][1] == s.request["finished_at"][0] + 2.0

    def test_retries_wait_twice_as_long_each_time_and_count_as_one_request(self):
        requests = RequestTable.from_columns(np.array([0.5]), np.array([8]), np.array([3]))
        clients = Clients(timeout_seconds=1.0, max_attempts=4, backoff_seconds=1.0, jitter_ratio=0.0)
        away = Change(at=0.1, replica=0, is_routable=False)
        s = self.run(requests, clients=clients, changes=(away,))
        # tries at 0.5, 2.5, 5.5, 10.5 s, each given up after a second
        assert s.request["num_attempts"][0] == 4
        assert [OUTCOMES[code] for code in s.request["outcome"]] == ["timed_out"]
        assert np.flatnonzero(s.rows[:, 19] > 0).tolist() == [2, 5, 10]
        assert np.nansum(s.rows[:, 0]) == 1

    def test_request_that_lost_its_replica_is_served_by_its_retry_from_the_start(self):
        requests = RequestTable.from_columns(np.array([0.5]), np.array([8]), np.array([40]))
        clients = Clients(max_attempts=2, backoff_seconds=1.0, jitter_ratio=0.0)
        death = Change(at=0.7, replica=0, is_routable=True, dies=True)
        s = self.run(requests, clients=clients, changes=(death,))
        assert s.request["first_token_at"][0] > 1.7
        assert OUTCOMES[s.request["outcome"][0]] == "finished"

    def test_user_is_gone_at_the_deadline_whatever_has_come(self):
        requests = RequestTable.from_columns(np.array([0.5]), np.array([8]), np.array([400]))
        requests = replace(requests, output_tokens=np.array([380]))
        s = self.run(requests, clients=Clients(deadline_seconds=2.0, max_attempts=5))
        assert OUTCOMES[s.request["outcome"][0]] == "timed_out"
        assert s.request["num_attempts"][0] == 1

    def test_important_requests_are_admitted_first_and_preempted_last(self):
        options = EngineOptions(scheduling_policy="priority")
        n = 12
        requests = RequestTable.from_columns(np.full(n, 0.5), np.full(n, 60), np.full(n, 30), priority=np.arange(n) % 3)
        s = self.run(requests, options=options)
        by_class = [s.request["finished_at"][s.request["priority"] == k].mean() for k in range(3)]
        assert by_class[0] > by_class[1] > by_class[2]


def test_clients_that_come_back_keep_a_replica_down_that_would_have_recovered():
    """A retry storm: with impatient clients who retry, the load of a short burst outlives it."""
    rng = np.random.default_rng(3)
    base = np.cumsum(rng.exponential(0.11, 300))
    burst = 3.0 + rng.random(150)
    at = np.sort(np.r_[base, burst])
    requests = RequestTable.from_columns(at, np.full(at.size, 60), np.full(at.size, 10))
    profile = replace(TestByHand.profile, max_num_batched_tokens=64)

    def goodput(clients):
        case = Case(
            requests=requests,
            profile=profile,
            num_replicas=1,
            router=ROUTERS[0],
            options=EngineOptions(),
            clients=clients,
            changes=(),
        )
        s = compiled(case)
        late = s.request["arrival_at"] > 20
        return (s.request["outcome"][late] == OUTCOMES.index("finished")).mean()

    once = goodput(Clients(timeout_seconds=1.0))
    storm = goodput(Clients(timeout_seconds=1.0, max_attempts=6, backoff_seconds=0.1))
    assert once > storm + 0.2
