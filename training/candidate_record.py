"""A candidate with all that is known of it, as a version of the store: parameters, scores, findings, a plot."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from forecaster.forecast import LEVELS
from models.artifact import ModelArtifact, load_artifact, save_artifact
from models.store import CHALLENGER, ModelStore
from training.data_checks import CheckedTelemetry
from training.held_out import HeldOutScores
from training.plots import retrain_figure, write_page
from training.promotion import GateDecision, GateRules
from training.train import TrainingSettings

DATA_END_AT = "data_end_at"
"""Tag of a version: POSIX seconds of the newest row that it could learn from or was judged on."""

GATE, GATE_REASONS = "gate", "gate_reasons"
PASSED, REFUSED = "passed", "refused"
"""Tags of a version that say what the gate decided, and the values of the first."""


def publish_candidate(
    artifact: ModelArtifact,
    store: ModelStore,
    decision: GateDecision,
    scores: HeldOutScores,
    checked: CheckedTelemetry,
    *,
    training: TrainingSettings,
    rules: GateRules,
) -> int:
    """Return the version that the candidate got; it is the challenger from now on, promoted or not.

    Raises
    ------
    StoreUnavailableError
        If the store does not answer; there may be a version without the alias then, and nothing else has changed.
    """
    metrics = candidate_metrics(decision, scores)
    with tempfile.TemporaryDirectory() as scratch:
        folder, plot = Path(scratch) / "model", Path(scratch) / "held_out.html"
        save_artifact(
            replace(artifact, metrics={name: None if np.isnan(x) else round(x, 6) for name, x in metrics.items()}),
            folder,
        )
        load_artifact(folder)  # what cannot be loaded is not published
        verdict = "promote" if decision.promote else "keep the champion"
        sentence = f"{verdict}: {'; '.join(decision.reasons)}"
        write_page(plot, title="Candidate on held-out rows", sentence=sentence, figures=[retrain_figure(scores)])
        version = store.publish(
            folder, params=_params(training, rules), metrics=metrics, tags=_tags(decision, checked), plots=(plot,)
        )
    store.set_alias(CHALLENGER, version)
    return version


def candidate_metrics(decision: GateDecision, scores: HeldOutScores) -> dict[str, float]:
    """Return the figures of a candidate by name; NaN where one is not known."""
    low, high = decision.difference_interval
    return {
        "loss": decision.candidate_loss,
        "champion_loss": decision.champion_loss,
        "trivial_loss": decision.trivial_loss,
        "loss_alone": float(scores.candidate_alone.mean()),
        "champion_loss_alone": float(scores.champion_alone.mean()),
        "difference_low": low,
        "difference_high": high,
        "num_scored_rows": float(scores.candidate.size),
        **{f"coverage_q{level:g}": float(x) for level, x in zip(LEVELS, scores.coverage_ratio, strict=True)},
    }


def _params(training: TrainingSettings, rules: GateRules) -> dict[str, str]:
    told = {**asdict(training), **asdict(rules)}
    told.pop("num_workers")  # it changes nothing but the time
    return {name: str(value) for name, value in told.items()}


def _tags(decision: GateDecision, checked: CheckedTelemetry) -> Mapping[str, str]:
    return {
        GATE: PASSED if decision.promote else REFUSED,
        GATE_REASONS: "; ".join(decision.reasons),
        DATA_END_AT: f"{checked.last_at:.0f}",
        "data_start_at": f"{checked.stretches[0].window.row_at[0]:.0f}",
        "findings": json.dumps({one.name: one.num_rows for one in checked.findings}),
    }
