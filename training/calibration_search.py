"""The search for the step time under which a replay comes closest to a log."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from forecaster.telemetry import Floats
from simulator.profiles import EngineProfile
from training.calibration_start import StepCosts
from training.engine_logs import EngineLog
from training.log_replay import LEVELS, replayed
from training.step_time_forms import Form

QUANTILE_WEIGHT = 3.0  # of a quantile's residual beside the mean over requests: quantiles are what is promised
OVERHEAD_START_SECONDS = 0.002
NUM_STARTS = 8  # a search ends in the next hollow; it takes some seconds to try several
START_SPREAD = 0.3  # of the logarithms
START_WEIGHT = 0.01  # a weak pull: the log does not tell every parameter
RESIDUAL_SCALE = 0.1  # beyond errors of about so much, squares grow like their roots: one odd request must not decide
# A replay is a step function of the parameters (a request joins this step or the next): a derivative over less than
# a few percent sees only the jumps. One stage for each.
DIFFERENCE_RATIOS = (0.2, 0.1, 0.05, 0.02)


class CalibrationSearch:
    """Least squares on the logarithms of the form's parameters and of the overhead, over the requests at `rows`."""

    def __init__(
        self,
        log: EngineLog,
        profile: EngineProfile,
        form: Form,
        costs: StepCosts,
        *,
        rows: NDArray[np.int64],
        on_replay: Callable[[int], None] | None,
    ) -> None:
        self.log = log
        self.profile = profile
        self.form = form
        self.start = np.log(np.append(form.start(costs), OVERHEAD_START_SECONDS))
        self.rows = rows
        self.num_replays = 0
        self.best = (np.inf, self.start)
        self._on_replay = on_replay

    def run(self, max_replays: int, rng: np.random.Generator) -> None:
        """Move `best` downhill from the first guess and from others around it, in ever smaller steps."""
        per_stage = max_replays // (NUM_STARTS * len(DIFFERENCE_RATIOS) * (2 * self.start.size + 1))
        overall = self.best
        for i in range(NUM_STARTS):
            away = rng.normal(0.0, START_SPREAD, self.start.size) if i else 0.0
            self.best = (np.inf, self.start + away)
            for difference in DIFFERENCE_RATIOS:
                self._descend(difference, max(per_stage, 1))
            overall = min(overall, self.best, key=lambda found: found[0])
        self.best = overall

    def _descend(self, difference: float, max_steps: int) -> None:
        least_squares(
            self._residuals,
            self.best[1],
            jac=lambda at: self._jacobian(at, difference),
            max_nfev=max_steps,
            loss="soft_l1",
            f_scale=RESIDUAL_SCALE,
        )

    def best_guess(self) -> tuple[EngineProfile, float]:
        """Return the profile that was found, and the overhead in seconds."""
        return self._at(self.best[1])

    def _at(self, logarithms: Floats) -> tuple[EngineProfile, float]:
        values = np.exp(np.clip(logarithms, -60, 5))
        return replace(self.profile, step_time=self.form.step_time(values[:-1])), float(values[-1])

    def _jacobian(self, at: Floats, difference: float) -> Floats:
        both = [
            (self._residuals(at + move) - self._residuals(at - move)) / (2 * difference)
            for move in np.eye(at.size) * difference
        ]
        return np.array(both).T

    def _residuals(self, logarithms: Floats) -> Floats:
        profile, overhead = self._at(logarithms)
        replay = replayed(self.log, profile, overhead_seconds=overhead)
        pairs = (
            (self.log.ttft_seconds[self.rows], replay.ttft_seconds[self.rows]),
            (self.log.e2e_seconds[self.rows], replay.e2e_seconds[self.rows]),
        )
        of_requests = [np.log(ours / theirs) / np.sqrt(self.rows.size) for theirs, ours in pairs]
        of_quantiles = [
            QUANTILE_WEIGHT * np.log(np.quantile(ours, LEVELS) / np.quantile(theirs, LEVELS)) / len(LEVELS)
            for theirs, ours in pairs
        ]
        pull = START_WEIGHT * (logarithms - self.start)
        residuals = np.concatenate([*of_requests, *of_quantiles, pull])
        self.num_replays += 1
        if self._on_replay:
            self._on_replay(self.num_replays)
        cost = float(np.sum(np.sqrt(1 + (residuals / RESIDUAL_SCALE) ** 2) - 1))
        if cost < self.best[0]:
            self.best = (cost, logarithms)
        return residuals
