"""The forms of step time that can be fitted: what their parameters are and where a search starts."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np

from forecaster.telemetry import Floats
from simulator.step_time import StepTime
from training.calibration_start import StepCosts

TOKEN_KNOTS = (1, 256, 1024, 2048, 8192)
DECODE_KNOTS = (1, 8, 32, 64, 128, 256, 512)


class Form(Protocol):
    """A step time with positive parameters."""

    def __init__(self, *, max_num_seqs: int, max_num_batched_tokens: int) -> None: ...

    def start(self, costs: StepCosts) -> Floats:
        """Return the parameters that come closest to first costs."""
        ...

    def step_time(self, parameters: Floats) -> StepTime:
        """Return the step time of positive parameters."""
        ...


class ClosedForm:
    """Five coefficients."""

    def __init__(self, *, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        pass

    def start(self, costs: StepCosts) -> Floats:
        """Return the costs themselves."""
        return np.array(list(costs.as_coefficients().values()))

    def step_time(self, parameters: Floats) -> StepTime:
        """Return the closed form of the parameters."""
        names = StepCosts.__slots__
        return StepTime.closed_form(**dict(zip(names, parameters.tolist(), strict=True)))


class PointsForm:
    """A table by tokens, one by batch size for steps that only decode, and the costs of attention.

    Parameters are the first value of each table and the increments to the next knots, so that tables rise; then the
    context costs of mixed steps and of steps that only decode, and the cost of attention pairs.
    """

    def __init__(self, *, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        self.token_knots = _up_to(TOKEN_KNOTS, max_num_batched_tokens)
        self.decode_knots = _up_to(DECODE_KNOTS, max(max_num_seqs, 2))

    def start(self, costs: StepCosts) -> Floats:
        """Return tables that follow the costs' straight lines."""
        per_sequence = costs.seconds_per_token + costs.seconds_per_sequence
        return np.concatenate(
            [
                [costs.step_seconds + costs.seconds_per_token],
                costs.seconds_per_token * np.diff(self.token_knots),
                [costs.step_seconds + per_sequence],
                per_sequence * np.diff(self.decode_knots),
                [costs.seconds_per_context_token, costs.seconds_per_context_token, costs.seconds_per_attention_pair],
            ]
        )

    def step_time(self, parameters: Floats) -> StepTime:
        """Return the step time of the tables; where decoding would exceed a mixed step, it takes as long as that."""
        num_tokens = len(self.token_knots)
        tokens, decode, (context, decode_context, pairs) = np.split(parameters, [num_tokens, parameters.size - 3])
        token_seconds, decode_seconds = np.cumsum(tokens), np.cumsum(decode)
        # both are straight between these, and so is the smaller of the two then
        last = self.decode_knots[-1]
        knots = sorted({*self.decode_knots, *(k - 1 for k in self.token_knots if 1 < k <= last + 1)})
        mixed = np.interp(np.array(knots) + 1, self.token_knots, token_seconds)
        base = np.minimum(np.interp(knots, self.decode_knots, decode_seconds), mixed)
        return StepTime(
            token_knots=self.token_knots,
            knot_seconds=tuple(token_seconds.tolist()),
            seconds_per_decode_context_token=float(context),
            seconds_per_prefill_attention=float(pairs),
            decode_knots=tuple(knots),
            decode_knot_seconds=tuple(base.tolist()),
            decode_knot_context_seconds=(float(min(context, decode_context)),) * len(knots),
        )


def _up_to(knots: tuple[int, ...], most: int) -> tuple[int, ...]:
    return (*(knot for knot in knots if knot < most), most)


FORMS: Mapping[str, type[PointsForm] | type[ClosedForm]] = MappingProxyType(
    {"points": PointsForm, "closed": ClosedForm}
)
