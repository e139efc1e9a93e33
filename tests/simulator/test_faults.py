"""What befalls a fleet: pods and nodes that are lost, GPUs that are short, roll-outs, scrapes that fail."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from books import check_fleet
from hypothesis import given, settings
from hypothesis import strategies as st
from test_fleet import PROFILE, RUN_SECONDS, increments, orders, workload

from forecaster.errors import ConfigError
from forecaster.plan import CapacityPlan
from forecaster.telemetry import SIGNAL_INDEX
from simulator.clients import Clients
from simulator.engine_options import EngineOptions
from simulator.engine_state import FAILED, FINISHED
from simulator.faults import Faults, GpuLoss, PodDeath, RollingUpdate, ScrapeFault
from simulator.fleet import Fleet, simulate
from simulator.fleet_limits import FleetLimits
from simulator.lead_times import Empirical, LogNormal
from simulator.pod_states import PodState
from simulator.requests import Prefixes, RequestTable
from simulator.run_settings import RunSettings
from simulator.static_fleet import StaticPolicy

LIMITS = FleetLimits(initial_replicas=3, max_replicas=6, cold_start_seconds=3.0, promotion_seconds=1.0)
NO_REQUESTS = RequestTable.from_columns([], [], [])

moments = st.integers(0, 17).map(lambda k: k + 0.5)
spans = st.integers(1, 12).map(float)
random_faults = st.builds(
    Faults,
    pod_deaths=st.lists(st.builds(PodDeath, at_seconds=moments, num_pods=st.integers(1, 3)), max_size=3).map(tuple),
    gpu_losses=st.lists(
        st.builds(
            GpuLoss,
            at_seconds=moments,
            num_replicas=st.integers(1, 4),
            lasts_seconds=st.one_of(spans, st.just(inf)),
            kills=st.booleans(),
        ),
        max_size=2,
    ).map(tuple),
    rolling_updates=st.lists(
        st.builds(
            RollingUpdate,
            at_seconds=moments,
            max_surge=st.sampled_from((0, 1, 0.5)),
            max_unavailable=st.sampled_from((1, 2, 0.25)),
        ),
        max_size=2,
    ).map(tuple),
    scrapes=st.lists(
        st.builds(
            ScrapeFault, kind=st.sampled_from(("delay", "loss", "partial")), at_seconds=moments, lasts_seconds=spans
        ),
        max_size=2,
    ).map(tuple),
    pod_mtbf_seconds=st.sampled_from((inf, 30.0)),
)
random_limits = st.builds(
    FleetLimits,
    initial_replicas=st.integers(1, 3),
    max_replicas=st.just(5),
    cold_start_seconds=st.sampled_from((3.0, LogNormal(median_seconds=3.0, sigma=0.5))),
    promotion_seconds=st.sampled_from((1.0, Empirical(samples_seconds=(0.5, 1.0, 4.0)))),
    gpu_stock_replicas=st.sampled_from((None, 3, 4)),
    drain_grace_seconds=st.sampled_from((inf, 0.0, 2.0)),
    warm_replicas_sleep=st.booleans(),
)


def new_fleet(requests=NO_REQUESTS, *, limits=LIMITS, faults=None, duration_seconds=RUN_SECONDS, **given):
    return Fleet(
        requests,
        PROFILE,
        limits=limits,
        duration_seconds=duration_seconds,
        settings=RunSettings(faults=faults or Faults(), **given),
    )


def plan_for(fleet, serving, supply=None):
    return CapacityPlan(planned_at=fleet.now, serving_replicas=serving, supply_replicas=supply or serving)


def events(fleet, kind):
    return [at for at, what, *_ in fleet.pods.history.happenings if what == kind]


class TestUnderRandomFaults:
    def play(self, seed, plans, steps, faults, limits):
        clients = Clients(max_attempts=2, timeout_seconds=6.0, backoff_seconds=0.5)
        fleet = new_fleet(workload(seed), limits=limits, faults=faults, clients=clients, seed=seed)
        for i in range(int(RUN_SECONDS / 1.5)):
            fleet.apply(plans[i % len(plans)])
            check_fleet(fleet)
            for step in steps:
                fleet.advance(min(fleet.now + step, 1.5 * (i + 1)))
                check_fleet(fleet)
            fleet.advance(1.5 * (i + 1))
            check_fleet(fleet)
        return fleet

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(
        seed=st.integers(0, 10_000),
        plans=st.lists(orders(), min_size=1, max_size=8),
        steps=increments,
        faults=random_faults,
        limits=random_limits,
    )
    def test_every_book_balances_and_steps_change_nothing(self, seed, plans, steps, faults, limits):
        fleets = [self.play(seed, plans, chosen, faults, limits) for chosen in (steps, ())]
        results = [fleet.result() for fleet in fleets]
        assert results[0].to_bytes() == results[1].to_bytes()
        assert fleets[0].pods.history == fleets[1].pods.history
        assert sum(results[0].replica_seconds.values()) == pytest.approx(len(fleets[0].pods.states) * RUN_SECONDS)
        self.check_timeline(results[0])

    def check_timeline(self, result):
        """The timeline tells the time in each state, but of slots that never had a pod."""
        line = result.timeline
        seconds = dict.fromkeys(PodState, 0.0)
        for slot in np.unique(line.slot):
            at = line.at_seconds[line.slot == slot]
            ends = np.append(at[1:], RUN_SECONDS)
            for state, lasted in zip(line.state[line.slot == slot], ends - at, strict=True):
                seconds[PodState(state)] += lasted
        for state in PodState:
            if state != PodState.GONE:
                assert seconds[state] == pytest.approx(result.replica_seconds[state])

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(plans=st.lists(orders(), min_size=1, max_size=8), limits=random_limits, stock=st.integers(3, 5))
    def test_no_more_pods_have_gpus_than_there_are(self, plans, limits, stock):
        fleet = new_fleet(limits=replace(limits, gpu_stock_replicas=stock))
        for i in range(18):
            fleet.apply(plans[i % len(plans)])
            assert len(fleet.pods.with_gpus()) <= stock
            fleet.advance(fleet.now + 1.0)
            assert len(fleet.pods.with_gpus()) <= stock
            pending = fleet.pods.count(PodState.PENDING)
            assert pending == 0 or len(fleet.pods.with_gpus()) == stock
            assert fleet.fleet_state().unschedulable_replicas == pending


class TestPodDeath:
    def run(self, clients):
        requests = RequestTable.from_columns(np.full(12, 0.1), np.full(12, 40), np.full(12, 100))
        faults = Faults(pod_deaths=(PodDeath(at_seconds=1.0, num_pods=2),))
        fleet = new_fleet(requests, faults=faults, clients=clients, router="round_robin")
        fleet.advance(RUN_SECONDS)
        return fleet, fleet.result()

    def test_what_it_holds_fails(self):
        fleet, result = self.run(Clients())
        assert (result.outcome == FAILED).sum() == 8
        assert (result.outcome == FINISHED).sum() == 4
        assert np.isnan(result.finished_at[result.outcome == FAILED]).all()
        assert events(fleet, "died") == [1.0, 1.0]

    def test_clients_that_retry_are_served_by_others(self):
        _, result = self.run(Clients(max_attempts=3, backoff_seconds=0.5))
        assert (result.outcome == FINISHED).all()
        assert (result.finished_at - result.requests.arrival_seconds).max() > 1.0

    def test_it_is_replaced_at_once_and_the_new_one_takes_its_time(self):
        fleet, _ = self.run(Clients())
        assert events(fleet, "ordered") == [1.0, 1.0]
        assert events(fleet, "ready") == [4.0, 4.0]
        assert fleet.pods.count(PodState.SERVING) == 3

    def test_by_chance_as_many_die_as_their_mean_time_says(self):
        limits = FleetLimits(initial_replicas=50, max_replicas=50, cold_start_seconds=1.0)
        fleet = new_fleet(limits=limits, faults=Faults(pod_mtbf_seconds=500.0), duration_seconds=2000.0)
        fleet.advance(2000.0)
        expected = 50 * 2000 / 500
        assert abs(len(events(fleet, "died")) - expected) < 4 * np.sqrt(expected)


class TestGpus:
    def test_pods_beyond_the_stock_stay_pending_and_cost_nothing(self):
        fleet = new_fleet(limits=replace(LIMITS, gpu_stock_replicas=4))
        fleet.apply(plan_for(fleet, 6))
        fleet.advance(10.0)
        state = fleet.fleet_state()
        assert (state.serving_replicas, state.unschedulable_replicas) == (4, 2)
        assert events(fleet, "pending") == [0.0, 0.0]
        seconds = fleet.pods.replica_seconds(fleet.now)
        assert seconds[PodState.PENDING] == 20.0
        assert seconds[PodState.STARTING] == 3.0

    def test_a_pending_pod_starts_when_another_leaves(self):
        fleet = new_fleet(
            limits=replace(LIMITS, gpu_stock_replicas=3), faults=Faults(pod_deaths=(PodDeath(at_seconds=5.0),))
        )
        fleet.apply(plan_for(fleet, 4))
        fleet.advance(6.0)
        assert fleet.pods.count(PodState.STARTING, PodState.PENDING) == 2
        assert min(fleet.pods.in_state(PodState.STARTING)) == fleet.pods.pod_ids.index(3)  # the older of the two

    def test_pending_pods_are_cancelled_first(self):
        fleet = new_fleet(limits=replace(LIMITS, gpu_stock_replicas=4))
        fleet.apply(plan_for(fleet, 6))
        fleet.apply(plan_for(fleet, 3, 4))
        assert fleet.pods.count(PodState.PENDING) == 0
        assert fleet.pods.count(PodState.STARTING) == 1

    def test_a_lost_node_takes_its_pods_and_gpus_along_and_comes_back(self):
        faults = Faults(gpu_losses=(GpuLoss(at_seconds=2.0, num_replicas=2, lasts_seconds=5.0),))
        fleet = new_fleet(limits=replace(LIMITS, gpu_stock_replicas=3), faults=faults)
        fleet.advance(6.0)
        assert fleet.pods.count(PodState.SERVING) == 1
        assert fleet.pods.count(PodState.PENDING) == 2
        fleet.advance(12.0)
        assert fleet.pods.count(PodState.SERVING) == 3
        assert (events(fleet, "node_lost"), events(fleet, "gpus_back")) == ([2.0], [7.0])
        assert events(fleet, "ready") == [10.0, 10.0]

    def test_a_shortage_leaves_what_runs_alone(self):
        faults = Faults(gpu_losses=(GpuLoss(at_seconds=2.0, num_replicas=6, kills=False),))
        fleet = new_fleet(faults=faults)
        fleet.advance(3.0)
        fleet.apply(plan_for(fleet, 5))
        fleet.advance(RUN_SECONDS)
        assert fleet.pods.count(PodState.SERVING) == 3
        assert fleet.pods.count(PodState.PENDING) == 2


class TestRollingUpdate:
    @settings(max_examples=80, deadline=None, derandomize=True)
    @given(
        seed=st.integers(0, 1000),
        serving=st.integers(1, 4),
        warm=st.integers(0, 2),
        max_surge=st.sampled_from((0, 1, 2, 0.25, 0.5, 1.0)),
        max_unavailable=st.sampled_from((0, 1, 2, 0.25, 0.5)),
    )
    def test_replaces_every_pod_within_its_limits(self, seed, serving, warm, max_surge, max_unavailable):
        if (max_surge, max_unavailable) == (0, 0):
            return
        update = RollingUpdate(at_seconds=8.0, max_surge=max_surge, max_unavailable=max_unavailable)
        requests = workload(seed, span_seconds=40.0)
        fleet = new_fleet(requests, faults=Faults(rolling_updates=(update,)), duration_seconds=120.0)
        wanted = serving + warm
        while fleet.now < 120.0:
            fleet.apply(plan_for(fleet, serving, wanted))
            fleet.advance(fleet.now + 1.0)
            if fleet.now < 8.0:
                continue
            pods = fleet.pods
            # what had to be ready before the update and is on its way to serving counts as loaded
            loaded = pods.count(PodState.SERVING, PodState.WARM, PodState.PROMOTING, PodState.DEMOTING)
            assert loaded >= wanted - update.unavailable(wanted)
            assert pods.count(PodState.SERVING, PodState.PROMOTING) >= serving - update.unavailable(wanted)
            assert pods.num_supply <= wanted + update.surge(wanted)
        assert events(fleet, "rollout_started") == [8.0]
        assert len(events(fleet, "rollout_finished")) == 1
        assert not fleet.fleet_state().rollout_in_progress
        assert (fleet.pods.count(PodState.SERVING), fleet.pods.count(PodState.WARM)) == (serving, warm)
        ordered_before = sum(at < 8.0 for at in events(fleet, "ordered")) + LIMITS.initial_replicas
        assert all(fleet.pods.pod_ids[i] >= ordered_before for i in fleet.pods.in_state(PodState.SERVING))
        assert (fleet.result().outcome == FINISHED).all()

    def test_is_seen_by_the_planner(self):
        fleet = new_fleet(faults=Faults(rolling_updates=(RollingUpdate(at_seconds=1.0),)))
        fleet.advance(2.0)
        assert fleet.fleet_state().rollout_in_progress


class TestDrainGrace:
    def test_what_is_not_done_in_time_fails(self):
        requests = RequestTable.from_columns([0.0, 0.0], [40, 40], [300, 300])
        limits = replace(LIMITS, initial_replicas=2, drain_grace_seconds=2.0)
        fleet = new_fleet(requests, limits=limits, router="round_robin")
        fleet.advance(1.0)
        fleet.apply(plan_for(fleet, 0, 2))
        fleet.apply(plan_for(fleet, 0, 1))
        (drained,) = fleet.pods.in_state(PodState.REMOVING)
        fleet.apply(plan_for(fleet, 1))
        fleet.advance(RUN_SECONDS)
        result = fleet.result()
        assert result.outcome.tolist() == [FAILED if drained == 0 else FINISHED, FAILED if drained == 1 else FINISHED]
        assert events(fleet, "killed") == [3.0]

    def test_unlimited_by_default(self):
        assert FleetLimits().drain_grace_seconds == inf


class TestSleepingStandby:
    @pytest.mark.parametrize(("sleeps", "hit_ratio"), [(False, 1.0), (True, 0.0)])
    def test_loses_its_prefix_cache_and_a_loaded_one_keeps_it(self, sleeps, hit_ratio):
        prefixes = Prefixes(ids=np.array([7, 8, 7, 8]), starts=np.array([0, 2, 4]), group_tokens=16)
        requests = RequestTable.from_columns([0.0, 10.0], [33, 33], [5, 5], prefixes=prefixes)
        limits = FleetLimits(initial_replicas=1, max_replicas=1, promotion_seconds=1.0, warm_replicas_sleep=sleeps)
        fleet = new_fleet(requests, limits=limits, engine=EngineOptions(enable_prefix_caching=True))
        fleet.advance(3.0)
        fleet.apply(plan_for(fleet, 0, 1))
        fleet.advance(5.0)
        assert fleet.pods.states[0] == PodState.WARM
        fleet.apply(plan_for(fleet, 1))
        fleet.advance(RUN_SECONDS)
        seen = fleet.result().telemetry.column("prefix_cache_hit_ratio")
        assert seen[~np.isnan(seen)][-1] == pytest.approx(hit_ratio * 32 / 33, abs=0.04)


class TestScrapes:
    def fleet(self, **given):
        return new_fleet(workload(3), faults=Faults(scrapes=(ScrapeFault(at_seconds=5.0, lasts_seconds=4.0, **given),)))

    def test_late_rows_hold_up_what_comes_after_them(self):
        fleet = self.fleet(kind="delay", delay_seconds=6.0)
        newest = []
        for _ in range(18):
            fleet.advance(fleet.now + 1.0)
            rows = fleet.telemetry().row_at
            newest.append(rows[-1] if rows.size else 0.0)
        # the rows that end at 6, 7, 8 and 9 s come 6 s late, those that end before 15 s wait for the last of them
        assert newest == [0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5, 6, 7, 8, 15, 16, 17]
        assert (np.diff(fleet.result().telemetry.seen_at) >= 0).all()

    def test_lost_rows_are_unknown_and_never_zero(self):
        fleet = self.fleet(kind="loss")
        fleet.advance(8.0)
        assert fleet.fleet_state().reporting_replicas == 0
        assert fleet.fleet_state().serving_replicas == 3
        fleet.advance(RUN_SECONDS)
        values = fleet.result().telemetry.values
        lost = np.isnan(values[:, SIGNAL_INDEX["kv_blocks_used"]])
        assert np.flatnonzero(lost).tolist() == [5, 6, 7, 8]
        assert np.isnan(values[5:9, SIGNAL_INDEX["request_rate_per_second"]]).all()
        assert values[5:9, SIGNAL_INDEX["serving_replicas"]].tolist() == [3.0] * 4
        assert values[5:9, SIGNAL_INDEX["reporting_replicas"]].tolist() == [0.0] * 4

    def test_silent_replicas_are_missing_from_the_sums_and_nothing_else_changes(self):
        whole, partial = new_fleet(workload(3)), self.fleet(kind="partial", reporting_ratio=0.5)
        for fleet in (whole, partial):
            fleet.advance(RUN_SECONDS)
        reporting = partial.result().telemetry.column("reporting_replicas")
        total = partial.result().telemetry.column("kv_blocks_total")
        assert 0 < reporting[6] < 3
        np.testing.assert_array_equal(total, reporting * PROFILE.kv_blocks)
        assert reporting[[4, 9]].tolist() == [3.0, 3.0]
        ours, theirs = (f.result().telemetry for f in (partial, whole))
        for name in ("running_requests", "kv_blocks_used", "decode_tokens_per_second"):
            assert (ours.column(name) <= theirs.column(name)).all(), name
            assert ours.column(name)[5:9].sum() < theirs.column(name)[5:9].sum(), name
        np.testing.assert_array_equal(ours.column("request_rate_per_second"), theirs.column("request_rate_per_second"))
        assert partial.result().finished_at.tobytes() == whole.result().finished_at.tobytes()


class TestLeadTimes:
    def test_what_is_measured_replaces_what_was_said_beforehand(self):
        limits = replace(LIMITS, initial_replicas=1, cold_start_seconds=LogNormal(median_seconds=4.0, sigma=0.6))
        fleet = new_fleet(limits=limits, seed=4)
        said = fleet.fleet_state().time_to_ready_seconds
        assert said == pytest.approx(4.0 * np.exp(0.6 * 1.2816), rel=1e-3)
        fleet.apply(plan_for(fleet, 6))
        assert len(set(fleet.fleet_state().starting_ready_in_seconds)) == 1  # nobody knows what was drawn
        fleet.advance(RUN_SECONDS)
        measured = fleet.pods.times_to_ready
        assert len(set(measured)) == 5
        assert fleet.fleet_state().time_to_ready_seconds == sorted(measured)[4]

    def test_another_seed_draws_others(self):
        def ready(seed):
            fleet = new_fleet(
                limits=replace(LIMITS, cold_start_seconds=LogNormal(median_seconds=4.0, sigma=0.6)), seed=seed
            )
            fleet.apply(plan_for(fleet, 6))
            fleet.advance(RUN_SECONDS)
            return events(fleet, "ready")

        assert ready(1) == ready(1) != ready(2)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda: PodDeath(at_seconds=-1.0), r"pod death at -1 s: at_seconds must be >= 0"),
        (lambda: PodDeath(at_seconds=1.0, num_pods=0), r"pod death at 1 s: num_pods must be >= 1, got 0"),
        (lambda: GpuLoss(at_seconds=1.0, num_replicas=0, lasts_seconds=0.0), r"num_replicas must be .*; lasts_seconds"),
        (lambda: RollingUpdate(at_seconds=1.0, max_surge=0, max_unavailable=0), r"both 0, .*raise one"),
        (lambda: RollingUpdate(at_seconds=1.0, max_surge=1.5), r"shares in \[0, 1\], got \(1.5, 0.25\)"),
        (lambda: ScrapeFault(kind="late", at_seconds=0.0, lasts_seconds=1.0), r"kind must be delay, loss or partial"),
        (lambda: ScrapeFault(kind="loss", at_seconds=np.nan, lasts_seconds=-1.0), r"at_seconds.*; lasts_seconds"),
        (lambda: ScrapeFault(kind="partial", at_seconds=0.0, lasts_seconds=1.0, reporting_ratio=2.0), r"got 2.0"),
        (lambda: Faults(pod_mtbf_seconds=0.0), r"pod_mtbf_seconds must be > 0, got 0.0"),
        (lambda: FleetLimits(gpu_stock_replicas=2), r"gpu_stock_replicas must be >= initial_replicas=8, got 2"),
        (lambda: FleetLimits(drain_grace_seconds=-1.0), r"drain_grace_seconds must be >= 0, got -1.0"),
    ],
)
def test_impossible_faults_are_refused(fault, message):
    with pytest.raises(ConfigError, match=message):
        fault()


def test_a_static_fleet_with_faults_plays_to_its_end():
    faults = Faults(pod_deaths=(PodDeath(at_seconds=3.0),), pod_mtbf_seconds=20.0)
    result = simulate(workload(1), PROFILE, policy=StaticPolicy(3), limits=LIMITS, settings=RunSettings(faults=faults))
    assert "died" in result.events.kind.tolist()
