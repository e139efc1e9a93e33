"""How long a pod takes to become ready, to be promoted or to wake: distributions to draw from and to estimate by.

A fleet draws from them; a planner is told their median and never what was drawn.
"""

from bisect import bisect_right
from dataclasses import dataclass
from math import exp, inf, isfinite, log
from statistics import NormalDist, median
from typing import Protocol

from numpy.random import Generator

from forecaster.errors import ConfigError

_STANDARD_NORMAL = NormalDist()


class LeadTime(Protocol):
    """A distribution of durations >= 0, in seconds."""

    @property
    def median_seconds(self) -> float:
        """The time within which half of all are done."""
        ...

    def draw(self, rng: Generator) -> float:
        """Return one duration."""
        ...

    def cdf(self, seconds: float) -> float:
        """Return the share of durations that are no longer than `seconds`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantLeadTime:
    """Always the same; it draws nothing."""

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise ConfigError(f"constant lead time: seconds must be >= 0, got {self.seconds}")

    @property
    def median_seconds(self) -> float:
        """The constant."""
        return self.seconds

    def draw(self, rng: Generator) -> float:
        """Return the constant."""
        return self.seconds

    def cdf(self, seconds: float) -> float:
        """Return 0 before the constant and 1 from it on."""
        return float(seconds >= self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormalLeadTime:
    """Durations whose logarithm is normal with mean ln(median_seconds) and standard deviation `sigma`."""

    median_seconds: float
    sigma: float

    def __post_init__(self) -> None:
        if not (0 < self.median_seconds < inf and 0 < self.sigma < inf):
            raise ConfigError(
                f"log-normal lead time: median_seconds and sigma must be > 0 and finite, got {self.median_seconds}, "
                f"{self.sigma}"
            )

    def draw(self, rng: Generator) -> float:
        """Return one duration."""
        return self.median_seconds * exp(self.sigma * rng.standard_normal())

    def cdf(self, seconds: float) -> float:
        """Return the share of durations that are no longer than `seconds`."""
        return _STANDARD_NORMAL.cdf(log(seconds / self.median_seconds) / self.sigma) if seconds > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformLeadTime:
    """Any duration between two, each as likely."""

    low_seconds: float
    high_seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.low_seconds < self.high_seconds < inf:
            raise ConfigError(
                f"uniform lead time: expected 0 <= low_seconds < high_seconds, got {self.low_seconds}, "
                f"{self.high_seconds}"
            )

    @property
    def median_seconds(self) -> float:
        """The middle."""
        return (self.low_seconds + self.high_seconds) / 2

    def draw(self, rng: Generator) -> float:
        """Return one duration."""
        return rng.uniform(self.low_seconds, self.high_seconds)

    def cdf(self, seconds: float) -> float:
        """Return the share of durations that are no longer than `seconds`."""
        return min(max((seconds - self.low_seconds) / (self.high_seconds - self.low_seconds), 0.0), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmpiricalLeadTime:
    """Measured durations, each as likely as it was seen."""

    samples_seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.samples_seconds or not all(0 <= sample < inf for sample in self.samples_seconds):
            raise ConfigError(
                f"empirical lead time: samples_seconds must be one or more finite values >= 0, got "
                f"{self.samples_seconds}"
            )

    @property
    def median_seconds(self) -> float:
        """The samples' median."""
        return median(self.samples_seconds)

    def draw(self, rng: Generator) -> float:
        """Return one of the samples."""
        return self.samples_seconds[rng.integers(len(self.samples_seconds))]

    def cdf(self, seconds: float) -> float:
        """Return the share of samples that are no longer than `seconds`."""
        return bisect_right(sorted(self.samples_seconds), seconds) / len(self.samples_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureLeadTime:
    """One of several distributions by chance: of a node that has the image and of one that must pull it, say.

    Attributes
    ----------
    weights : tuple of float
        How likely each part is, relative to the others.
    parts : tuple of LeadTime
    """

    weights: tuple[float, ...]
    parts: tuple[LeadTime, ...]

    def __post_init__(self) -> None:
        fits = len(self.weights) == len(self.parts) > 0
        if not (fits and all(isfinite(w) and w >= 0 for w in self.weights) and sum(self.weights) > 0):
            raise ConfigError(
                f"mixture lead time: weights must be >= 0, not all 0, one for each of {len(self.parts)} parts, got "
                f"{self.weights}"
            )

    @property
    def median_seconds(self) -> float:
        """The least duration within which half of all are done."""
        # not below the least of the parts' medians nor above the largest; 60 halvings are exact to rounding
        low, high = min(p.median_seconds for p in self.parts), max(p.median_seconds for p in self.parts)
        if self.cdf(low) >= 0.5:
            return low
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self.cdf(middle) >= 0.5 else (middle, high)
        return high

    def draw(self, rng: Generator) -> float:
        """Return a duration from one of the parts."""
        left = rng.random() * sum(self.weights)
        for weight, part in zip(self.weights, self.parts, strict=True):
            left -= weight
            if left < 0:
                return part.draw(rng)
        return self.parts[-1].draw(rng)

    def cdf(self, seconds: float) -> float:
        """Return the share of durations that are no longer than `seconds`."""
        shares = zip(self.weights, self.parts, strict=True)
        return sum(weight * part.cdf(seconds) for weight, part in shares) / sum(self.weights)


def as_lead_time(lead: float | LeadTime) -> LeadTime:
    """Return a distribution, of a number the constant one."""
    return ConstantLeadTime(seconds=lead) if isinstance(lead, int | float) else lead
