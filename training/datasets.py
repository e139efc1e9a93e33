"""Feature rows with what came after them: targets, cutoffs, the purge gap, and splits by run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecaster.capacity import ReplicaCapacity
from forecaster.demand import offered_load
from forecaster.features import FEATURE_SCHEMA, build_features, floors_for, scale_name
from forecaster.forecast import DEMAND, KV_BLOCKS, PREFILL, TARGETS
from forecaster.telemetry import Floats, TelemetryWindow

HORIZONS_SECONDS: tuple[int, ...] = (6, 30, 180)
"""Promotion lead and a tick, the headline horizon, and a slow cold lead time."""

FIRST_CUTOFF_ROW = 10
"""A forecast from fewer rows than this is not learned from: nothing is known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Feature rows of several runs and their targets.

    Attributes
    ----------
    features : ndarray of shape (n_rows, n_features)
        In the order of `FEATURE_SCHEMA`.
    log_ratios : ndarray of shape (n_rows, n_targets, n_horizons)
        log(max(target, floor) / max(trailing mean, floor)); the target is the maximum over (cutoff, cutoff + horizon].
    run : ndarray of int64, shape (n_rows,)
        Which run a row is from.
    cutoff_at : ndarray of shape (n_rows,), POSIX seconds
        Nothing later was used for the features.
    """

    features: Floats
    log_ratios: Floats
    run: NDArray[np.int64]
    cutoff_at: Floats

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self.run.size)

    def where(self, chosen: NDArray[np.bool_]) -> "Dataset":
        """Return the chosen rows."""
        return Dataset(
            features=self.features[chosen],
            log_ratios=self.log_ratios[chosen],
            run=self.run[chosen],
            cutoff_at=self.cutoff_at[chosen],
        )

    def of_runs(self, runs: Sequence[int]) -> "Dataset":
        """Return the rows of the given runs; rows of one run never fall on two sides of a split."""
        return self.where(np.isin(self.run, np.asarray(runs)))

    def before(self, cutoff_at: float, *, purge_seconds: float = max(HORIZONS_SECONDS)) -> "Dataset":
        """Return the rows whose targets end before `cutoff_at`: a split in time that leaves no overlap."""
        return self.where(self.cutoff_at + purge_seconds <= cutoff_at)


def joined(datasets: Sequence[Dataset]) -> Dataset:
    """Return the rows of several datasets in order.

    Raises
    ------
    ValueError
        If there are none.
    """
    if not datasets:
        raise ValueError("no dataset to join: no run was long enough for the longest horizon")
    return Dataset(
        features=np.concatenate([one.features for one in datasets]),
        log_ratios=np.concatenate([one.log_ratios for one in datasets]),
        run=np.concatenate([one.run for one in datasets]),
        cutoff_at=np.concatenate([one.cutoff_at for one in datasets]),
    )


def run_dataset(
    seen: TelemetryWindow,
    capacity: ReplicaCapacity,
    *,
    ample: TelemetryWindow | None = None,
    run: int = 0,
    stride_seconds: int = 1,
    horizons_seconds: tuple[int, ...] = HORIZONS_SECONDS,
) -> Dataset:
    """Return the rows of one run.

    Parameters
    ----------
    seen : TelemetryWindow
        What the planner would have seen: the features come from it.
    capacity : ReplicaCapacity
    ample : TelemetryWindow, optional
        The same requests on so many replicas that nothing queued: the targets come from it, since a full fleet does
        not show what it is asked for. By default `seen` itself. Row times must be those of `seen`.
    run : int
        Written into every row.
    stride_seconds : int
        Distance of the cutoffs; neighbouring rows say nearly the same.
    horizons_seconds : tuple of int

    Raises
    ------
    ValueError
        If the two windows differ in their rows.
    """
    truth = seen if ample is None else ample
    if not np.array_equal(truth.row_at, seen.row_at):
        raise ValueError(f"seen and ample telemetry differ in their rows: {seen.num_rows} and {truth.num_rows}")
    features = build_features(seen, capacity)
    targets = _targets(truth, capacity)
    floors = floors_for(capacity)
    log_ratios = np.stack(
        [
            np.column_stack(
                [_log_ratio(targets[name], features, name, horizon, floors[name]) for horizon in horizons_seconds]
            )
            for name in TARGETS
        ],
        axis=1,
    )
    cutoffs = np.arange(
        FIRST_CUTOFF_ROW - 1 + run % stride_seconds, seen.num_rows - max(horizons_seconds), stride_seconds
    )
    return Dataset(
        features=features[cutoffs],
        log_ratios=log_ratios[cutoffs],
        run=np.full(cutoffs.size, run, dtype=np.int64),
        cutoff_at=seen.row_at[cutoffs],
    )


def _targets(truth: TelemetryWindow, capacity: ReplicaCapacity) -> dict[str, Floats]:
    load = offered_load(truth, capacity)
    return {
        KV_BLOCKS: load.kv_blocks,
        PREFILL: load.prefill_tokens_per_second,
        DEMAND: load.demand_replicas,
    }


def _log_ratio(series: Floats, features: Floats, target: str, horizon: int, floor: float) -> Floats:
    """Return log(maximum over the next `horizon` rows / trailing mean) at every row, NaN where either is unknown."""
    scale = features[:, FEATURE_SCHEMA.index[scale_name(target)]]
    return np.asarray(np.log(np.maximum(maximum_ahead(series, horizon), floor) / scale))


def maximum_ahead(series: Floats, rows: int) -> Floats:
    """Return the maximum of the known values of the next `rows` rows, shape (n_rows,); NaN where they run out.

    Examples
    --------
    >>> maximum_ahead(np.array([5.0, 1.0, 3.0, 2.0]), 2).tolist()
    [3.0, 3.0, nan, nan]
    """
    ahead = np.full(series.size, np.nan)
    if series.size > rows:
        windows = np.lib.stride_tricks.sliding_window_view(series[1:], rows)
        ahead[: len(windows)] = np.fmax.reduce(windows, axis=1)
    return ahead
