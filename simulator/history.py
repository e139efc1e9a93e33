"""What became of the pods and when, a column for each field: the states of every slot, and the events."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaTimeline:
    """Every change of a slot's state, in order; a slot without a row has been empty throughout.

    Attributes
    ----------
    at_seconds : ndarray of float64
        From the start of the run.
    slot, pod_id : ndarray of int32
        A slot holds one pod after the other; pods are numbered as they are ordered.
    state : ndarray of int8
        `simulator.lifecycle.PodState` from then on.
    """

    at_seconds: NDArray[np.float64]
    slot: NDArray[np.int32]
    pod_id: NDArray[np.int32]
    state: NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEvents:
    """What happened to the fleet, in order.

    Attributes
    ----------
    at_seconds : ndarray of float64
        From the start of the run.
    kind : ndarray of str
        Of a pod: ordered, pending, scheduled, ready, promoting, serving, demoted, stood_by, removed, gone, killed (its
        time to drain was over), died. Of the fleet: node_lost, gpus_short, gpus_back, rollout_started,
        rollout_finished, and of scrapes {delay, loss, partial}_started and _ended.
    slot : ndarray of int32
        -1 for the fleet as a whole.
    detail : ndarray of str
    """

    at_seconds: NDArray[np.float64]
    kind: NDArray[np.str_]
    slot: NDArray[np.int32]
    detail: NDArray[np.str_]


WHOLE_FLEET = -1


@dataclass(slots=True)
class History:
    """Takes note of changes and events as they happen."""

    changes: list[tuple[float, int, int, int]] = field(default_factory=list)
    happenings: list[tuple[float, str, int, str]] = field(default_factory=list)

    def note(self, at: float, kind: str, slot: int = WHOLE_FLEET, detail: str = "") -> None:
        """Take note of an event."""
        self.happenings.append((at, kind, slot, detail))

    def timeline(self) -> ReplicaTimeline:
        """Return the changes up to now."""
        return timeline_of(self.changes)

    def events(self) -> FleetEvents:
        """Return the events up to now."""
        return events_of(self.happenings)


def timeline_of(changes: list[tuple[float, int, int, int]]) -> ReplicaTimeline:
    """Return rows of (at_seconds, slot, pod_id, state) as columns."""
    at, slot, pod_id, state = zip(*changes, strict=True) if changes else ((), (), (), ())
    return ReplicaTimeline(
        at_seconds=np.array(at, dtype=np.float64),
        slot=np.array(slot, dtype=np.int32),
        pod_id=np.array(pod_id, dtype=np.int32),
        state=np.array(state, dtype=np.int8),
    )


def events_of(happenings: list[tuple[float, str, int, str]]) -> FleetEvents:
    """Return rows of (at_seconds, kind, slot, detail) as columns, in the order of time."""
    rows = sorted(happenings, key=lambda row: row[0])
    at, kind, slot, detail = zip(*rows, strict=True) if rows else ((), (), (), ())
    return FleetEvents(
        at_seconds=np.array(at, dtype=np.float64),
        kind=np.array(kind, dtype=np.str_),
        slot=np.array(slot, dtype=np.int32),
        detail=np.array(detail, dtype=np.str_),
    )
