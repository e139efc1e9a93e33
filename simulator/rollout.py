"""A rolling update, as a Kubernetes Deployment makes it: new pods within the surge, old ones out as those are ready."""

from simulator.faults import RollingUpdate
from simulator.lifecycle import Pods
from simulator.pod_states import ACTIVE, PodState

_READY = (PodState.SERVING, PodState.WARM, PodState.PROMOTING, PodState.DEMOTING)


def begin_rollout(pods: Pods, update: RollingUpdate, now: float) -> None:
    """Mark every pod that there is as old; `step_rollout` replaces them."""
    pods.rollout = update
    pods.history.note(now, "rollout_started")
    for i, state in enumerate(pods.states):
        pods.is_old[i] = state not in (PodState.GONE, PodState.REMOVING)


def step_rollout(pods: Pods, now: float, outstanding: list[int]) -> None:
    """Remove what old pods may go by now and order new ones; end the roll-out when no old pod is left.

    Pods that cannot serve go first, whatever the limits. Ready ones go while no more than `max_unavailable` of those
    wanted would not be ready, of all and of those that serve.
    """
    if pods.rollout is None:
        return
    allowed = pods.rollout.unavailable(pods.wanted_supply)
    serving = sorted(pods.in_state(PodState.SERVING, PodState.PROMOTING), key=lambda i: outstanding[i])
    for i in [i for i in (*pods.removal_order(outstanding), *serving) if pods.is_old[i]]:
        if _may_go(pods, i, allowed):
            if pods.states[i] == PodState.PROMOTING:
                continue  # it serves in a moment
            pods.remove(i, now)
    pods.promote(pods.wanted_serving - pods.count(*ACTIVE), now)
    exists = pods.num_supply + pods.count(PodState.PENDING)
    pods.order(pods.wanted_supply + pods.surge - exists if _num_old(pods) else 0, now)
    if not _num_old(pods):
        pods.rollout = None
        pods.history.note(now, "rollout_finished")


def _num_old(pods: Pods) -> int:
    """Return how many pods are yet to be replaced."""
    gone = (PodState.GONE, PodState.REMOVING)
    return sum(is_old and state not in gone for is_old, state in zip(pods.is_old, pods.states, strict=True))


def _may_go(pods: Pods, i: int, allowed: int) -> bool:
    state = pods.states[i]
    if state in (PodState.PENDING, PodState.STARTING):
        return True
    if pods.count(*_READY) - 1 < pods.wanted_supply - allowed:
        return False
    return state != PodState.SERVING or pods.count(PodState.SERVING) - 1 >= pods.wanted_serving - allowed
