"""Admission and routing: the bucket's bound, who is shed first, and whose turn it is."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.plan import Admission, CapacityPlan
from simulator.engine_state import FINISHED, SHED
from simulator.fleet import Fleet
from simulator.fleet_limits import FleetLimits
from simulator.gateway import ROUTERS
from simulator.profiles import profile_named
from simulator.requests import RequestTable
from simulator.run_settings import RunSettings

PROFILE = profile_named("llama-3.1-8b-a100-tp1")
BATCH, NORMAL, CORE = 0, 1, 2


def play(requests, *admissions, every_seconds=10.0, num_replicas=1, router=ROUTERS[0]):
    """Return the outcome of a run in which each of `admissions` is in force for a while, the last to the end."""
    fleet = Fleet(
        requests,
        PROFILE,
        limits=FleetLimits(initial_replicas=num_replicas, max_replicas=num_replicas),
        duration_seconds=max(every_seconds * len(admissions), float(requests.arrival_seconds[-1]) + 1),
        settings=RunSettings(router=router),
    )
    for admission in admissions:
        fleet.apply(
            CapacityPlan(
                planned_at=fleet.now,
                serving_replicas=num_replicas,
                supply_replicas=num_replicas,
                admission=admission,
            )
        )
        fleet.advance(fleet.now + every_seconds)
    fleet.advance(fleet.duration_seconds)
    return fleet.result()


def table(arrival, prompt, priority=None):
    arrival = np.asarray(arrival, dtype=np.float64)
    prompt = np.broadcast_to(prompt, arrival.shape)
    priority = None if priority is None else np.broadcast_to(priority, arrival.shape).astype(np.int8)
    return RequestTable.from_columns(arrival, prompt, np.ones(arrival.size), priority=priority)


def table_of(rows):
    gap_milliseconds, prompt, priority = (np.array(column) for column in zip(*rows, strict=True))
    return table(np.cumsum(gap_milliseconds) / 1000, prompt, priority)


requests_of_any_kind = st.lists(
    st.tuples(st.one_of(st.just(0), st.integers(0, 3000)), st.integers(1, 400), st.integers(BATCH, CORE)),
    min_size=1,
    max_size=60,
).map(table_of)
reserves = st.sampled_from(((0.5, 0.1, 0.0), (0.0, 0.0, 0.0), (1.0, 0.3, 0.3)))


def buckets(rates=(0.0, 50.0, 700.0), bursts=(0.0, 60.0, 1000.0)):
    return st.builds(
        Admission,
        prefill_tokens_per_second=st.sampled_from(rates),
        burst_tokens=st.sampled_from(bursts),
        reserve_ratio_by_priority=reserves,
    )


def assert_within_bucket(result, *buckets):
    """No interval may admit more than the bucket holds and gains, but for one prompt larger than the bucket."""
    rate = max(bucket.prefill_tokens_per_second for bucket in buckets)
    burst = max(bucket.burst_tokens for bucket in buckets)
    admitted = result.outcome == FINISHED
    at = result.requests.arrival_seconds[admitted]
    tokens = result.requests.prompt_tokens[admitted]
    oversize = max(tokens.max(initial=0) - min(bucket.burst_tokens for bucket in buckets), 0.0)
    for first in range(at.size):
        total = np.cumsum(tokens[first:])
        assert (total <= burst + rate * (at[first:] - at[first]) + oversize + 1e-6).all()


class TestBucket:
    @settings(max_examples=100, deadline=None, derandomize=True)
    @given(requests=requests_of_any_kind, bucket=buckets())
    def test_never_admits_more_than_it_holds_and_gains(self, requests, bucket):
        assert_within_bucket(play(requests, bucket), bucket)

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(requests=requests_of_any_kind, chosen=st.lists(buckets(), min_size=2, max_size=6))
    def test_never_admits_more_than_the_largest_plan_would(self, requests, chosen):
        assert_within_bucket(play(requests, *chosen, every_seconds=2.0), *chosen)

    def test_new_rate_counts_from_the_plan_that_sets_it(self):
        one = Admission(prefill_tokens_per_second=1.0, burst_tokens=100.0, reserve_ratio_by_priority=(0.0, 0.0, 0.0))
        hundred = Admission(
            prefill_tokens_per_second=100.0, burst_tokens=100.0, reserve_ratio_by_priority=(0.0, 0.0, 0.0)
        )
        # emptied at 0.5 s, at 10 s the bucket has 9.5 tokens, at 10.1 s 19.5
        requests = table([0.5, 10.1, 10.2, 10.2], [100, 20, 29, 1])
        result = play(requests, one, hundred)
        assert result.outcome.tolist() == [FINISHED, SHED, FINISHED, SHED]

    def test_starts_full_and_refills_at_its_rate(self):
        bucket = Admission(prefill_tokens_per_second=10.0, burst_tokens=100.0, reserve_ratio_by_priority=(0.0,) * 3)
        requests = table([1.0, 1.0, 3.0, 3.0], [90, 11, 30, 1])
        assert play(requests, bucket).outcome.tolist() == [FINISHED, SHED, FINISHED, SHED]

    def test_never_holds_more_than_its_burst(self):
        bucket = Admission(prefill_tokens_per_second=10.0, burst_tokens=100.0, reserve_ratio_by_priority=(0.0,) * 3)
        requests = table([1.0, 60.0, 60.0], [10, 100, 1])
        assert play(requests, bucket).outcome.tolist() == [FINISHED, FINISHED, SHED]

    def test_prompt_larger_than_the_bucket_passes_when_it_is_full_and_is_paid_back(self):
        bucket = Admission(prefill_tokens_per_second=10.0, burst_tokens=100.0, reserve_ratio_by_priority=(0.0,) * 3)
        # 300 tokens leave a debt of 200: paid at 21 s, full again at 31 s
        requests = table([1.0, 20.9, 21.2, 22.0, 32.0], [300, 1, 1, 300, 300])
        assert play(requests, bucket).outcome.tolist() == [FINISHED, SHED, FINISHED, SHED, FINISHED]

    def test_nothing_is_shed_without_a_bucket(self):
        rng = np.random.default_rng(1)
        requests = table(np.sort(rng.uniform(0, 10, 200)), rng.integers(1, 500, 200), rng.integers(0, 3, 200))
        assert (play(requests, Admission()).outcome == FINISHED).all()

    def test_endless_bucket_admits_everything_at_any_rate(self):
        bucket = Admission(prefill_tokens_per_second=5.0, burst_tokens=inf)
        requests = table(np.linspace(0, 9, 50), 300, np.arange(50) % 3)
        assert (play(requests, bucket).outcome == FINISHED).all()


class TestPriority:
    @settings(max_examples=100, deadline=None, derandomize=True)
    @given(requests=requests_of_any_kind, bucket=buckets())
    def test_no_less_important_request_passes_where_a_more_important_one_was_just_refused(self, requests, bucket):
        """At one instant, whoever follows a refused request is refused if no smaller and no more important."""
        result = play(requests, bucket)
        at, tokens, priority = requests.arrival_seconds, requests.prompt_tokens, requests.priority
        for i in np.flatnonzero(result.outcome == SHED):
            after = np.arange(requests.num_requests) > i
            rivals = after & (at == at[i]) & (tokens >= tokens[i]) & (priority <= priority[i])
            assert (result.outcome[rivals] == SHED).all()

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(
        size=st.integers(1, 100),
        arrivals=st.lists(st.integers(0, 2000), min_size=1, max_size=30),
        bucket=buckets(bursts=(300.0, 1000.0)),
        least_important_first=st.booleans(),
    )
    def test_a_class_is_admitted_no_more_often_than_the_next(self, size, arrivals, bucket, least_important_first):
        """Requests of one size arrive together, one of each class."""
        at = np.repeat(np.sort(arrivals) / 100, 3)
        order = np.tile([BATCH, NORMAL, CORE] if least_important_first else [CORE, NORMAL, BATCH], len(arrivals))
        admitted = play(table(at, size, order), bucket).outcome == FINISHED
        reserve = bucket.burst_tokens * np.array(bucket.reserve_ratio_by_priority)
        for k in (BATCH, NORMAL):
            # who comes first may take what nothing is kept of; and a prompt that never fits takes it all
            is_kept = reserve[k] - reserve[k + 1] >= size and bucket.burst_tokens - reserve[k] >= size
            if is_kept or not least_important_first:
                assert admitted[order == k].sum() <= admitted[order == k + 1].sum()

    def test_reserve_is_kept_for_the_more_important(self):
        bucket = Admission(prefill_tokens_per_second=0.0, burst_tokens=1000.0)
        # batch may take 500 of 1,000, normal 400 more, core the rest
        priority = np.repeat([BATCH, NORMAL, CORE], 12)
        result = play(table(np.full(36, 1.0), 100, priority), bucket)
        admitted = result.outcome == FINISHED
        assert [int(admitted[priority == k].sum()) for k in (BATCH, NORMAL, CORE)] == [5, 4, 1]

    def test_overload_is_shed_from_below(self):
        rng = np.random.default_rng(2)
        n = 3000
        priority = rng.integers(BATCH, CORE + 1, n)
        requests = table(np.sort(rng.uniform(0, 60, n)), 100, priority)
        # 5,000 tokens/s are offered, a third by each class
        bucket = Admission(prefill_tokens_per_second=2500.0, burst_tokens=2500.0)
        admitted = play(requests, bucket).outcome == FINISHED
        batch, normal, core = (admitted[requests.priority == k].mean() for k in (BATCH, NORMAL, CORE))
        assert batch < 0.02
        assert 0.4 < normal < 0.6
        # core arrives irregularly, and of the bucket only a tenth is kept for it alone
        assert core > 0.93


class TestRatio:
    requests = table(np.linspace(0.0, 10.0, 2001), 10, np.arange(2001) % 3)

    def admitted(self, *ratios):
        result = play(self.requests, Admission(admitted_ratio_by_priority=ratios))
        return [result.outcome[self.requests.priority == k] == FINISHED for k in (BATCH, NORMAL, CORE)]

    def test_zero_admits_nothing_and_one_everything(self):
        batch, normal, core = self.admitted(0.0, 1.0, 1.0)
        assert not batch.any()
        assert normal.all()
        assert core.all()

    @pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9])
    def test_fraction_is_admitted(self, ratio):
        batch, normal, core = self.admitted(ratio, ratio, 1.0)
        # within 4 standard deviations of a binomial of 667
        assert np.r_[batch, normal].mean() == pytest.approx(ratio, abs=4 * (ratio * (1 - ratio) / 1334) ** 0.5)
        assert core.all()

    def test_larger_fraction_lets_in_all_that_a_smaller_one_does(self):
        few, more = self.admitted(0.2, 0.2, 0.2), self.admitted(0.6, 0.6, 0.6)
        for k in (BATCH, NORMAL, CORE):
            assert more[k][few[k]].all()

    def test_refused_by_fraction_takes_nothing_from_the_bucket(self):
        bucket = Admission(
            prefill_tokens_per_second=0.0, burst_tokens=200.0, admitted_ratio_by_priority=(0.0, 1.0, 1.0)
        )
        requests = table(np.full(12, 1.0), 100, np.r_[np.full(10, BATCH), CORE, CORE])
        assert play(requests, bucket).outcome.tolist() == [SHED] * 10 + [FINISHED] * 2


class TestRouting:
    def test_round_robin_takes_turns(self):
        requests = table(np.linspace(0, 5, 30), 50)
        result = play(requests, Admission(), num_replicas=4, router="round_robin")
        assert result.served_by.tolist() == [i % 4 for i in range(30)]

    def test_long_prompt_keeps_others_away_while_it_is_prefilled(self):
        requests = table([0.0, 0.01, 0.02, 0.03], [8000, 100, 100, 100])
        result = play(requests, Admission(), num_replicas=2, router="least_outstanding_tokens")
        assert result.served_by.tolist() == [0, 1, 1, 1]

    def test_shed_requests_reach_no_replica(self):
        result = play(table([1.0, 2.0], 100), Admission(admitted_ratio_by_priority=(0.0, 0.0, 0.0)))
        assert result.served_by.tolist() == [-1, -1]
        assert result.telemetry.column("rejected_rate_per_second").sum() == 2
        assert result.telemetry.column("rejected_prompt_tokens_per_second").sum() == 200
        assert result.telemetry.column("request_rate_per_second").sum() == 2
