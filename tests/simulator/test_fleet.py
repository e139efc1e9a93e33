"""A fleet whose pods come and go: nothing is lost, nothing is cut, and telemetry is what happened."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from books import check_fleet
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.errors import ConfigError
from forecaster.plan import Admission, CapacityPlan
from simulator.engine_state import FINISHED, SHED, UNFINISHED
from simulator.fleet import Fleet, simulate
from simulator.fleet_limits import FleetLimits
from simulator.gateway import ROUTERS
from simulator.pod_states import DRAINING, PodState
from simulator.profiles import EngineProfile
from simulator.requests import RequestTable
from simulator.run_settings import RunSettings
from simulator.static_fleet import StaticPolicy
from simulator.step_time import StepTime

PROFILE = EngineProfile(
    name="small",
    gpus_per_replica=1,
    kv_blocks=40,
    block_size_tokens=16,
    max_num_seqs=12,
    max_num_batched_tokens=128,
    step_time=StepTime(
        token_knots=(1, 64, 128),
        knot_seconds=(0.0211, 0.0459, 0.0713),
        seconds_per_decode_context_token=1.31e-6,
        seconds_per_prefill_attention=1.7e-7,
        seconds_per_sequence=3.7e-5,
    ),
    fit_error_ratio=(0.0, 0.0),
)
LIMITS = FleetLimits(initial_replicas=2, max_replicas=4, cold_start_seconds=3.0, promotion_seconds=1.0)
RUN_SECONDS = 18.0


def workload(seed, *, num_requests=100, span_seconds=15.0):
    """Return requests that come in bursts, several at the same instant."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(1.0, num_requests) * rng.choice((0.0, 0.2, 3.0), num_requests)
    arrival = np.cumsum(gaps)
    return RequestTable.from_columns(
        arrival * span_seconds / max(arrival[-1], 1e-3),
        rng.integers(1, 300, num_requests),
        1 + rng.geometric(1 / 40, num_requests).clip(max=200),
        priority=rng.integers(0, 3, num_requests).astype(np.int8),
    )


def new_fleet(requests, *, limits=LIMITS, profile=PROFILE, **given):
    return Fleet(requests, profile, limits=limits, duration_seconds=RUN_SECONDS, settings=RunSettings(**given))


admissions = st.one_of(
    st.just(Admission()),
    st.builds(
        Admission,
        prefill_tokens_per_second=st.sampled_from((0.0, 300.0, 3000.0)),
        burst_tokens=st.sampled_from((0.0, 100.0, 5000.0)),
        admitted_ratio_by_priority=st.sampled_from(((1.0, 1.0, 1.0), (0.0, 0.5, 1.0))),
    ),
)


@st.composite
def orders(draw):
    serving = draw(st.integers(0, 5))
    return CapacityPlan(
        planned_at=0.0,
        serving_replicas=serving,
        supply_replicas=serving + draw(st.integers(0, 3)),
        admission=draw(admissions),
    )


# multiples of 1/16 s, so that sums of them are exact
increments = st.lists(st.integers(1, 60).map(lambda k: k / 16), min_size=1, max_size=12)


class TestUnderRandomPlans:
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(
        seed=st.integers(0, 10_000),
        plans=st.lists(orders(), min_size=1, max_size=12),
        steps=increments,
        router=st.sampled_from(ROUTERS),
    )
    def test_every_book_balances_at_any_time(self, seed, plans, steps, router):
        fleet = new_fleet(workload(seed), router=router)
        check_fleet(fleet)
        i = 0
        while fleet.now < RUN_SECONDS:
            if i % 2 == 0:
                fleet.apply(plans[i // 2 % len(plans)])
                check_fleet(fleet)
                assert fleet.pods.num_supply <= LIMITS.max_replicas
            fleet.advance(min(fleet.now + steps[i % len(steps)], RUN_SECONDS))
            check_fleet(fleet)
            i += 1
        assert sum(fleet.pods.replica_seconds(fleet.now).values()) == len(fleet.pods.states) * fleet.now

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(seed=st.integers(0, 10_000), plans=st.lists(orders(), min_size=1, max_size=12))
    def test_no_request_is_lost_and_no_stream_is_cut(self, seed, plans):
        requests = workload(seed)
        fleet = new_fleet(requests)
        placed = {}
        for i in range(int(RUN_SECONDS / 2)):
            fleet.apply(plans[i % len(plans)])
            fleet.advance(fleet.now + 2.0)
            # once on a replica, a request stays there, whatever becomes of the pod
            for request in np.flatnonzero(fleet._state.request["served_by"] >= 0):
                served_by = int(fleet._state.request["served_by"][request])
                assert placed.setdefault(request, served_by) == served_by
        fleet.apply(CapacityPlan(planned_at=fleet.now, serving_replicas=1, supply_replicas=1))
        result = fleet.result()
        counts = {outcome: int((result.outcome == outcome).sum()) for outcome in (FINISHED, SHED, UNFINISHED)}
        assert sum(counts.values()) == requests.num_requests
        was_placed = result.served_by >= 0
        assert (result.outcome[was_placed] == FINISHED).all()
        assert np.isin(result.outcome[~was_placed], (SHED, UNFINISHED)).all()

    @settings(max_examples=15, deadline=None, derandomize=True)
    @given(seed=st.integers(0, 10_000), plans=st.lists(orders(), min_size=1, max_size=12))
    def test_same_run_twice_gives_the_same_bytes(self, seed, plans):
        def run():
            fleet = new_fleet(workload(seed))
            for i in range(int(RUN_SECONDS / 2)):
                fleet.apply(plans[i % len(plans)])
                fleet.advance(fleet.now + 2.0)
            return fleet.result().to_bytes()

        assert run() == run()


class TestIncrements:
    def play(self, seed, *, increments, plans=(), limits=LIMITS):
        """Play a run in `increments`, with a plan every 1.5 s."""
        fleet = new_fleet(workload(seed), limits=limits)
        for i in range(int(RUN_SECONDS / 1.5)):
            if plans:
                fleet.apply(plans[i % len(plans)])
            for step in increments:
                fleet.advance(min(fleet.now + step, 1.5 * (i + 1)))
            fleet.advance(1.5 * (i + 1))
        return fleet.result()

    @settings(max_examples=20, deadline=None, derandomize=True)
    @given(
        seed=st.integers(0, 10_000),
        steps=increments,
        plans=st.lists(orders(), min_size=0, max_size=8),
        num_replicas=st.integers(1, 4),
    )
    def test_many_small_ones_equal_big_ones(self, seed, steps, plans, num_replicas):
        limits = replace(LIMITS, initial_replicas=num_replicas)
        runs = [self.play(seed, increments=chosen, plans=plans, limits=limits) for chosen in (steps, ())]
        assert runs[0].to_bytes() == runs[1].to_bytes()

    def test_increments_of_any_length_change_no_request(self):
        runs = [self.play(5, increments=chosen) for chosen in ([0.1] * 15, [1 / 3, 0.7], ())]
        for name in ("first_token_at", "finished_at", "outcome", "served_by", "num_preemptions"):
            columns = [getattr(run, name) for run in runs]
            assert columns[0].tobytes() == columns[1].tobytes() == columns[2].tobytes(), name

    def test_a_run_is_not_played_beyond_its_end(self):
        with pytest.raises(ValueError, match=r"the run ends at 18.0 s, cannot advance to 19.0 s"):
            new_fleet(workload(1)).advance(19.0)


class TestPods:
    def fleet(self, **limits):
        nobody = RequestTable.from_columns(np.zeros(0), np.zeros(0), np.zeros(0))
        return new_fleet(nobody, limits=replace(LIMITS, **limits))

    def order(self, fleet, serving, supply=None):
        fleet.apply(CapacityPlan(planned_at=fleet.now, serving_replicas=serving, supply_replicas=supply or serving))

    def test_ordered_pod_serves_after_the_cold_start(self):
        fleet = self.fleet()
        fleet.advance(0.5)
        self.order(fleet, 3)
        fleet.advance(3.49)
        assert fleet.fleet_state().serving_replicas == 2
        assert fleet.fleet_state().starting_ready_in_seconds == pytest.approx((0.01,))
        fleet.advance(3.5)
        assert fleet.fleet_state().serving_replicas == 3

    def test_promoted_pod_serves_after_the_promotion(self):
        fleet = self.fleet()
        self.order(fleet, 1, 2)
        fleet.advance(1.0)
        assert fleet.fleet_state().warm_replicas == 1
        self.order(fleet, 2)
        fleet.advance(1.99)
        assert (fleet.fleet_state().serving_replicas, fleet.fleet_state().promoting_replicas) == (1, 1)
        fleet.advance(2.0)
        assert (fleet.fleet_state().serving_replicas, fleet.fleet_state().promoting_replicas) == (2, 0)

    def test_one_long_advance_passes_every_pod_at_its_time(self):
        fleet = self.fleet()
        self.order(fleet, 4)
        fleet.advance(10.0)
        assert fleet.pods.replica_seconds(fleet.now)[PodState.STARTING] == 2 * 3.0
        assert fleet.pods.replica_seconds(fleet.now)[PodState.SERVING] == 2 * 10.0 + 2 * 7.0

    def test_plan_beyond_the_limit_is_cut_to_it(self):
        fleet = self.fleet()
        self.order(fleet, 40, 90)
        assert fleet.fleet_state().supply_replicas == LIMITS.max_replicas


class TestWithoutReplicas:
    def test_requests_wait_at_the_gateway_for_the_first_pod(self):
        requests = RequestTable.from_columns(np.array([1.0, 1.5]), np.array([10, 20]), np.array([5, 1]))
        fleet = new_fleet(requests)
        fleet.apply(CapacityPlan(planned_at=0.0, serving_replicas=0, supply_replicas=0))
        fleet.advance(4.0)
        row = fleet.telemetry().column("waiting_requests")[-1]
        assert row == 2
        fleet.apply(CapacityPlan(planned_at=4.0, serving_replicas=1, supply_replicas=1))
        fleet.advance(RUN_SECONDS)
        result = fleet.result()
        assert (result.outcome == FINISHED).all()
        assert result.first_token_at[0] > 4.0 + LIMITS.cold_start_seconds

    def test_requests_nobody_serves_are_unfinished(self):
        requests = RequestTable.from_columns(np.array([1.0]), np.array([10]), np.array([5]))
        result = simulate(requests, PROFILE, policy=StaticPolicy(0), duration_seconds=9.0, limits=LIMITS)
        assert result.outcome.tolist() == [UNFINISHED]
        assert result.served_by.tolist() == [-1]


class TestTelemetry:
    """Each row against the requests' own times."""

    @pytest.fixture
    def run(self):
        fleet = new_fleet(workload(77, num_requests=300))
        for serving in (2, 1, 4, 2, 0, 3):
            fleet.apply(CapacityPlan(planned_at=fleet.now, serving_replicas=serving, supply_replicas=serving + 1))
            fleet.advance(fleet.now + 3.0)
        return fleet.result()

    def counted(self, run, times, weights=None):
        """Return how many of `times` fall into each row's second, weighted."""
        # a row is (start, end], but the first has second 0 too
        edges = np.r_[-1.0, run.telemetry.row_at]
        row = np.searchsorted(edges, times, side="left") - 1
        inside = (row >= 0) & (row < run.telemetry.num_rows)
        weights = np.ones(times.size) if weights is None else weights
        return np.bincount(row[inside], weights=weights[inside], minlength=run.telemetry.num_rows)

    def test_counts_arrivals_finishes_and_their_tokens(self, run):
        requests, telemetry = run.requests, run.telemetry
        done = run.outcome == FINISHED
        expected = {
            "request_rate_per_second": self.counted(run, requests.arrival_seconds),
            "prompt_tokens_per_second": self.counted(run, requests.arrival_seconds, requests.prompt_tokens),
            "finished_rate_per_second": self.counted(run, run.finished_at[done]),
            "finished_output_tokens_per_second": self.counted(run, run.finished_at[done], requests.output_tokens[done]),
        }
        for name, column in expected.items():
            np.testing.assert_array_equal(telemetry.column(name), column, err_msg=name)

    def test_running_and_waiting_are_those_that_arrived_and_have_not_left(self, run):
        arrival = run.requests.arrival_seconds
        gone_at = np.where(run.outcome == FINISHED, run.finished_at, inf)
        held = [int(((arrival <= at) & (gone_at > at)).sum()) for at in run.telemetry.row_at]
        seen = run.telemetry.column("running_requests") + run.telemetry.column("waiting_requests")
        np.testing.assert_array_equal(seen, held)

    def test_oldest_waiting_age_is_that_of_the_oldest_request_without_first_token(self, run):
        arrival = run.requests.arrival_seconds
        first_at = np.where(np.isnan(run.first_token_at), inf, run.first_token_at)
        for at, age in zip(run.telemetry.row_at, run.telemetry.column("oldest_waiting_age_seconds"), strict=True):
            without = (arrival <= at) & (first_at > at)
            expected = at - arrival[without].min() if without.any() else 0.0
            assert age == pytest.approx(expected)

    def test_latencies_are_those_of_the_row_and_unknown_without_any(self, run):
        ttft = run.first_token_at - run.requests.arrival_seconds
        for name, at, latency in (
            ("ttft_mean_seconds", run.first_token_at, ttft),
            ("e2e_mean_seconds", run.finished_at, run.finished_at - run.requests.arrival_seconds),
        ):
            known = ~np.isnan(at)
            with np.errstate(invalid="ignore"):
                mean = self.counted(run, at[known], latency[known]) / self.counted(run, at[known])
            np.testing.assert_allclose(run.telemetry.column(name), mean, rtol=1e-9, err_msg=name)
        for end, seen in zip(run.telemetry.row_at, run.telemetry.column("ttft_p95_seconds"), strict=True):
            values = ttft[(run.first_token_at > end - 1) & (run.first_token_at <= end)]
            assert seen == pytest.approx(np.quantile(values, 0.95) if values.size else np.nan, nan_ok=True)

    def test_blocks_held_are_within_what_the_pods_have(self, run):
        telemetry = run.telemetry
        assert (telemetry.column("kv_blocks_total") == PROFILE.kv_blocks * telemetry.column("serving_replicas")).all()
        pods = telemetry.column("serving_replicas") + telemetry.column("draining_replicas")
        assert (telemetry.column("kv_blocks_used") <= PROFILE.kv_blocks * pods).all()

    def test_row_is_seen_after_the_lag(self):
        fleet = new_fleet(workload(1), telemetry_lag_seconds=1.5)
        fleet.advance(6.25)
        assert fleet.telemetry().row_at[-1] == 4.0
        fleet.advance(6.5)
        assert fleet.telemetry().row_at[-1] == 5.0

    def test_window_holds_the_newest_rows(self):
        fleet = new_fleet(workload(1), window_seconds=5.0)
        fleet.advance(12.0)
        assert fleet.telemetry().row_at.tolist() == [7.0, 8.0, 9.0, 10.0, 11.0]


class TestDraining:
    def test_demoted_pod_finishes_what_it_holds_and_gets_nothing_new(self):
        requests = RequestTable.from_columns(np.array([0.0, 0.1, 1.5, 1.6]), np.full(4, 20), np.array([150] * 4))
        fleet = new_fleet(requests, router="round_robin")
        fleet.advance(1.0)
        fleet.apply(CapacityPlan(planned_at=1.0, serving_replicas=1, supply_replicas=1))
        drained = fleet.pods.in_state(*DRAINING)
        assert len(drained) == 1
        fleet.advance(RUN_SECONDS)
        result = fleet.result()
        assert (result.outcome == FINISHED).all()
        assert (result.served_by == drained[0]).tolist().count(True) == 1
        assert fleet.pods.states[drained[0]] == PodState.GONE
        last = result.finished_at[result.served_by == drained[0]].max()
        # a draining pod is looked at once a second
        assert last - 1.0 <= result.replica_seconds[PodState.REMOVING] <= last

    def test_drain_after_the_run_costs_nothing(self):
        requests = RequestTable.from_columns(np.array([17.9]), np.array([20]), np.array([100]))
        fleet = new_fleet(requests)
        fleet.advance(RUN_SECONDS)
        result = fleet.result()
        assert result.finished_at[0] > RUN_SECONDS
        assert sum(result.replica_seconds.values()) == len(fleet.pods.states) * RUN_SECONDS


class TestMistakes:
    def test_unknown_router(self):
        with pytest.raises(
            ValueError, match="no router is called 'random'; known: least_outstanding_tokens, round_robin"
        ):
            RunSettings(router="random")

    @pytest.mark.parametrize("seconds", [0.0, -2.0, np.nan])
    def test_plan_interval_that_is_no_time(self, seconds):
        with pytest.raises(ValueError, match="plan_interval_seconds must be > 0"):
            RunSettings(plan_interval_seconds=seconds)

    def test_impossible_limits_are_all_named(self):
        with pytest.raises(ConfigError, match=r"initial_replicas must be in .*; cold_start_seconds"):
            FleetLimits(initial_replicas=9, max_replicas=8, cold_start_seconds=-1.0)

    def test_no_replica_to_start_with(self):
        with pytest.raises(ConfigError, match=r"initial_replicas must be in \[1, max_replicas=4\], got 0"):
            FleetLimits(initial_replicas=0, max_replicas=4)

    def test_request_longer_than_a_replica(self):
        requests = RequestTable.from_columns(np.array([0.0, 0.0]), np.array([10, 600]), np.array([5, 60]))
        with pytest.raises(ValueError, match="request 1 needs 660 tokens of KV cache but a replica of small holds 640"):
            new_fleet(requests)


def test_no_requests_at_all_make_an_empty_run():
    nobody = RequestTable.from_columns(np.zeros(0), np.zeros(0), np.zeros(0))
    result = simulate(nobody, PROFILE, policy=StaticPolicy(2), duration_seconds=5.0, limits=LIMITS)
    assert result.outcome.size == 0
    assert result.telemetry.column("request_rate_per_second").tolist() == [0.0] * 5
    assert np.isnan(result.telemetry.column("ttft_mean_seconds")).all()
    assert simulate(nobody, PROFILE, policy=StaticPolicy(2)).telemetry.num_rows == 0
