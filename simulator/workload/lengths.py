"""Prompt and output lengths in tokens: log-normal within limits, or drawn from a measured distribution."""

from dataclasses import dataclass
from math import log
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from forecaster.errors import ConfigError
from forecaster.telemetry import Floats


class DrawsLengths(Protocol):
    """A distribution of lengths."""

    def draw(self, n: int, rng: Generator, /) -> NDArray[np.int64]:
        """Return `n` lengths in tokens, each >= 1, shape (n,)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLengths:
    """A log-normal number of tokens, clipped to [1, largest]; a `sigma` of 0 is a fixed length."""

    median: float
    sigma: float
    largest: int

    def __post_init__(self) -> None:
        if not (1 <= self.median <= self.largest and 0 <= self.sigma <= 10):
            raise ConfigError(
                f"token lengths: median must be in [1, largest] and sigma in [0, 10], got median={self.median}, "
                f"sigma={self.sigma}, largest={self.largest}"
            )

    def draw(self, n: int, rng: Generator) -> NDArray[np.int64]:
        """Return `n` lengths in tokens, shape (n,)."""
        tokens = rng.lognormal(log(self.median), self.sigma, n)
        return np.clip(np.rint(tokens), 1, self.largest).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLengths:
    """Lengths as they were counted, each with its probability.

    Attributes
    ----------
    tokens : ndarray of int64, shape (m,)
        Below 1 counts as 1 when drawn.
    probabilities : ndarray of float64, shape (m,)
        >= 0; scaled to a sum of 1.
    """

    tokens: NDArray[np.int64]
    probabilities: Floats

    def __post_init__(self) -> None:
        if self.tokens.size == 0 or self.tokens.shape != self.probabilities.shape:
            raise ValueError(
                f"measured lengths need one probability each, got {self.tokens.size} lengths and "
                f"{self.probabilities.size} probabilities"
            )
        if not (np.isfinite(self.probabilities).all() and self.probabilities.min() >= 0 < self.probabilities.sum()):
            raise ValueError("probabilities of lengths must be finite, >= 0 and not all 0")

    def draw(self, n: int, rng: Generator) -> NDArray[np.int64]:
        """Return `n` lengths in tokens, shape (n,)."""
        return np.maximum(self.draw_or_none(n, rng), 1)

    def draw_or_none(self, n: int, rng: Generator) -> NDArray[np.int64]:
        """Return `n` lengths as they were counted, which may be 0: of a part that a prompt may lack."""
        cumulative = np.cumsum(self.probabilities)
        at = np.searchsorted(cumulative, rng.random(n) * cumulative[-1], side="right")
        return self.tokens[np.minimum(at, self.tokens.size - 1)]

    @property
    def mean(self) -> float:
        """Mean length in tokens."""
        return float(self.tokens @ self.probabilities / self.probabilities.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class SummedLengths:
    """A prompt of several parts, such as text and images, each with measured lengths of its own."""

    parts: tuple[MeasuredLengths, ...]

    def draw(self, n: int, rng: Generator) -> NDArray[np.int64]:
        """Return `n` lengths in tokens, shape (n,)."""
        return np.asarray(np.maximum(sum(part.draw_or_none(n, rng) for part in self.parts), 1))


# Medians, means and 0.99 quantiles of the Azure LLM inference trace "conv", 2023 (Patel et al., Splitwise, ISCA 2024):
# prompts 1,020 / 1,155 / 4,142 and answers 129 / 211 / 601 tokens.
CONV_PROMPT = TokenLengths(median=930, sigma=0.66, largest=14_000)
CONV_OUTPUT = TokenLengths(median=150, sigma=0.85, largest=620)
