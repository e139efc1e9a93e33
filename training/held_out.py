"""A candidate and the champion on the same held-out rows, beside the trivial forecasts: what the gate looks at."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from forecaster.capacity import ReplicaCapacity
from forecaster.errors import InsufficientHistoryError
from forecaster.forecast import LEVELS, Forecaster
from forecaster.telemetry import Floats
from training.backtest import Backtest, backtest
from training.recorded_split import RecordedSplit

CANDIDATE, CHAMPION = "candidate", "champion"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutScores:
    """Losses at 30 s over the mean of the target, averaged over levels and targets; one a row, in order of time.

    Attributes
    ----------
    candidate, champion : ndarray of shape (n_rows,)
        Of the live mixture with the one or the other in it.
    candidate_alone, champion_alone : ndarray of shape (n_rows,)
        Of the models by themselves.
    trivial : ndarray of shape (n_rows,)
        Of the best trivial forecast of each target, chosen after the fact.
    coverage_ratio : ndarray of shape (n_levels,)
        Of the mixture with the candidate.
    trivial_names : tuple of str
        Which was best, one a target.
    """

    candidate: Floats
    champion: Floats
    candidate_alone: Floats
    champion_alone: Floats
    trivial: Floats
    coverage_ratio: Floats
    trivial_names: tuple[str, ...]


def held_out_scores(
    split: RecordedSplit,
    capacity: ReplicaCapacity,
    *,
    candidate: Forecaster,
    champion: Forecaster,
    progress: Callable[[int, int], None] | None = None,
) -> HeldOutScores:
    """Return the scores of both on the rows that are held out.

    Raises
    ------
    InsufficientHistoryError
        If not one row could be scored.
    """
    tests = backtest(split.scored_window, capacity, {CANDIDATE: candidate, CHAMPION: champion}, progress=progress)
    common = split.scored_at
    for test in tests:
        common = common[np.isin(common, test.row_at)]
    if not common.size:
        raise InsufficientHistoryError(
            "not one held-out row could be scored: a forecast or its outcome is unknown in each; look at the findings"
        )
    picked = [np.isin(test.row_at, common) for test in tests]

    def mean_of(name: str) -> Floats:
        return np.mean([test.losses(name)[rows] for test, rows in zip(tests, picked, strict=True)], axis=0)

    best = tuple(_best_trivial(test, rows) for test, rows in zip(tests, picked, strict=True))
    trivial = [test.losses(name)[rows] for test, name, rows in zip(tests, best, picked, strict=True)]
    covered = [
        (test.actual[rows, None] <= test.quantiles[CANDIDATE][rows]).mean(axis=0)
        for test, rows in zip(tests, picked, strict=True)
    ]
    return HeldOutScores(
        candidate=mean_of(CANDIDATE),
        champion=mean_of(CHAMPION),
        candidate_alone=mean_of(f"{CANDIDATE}, alone"),
        champion_alone=mean_of(f"{CHAMPION}, alone"),
        trivial=np.mean(trivial, axis=0),
        coverage_ratio=np.mean(covered, axis=0).reshape(len(LEVELS)),
        trivial_names=best,
    )


def _best_trivial(test: Backtest, rows: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> str:
    return min(test.trivial, key=lambda name: float(test.losses(name)[rows].mean()))
