from dataclasses import replace

import numpy as np
import pytest
from scripted_policy import ScriptedPolicy

from forecaster.errors import ConfigError
from simulator.fleet_limits import FleetLimits
from simulator.profiles import DEFAULT_PROFILE, profile_named
from simulator.requests import RequestTable
from simulator.static_fleet import StaticPolicy
from training.closed_loop import (
    Lockstep,
    closed_loop_run,
    compare,
    play,
    selected,
    sensible_initial_replicas,
    servable_requests,
)
from training.scorecard import latencies

PROFILE = profile_named(DEFAULT_PROFILE)


def traffic(*, seconds: float = 30.0, per_second: float = 20.0, prompt: int = 900, output: int = 60) -> RequestTable:
    n = int(seconds * per_second)
    return RequestTable.from_columns(np.arange(n) / per_second, np.full(n, prompt), np.full(n, output))


def make_policy(name, config):
    return ScriptedPolicy() if name == "scripted" else StaticPolicy(int(name.partition(":")[2]))


def a_run(policies=("scripted", "static:3"), **options):
    return closed_loop_run("test", traffic(), profile=PROFILE, policies=policies, initial=2, **options)


class TestClosedLoopRun:
    def test_plays_up_to_the_last_arrival_unless_told(self):
        assert a_run().duration_seconds == 30.0

    def test_leaves_out_what_arrives_after_its_end(self):
        run = a_run(duration_seconds=10.0)
        assert run.requests.arrival_seconds.max() <= 10.0
        assert run.requests.num_requests == 201

    def test_tells_the_planner_what_a_replica_holds_and_how_many_there_may_be(self):
        run = a_run(limits=FleetLimits(max_replicas=9), warm_cost_ratio=1.0)
        assert run.config.capacity == PROFILE.capacity
        assert (run.config.max_replicas, run.config.gpus_per_replica, run.config.warm_cost_ratio) == (9, 4, 1.0)

    def test_refuses_a_run_without_requests(self):
        with pytest.raises(ValueError, match="no request arrives"):
            closed_loop_run("empty", selected(traffic(), np.zeros(600, dtype=bool)), profile=PROFILE, policies=("hpa",))

    def test_refuses_more_replicas_at_the_start_than_there_may_be(self):
        with pytest.raises(ConfigError, match="initial_replicas"):
            closed_loop_run(
                "test",
                traffic(),
                profile=PROFILE,
                policies=("hpa",),
                initial=5,
                limits=FleetLimits(initial_replicas=1, max_replicas=4),
            )


class TestSensibleInitialReplicas:
    def test_one_and_a_third_times_the_mean_demand_of_the_first_minute(self):
        # 20 requests/s x 900 prompt tokens over the 11.6k that a replica prefills within its TTFT is D = 1.55
        demand = 20 * 900 / PROFILE.capacity.usable_prefill_tokens_per_second
        assert 1.5 < demand < 1.6
        assert sensible_initial_replicas(traffic(seconds=60.0), PROFILE) == 3

    def test_long_answers_count_by_the_blocks_that_they_hold(self):
        few_long = traffic(seconds=60.0, per_second=10.0, prompt=10, output=4000)
        assert sensible_initial_replicas(few_long, PROFILE) > 5

    def test_no_traffic_in_the_first_minute_starts_with_one(self):
        late = RequestTable.from_columns(np.array([90.0]), np.array([10]), np.array([10]))
        assert sensible_initial_replicas(late, PROFILE) == 1


class TestServableRequests:
    def test_counts_what_is_longer_than_the_whole_cache_of_a_replica(self):
        room = PROFILE.kv_blocks * PROFILE.block_size_tokens
        requests = RequestTable.from_columns(np.arange(3.0), np.array([10, room, room - 1]), np.array([1, 1, 1]))
        kept, num_dropped = servable_requests(requests, PROFILE)
        assert (kept.arrival_seconds.tolist(), num_dropped) == ([0.0, 2.0], 1)


class TestPlaying:
    def test_compare_gives_each_policy_what_playing_it_alone_gives(self):
        run = a_run()
        played = compare(run, make_policy=make_policy)
        alone = [play(run, name, make_policy=make_policy) for name in run.policies]
        assert [part.result.to_bytes() for part in played] == [result.to_bytes() for result in alone]
        assert [part.scorecard.policy for part in played] == ["scripted", "static:3"]

    def test_lockstep_gives_what_playing_one_after_the_other_gives(self):
        run = a_run()
        lockstep = Lockstep(run, make_policy=make_policy)
        moments = list(lockstep)
        assert moments == [2.0 * i for i in range(15)]
        together = [part.result.to_bytes() for part in lockstep.played()]
        assert together == [part.result.to_bytes() for part in compare(run, make_policy=make_policy)]

    def test_a_fixed_fleet_has_its_number_from_the_start(self):
        played = compare(a_run(), make_policy=make_policy)
        serving = [part.result.telemetry.column("serving_replicas")[0] for part in played]
        assert serving == [2, 3]

    def test_unknown_policies_are_refused_before_anything_is_played(self):
        ticks = []
        run = replace(a_run(), policies=("static:2", "static:x"))
        with pytest.raises(ValueError, match="x"):
            compare(run, on_tick=lambda name, fleet: ticks.append(name), make_policy=make_policy)
        assert not ticks

    def test_tells_of_every_tick_of_every_policy(self):
        ticks = []
        compare(a_run(), on_tick=lambda name, fleet: ticks.append((name, fleet.now)), make_policy=make_policy)
        assert ticks[0] == ("scripted", 0.0)
        assert ticks[-1] == ("static:3", 28.0)
        assert len(ticks) == 30


class TestLockstepLeftEarly:
    def test_scores_the_requests_that_have_arrived(self):
        lockstep = Lockstep(a_run(), make_policy=make_policy)
        for now in lockstep:
            if now >= 6.0:
                break
        assert lockstep.reached_seconds == 6.0
        for part in lockstep.played():
            assert part.scorecard.num_requests == 121  # 20 a second up to and including second 6
            assert part.result.first_token_at.size == 121
            assert part.scorecard.unfinished_requests == 0
            assert part.result.costed_seconds == 6.0


class TestRequestsThatFollowOthers:
    def a_user(self, *, num_requests=6, think_seconds=4.0):
        """Return a run of one user, who asks the same again `think_seconds` after each answer."""
        n = np.arange(num_requests)
        requests = RequestTable.from_columns(
            think_seconds * n,
            np.full(num_requests, 900),
            np.full(num_requests, 60),
            follows=n - 1,
            think_seconds=np.where(n > 0, think_seconds, 0.0),
        )
        return closed_loop_run("user", requests, profile=PROFILE, policies=("static:1",), duration_seconds=30.0)

    def test_ttft_counts_neither_think_time_nor_the_life_of_the_predecessor(self):
        (part,) = compare(self.a_user(), make_policy=make_policy)
        ttft, _ = latencies(part.result)
        assert ttft == pytest.approx(np.full(6, ttft[0]))  # the fleet is idle whenever the user asks
        assert part.scorecard.ttft_p99_seconds == pytest.approx(ttft[0])
        assert part.scorecard.attainment_ratio == 1.0
        waits = part.result.arrival_at[1:] - part.result.finished_at[:-1]
        assert waits == pytest.approx(np.full(5, 4.0))

    def test_those_that_arrive_after_the_end_do_not_count(self):
        run = self.a_user()
        (whole,) = compare(run, make_policy=make_policy)
        last_arrival = whole.result.arrival_at[-1]
        assert last_arrival > run.requests.arrival_seconds[-1] + 1
        (part,) = compare(replace(run, duration_seconds=float(int(last_arrival))), make_policy=make_policy)
        assert part.scorecard.num_requests == 5

    def test_a_lockstep_left_early_has_only_those_that_had_arrived(self):
        lockstep = Lockstep(self.a_user(), make_policy=make_policy)
        for now in lockstep:
            if now >= 8.0:
                break
        (part,) = lockstep.played()
        (whole,) = compare(self.a_user(), make_policy=make_policy)
        assert part.result.requests.num_requests == (whole.result.arrival_at <= 8.0).sum() == 2  # the table says 3
