"""Fit a step time to the log of a real engine: replay the log on one simulated replica until the times agree.

Fitted on the requests of the first half, scored on those of the second; both are replayed together, since they share
one backlog.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from forecaster.telemetry import Floats, TelemetryWindow
from simulator.profiles import EngineProfile
from simulator.static_fleet import simulate_static
from simulator.step_time import StepTime
from training.calibration_start import StepCosts, step_costs
from training.engine_logs import EngineLog
from training.step_time_forms import FORMS, Form

LEVELS = (0.5, 0.9, 0.99)
QUANTILE_WEIGHT = 3.0  # of a quantile's residual beside the mean over requests: quantiles are what is promised
OVERHEAD_START_SECONDS = 0.002
MAX_REPLAYS = 12_000
NUM_STARTS = 8  # a search ends in the next hollow; it takes some seconds to try several
START_SPREAD = 0.3  # of the logarithms
START_WEIGHT = 0.01  # a weak pull: the log does not tell every parameter
RESIDUAL_SCALE = 0.1  # beyond errors of about so much, squares grow like their roots: one odd request must not decide
START_ROUNDS = 5
# A replay is a step function of the parameters (a request joins this step or the next): a derivative over less than
# a few percent sees only the jumps. One stage for each.
DIFFERENCE_RATIOS = (0.2, 0.1, 0.05, 0.02)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a simulated replica makes of a log.

    Attributes
    ----------
    ttft_seconds, e2e_seconds : ndarray of float64, shape (n,)
        Overhead included.
    telemetry : TelemetryWindow
        A row a second.
    """

    ttft_seconds: Floats
    e2e_seconds: Floats
    telemetry: TelemetryWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A fitted profile.

    Attributes
    ----------
    profile : EngineProfile
    overhead_seconds : float
        Added to TTFT and end-to-end time of each request: what passes between the queue and the engine's first step,
        apart from the steps themselves. It is no part of the profile.
    cost : float
        What the fit minimised, of the first half: comparable between fits to one log, for choosing among settings.
    num_replays : int
        How many replays the fit took.
    fit, score : tuple of QuantileError
        Of the first half's requests, to which it was fitted, and of the second half's.
    """

    profile: EngineProfile
    overhead_seconds: float
    cost: float
    num_replays: int
    fit: "tuple[QuantileError, ...]"
    score: "tuple[QuantileError, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileError:
    """One quantile, measured and replayed, in seconds.

    Attributes
    ----------
    measure : str
        "ttft" or "e2e".
    level : float
    measured_seconds, replayed_seconds : float
    """

    measure: str
    level: float
    measured_seconds: float
    replayed_seconds: float

    @property
    def error_ratio(self) -> float:
        """Relative error of the replay, signed."""
        return self.replayed_seconds / self.measured_seconds - 1


def halves(log: EngineLog) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of the first and of the second half of the requests, by arrival."""
    rows = np.arange(log.requests.num_requests)
    middle = rows.size // 2
    return rows[:middle], rows[middle:]


def replayed(log: EngineLog, profile: EngineProfile, *, overhead_seconds: float) -> Replay:
    """Return what one replica of `profile` makes of the log; a request that does not end in time ends at the limit.

    Raises
    ------
    ValueError
        If a request is longer than the whole KV cache.
    """
    # far slower than the log is as bad as it gets; the bound keeps a bad guess from running for ever
    limit = float(ceil(2 * log.finished_at.max()) + 10)
    result = simulate_static(log.requests, profile, num_replicas=1, duration_seconds=limit)
    arrival = log.requests.arrival_seconds
    return Replay(
        ttft_seconds=np.nan_to_num(result.first_token_at, nan=limit) - arrival + overhead_seconds,
        e2e_seconds=np.nan_to_num(result.finished_at, nan=limit) - arrival + overhead_seconds,
        telemetry=result.telemetry,
    )


def quantile_errors(log: EngineLog, replay: Replay, rows: NDArray[np.int64]) -> tuple[QuantileError, ...]:
    """Return p50, p90 and p99 of TTFT and of end-to-end time of the requests at `rows`."""
    pairs = (
        ("ttft", log.ttft_seconds, replay.ttft_seconds),
        ("e2e", log.e2e_seconds, replay.e2e_seconds),
    )
    return tuple(
        QuantileError(
            measure=measure,
            level=level,
            measured_seconds=float(np.quantile(measured[rows], level)),
            replayed_seconds=float(np.quantile(seconds[rows], level)),
        )
        for measure, measured, seconds in pairs
        for level in LEVELS
    )


def calibrate(
    log: EngineLog,
    *,
    name: str,
    form: str,
    kv_blocks: int,
    max_num_seqs: int = 256,
    max_num_batched_tokens: int = 2048,
    block_size_tokens: int = 16,
    max_replays: int = MAX_REPLAYS,
    on_replay: Callable[[int], None] | None = None,
) -> Calibration:
    """Return the profile under which a replay comes closest to the log's first half.

    Parameters
    ----------
    form : str
        "points" (table of tokens, and one of steps that only decode) or "closed" (five coefficients).
    kv_blocks, max_num_seqs, max_num_batched_tokens, block_size_tokens : int
        As the engine that wrote the log ran.
    max_replays : int
        About how many replays the fit may take.
    on_replay : callable, optional
        Called with the number of replays so far, for progress.

    Raises
    ------
    ValueError
        If no form is called so, or the log does not fit the engine's limits.
    """
    if form not in FORMS:
        raise ValueError(f"no form is called {form!r}; known: {', '.join(FORMS)}")
    shape: Form = FORMS[form](max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)
    profile = EngineProfile(
        name=name,
        gpus_per_replica=1,
        kv_blocks=kv_blocks,
        block_size_tokens=block_size_tokens,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        step_time=StepTime(
            token_knots=(1, 2),
            knot_seconds=(1.0, 1.0),
            seconds_per_decode_context_token=0.0,
            seconds_per_prefill_attention=0.0,
        ),  # replaced by each guess
        fit_error_ratio=(0.0, 0.0),
    )
    costs = _first_costs(log, profile)
    search = _Search(log, profile, shape, costs, on_replay=on_replay)
    search.run(max_replays, np.random.default_rng(0))  # the same fit each time
    return search.calibration()


def _first_costs(log: EngineLog, profile: EngineProfile) -> StepCosts:
    """Return costs by regression on the first half, where the times of held-out requests are guessed by replays."""
    rows, held_out = halves(log)
    arrival = log.requests.arrival_seconds
    first, finished = log.first_token_at.copy(), log.finished_at.copy()
    first[held_out] = finished[held_out] = arrival[held_out]  # as if they took no time: all that is known at first
    for _ in range(START_ROUNDS):
        costs = step_costs(replace(log, first_token_at=first, finished_at=finished), rows)
        guess = replace(profile, step_time=StepTime.closed_form(**costs.as_coefficients()))
        replay = replayed(log, guess, overhead_seconds=0.0)
        first[held_out] = (arrival + replay.ttft_seconds)[held_out]
        finished[held_out] = (arrival + replay.e2e_seconds)[held_out]
    return costs


class _Search:
    """Least squares on the logarithms of the form's parameters and of the overhead."""

    def __init__(
        self,
        log: EngineLog,
        profile: EngineProfile,
        form: Form,
        costs: StepCosts,
        *,
        on_replay: Callable[[int], None] | None,
    ) -> None:
        self.log = log
        self.profile = profile
        self.form = form
        self.start = np.log(np.append(form.start(costs), OVERHEAD_START_SECONDS))
        self.rows, self.held_out = halves(log)
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

    def calibration(self) -> Calibration:
        """Return what was found."""
        profile, overhead = self._at(self.best[1])
        replay = replayed(self.log, profile, overhead_seconds=overhead)
        fit = quantile_errors(self.log, replay, self.rows)
        errors = np.abs([error.error_ratio for error in fit])
        requests = self.log.requests
        return Calibration(
            profile=replace(
                profile,
                fit_error_ratio=(float(errors.mean()), float(errors.max())),
                calibrated_batch_size=int(np.nan_to_num(replay.telemetry.column("running_requests")).max()),
                calibrated_step_tokens=profile.max_num_batched_tokens,
                calibrated_context_tokens=int((requests.prompt_tokens + requests.output_tokens).max()),
            ),
            overhead_seconds=overhead,
            cost=self.best[0],
            num_replays=self.num_replays,
            fit=fit,
            score=quantile_errors(self.log, replay, self.held_out),
        )

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
