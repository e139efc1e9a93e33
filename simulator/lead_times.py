"""How long a pod takes to become ready, or to be promoted: a number of seconds, or a distribution to draw from.

A fleet draws; a planner is never told what was drawn.
"""

from bisect import bisect_right
from dataclasses import dataclass
from math import ceil, exp, inf, log
from statistics import NormalDist
from typing import Protocol

from numpy.random import Generator

from forecaster.errors import ConfigError

_STANDARD_NORMAL = NormalDist()
_LAST_LEVEL = 1 - 1e-9  # what lasts longer than this share of all should be over


class LeadTime(Protocol):
    """A distribution of durations >= 0, in seconds."""

    def draw(self, rng: Generator) -> float:
        """Return one duration."""
        ...

    def cdf(self, seconds: float) -> float:
        """Return the share of durations that are no longer than `seconds`."""
        ...

    def quantile(self, level: float) -> float:
        """Return the least duration that a share `level`, in (0, 1], of all do not exceed."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same; it draws nothing."""

    seconds: float

    def draw(self, rng: Generator) -> float:
        """Return the constant."""
        return self.seconds

    def cdf(self, seconds: float) -> float:
        """Return 0 before the constant and 1 from it on."""
        return float(seconds >= self.seconds)

    def quantile(self, level: float) -> float:
        """Return the constant."""
        return self.seconds

    def __str__(self) -> str:
        return f"{self.seconds:g} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormal:
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
        if seconds <= 0:
            return 0.0
        return _STANDARD_NORMAL.cdf((log(seconds) - log(self.median_seconds)) / self.sigma)

    def quantile(self, level: float) -> float:
        """Return the quantile; that of level 1 is inf."""
        if level >= 1:
            return inf
        return self.median_seconds * exp(self.sigma * _STANDARD_NORMAL.inv_cdf(level))

    def __str__(self) -> str:
        return f"{self.median_seconds:g} s in the median, sigma {self.sigma:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Empirical:
    """Measured durations, each as likely as it was seen."""

    samples_seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.samples_seconds or not all(0 <= sample < inf for sample in self.samples_seconds):
            raise ConfigError(
                "empirical lead time: samples_seconds must be one or more finite values >= 0, got "
                f"{self.samples_seconds}"
            )
        object.__setattr__(self, "samples_seconds", tuple(sorted(self.samples_seconds)))

    def draw(self, rng: Generator) -> float:
        """Return one of the samples."""
        return self.samples_seconds[rng.integers(len(self.samples_seconds))]

    def cdf(self, seconds: float) -> float:
        """Return the share of samples that are no longer than `seconds`."""
        return bisect_right(self.samples_seconds, seconds) / len(self.samples_seconds)

    def quantile(self, level: float) -> float:
        """Return the least sample that a share `level` of all do not exceed."""
        size = len(self.samples_seconds)
        return self.samples_seconds[max(ceil(round(level * size, 9)), 1) - 1]

    def __str__(self) -> str:
        return f"{self.quantile(0.5):g} s in the median of {len(self.samples_seconds)}"


Duration = float | LogNormal | Empirical
"""A lead time as somebody writes it: a number of seconds is a constant."""


def lead_time(duration: Duration) -> LeadTime:
    """Return the distribution that a duration stands for."""
    return Constant(float(duration)) if isinstance(duration, int | float) else duration


def remaining_seconds(lead: LeadTime, age_seconds: float) -> float:
    """Return the median time that is left of a duration that has lasted `age_seconds`; 0 if it should be over."""
    level = (1.0 + lead.cdf(age_seconds)) / 2
    left = lead.quantile(min(level, _LAST_LEVEL)) - age_seconds
    return max(left, 0.0)
