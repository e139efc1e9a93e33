"""Where a pod may be in its life, and what coming to a state is called among the events."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType


class PodState(IntEnum):
    """Where a replica slot is in its life."""

    GONE = 0
    STARTING = 1
    WARM = 2
    PROMOTING = 3
    SERVING = 4
    DEMOTING = 5  # not routed to, finishing what it holds, then warm
    REMOVING = 6  # not routed to, finishing what it holds, then gone
    PENDING = 7  # ordered, but there are no GPUs for it; costs nothing


DRAINING = (PodState.DEMOTING, PodState.REMOVING)
ACTIVE = (PodState.SERVING, PodState.PROMOTING)
SUPPLY = (PodState.STARTING, PodState.WARM, PodState.PROMOTING, PodState.SERVING, PodState.DEMOTING)

EVENT_KINDS: Mapping[PodState, str] = MappingProxyType(
    {
        PodState.GONE: "gone",
        PodState.STARTING: "scheduled",
        PodState.WARM: "stood_by",
        PodState.PROMOTING: "promoting",
        PodState.SERVING: "serving",
        PodState.DEMOTING: "demoted",
        PodState.REMOVING: "removed",
    }
)
