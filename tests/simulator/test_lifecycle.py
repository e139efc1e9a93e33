"""Pods: every order is carried out, at its time, within the limits, and costs what it lasts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.errors import ConfigError
from simulator.fleet_limits import FleetLimits
from simulator.lifecycle import Pods
from simulator.pod_states import DRAINING, PodState

LIMITS = FleetLimits(initial_replicas=3, max_replicas=5, cold_start_seconds=7.0, promotion_seconds=2.0)

# what a pod may become, and nothing else
MOVES = {
    PodState.GONE: {PodState.STARTING},
    PodState.STARTING: {PodState.SERVING, PodState.WARM, PodState.GONE},
    PodState.WARM: {PodState.PROMOTING, PodState.GONE},
    PodState.PROMOTING: {PodState.SERVING, PodState.DEMOTING, PodState.REMOVING},
    PodState.SERVING: {PodState.DEMOTING, PodState.REMOVING},
    PodState.DEMOTING: {PodState.WARM, PodState.PROMOTING, PodState.REMOVING},
    PodState.REMOVING: {PodState.GONE},
}


class Diary:
    """Watches pods and checks each change that it sees."""

    def __init__(self, pods):
        self.pods = pods
        self.states = list(pods.states)
        self.since = [0.0] * len(pods.states)

    def look(self, now, *, is_empty):
        for i, (before, after) in enumerate(zip(self.states, self.pods.states, strict=True)):
            if before == after:
                continue
            self.check_change(i, before, after, now=now, is_empty=is_empty[i])
            self.states[i], self.since[i] = after, now

    def check_change(self, i, before, after, *, now, is_empty):
        assert after in MOVES[before], (before, after)
        lasted = now - self.since[i]
        if before == PodState.STARTING and after != PodState.GONE:
            assert lasted == LIMITS.cold_start_seconds
        if before == PodState.PROMOTING and after == PodState.SERVING:
            assert lasted == LIMITS.promotion_seconds
        if before == PodState.REMOVING or (before == PodState.DEMOTING and after == PodState.WARM):
            assert is_empty


def pods_that_hold(draw, pods):
    """Draw which pods hold work: only those that serve or drain can."""
    may_hold = (PodState.SERVING, PodState.PROMOTING, *DRAINING)
    return [state not in may_hold or draw(st.booleans()) for state in pods.states]


class TestAnyCourseOfEvents:
    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(data=st.data())
    def test_pods_change_as_they_may_and_when_they_should(self, data):
        pods = Pods(LIMITS)
        diary = Diary(pods)
        now = 0.0
        for _ in range(data.draw(st.integers(1, 15))):
            serving, further = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 3))
            loads = [data.draw(st.integers(0, 9)) for _ in pods.states]
            pods.steer(serving=serving, supply=serving + further, now=now, outstanding=loads)
            self.check_counts(pods, serving, serving + further)
            diary.look(now, is_empty=[False] * len(pods.states))
            until = now + data.draw(st.integers(0, 10))
            while now < until:
                now = min(until, pods.next_due_at, now + 1)
                is_empty = pods_that_hold(data.draw, pods)
                pods.settle(now, is_empty=is_empty)
                diary.look(now, is_empty=is_empty)
        assert sum(pods.replica_seconds(now).values()) == len(pods.states) * now
        assert pods.next_due_at > now

    def check_counts(self, pods, serving, supply):
        supply = min(supply, LIMITS.max_replicas)
        active = pods.count(PodState.SERVING, PodState.PROMOTING)
        assert pods.num_supply <= LIMITS.max_replicas
        assert active <= min(serving, supply)
        assert pods.num_supply == supply or pods.count(PodState.GONE) == 0
        # warm pods are not left standing by while more should serve
        assert active == min(serving, supply) or pods.count(PodState.WARM, PodState.DEMOTING) == 0

    @settings(max_examples=50, deadline=None, derandomize=True)
    @given(serving=st.integers(0, 5), further=st.integers(0, 3))
    def test_steering_twice_the_same_way_changes_nothing(self, serving, further):
        pods = Pods(LIMITS)
        for _ in range(2):
            pods.steer(serving=serving, supply=serving + further, now=0.0, outstanding=[0] * 10)
        states, actions = list(pods.states), pods.num_actions
        pods.steer(serving=serving, supply=serving + further, now=0.0, outstanding=[0] * 10)
        assert (list(pods.states), pods.num_actions) == (states, actions)

    @settings(max_examples=50, deadline=None, derandomize=True)
    @given(serving=st.integers(0, 5), further=st.integers(0, 3))
    def test_an_order_left_alone_is_reached(self, serving, further):
        pods = Pods(LIMITS)
        supply = min(serving + further, LIMITS.max_replicas)
        pods.steer(serving=serving, supply=supply, now=0.0, outstanding=[0] * 10)
        for now in (0.0, 2.0, 7.0):
            pods.settle(now, is_empty=[True] * 10)
        assert pods.count(PodState.SERVING) == serving
        assert pods.count(PodState.WARM) == supply - serving


class TestChoice:
    def pods(self, *states):
        pods = Pods(FleetLimits(initial_replicas=1, max_replicas=8))
        pods.states[: len(states)] = states
        return pods

    def test_promotes_before_it_orders(self):
        pods = self.pods(PodState.SERVING, PodState.WARM)
        pods.steer(serving=3, supply=3, now=0.0, outstanding=[0] * 16)
        assert pods.states[:3] == [PodState.SERVING, PodState.PROMOTING, PodState.STARTING]

    def test_demotes_the_idlest(self):
        pods = self.pods(PodState.SERVING, PodState.SERVING, PodState.SERVING)
        pods.steer(serving=2, supply=3, now=0.0, outstanding=[500, 20, 300] + [0] * 13)
        assert pods.states[:3] == [PodState.SERVING, PodState.DEMOTING, PodState.SERVING]

    def test_cancels_what_starts_last_before_it_removes_what_is_loaded(self):
        pods = self.pods(PodState.SERVING, PodState.WARM)
        pods.steer(serving=1, supply=3, now=0.0, outstanding=[0] * 16)
        pods.steer(serving=1, supply=4, now=5.0, outstanding=[0] * 16)
        pods.steer(serving=1, supply=3, now=6.0, outstanding=[0] * 16)
        assert pods.states[:4] == [PodState.SERVING, PodState.WARM, PodState.STARTING, PodState.GONE]
        pods.steer(serving=1, supply=1, now=7.0, outstanding=[0] * 16)
        assert pods.states[:4] == [PodState.SERVING, PodState.GONE, PodState.GONE, PodState.GONE]

    def test_demoted_pod_that_holds_work_is_promoted_again(self):
        pods = self.pods(PodState.SERVING, PodState.SERVING)
        pods.steer(serving=1, supply=2, now=0.0, outstanding=[9, 3] + [0] * 14)
        pods.settle(0.0, is_empty=[False, False] + [True] * 14)
        assert pods.states[1] == PodState.DEMOTING
        pods.steer(serving=2, supply=2, now=1.0, outstanding=[9, 3] + [0] * 14)
        assert pods.states[1] == PodState.PROMOTING

    def test_pod_that_is_not_needed_any_more_when_ready_stands_by(self):
        pods = self.pods(PodState.SERVING)
        pods.steer(serving=2, supply=2, now=0.0, outstanding=[0] * 16)
        pods.steer(serving=1, supply=2, now=1.0, outstanding=[0] * 16)
        pods.settle(30.0, is_empty=[True] * 16)
        assert pods.states[:2] == [PodState.SERVING, PodState.WARM]

    def test_every_single_change_is_an_action(self):
        pods = self.pods(PodState.SERVING, PodState.WARM)
        pods.steer(serving=4, supply=5, now=0.0, outstanding=[0] * 16)
        assert pods.num_actions == 1 + 3


@pytest.mark.parametrize("limits", [{"cold_start_seconds": float("nan")}, {"promotion_seconds": -1.0}])
def test_lead_times_that_are_no_times_are_refused(limits):
    with pytest.raises(ConfigError, match="simulated fleet: cold_start_seconds and promotion_seconds must be >= 0"):
        FleetLimits(**limits)
