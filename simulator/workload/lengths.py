"""Prompt and output lengths: log-normal, within limits."""

from dataclasses import dataclass
from math import log

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLengths:
    """A log-normal number of tokens, clipped to [1, largest]."""

    median: float
    sigma: float
    largest: int

    def draw(self, n: int, rng: Generator) -> NDArray[np.int64]:
        """Return `n` lengths in tokens, shape (n,)."""
        tokens = rng.lognormal(log(self.median), self.sigma, n)
        return np.clip(np.rint(tokens), 1, self.largest).astype(np.int64)


# Medians, means and 0.99 quantiles of the Azure LLM inference trace "conv", 2023 (Patel et al., Splitwise, ISCA 2024):
# prompts 1,020 / 1,155 / 4,142 and answers 129 / 211 / 601 tokens.
CONV_PROMPT = TokenLengths(median=930, sigma=0.66, largest=14_000)
CONV_OUTPUT = TokenLengths(median=150, sigma=0.85, largest=620)
