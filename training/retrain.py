"""The body of the nightly job: recorded telemetry, checked, trained on, judged, published, and perhaps promoted.

Whatever goes wrong on the way, the champion stays: its alias moves in one step, after everything else is done, and
only where the gate said so and nobody else has moved it meanwhile.
"""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import SeedSequence

from forecaster.capacity import ReplicaCapacity
from forecaster.drift import FeatureReference
from forecaster.forecast import LEVELS
from models.artifact import ModelArtifact
from models.champion import load_champion, promote
from models.demand_forecaster import DemandForecaster
from models.model_forecaster import MODEL_COLUMNS, MODEL_FEATURES, ModelForecaster
from models.store import CHAMPION, ModelStore, version_of
from training.candidate_record import DATA_END_AT, GATE, GATE_REASONS, REFUSED, candidate_metrics, publish_candidate
from training.data_checks import CheckedTelemetry, Finding, check_telemetry
from training.datasets import joined
from training.held_out import HeldOutScores, held_out_scores
from training.promotion import GateDecision, GateRules, decide
from training.recorded_split import PURGE_SECONDS, RecordedSplit, split_recorded
from training.recorded_telemetry import read_telemetry
from training.retrain_lock import retrain_lock
from training.train import (
    Progress,
    TrainingSettings,
    estimator_provenance,
    fitted_artifact,
    generated_dataset,
    silent,
)

DRIFT_REFERENCE = "drift_reference"
"""Key of the manifest's provenance: `forecaster.drift.FeatureReference`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainSettings:
    """How a retrain is done.

    Attributes
    ----------
    training : TrainingSettings
        Its generated fleets are trained on beside the recording: a night without a burst must not unlearn bursts.
    rules : GateRules
    """

    training: TrainingSettings = field(default_factory=lambda: TrainingSettings(num_fleets=120))
    rules: GateRules = field(default_factory=GateRules)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainOutcome:
    """What a retrain came to.

    Attributes
    ----------
    version : int
        The candidate's, `challenger` from now on.
    champion_before, champion_after : int or None
        None: the store has none, the model that ships serves.
    champion_problem : str
        Why the champion that was compared with is not the store's own, empty if it is.
    decision : GateDecision
    scores : HeldOutScores
    findings : tuple of Finding
    num_rows_read, num_rows_kept : int
    """

    version: int
    champion_before: int | None
    champion_after: int | None
    champion_problem: str
    decision: GateDecision
    scores: HeldOutScores
    findings: tuple[Finding, ...]
    num_rows_read: int
    num_rows_kept: int

    @property
    def promoted(self) -> bool:
        """Whether the candidate is champion now."""
        return self.champion_after == self.version

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as JSON values; null where a number is not known."""
        metrics = candidate_metrics(self.decision, self.scores)
        return {
            "promoted": self.promoted,
            "version": self.version,
            "champion_before": self.champion_before,
            "champion_after": self.champion_after,
            "champion_problem": self.champion_problem,
            "reasons": list(self.decision.reasons),
            "metrics": {name: None if np.isnan(x) else x for name, x in metrics.items()},
            "findings": [asdict(one) for one in self.findings],
            "num_rows_read": self.num_rows_read,
            "num_rows_kept": self.num_rows_kept,
        }


def retrain(
    telemetry: Path,
    store: ModelStore,
    capacity: ReplicaCapacity,
    *,
    work: Path,
    now: float,
    settings: RetrainSettings | None = None,
    progress: Progress | None = None,
) -> RetrainOutcome:
    """Return what a retrain came to; the store has a new version then, and perhaps a new champion.

    Parameters
    ----------
    telemetry : Path
        A Parquet file, or a folder of them.
    store : ModelStore
    capacity : ReplicaCapacity
        Of a replica of the deployment that was recorded.
    work : Path
        Folder of the lock and of what was fetched.
    now : float, POSIX seconds
    settings : RetrainSettings, optional
    progress : callable, optional

    Raises
    ------
    InvalidTelemetryError, InsufficientHistoryError
        If there is nothing that can be learned from and judged on.
    RetrainLockedError
        If another retrain works in the same folder.
    StoreUnavailableError
        If the store does not answer.
    """
    settings, tell = settings or RetrainSettings(), progress or silent
    with retrain_lock(work):
        before = store.alias(CHAMPION)  # a store that is down is told of before an hour of work, not after
        checked = check_telemetry(read_telemetry(telemetry), deployment=telemetry.stem)
        split = split_recorded(checked, capacity, first_run=settings.training.num_fleets)
        artifact = _candidate(split, checked, settings, tell)
        champion = load_champion(store, work / "cache")
        scores = held_out_scores(
            split,
            capacity,
            candidate=DemandForecaster(ModelForecaster(artifact)),
            champion=champion.forecaster,
            progress=lambda done, total: tell("scoring", done, total),
        )
        decision = _decided(scores, settings, fresher=checked.last_at > _data_end_at(store, before))
        version = publish_candidate(
            artifact, store, decision, scores, checked, training=settings.training, rules=settings.rules
        )
        after = before
        if decision.promote:
            decision, after = _promoted(store, version, decision, before=before, now=now)
    return RetrainOutcome(
        version=version,
        champion_before=before,
        champion_after=after,
        champion_problem=champion.reason,
        decision=decision,
        scores=scores,
        findings=checked.findings,
        num_rows_read=checked.num_rows_read,
        num_rows_kept=checked.num_kept,
    )


def _candidate(
    split: RecordedSplit, checked: CheckedTelemetry, settings: RetrainSettings, tell: Progress
) -> ModelArtifact:
    """Return a model of recorded and generated rows."""
    generated = generated_dataset(settings.training, progress=tell)
    fit_runs, calibration_runs, test_runs = settings.training.split
    # what `train` keeps for its scores is fitted on here: the recording is what is scored
    fit = joined([generated.of_runs([*fit_runs, *test_runs]), *([split.fit] if split.fit else [])])
    calibration = joined([generated.of_runs(calibration_runs), *([split.calibration] if split.calibration else [])])
    artifact = fitted_artifact(fit, calibration, settings.training, progress=tell)
    reference = FeatureReference.of((split.fit or fit).features[:, MODEL_COLUMNS], MODEL_FEATURES)
    return replace(
        artifact,
        provenance={
            "data": "recorded telemetry and generated fleets",
            "recorded": {
                "last_row_at": checked.last_at,
                "num_rows_read": checked.num_rows_read,
                "num_rows_kept": checked.num_kept,
                "num_fit_rows": split.fit.num_rows if split.fit else 0,
                "num_calibration_rows": split.calibration.num_rows if split.calibration else 0,
                "findings": {one.name: one.num_rows for one in checked.findings},
            },
            "num_fleets": settings.training.num_fleets,
            "seed": settings.training.seed,
            "purge_seconds": PURGE_SECONDS,
            DRIFT_REFERENCE: reference.to_json(),
            **estimator_provenance(settings.training),
        },
    )


def _decided(scores: HeldOutScores, settings: RetrainSettings, *, fresher: bool) -> GateDecision:
    # a stream of its own: the bootstrap must not depend on how many fleets were drawn
    rng = np.random.default_rng(SeedSequence(settings.training.seed, spawn_key=(1,)))
    return decide(
        scores.candidate,
        scores.champion,
        scores.trivial,
        coverage_ratio=scores.coverage_ratio,
        levels=LEVELS,
        fresher=fresher,
        rng=rng,
        alone=(scores.candidate_alone, scores.champion_alone),
        rules=settings.rules,
    )


def _data_end_at(store: ModelStore, version: int | None) -> float:
    """Return up to when the champion's data go; what does not say so is taken for old."""
    if version is None:
        return -np.inf
    try:
        return float(version_of(store, version).tags.get(DATA_END_AT, "-inf"))
    except ValueError:
        return -np.inf


def _promoted(
    store: ModelStore, version: int, decision: GateDecision, *, before: int | None, now: float
) -> tuple[GateDecision, int | None]:
    """Return the decision and who is champion now; a champion that came meanwhile was not compared with, and stays."""
    current = store.alias(CHAMPION)
    if current != before:
        reason = f"the champion changed from {before} to {current} while this ran: retrain again"
        store.tag(version, {GATE: REFUSED, GATE_REASONS: reason})
        return replace(decision, promote=False, reasons=(reason,)), current
    promote(store, version, now=now)
    return decision, version
