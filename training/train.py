"""Fit, calibrate and score one model on generated fleets.

Runs are split whole: most fit the boosters, others set the conformal offsets, the rest are scored once. Everything
follows from the seed; the number of workers changes nothing but the time.
"""

import platform
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.random import SeedSequence

from forecaster.forecast import LEVELS, TARGETS
from models.artifact import ModelArtifact
from models.conformal import conformal_offsets
from models.lightgbm_quantile import LightGBMQuantileForecaster
from models.model_forecaster import MODEL_COLUMNS
from simulator.static_fleet import simulate_static
from training.datasets import HORIZONS_SECONDS, Dataset, joined, run_dataset
from training.generated_fleets import generated_fleet
from training.scores import ForecastScores, forecast_scores

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many steps are done, and how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """How a model is trained.

    Attributes
    ----------
    num_fleets : int
        Generated fleets. More of them help more than more rows of each: a run has few bursts.
    calibration_ratio, test_ratio : float
        Share of the fleets held out for the offsets and for the scores.
    stride_seconds : int
        Distance of the cutoffs within a run.
    num_trees, num_leaves, min_rows_in_leaf : int
    learning_rate : float
    seed : int
    num_workers : int
        Processes that simulate, then threads that fit; the result does not depend on it.
    """

    num_fleets: int = 480
    calibration_ratio: float = 0.2
    test_ratio: float = 0.15
    stride_seconds: int = 10
    num_trees: int = 40
    num_leaves: int = 15
    min_rows_in_leaf: int = 200
    learning_rate: float = 0.15
    seed: int = 0
    num_workers: int = 2

    def __post_init__(self) -> None:
        if self.num_fleets < 3:
            raise ValueError(f"num_fleets must be >= 3, one each to fit, calibrate and score, got {self.num_fleets}")
        if not (0 < self.calibration_ratio < 1 and 0 < self.test_ratio < 1 - self.calibration_ratio):
            raise ValueError(
                f"calibration_ratio and test_ratio must be > 0 and leave something to fit, got "
                f"{self.calibration_ratio} and {self.test_ratio}"
            )

    @property
    def split(self) -> tuple[range, range, range]:
        """Numbers of the fleets to fit, to calibrate and to score, at least one each."""
        num_test = max(round(self.num_fleets * self.test_ratio), 1)
        num_calibration = max(round(self.num_fleets * self.calibration_ratio), 1)
        fit = self.num_fleets - num_test - num_calibration
        return range(fit), range(fit, fit + num_calibration), range(fit + num_calibration, self.num_fleets)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """A trained model and how it did on runs that it had not seen."""

    artifact: ModelArtifact
    scores: ForecastScores


def train(settings: TrainingSettings, *, progress: Progress | None = None) -> TrainingResult:
    """Return a fitted, calibrated and scored model.

    Raises
    ------
    ValueError
        If there are too few fleets to calibrate the highest level.
    """
    tell = progress or silent
    data = generated_dataset(settings, progress=tell)
    fit_runs, calibration_runs, test_runs = settings.split
    artifact = fitted_artifact(data.of_runs(fit_runs), data.of_runs(calibration_runs), settings, progress=tell)
    test = data.of_runs(test_runs)
    tell("scoring", 0, 1)
    scores = forecast_scores(artifact, test, climatology=data.of_runs(fit_runs))
    return TrainingResult(
        artifact=replace(artifact, provenance=_provenance(settings, data), metrics=scores.to_json()),
        scores=scores,
    )


def fitted_artifact(
    fit: Dataset, calibration: Dataset, settings: TrainingSettings, *, progress: Progress | None = None
) -> ModelArtifact:
    """Return a model fitted on some rows and calibrated on others, wherever they are from; it says nothing of itself.

    Raises
    ------
    ValueError
        If there are too few rows to fit, or to calibrate the highest level.
    """
    fitted = _fitted(fit, settings, progress or silent)
    offsets = conformal_offsets(
        _outputs(calibration), fitted.predict_quantiles(calibration.features[:, MODEL_COLUMNS]), levels=LEVELS
    )
    return ModelArtifact(
        booster_texts=fitted.booster_texts_,
        targets=TARGETS,
        horizons_seconds=tuple(float(horizon) for horizon in HORIZONS_SECONDS),
        levels=LEVELS,
        offsets=offsets.reshape(len(TARGETS), len(HORIZONS_SECONDS), len(LEVELS)),
    )


def generated_dataset(settings: TrainingSettings, *, progress: Progress | None = None) -> Dataset:
    """Return the rows of all generated fleets, one run a fleet."""
    tell = progress or silent
    parts = []
    tell("simulating fleets", 0, settings.num_fleets)
    for part in _fleet_datasets(settings):
        parts.append(part)
        tell("simulating fleets", len(parts), settings.num_fleets)
    return joined(parts)


def _fleet_datasets(settings: TrainingSettings) -> Iterator[Dataset]:
    seeds = SeedSequence(settings.seed).spawn(settings.num_fleets)
    jobs = [(run, seed, settings.stride_seconds) for run, seed in enumerate(seeds)]
    if settings.num_workers <= 1:
        yield from map(_fleet_dataset, jobs)
        return
    with ProcessPoolExecutor(settings.num_workers) as pool:
        yield from pool.map(_fleet_dataset, jobs, chunksize=4)


def _fleet_dataset(job: tuple[int, SeedSequence, int]) -> Dataset:
    """Return the rows of one fleet: features of the run that was seen, targets of one with replicas in plenty."""
    run, seed, stride_seconds = job
    fleet = generated_fleet(np.random.default_rng(seed))
    telemetry = [
        simulate_static(
            fleet.requests, fleet.profile, num_replicas=num_replicas, duration_seconds=fleet.duration_seconds
        ).telemetry
        for num_replicas in (fleet.seen_replicas, fleet.ample_replicas)
    ]
    return run_dataset(telemetry[0], fleet.profile.capacity, ample=telemetry[1], run=run, stride_seconds=stride_seconds)


def _fitted(data: Dataset, settings: TrainingSettings, tell: Progress) -> LightGBMQuantileForecaster:
    estimator = LightGBMQuantileForecaster(
        levels=LEVELS,
        num_trees=settings.num_trees,
        num_leaves=settings.num_leaves,
        learning_rate=settings.learning_rate,
        min_rows_in_leaf=settings.min_rows_in_leaf,
        n_jobs=settings.num_workers,
        random_state=settings.seed,
    )
    return estimator.fit(
        data.features[:, MODEL_COLUMNS],
        _outputs(data),
        progress=lambda done, total: tell("fitting boosters", done, total),
    )


def _outputs(data: Dataset) -> Any:
    """Return the targets as the estimator's columns, targets outermost, then horizons."""
    return data.log_ratios.reshape(data.num_rows, -1)


def _provenance(settings: TrainingSettings, data: Dataset) -> dict[str, Any]:
    """Return where the model came from; nothing that differs between two runs of one seed."""
    fit_runs, calibration_runs, test_runs = settings.split
    return {
        "data": "generated fleets (training/generated_fleets.py)",
        "seed": settings.seed,
        "num_fleets": {"fit": len(fit_runs), "calibration": len(calibration_runs), "test": len(test_runs)},
        "num_rows": data.num_rows,
        "stride_seconds": settings.stride_seconds,
        "last_cutoff_seconds": float(data.cutoff_at.max()),
        "purge_seconds": max(HORIZONS_SECONDS),
        **estimator_provenance(settings),
    }


def estimator_provenance(settings: TrainingSettings) -> dict[str, Any]:
    """Return what the boosters were told, and the versions of the libraries that made them, as JSON values."""
    return {
        "estimator": {
            "num_trees": settings.num_trees,
            "num_leaves": settings.num_leaves,
            "min_rows_in_leaf": settings.min_rows_in_leaf,
            "learning_rate": settings.learning_rate,
        },
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("lightgbm", "numpy", "scikit-learn")},
        },
    }


def silent(what: str, done: int, total: int) -> None:
    """Do nothing: the progress that nobody watches."""
    del what, done, total
