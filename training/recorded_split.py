"""Recorded telemetry parted in time: rows to fit, rows to calibrate, and a stretch that is only scored.

    ... fit | purge | calibrate | purge | held out        newest last

A purge is the longest horizon and the longest window of a feature: no outcome that was learned from is within sight of
a row that is scored, and no feature of such a row has seen one.
"""

from dataclasses import dataclass

import numpy as np

from forecaster.capacity import ReplicaCapacity
from forecaster.errors import InsufficientHistoryError
from forecaster.features.definitions import LONGEST_ROWS
from forecaster.telemetry import SIGNAL_INDEX, Floats, TelemetryWindow
from training.data_checks import CheckedTelemetry, Stretch
from training.datasets import HORIZONS_SECONDS, Dataset, joined, run_dataset

PURGE_SECONDS = float(max(HORIZONS_SECONDS) + LONGEST_ROWS)
HELD_OUT_RATIO = 0.2
MIN_HELD_OUT_SECONDS, MAX_HELD_OUT_SECONDS = 1200.0, 7200.0
"""Of the newest unbroken stretch; as much before it warms up what the live forecast learns as it goes."""

STRIDE_SECONDS = 5
MIN_KNOWN_RATIO = 0.9
"""An outcome of which more of the seconds is unknown is not learned from: the largest of them may be missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSplit:
    """Recorded telemetry, parted.

    Attributes
    ----------
    fit, calibration : Dataset or None
        None: the recording is too short to have any.
    scored_window : TelemetryWindow
        Its second half is held out; the first warms up.
    scored_at : ndarray of shape (n_rows,), POSIX seconds
        Kept rows of that second half.
    """

    fit: Dataset | None
    calibration: Dataset | None
    scored_window: TelemetryWindow
    scored_at: Floats


def split_recorded(checked: CheckedTelemetry, capacity: ReplicaCapacity, *, first_run: int) -> RecordedSplit:
    """Return the parts of a recording.

    Parameters
    ----------
    checked : CheckedTelemetry
    capacity : ReplicaCapacity
    first_run : int
        Number of the first stretch in `Dataset.run`.

    Raises
    ------
    InsufficientHistoryError
        If the newest unbroken stretch is too short to hold anything out, nothing in it can be learned from, or it has
        no load at all.
    """
    newest = _newest(checked)
    window = newest.window
    seconds = float(np.clip(window.num_rows * HELD_OUT_RATIO, MIN_HELD_OUT_SECONDS, MAX_HELD_OUT_SECONDS))
    end_at = float(window.row_at[-1])
    held_out_at = end_at - seconds
    scored_at = window.row_at[newest.kept & (window.row_at > held_out_at)]
    if not _has_load(newest, since_at=held_out_at):
        raise InsufficientHistoryError(
            f"the newest {seconds / 60:.0f} minutes of telemetry hold no load that is known and not constant: nothing "
            f"can be proved on them; record until there is traffic again"
        )
    calibrate_at = held_out_at - PURGE_SECONDS - seconds
    data = [
        _kept_rows(stretch, capacity, run=first_run + i, before=held_out_at)
        for i, stretch in enumerate(checked.stretches)
    ]
    rows = joined(data) if data else None
    return RecordedSplit(
        fit=None if rows is None else _or_none(rows.before(calibrate_at, purge_seconds=PURGE_SECONDS)),
        calibration=None
        if rows is None
        else _or_none(rows.where(rows.cutoff_at >= calibrate_at).before(held_out_at, purge_seconds=PURGE_SECONDS)),
        scored_window=window.since(held_out_at - seconds),
        scored_at=scored_at,
    )


def _newest(checked: CheckedTelemetry) -> Stretch:
    if not checked.stretches:
        raise InsufficientHistoryError("no telemetry: nothing was recorded; check the recorder, then retrain")
    newest = checked.stretches[-1]
    if newest.window.num_rows < 2 * MIN_HELD_OUT_SECONDS:
        raise InsufficientHistoryError(
            f"the newest unbroken stretch of telemetry has {newest.window.num_rows / 60:.1f} minutes, at least "
            f"{2 * MIN_HELD_OUT_SECONDS / 60:.0f} are needed; record for longer"
        )
    return newest


def _has_load(stretch: Stretch, *, since_at: float) -> bool:
    """Return whether there is any load in the kept rows after a moment."""
    chosen = stretch.kept & (stretch.window.row_at > since_at)
    loads = stretch.window.values[:, [SIGNAL_INDEX["prompt_tokens_per_second"], SIGNAL_INDEX["kv_blocks_used"]]]
    return bool((loads[chosen] > 0).any())


def _kept_rows(stretch: Stretch, capacity: ReplicaCapacity, *, run: int, before: float) -> Dataset:
    """Return the rows of a stretch to learn from, all before a moment."""
    until = int(np.searchsorted(stretch.window.row_at, before, side="right"))
    window = TelemetryWindow(
        deployment=stretch.window.deployment,
        row_at=stretch.window.row_at[:until],
        values=stretch.window.values[:until],
        seen_at=stretch.window.seen_at[:until],
    )
    data = run_dataset(window, capacity, run=run, stride_seconds=STRIDE_SECONDS)
    known = np.isfinite(window.column("kv_blocks_used")) & np.isfinite(window.column("prompt_tokens_per_second"))
    total = np.concatenate([[0], np.cumsum(known)])
    at = np.searchsorted(window.row_at, data.cutoff_at)
    ahead = max(HORIZONS_SECONDS)
    return data.where(stretch.kept[at] & (total[at + 1 + ahead] - total[at + 1] >= MIN_KNOWN_RATIO * ahead))


def _or_none(data: Dataset) -> Dataset | None:
    return data if data.num_rows else None
