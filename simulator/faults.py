"""What befalls a fleet at its time: pods that die, nodes that are lost, rolling updates."""

from dataclasses import dataclass, field
from math import ceil, floor, inf

from forecaster.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDeath:
    """Pods that die at once; what they hold fails.

    Attributes
    ----------
    at_seconds : float
    num : int
        How many, drawn from all that are on a node, starting and draining ones too.
    slot : int, optional
        The pod in this slot instead, pending or not; nothing dies in an empty one.
    """

    at_seconds: float
    num: int = 1
    slot: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.at_seconds < inf:
            raise ConfigError(f"pod death: at_seconds must be >= 0 and finite, got {self.at_seconds}")
        if self.num < 1:
            raise ConfigError(f"pod death at {self.at_seconds} s: num must be >= 1, got {self.num}")
        if self.slot is not None and self.slot < 0:
            raise ConfigError(f"pod death at {self.at_seconds} s: slot must be >= 0, got {self.slot}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLoss:
    """A node that is lost with all its pods, and the GPUs that they had.

    Attributes
    ----------
    at_seconds : float
    num_pods : int, optional
        How many pods it takes along, drawn from all that are on a node.
    node : int, optional
        Those of this node instead: slots [node * pods_per_node, (node + 1) * pods_per_node).
    lasts_seconds : float
        After so long the GPUs are back in the stock, if there is a limit on it.
    """

    at_seconds: float
    num_pods: int | None = None
    node: int | None = None
    lasts_seconds: float = inf

    def __post_init__(self) -> None:
        if not 0 <= self.at_seconds < inf:
            raise ConfigError(f"node loss: at_seconds must be >= 0 and finite, got {self.at_seconds}")
        if (self.num_pods is None) == (self.node is None):
            raise ConfigError(f"node loss at {self.at_seconds} s: give either num_pods or node")
        if (self.num_pods is not None and self.num_pods < 1) or (self.node is not None and self.node < 0):
            raise ConfigError(
                f"node loss at {self.at_seconds} s: num_pods must be >= 1 and node >= 0, got {self.num_pods}, "
                f"{self.node}"
            )
        if not self.lasts_seconds >= 0:
            raise ConfigError(f"node loss at {self.at_seconds} s: lasts_seconds must be >= 0, got {self.lasts_seconds}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Every death of a run.

    Attributes
    ----------
    pod_deaths : tuple of PodDeath
    node_losses : tuple of NodeLoss
    pods_per_node : int, optional
        Needed where a loss names its node.
    pod_mtbf_seconds : float
        Mean time to failure of one pod from when it has its GPUs, exponential; inf: none fails by chance.
    """

    pod_deaths: tuple[PodDeath, ...] = ()
    node_losses: tuple[NodeLoss, ...] = ()
    pods_per_node: int | None = None
    pod_mtbf_seconds: float = inf

    def __post_init__(self) -> None:
        problems = []
        if self.pods_per_node is not None and self.pods_per_node < 1:
            problems.append(f"pods_per_node must be >= 1, got {self.pods_per_node}")
        if self.pods_per_node is None and any(loss.node is not None for loss in self.node_losses):
            problems.append("a node loss names its node; set pods_per_node")
        if not self.pod_mtbf_seconds > 0:
            problems.append(f"pod_mtbf_seconds must be > 0, got {self.pod_mtbf_seconds}")
        if problems:
            raise ConfigError.from_problems("faults", problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingUpdate:
    """All pods are replaced by new ones, a few at a time, as a Kubernetes Deployment does it.

    Attributes
    ----------
    at_seconds : float
    max_surge, max_unavailable : int or float
        How many pods there may be above, and how many ready ones below what is wanted: an int is a number of pods, a
        float a share of those wanted, rounded up for the surge and down for the unavailable ones.

    References
    ----------
    Kubernetes, Deployments, "Rolling Update Deployment"; pkg/controller/deployment/util `ResolveFenceposts`: where both
    come to 0, one may be unavailable.
    """

    at_seconds: float
    max_surge: int | float = 0.25
    max_unavailable: int | float = 0.25

    def __post_init__(self) -> None:
        if not 0 <= self.at_seconds < inf:
            raise ConfigError(f"rolling update: at_seconds must be >= 0 and finite, got {self.at_seconds}")
        limits = (self.max_surge, self.max_unavailable)
        if not all(0 <= limit < inf and (isinstance(limit, int) or limit <= 1) for limit in limits):
            raise ConfigError(
                f"rolling update at {self.at_seconds} s: max_surge and max_unavailable must be whole numbers >= 0 or "
                f"shares in [0, 1], got {limits}"
            )
        if limits == (0, 0):
            raise ConfigError(
                f"rolling update at {self.at_seconds} s: max_surge and max_unavailable are both 0, so that no pod can "
                "be replaced; raise one"
            )

    def surge(self, num_wanted: int) -> int:
        """Return how many pods there may be above `num_wanted`."""
        return self.max_surge if isinstance(self.max_surge, int) else ceil(self.max_surge * num_wanted)

    def unavailable(self, num_wanted: int) -> int:
        """Return how many of `num_wanted` need not be ready."""
        limit = self.max_unavailable
        rounded = limit if isinstance(limit, int) else floor(limit * num_wanted)
        return max(rounded, 1) if self.surge(num_wanted) == 0 else rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBack:
    """The GPUs of a lost node are there again."""

    at_seconds: float
    num_replicas: int = field(default=0)
