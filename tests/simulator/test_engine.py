"""The compiled engine against a naive one: the same first tokens, finishes, preemptions and tokens computed."""

from dataclasses import replace
from math import ceil

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from naive_fleet import NaiveFleet

from simulator.fleet import Fleet
from simulator.fleet_limits import FleetLimits
from simulator.gateway import ROUTERS
from simulator.profiles import EngineProfile
from simulator.requests import RequestTable
from simulator.run_settings import RunSettings
from simulator.static_fleet import simulate_static
from simulator.step_time import StepTime

# Steps of some 20 to 90 ms, in which every term counts, so that arrivals and telemetry rows fall within segments.
STEP_TIME = StepTime(
    token_knots=(1, 7, 64, 300),
    knot_seconds=(0.0211, 0.0237, 0.0459, 0.0913),
    seconds_per_decode_context_token=1.31e-5,
    seconds_per_prefill_attention=1.7e-6,
    seconds_per_sequence=3.7e-4,
)

# An arrival this close to the end of a step may fall on either side of it by rounding alone.
TIE_SECONDS = 1e-9


def tiny_profile(*, kv_blocks, block_size=4, max_num_seqs=256, max_num_batched_tokens=64):
    return EngineProfile(
        name="tiny",
        gpus_per_replica=1,
        kv_blocks=kv_blocks,
        block_size_tokens=block_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        step_time=STEP_TIME,
        fit_error_ratio=(0.0, 0.0),
    )


def table_of(rows):
    gaps, prompts, outputs = (np.array(column) for column in zip(*rows, strict=True))
    return RequestTable.from_columns(np.cumsum(gaps) * 0.00717, prompts, outputs)


rows = st.tuples(
    st.one_of(st.just(0), st.integers(0, 40), st.integers(0, 400)),  # in units of 7.17 ms
    st.one_of(st.integers(1, 20), st.integers(1, 150)),
    st.one_of(st.just(1), st.integers(1, 12), st.integers(1, 80)),
)


@st.composite
def replica_cases(draw):
    """Draw a request table and a replica whose KV cache holds little more than the longest request."""
    requests = table_of(draw(st.lists(rows, min_size=1, max_size=20)))
    block_size = draw(st.sampled_from((1, 4, 16)))
    longest = int((requests.prompt_tokens + requests.output_tokens).max())
    spare_blocks = draw(st.one_of(st.integers(0, 6), st.integers(0, 1000 // block_size)))
    profile = tiny_profile(
        kv_blocks=ceil(longest / block_size) + spare_blocks,
        block_size=block_size,
        max_num_seqs=draw(st.sampled_from((1, 2, 3, 8, 256))),
        max_num_batched_tokens=draw(st.sampled_from((1, 3, 16, 64, 300))),
    )
    return requests, profile


def naively(requests, profile, *, num_replicas=1, router="round_robin"):
    return NaiveFleet(requests, profile, num_replicas=num_replicas, router=router).play()


def assert_compiled_engine_agrees(seen):
    sequences = seen.sequences
    result = simulate_static(
        seen.requests,
        seen.profile,
        num_replicas=seen.num_replicas,
        duration_seconds=ceil(max(sequence.finished_at for sequence in sequences)) + 1.0,
        router=seen.router,
    )
    np.testing.assert_array_equal(result.served_by, [s.served_by for s in sequences])
    np.testing.assert_array_equal(result.num_preemptions, [s.num_preemptions for s in sequences])
    np.testing.assert_allclose(result.first_token_at, [s.first_token_at for s in sequences], rtol=1e-9)
    np.testing.assert_allclose(result.finished_at, [s.finished_at for s in sequences], rtol=1e-9)
    telemetry = result.telemetry
    assert telemetry.column("prefill_tokens_per_second").sum() == sum(r.prefilled_tokens for r in seen.replicas)
    assert telemetry.column("decode_tokens_per_second").sum() == sum(r.decoded_tokens for r in seen.replicas)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(case=replica_cases())
def test_agrees_with_the_naive_engine(case):
    seen = naively(*case)
    assume(not seen.has_a_tie)
    assert_compiled_engine_agrees(seen)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(case=replica_cases(), num_replicas=st.integers(2, 4), router=st.sampled_from(ROUTERS))
def test_routes_and_serves_like_naive_replicas_side_by_side(case, num_replicas, router):
    seen = naively(*case, num_replicas=num_replicas, router=router)
    assume(not seen.has_a_tie)
    assert_compiled_engine_agrees(seen)


def test_agrees_with_the_naive_engine_while_thrashing():
    """A sweep that is known to preempt, among them sequences in the middle of their prompt."""
    rng = np.random.default_rng(5)
    num_preempted, num_cut_prompts, n = 0, 0, 25
    for block_size in (1, 4, 16) * 10:
        requests = RequestTable.from_columns(
            np.cumsum(rng.exponential(0.15, n)), rng.integers(1, 120, n), rng.integers(1, 60, n)
        )
        profile = tiny_profile(kv_blocks=ceil(260 / block_size), block_size=block_size, max_num_batched_tokens=32)
        seen = naively(requests, profile)
        assert_compiled_engine_agrees(seen)
        num_preempted += sum(s.num_preemptions for s in seen.sequences)
        num_cut_prompts += sum(s.num_preemptions for s in seen.sequences if s.output_tokens == 1)
    assert num_preempted > 100
    assert num_cut_prompts > 0


def test_agrees_with_the_naive_engine_at_full_size():
    rng = np.random.default_rng(11)
    n = 60
    requests = RequestTable.from_columns(
        np.cumsum(rng.exponential(0.1, n)), rng.integers(1, 3000, n), rng.integers(1, 120, n)
    )
    assert_compiled_engine_agrees(
        naively(requests, tiny_profile(kv_blocks=2000, block_size=16, max_num_batched_tokens=2048))
    )


ONE_SECOND_STEPS = StepTime(
    token_knots=(1, 2),
    knot_seconds=(1.0, 1.0),
    seconds_per_decode_context_token=0.0,
    seconds_per_prefill_attention=0.0,
)


class TestByHand:
    """Cases small enough to be worked out by hand: every step takes a second."""

    def run(self, rows, *, kv_blocks=100, **limits):
        profile = replace(tiny_profile(kv_blocks=kv_blocks, **limits), step_time=ONE_SECOND_STEPS)
        requests = RequestTable.from_columns(*(np.array(column) for column in zip(*rows, strict=True)))
        return simulate_static(requests, profile, num_replicas=1, duration_seconds=100.0)

    def test_prompt_step_makes_the_first_token_and_each_further_step_one_more(self):
        result = self.run([(0.5, 10, 4)])
        assert (result.first_token_at[0], result.finished_at[0]) == (1.5, 4.5)

    def test_one_token_answer_ends_with_its_first_token(self):
        result = self.run([(0.5, 10, 1)])
        assert result.finished_at[0] == result.first_token_at[0] == 1.5

    def test_prompt_longer_than_the_budget_takes_several_steps(self):
        result = self.run([(0.0, 10, 2)], max_num_batched_tokens=4)
        assert (result.first_token_at[0], result.finished_at[0]) == (3.0, 4.0)

    def test_arrival_during_a_step_joins_the_next(self):
        result = self.run([(0.0, 1, 5), (1.25, 1, 1)])
        assert result.first_token_at[1] == 3.0

    def test_decoding_goes_before_prompts(self):
        result = self.run([(0.0, 1, 9), (0.5, 6, 1)], max_num_batched_tokens=4)
        assert result.finished_at.tolist() == [9.0, 3.0]

    def test_full_batch_makes_others_wait_for_a_finish(self):
        result = self.run([(0.0, 1, 4), (0.5, 1, 1)], max_num_seqs=1)
        assert result.first_token_at[1] == 5.0

    def test_last_admitted_gives_way_when_blocks_run_out(self):
        # 5 blocks of 1 token. At 3 s the first request holds 3 blocks and the second 2; both need one more, so the
        # second loses its own, and recomputes its 3 tokens in one step when the first is done.
        result = self.run([(0.0, 1, 4), (0.5, 1, 3)], block_size=1, kv_blocks=5)
        assert result.num_preemptions.tolist() == [0, 1]
        assert result.first_token_at.tolist() == [1.0, 2.0]
        assert result.finished_at.tolist() == [4.0, 5.0]

    def test_nobody_is_admitted_in_the_step_that_preempts(self):
        # As above with 2 tokens a step: at 3 s there is a token and a block to begin the recomputation at once.
        result = self.run([(0.0, 1, 4), (0.5, 1, 3)], block_size=1, kv_blocks=5, max_num_batched_tokens=2)
        assert result.finished_at.tolist() == [4.0, 6.0]


def test_segment_cut_by_an_arrival_changes_no_other_request():
    """A decode segment is many steps at once; an arrival that can't be admitted must not change the steps' times."""
    profile = tiny_profile(kv_blocks=400, max_num_seqs=1)
    alone = RequestTable.from_columns(np.array([0.0]), np.array([30]), np.array([60]))
    crowd = RequestTable.from_columns(np.r_[0.0, np.linspace(0.1, 1.0, 9)], np.full(10, 30), np.full(10, 60))
    runs = [simulate_static(table, profile, num_replicas=1, duration_seconds=60.0) for table in (alone, crowd)]
    assert runs[0].finished_at[0] == runs[1].finished_at[0]


@pytest.mark.parametrize("seconds", [0.25, 0.125])
def test_looking_more_often_changes_nothing(seconds):
    rng = np.random.default_rng(3)
    requests = RequestTable.from_columns(
        np.cumsum(rng.exponential(0.2, 60)), rng.integers(1, 90, 60), rng.integers(1, 60, 60)
    )
    profile = tiny_profile(kv_blocks=60)

    def run(increment):
        fleet = Fleet(
            requests,
            profile,
            limits=FleetLimits(initial_replicas=1, max_replicas=1),
            duration_seconds=40.0,
            settings=RunSettings(),
        )
        while fleet.now < 40.0:
            fleet.advance(fleet.now + increment)
        return fleet.result().to_bytes()

    assert run(seconds) == run(40.0)
