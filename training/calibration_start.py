"""A first guess of the costs of a step, by regression on the log alone: no replay."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from training.engine_logs import EngineLog

NUM_SAMPLES = 64  # moments at which the batch of a request's life is looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """Five costs of a step, by the names of `StepTime.closed_form`; > 0, for a search among logarithms."""

    step_seconds: float
    seconds_per_token: float
    seconds_per_context_token: float
    seconds_per_attention_pair: float
    seconds_per_sequence: float

    def as_coefficients(self) -> dict[str, float]:
        """Return the keyword arguments of `StepTime.closed_form`."""
        return {name: getattr(self, name) for name in self.__slots__}


def step_costs(log: EngineLog, rows: NDArray[np.int64]) -> StepCosts:
    """Return non-negative least-squares costs, from how long the requests at `rows` decoded and what ran meanwhile.

    An answer of m tokens takes m - 1 steps after the first token. Their total time is (m - 1) c0, plus c1 for each
    token of anybody in that time, c2 for each token of context read, c3 for each attention pair of the prompts that
    came in between, c4 for each token decoded (one a sequence). Tokens are spread evenly over an answer's life.
    """
    arrival, first, last = log.requests.arrival_seconds, log.first_token_at, log.finished_at
    prompt, output = log.requests.prompt_tokens, log.requests.output_tokens
    costs_of, seconds = [], []
    for i in rows[(output[rows] > 1) & (last[rows] > first[rows])]:
        moments = np.linspace(first[i], last[i], NUM_SAMPLES)[:, None]
        runs = (first <= moments) & (moments < last)
        progress = np.clip((moments - first) / np.maximum(last - first, 1e-9), 0, 1)
        steps = output[i] - 1
        decoded = steps * runs.sum(axis=1).mean()
        context = steps * (runs * (prompt + progress * output)).sum(axis=1).mean()
        came = (first > first[i]) & (first <= last[i]) & (arrival < last[i])
        prefilled, pairs = prompt[came].sum(), (prompt[came].astype(np.float64) ** 2).sum() / 2
        costs_of.append([steps, decoded + prefilled, context, pairs, decoded])
        seconds.append(last[i] - first[i])
    design, measured = np.array(costs_of, dtype=np.float64), np.array(seconds)
    # where nothing ever overlapped, a prompt's own size keeps the least of a cost below to a sensible size
    own_pairs = float((prompt[rows].astype(np.float64) ** 2).mean()) / 2
    scale = np.maximum(design.mean(axis=0), [1.0, 1.0, 1.0, own_pairs, 1.0])
    solution, _ = nnls(design / scale / measured[:, None], np.ones(measured.size))
    # of a cost that the regression sets to 0, a search by factors needs something: a hundredth of the time
    least = 0.01 * float(measured.mean())
    return StepCosts(**dict(zip(StepCosts.__slots__, np.maximum(solution, least) / scale, strict=True)))
