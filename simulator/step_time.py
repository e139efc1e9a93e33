"""How long one engine step takes, from what is in its batch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import ConfigError
from forecaster.telemetry import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Step time = g(tokens) + a C + b Q + c sequences; of steps that only decode, base(sequences) + slope(sequences) C.

    `tokens` is what the step computes (prompt chunks plus one per decoding sequence): the matrix multiplications, with
    a floor where reading the weights dominates. C is the context read by decode attention, summed over sequences; Q
    is sum of chunk x (prefix + chunk / 2), the quadratic attention of prefill. Engines run a step that only decodes
    faster than one of as many tokens with a prompt chunk (CUDA graphs, decode kernels), hence its own two columns.
    More tokens, context or sequences never take less time.

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
    decode_knots : tuple of int
        Batch sizes at which base and slope are given, increasing; empty: a step that only decodes follows the formula.
    decode_knot_seconds : tuple of float, seconds
        Base at those, non-decreasing; linear between them and, up to the time of a step with a prompt token besides,
        beyond the last.
    decode_knot_context_seconds : tuple of float, seconds per token of context
        Slope at those, at most a. The slope may fall with the batch size but batch size x slope may not; that product
        is linear between knots. Below the first and beyond the last the slope stays.
    """

    token_knots: tuple[int, ...]
    knot_seconds: tuple[float, ...]
    seconds_per_decode_context_token: float
    seconds_per_prefill_attention: float
    seconds_per_sequence: float = 0.0
    decode_knots: tuple[int, ...] = ()
    decode_knot_seconds: tuple[float, ...] = ()
    decode_knot_context_seconds: tuple[float, ...] = ()

    @classmethod
    def closed_form(
        cls,
        *,
        step_seconds: float,
        seconds_per_token: float,
        seconds_per_context_token: float,
        seconds_per_attention_pair: float,
        seconds_per_sequence: float,
    ) -> "StepTime":
        """Return c0 + c1 tokens + c2 context + c3 attention pairs + c4 sequences, the arguments in this order."""
        return cls(
            token_knots=(1, 2),
            knot_seconds=(step_seconds + seconds_per_token, step_seconds + 2 * seconds_per_token),
            seconds_per_decode_context_token=seconds_per_context_token,
            seconds_per_prefill_attention=seconds_per_attention_pair,
            seconds_per_sequence=seconds_per_sequence,
        )

    def __post_init__(self) -> None:
        problems = self._problems_of_formula()
        if not problems and self.decode_knots:
            problems = self._problems_of_decode_knots()
        if problems:
            raise ConfigError.from_problems("step time", problems)

    def _problems_of_formula(self) -> list[str]:
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
        return problems

    def _problems_of_decode_knots(self) -> list[str]:
        knots, base, slope = self.decode_knots, self.decode_knot_seconds, self.decode_knot_context_seconds
        if not len(knots) == len(base) == len(slope) >= 2:
            return ["decode_knots and both of their columns must have the same length, at least 2"]
        if list(knots) != sorted(set(knots)) or knots[0] < 1:
            return [f"decode_knots must increase from 1 or more, got {knots}"]
        problems = []
        if not np.isfinite(base).all() or list(base) != sorted(base) or base[0] <= 0:
            problems.append(f"decode_knot_seconds must be > 0 and not decrease, got {base}")
        product = np.multiply(knots, slope)
        # in floating point a constant product may seem to fall by the last digit
        if not np.isfinite(product).all() or product[0] < 0 or (np.diff(product) < -1e-9 * product[1:]).any():
            problems.append(f"batch size x decode_knot_context_seconds must be >= 0 and not decrease, got {slope}")
        return problems or self._problems_between()

    def _problems_between(self) -> list[str]:
        """Return where adding a prompt token to a step that only decodes would make it faster, if anywhere.

        Both are linear in the batch size between the knots of either, so the knots tell of all sizes up to the last.
        """
        sizes = np.array(sorted({*self.decode_knots, *(k - 1 for k in self.token_knots if k > 1)}))
        sizes = sizes[sizes <= self.decode_knots[-1]]
        decode = self.decode_seconds(int(sizes[-1]))[sizes]
        mixed = self.token_seconds(int(sizes[-1]) + 1)[sizes + 1] + self.seconds_per_sequence * (sizes + 1)
        most_context_seconds = self.seconds_per_decode_context_token * (1 + 1e-9)
        slower = (decode[:, 0] > mixed * (1 + 1e-9)) | (decode[:, 1] > most_context_seconds)
        if not slower.any():
            return []
        at = int(np.argmax(slower))
        return [
            f"a step of {sizes[at]} decoding sequences takes {decode[at, 0]:.4g} s + {decode[at, 1]:.4g} s per token "
            f"of context, more than with a prompt token besides ({mixed[at]:.4g}, "
            f"{self.seconds_per_decode_context_token:.4g})"
        ]

    def token_seconds(self, max_tokens: int) -> Floats:
        """Return g(0), ..., g(max_tokens) in seconds, shape (max_tokens + 1,): the table that the engine reads."""
        return _piecewise_linear(np.arange(max_tokens + 1), self.token_knots, self.knot_seconds)

    def decode_seconds(self, max_sequences: int) -> Floats:
        """Return the time of a step that only decodes, by batch size: shape (max_sequences + 1, 2).

        Column 0 is the part without context, in seconds, column 1 what each token of context adds.
        """
        sequences = np.arange(max_sequences + 1)
        if not self.decode_knots:
            without_context = self.token_seconds(max_sequences) + self.seconds_per_sequence * sequences
            return np.column_stack([without_context, np.full(sequences.size, self.seconds_per_decode_context_token)])
        knots = np.array(self.decode_knots, dtype=np.float64)
        within = np.clip(sequences, knots[0], knots[-1])
        slope = np.interp(within, knots, knots * self.decode_knot_context_seconds) / within
        base = _piecewise_linear(sequences, self.decode_knots, self.decode_knot_seconds)
        with_prompt = self.token_seconds(max_sequences + 1)[1:] + self.seconds_per_sequence * (sequences + 1)
        # beyond the last knot the two lines may cross; up to there they do not
        return np.column_stack([np.where(sequences > knots[-1], np.minimum(base, with_prompt), base), slope])

    def seconds(
        self,
        *,
        prefill_tokens: float = 0.0,
        prefix_tokens: float = 0.0,
        num_decodes: int = 0,
        mean_context_tokens: float = 0.0,
    ) -> float:
        """Return the duration in seconds of one step with one prompt chunk and `num_decodes` decoding sequences."""
        if not prefill_tokens:
            base, slope = self.decode_seconds(num_decodes)[num_decodes]
            return float(base + slope * num_decodes * mean_context_tokens)
        tokens = round(prefill_tokens) + num_decodes
        return float(
            self.token_seconds(tokens)[tokens]
            + self.seconds_per_decode_context_token * num_decodes * mean_context_tokens
            + self.seconds_per_prefill_attention * prefill_tokens * (prefix_tokens + prefill_tokens / 2)
            + self.seconds_per_sequence * (num_decodes + 1)
        )


def _piecewise_linear(at: NDArray[np.int64], knots: tuple[int, ...], seconds: tuple[float, ...]) -> Floats:
    """Return seconds at the counts `at`: constant below the first knot, linear between knots and beyond the last."""
    slope = (seconds[-1] - seconds[-2]) / (knots[-1] - knots[-2])
    beyond = seconds[-1] + (at - knots[-1]) * slope
    return np.where(at > knots[-1], beyond, np.interp(at, knots, seconds))
