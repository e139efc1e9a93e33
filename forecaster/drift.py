"""Whether a model still fits what it sees: values with thresholds and a word each, ready to be exported.

Population stability of the features against the training rows, coverage and pinball loss of late against the trivial
forecast's, and the age of the last successful retrain. What is not known has the word `unknown`, never `ok`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isnan, nan, sqrt
from typing import Any

import numpy as np

from forecaster.telemetry import Floats

NUM_BINS = 10
PSI_WARN, PSI_ALERT = 0.1, 0.25
"""The usual reading of the index: below 0.1 stable, above 0.25 another population."""

MIN_PSI_ROWS = 500
LOSS_WARN_RATIO, LOSS_ALERT_RATIO = 1.02, 1.1
"""Loss over the trivial forecast's: the gate would not let the first pass, the second is harm."""

COVERAGE_WARN_RATIO, COVERAGE_ALERT_RATIO = 0.03, 0.06
"""How far coverage may be from its level, beside two standard errors."""

MIN_WINDOWS = 20
RETRAIN_WARN_SECONDS, RETRAIN_ALERT_SECONDS = 36 * 3600.0, 72 * 3600.0
"""A nightly job that missed one night, and one that missed three."""


class Word(StrEnum):
    """What a value means."""

    OK = "ok"
    WARN = "warn"
    ALERT = "alert"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSignal:
    """One watched value.

    Attributes
    ----------
    name : str
        With its unit last, as it is exported.
    value : float
        NaN where it is not known.
    warn_above, alert_above : float
    detail : str
        What was seen, in a sentence.
    """

    name: str
    value: float
    warn_above: float
    alert_above: float
    detail: str

    @property
    def word(self) -> Word:
        """What the value means."""
        if isnan(self.value):
            return Word.UNKNOWN
        if self.value > self.alert_above:
            return Word.ALERT
        return Word.WARN if self.value > self.warn_above else Word.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureReference:
    """How the features of the training rows were spread; a few numbers a feature, kept in the manifest.

    Attributes
    ----------
    edges : mapping of feature name to tuple of float
        Inner edges of the bins, increasing; fewer than `NUM_BINS` - 1 where values repeat.
    ratios : mapping of feature name to tuple of float
        Share of the rows in each bin, and last of those where the feature was unknown; they sum to 1.
    """

    edges: Mapping[str, tuple[float, ...]]
    ratios: Mapping[str, tuple[float, ...]]

    @classmethod
    def of(cls, rows: Floats, names: Sequence[str]) -> "FeatureReference":
        """Return the spread of training rows, shape (n_rows, n_features), NaN where unknown.

        Raises
        ------
        ValueError
            If there is no row, or the names are not as many as the columns.
        """
        if rows.ndim != 2 or not len(rows) or rows.shape[1] != len(names):
            raise ValueError(f"rows must have shape (n_rows > 0, {len(names)}), got {rows.shape}")
        edges = {name: _edges(rows[:, i]) for i, name in enumerate(names)}
        shares = {name: bin_counts(rows[:, i], edges[name]) / len(rows) for i, name in enumerate(names)}
        return cls(edges=edges, ratios={name: tuple(share.tolist()) for name, share in shares.items()})

    def to_json(self) -> dict[str, Any]:
        """Return the reference as JSON values."""
        return {
            name: {
                "edges": list(self.edges[name]),  # not rounded: many rows may have just this value
                "ratios": [round(ratio, 9) for ratio in self.ratios[name]],
            }
            for name in self.edges
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "FeatureReference":
        """Return the reference that `to_json` gave.

        Raises
        ------
        ValueError
            If it is something else.
        """
        try:
            found = cls(
                edges={name: tuple(map(float, one["edges"])) for name, one in values.items()},
                ratios={name: tuple(map(float, one["ratios"])) for name, one in values.items()},
            )
        except (TypeError, KeyError, AttributeError) as exc:
            raise ValueError(f"no feature reference: {exc!r}; train the model again") from exc
        wrong = [name for name, edges in found.edges.items() if len(found.ratios[name]) != len(edges) + 2]
        if wrong:
            raise ValueError(f"feature reference of {wrong[0]}: bins and edges do not fit; train the model again")
        return found


def _edges(column: Floats) -> tuple[float, ...]:
    known = column[np.isfinite(column)]
    if not known.size:
        return ()
    return tuple(np.unique(np.quantile(known, np.arange(1, NUM_BINS) / NUM_BINS)).tolist())


def bin_counts(column: Floats, edges: Sequence[float]) -> Floats:
    """Return how many values are in each bin, shape (n_edges + 2,); the last counts the unknown ones.

    A value on an edge is below it, so that a value which half of the rows share has a bin of its own.

    Examples
    --------
    >>> bin_counts(np.array([0.0, 0.0, 1.0, 5.0, np.nan]), (0.0, 2.0)).tolist()
    [2.0, 1.0, 1.0, 1.0]
    """
    known = np.isfinite(column)
    bins = np.searchsorted(np.asarray(edges, dtype=np.float64), column[known], side="left")
    counts = np.bincount(bins, minlength=len(edges) + 1).astype(np.float64)
    return np.append(counts, float((~known).sum()))


def population_stability(reference_ratio: Floats, counts: Floats) -> float:
    """Return the population stability index of counts against the shares they had in training; NaN without a count.

    The index is the sum over bins of (a - e) ln(a / e). Half a row is added to each bin, so that an empty one costs
    much and not everything.

    References
    ----------
    B. Yurdakul, "Statistical properties of population stability index", Western Michigan University, 2018.

    Examples
    --------
    >>> round(population_stability(np.array([0.5, 0.5]), np.array([5000.0, 5000.0])), 6)
    0.0
    """
    total = float(counts.sum())
    if not total:
        return nan
    actual = (counts + 0.5) / (total + 0.5 * counts.size)
    expected = (reference_ratio * total + 0.5) / (total + 0.5 * counts.size)
    return float(((actual - expected) * np.log(actual / expected)).sum())


def feature_drift(reference: FeatureReference | None, rows: Floats, names: Sequence[str]) -> DriftSignal:
    """Return the largest index over the features; one that moved is enough for a model to be wrong.

    Parameters
    ----------
    reference : FeatureReference or None
        None: the model's manifest has none.
    rows : ndarray of shape (n_rows, n_features)
        Recent feature rows, at best of as many hours as the training rows: an hour of night is another population.
    names : sequence of str
    """
    value, detail = nan, "the model says nothing about the rows it was trained on"
    if reference is not None and len(rows) < MIN_PSI_ROWS:
        detail = f"{len(rows)} feature rows, at least {MIN_PSI_ROWS} are needed"
    elif reference is not None:
        indices = {
            name: population_stability(np.array(reference.ratios[name]), bin_counts(rows[:, i], reference.edges[name]))
            for i, name in enumerate(names)
            if name in reference.edges
        }
        if indices:
            worst = max(indices, key=lambda name: indices[name])
            moved = sum(index > PSI_ALERT for index in indices.values())
            value, detail = indices[worst], f"{worst} moved most; {moved} of {len(indices)} features above {PSI_ALERT}"
    return DriftSignal(
        name="feature_stability_index", value=value, warn_above=PSI_WARN, alert_above=PSI_ALERT, detail=detail
    )


def coverage_drift(covered_ratio: float, *, level: float, num_windows: float) -> DriftSignal:
    """Return how far recent coverage is from its level beyond two standard errors.

    Parameters
    ----------
    covered_ratio : float
        Share of recent outcomes at or below the quantile of `level`.
    level : float
    num_windows : float
        Independent outcomes among them: seconds observed over the horizon.
    """
    name = f"coverage_error_ratio_q{level:g}"
    if isnan(covered_ratio) or num_windows < MIN_WINDOWS:
        value, detail = nan, f"{num_windows:.0f} independent outcomes, at least {MIN_WINDOWS} are needed"
    else:
        error = sqrt(level * (1 - level) / num_windows)
        value = max(abs(covered_ratio - level) - 2 * error, 0.0)
        detail = f"coverage at {level:g} is {covered_ratio:.3f}, two standard errors are {2 * error:.3f}"
    return DriftSignal(
        name=name, value=value, warn_above=COVERAGE_WARN_RATIO, alert_above=COVERAGE_ALERT_RATIO, detail=detail
    )


def loss_drift(loss: float, trivial_loss: float, *, num_windows: float) -> DriftSignal:
    """Return the recent pinball loss over the trivial forecast's on the same rows; 1 where both are 0.

    Parameters
    ----------
    loss, trivial_loss : float, >= 0
    num_windows : float
        Independent outcomes: seconds observed over the horizon.
    """
    if isnan(loss) or isnan(trivial_loss) or num_windows < MIN_WINDOWS:
        value, detail = nan, f"{num_windows:.0f} independent outcomes, at least {MIN_WINDOWS} are needed"
    else:
        value = loss / trivial_loss if trivial_loss > 0 else (1.0 if loss == 0 else np.inf)
        detail = f"pinball loss {loss:.4g} against the trivial forecast's {trivial_loss:.4g}"
    return DriftSignal(
        name="loss_over_trivial_ratio",
        value=value,
        warn_above=LOSS_WARN_RATIO,
        alert_above=LOSS_ALERT_RATIO,
        detail=detail,
    )


def retrain_age(last_success_at: float | None, *, now: float) -> DriftSignal:
    """Return the seconds since a retrain last succeeded; one that never did is as old as can be, not unknown.

    Parameters
    ----------
    last_success_at : float or None, POSIX seconds
    now : float, POSIX seconds
    """
    age = np.inf if last_success_at is None else max(now - last_success_at, 0.0)
    return DriftSignal(
        name="retrain_age_seconds",
        value=age,
        warn_above=RETRAIN_WARN_SECONDS,
        alert_above=RETRAIN_ALERT_SECONDS,
        detail="no retrain ever succeeded" if last_success_at is None else f"last retrain {age / 3600:.1f} h ago",
    )
