"""What befalls a fleet, each at its time: pods that die, nodes and GPUs that are lost, roll-outs, scrapes that fail."""

from dataclasses import dataclass, field
from math import ceil, floor, inf
from typing import Literal

from forecaster.errors import ConfigError


def _refuse(what: str, at_seconds: float, problems: list[str]) -> None:
    if not 0 <= at_seconds < inf:
        problems.insert(0, f"at_seconds must be >= 0 and finite, got {at_seconds}")
    if problems:
        raise ConfigError.from_problems(f"{what} at {at_seconds:g} s", problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDeath:
    """`num_pods` pods, drawn from all that have GPUs, die at once; what they hold fails."""

    at_seconds: float
    num_pods: int = 1

    def __post_init__(self) -> None:
        problems = [f"num_pods must be >= 1, got {self.num_pods}"] if self.num_pods < 1 else []
        _refuse("pod death", self.at_seconds, problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLoss:
    """GPUs for `num_replicas` replicas are gone for a while: a node that is lost, or a stock that others have taken.

    Attributes
    ----------
    at_seconds, lasts_seconds : float
    num_replicas : int
    kills : bool
        Whether as many pods, drawn from all that have GPUs, die with them (a node); otherwise only new pods wait.
    """

    at_seconds: float
    num_replicas: int
    lasts_seconds: float = inf
    kills: bool = True

    def __post_init__(self) -> None:
        problems = []
        if self.num_replicas < 1:
            problems.append(f"num_replicas must be >= 1, got {self.num_replicas}")
        if not self.lasts_seconds > 0:
            problems.append(f"lasts_seconds must be > 0, got {self.lasts_seconds}")
        _refuse("GPU loss", self.at_seconds, problems)


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
        limits = (self.max_surge, self.max_unavailable)
        problems = []
        if not all(0 <= limit < inf and (isinstance(limit, int) or limit <= 1) for limit in limits):
            problems.append(
                f"max_surge and max_unavailable must be whole numbers >= 0 or shares in [0, 1], got {limits}"
            )
        elif limits == (0, 0):
            problems.append("max_surge and max_unavailable are both 0, so that no pod can be replaced; raise one")
        _refuse("rolling update", self.at_seconds, problems)

    def surge(self, num_wanted: int) -> int:
        """Return how many pods there may be above `num_wanted`."""
        return self.max_surge if isinstance(self.max_surge, int) else ceil(self.max_surge * num_wanted)

    def unavailable(self, num_wanted: int) -> int:
        """Return how many of `num_wanted` need not be ready."""
        limit = self.max_unavailable
        rounded = limit if isinstance(limit, int) else floor(limit * num_wanted)
        return max(rounded, 1) if self.surge(num_wanted) == 0 else rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeFault:
    """A time in which the planner's view of the engines is late, lost or partial; what the cluster lists stays known.

    Attributes
    ----------
    kind : {"delay", "loss", "partial"}
    at_seconds, lasts_seconds : float
        Rows that end in (at_seconds, at_seconds + lasts_seconds].
    delay_seconds : float
        Of a delay: so much later they are seen, and no later row before them.
    reporting_ratio : float
        Of partial metrics: the chance of each replica slot to report. What the silent ones hold is missing from the
        sums, and counters are reduced by their share of the serving replicas.
    """

    kind: Literal["delay", "loss", "partial"]
    at_seconds: float
    lasts_seconds: float
    delay_seconds: float = 30.0
    reporting_ratio: float = 0.5

    def __post_init__(self) -> None:
        problems = []
        if self.kind not in ("delay", "loss", "partial"):
            problems.append(f"kind must be delay, loss or partial, got {self.kind!r}")
        if not 0 < self.lasts_seconds < inf:
            problems.append(f"lasts_seconds must be > 0 and finite, got {self.lasts_seconds}")
        if not 0 <= self.delay_seconds < inf:
            problems.append(f"delay_seconds must be >= 0 and finite, got {self.delay_seconds}")
        if not 0 <= self.reporting_ratio <= 1:
            problems.append(f"reporting_ratio must be in [0, 1], got {self.reporting_ratio}")
        _refuse("scrape fault", self.at_seconds, problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Everything that befalls the fleet in a run.

    Attributes
    ----------
    pod_deaths : tuple of PodDeath
    gpu_losses : tuple of GpuLoss
    rolling_updates : tuple of RollingUpdate
    scrapes : tuple of ScrapeFault
    pod_mtbf_seconds : float
        Mean time to failure of one pod from when it has its GPUs, exponential; inf: none fails by chance.
    """

    pod_deaths: tuple[PodDeath, ...] = ()
    gpu_losses: tuple[GpuLoss, ...] = ()
    rolling_updates: tuple[RollingUpdate, ...] = ()
    scrapes: tuple[ScrapeFault, ...] = ()
    pod_mtbf_seconds: float = inf

    def __post_init__(self) -> None:
        if not self.pod_mtbf_seconds > 0:
            raise ConfigError(f"faults: pod_mtbf_seconds must be > 0, got {self.pod_mtbf_seconds}")

    def schedule(self) -> "list[tuple[float, Happening]]":
        """Return everything that happens at a time of its own, in order; what has an end happens twice."""
        happenings: list[tuple[float, Happening]] = [
            (each.at_seconds, Happening(each)) for each in (*self.pod_deaths, *self.gpu_losses, *self.rolling_updates)
        ]
        happenings += [
            (each.at_seconds + each.lasts_seconds, Happening(each, is_end=True))
            for each in self.gpu_losses
            if each.lasts_seconds < inf
        ]
        for each in self.scrapes:
            happenings.append((each.at_seconds, Happening(each)))
            happenings.append((each.at_seconds + each.lasts_seconds, Happening(each, is_end=True)))
        return sorted(happenings, key=lambda item: item[0])


@dataclass(frozen=True, slots=True)
class Happening:
    """The beginning of a fault, or its end."""

    fault: PodDeath | GpuLoss | RollingUpdate | ScrapeFault
    is_end: bool = field(default=False)
