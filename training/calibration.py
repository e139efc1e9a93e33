"""Fit a step time to the log of a real engine: replay the log on one simulated replica until the times agree.

Fitted on the requests of the first half, scored on those of the second; both are replayed together, since they share
one backlog.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulator.profiles import EngineProfile
from simulator.step_time import StepTime
from training.calibration_search import CalibrationSearch
from training.calibration_start import StepCosts, step_costs
from training.engine_logs import EngineLog
from training.log_replay import QuantileError, halves, quantile_errors, replayed
from training.step_time_forms import FORMS, Form

MAX_REPLAYS = 12_000
START_ROUNDS = 5


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
        Of the requests to which it was fitted, by default the first half's, and of the second half's.
    """

    profile: EngineProfile
    overhead_seconds: float
    cost: float
    num_replays: int
    fit: tuple[QuantileError, ...]
    score: tuple[QuantileError, ...]


def calibrate(
    log: EngineLog,
    *,
    name: str,
    form: str,
    kv_blocks: int,
    max_num_seqs: int = 256,
    max_num_batched_tokens: int = 2048,
    block_size_tokens: int = 16,
    rows: NDArray[np.int64] | None = None,
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
    rows : ndarray of int64, optional
        The requests to fit, by default the first half's. With all of them the score is no test but says whether the
        form can come close at all.
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
    rows = halves(log)[0] if rows is None else rows
    costs = _first_costs(log, profile, rows)
    search = CalibrationSearch(log, profile, shape, costs, rows=rows, on_replay=on_replay)
    search.run(max_replays, np.random.default_rng(0))  # the same fit each time
    return _calibration(search)


def _first_costs(log: EngineLog, profile: EngineProfile, rows: NDArray[np.int64]) -> StepCosts:
    """Return costs by regression on `rows`; the times of the other requests are guessed by replays."""
    held_out = np.setdiff1d(np.arange(log.requests.num_requests), rows)
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


def _calibration(search: CalibrationSearch) -> Calibration:
    """Return what a search has found."""
    log = search.log
    profile, overhead = search.best_guess()
    replay = replayed(log, profile, overhead_seconds=overhead)
    fit = quantile_errors(log, replay, search.rows)
    errors = np.abs([error.error_ratio for error in fit])
    return Calibration(
        profile=replace(
            profile,
            fit_error_ratio=(float(errors.mean()), float(errors.max())),
            calibrated_batch_size=int(np.nan_to_num(replay.telemetry.column("running_requests")).max()),
            calibrated_step_tokens=profile.max_num_batched_tokens,
            calibrated_context_tokens=int((log.requests.prompt_tokens + log.requests.output_tokens).max()),
        ),
        overhead_seconds=overhead,
        cost=search.best[0],
        num_replays=search.num_replays,
        fit=fit,
        score=quantile_errors(log, replay, halves(log)[1]),
    )
