"""How long one engine step takes, from what is in its batch."""

from dataclasses import dataclass

import numpy as np

from forecaster.errors import ConfigError
from forecaster.telemetry import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Step time = g(tokens) + a C + b Q + c sequences.

    `tokens` is what the step computes (prompt chunks plus one per decoding sequence): the matrix multiplications, with
    a floor where reading the weights dominates. C is the context read by decode attention, summed over sequences; Q
    is sum of chunk x (prefix + chunk / 2), the quadratic attention of prefill.

    Attributes
    ----------
    token_knots : tuple of int
        Token counts at which g is given, increasing; linear between them and beyond the last.
    knot_seconds : tuple of float, seconds
        g at the knots, non-decreasing.
    seconds_per_decode_context_token : float
        a.
    seconds_per_prefill_attention : float
        b, per token pair.
    seconds_per_sequence : float
        c, for scheduling and sampling.
    """

    token_knots: tuple[int, ...]
    knot_seconds: tuple[float, ...]
    seconds_per_decode_context_token: float
    seconds_per_prefill_attention: float
    seconds_per_sequence: float = 0.0

    def __post_init__(self) -> None:
        problems = []
        if len(self.token_knots) < 2 or len(self.token_knots) != len(self.knot_seconds):
            problems.append("token_knots and knot_seconds must have the same length, at least 2")
        if list(self.token_knots) != sorted(set(self.token_knots)) or self.token_knots[0] < 1:
            problems.append(f"token_knots must increase from 1 or more, got {self.token_knots}")
        if list(self.knot_seconds) != sorted(self.knot_seconds) or self.knot_seconds[0] <= 0:
            problems.append(f"knot_seconds must be > 0 and not decrease, got {self.knot_seconds}")
        coefficients = (
            self.seconds_per_decode_context_token,
            self.seconds_per_prefill_attention,
            self.seconds_per_sequence,
        )
        if not all(np.isfinite(value) and value >= 0 for value in coefficients):
            problems.append(f"coefficients must be finite and >= 0, got {coefficients}")
        if problems:
            raise ConfigError.from_problems("step time", problems)

    def token_seconds(self, max_tokens: int) -> Floats:
        """Return g(0), ..., g(max_tokens) in seconds, shape (max_tokens + 1,): the table that the engine reads."""
        knots = np.array(self.token_knots, dtype=np.float64)
        seconds = np.array(self.knot_seconds)
        tokens = np.arange(max_tokens + 1, dtype=np.float64)
        slope = (seconds[-1] - seconds[-2]) / (knots[-1] - knots[-2])
        beyond = seconds[-1] + (tokens - knots[-1]) * slope
        return np.where(tokens > knots[-1], beyond, np.interp(tokens, knots, seconds))

    def decode_seconds(self, max_sequences: int) -> Floats:
        """Return the time of a step that only decodes, by batch size: shape (max_sequences + 1, 2).

        Column 0 is the part without context, in seconds, column 1 what each token of context adds.
        """
        sequences = np.arange(max_sequences + 1)
        without_context = self.token_seconds(max_sequences) + self.seconds_per_sequence * sequences
        return np.column_stack([without_context, np.full(sequences.size, self.seconds_per_decode_context_token)])

    def seconds(
        self,
        *,
        prefill_tokens: float = 0.0,
        prefix_tokens: float = 0.0,
        num_decodes: int = 0,
        mean_context_tokens: float = 0.0,
    ) -> float:
        """Return the duration in seconds of one step with one prompt chunk and `num_decodes` decoding sequences."""
        tokens = round(prefill_tokens) + num_decodes
        sequences = num_decodes + (1 if prefill_tokens else 0)
        return float(
            self.token_seconds(tokens)[tokens]
            + self.seconds_per_decode_context_token * num_decodes * mean_context_tokens
            + self.seconds_per_prefill_attention * prefill_tokens * (prefix_tokens + prefill_tokens / 2)
            + self.seconds_per_sequence * sequences
        )
