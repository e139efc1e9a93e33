"""Recorded telemetry made fit to train on: what was wrong with it, how often, and which rows may be learned from.

Nothing is guessed: a value that cannot be true becomes unknown, and a row that would teach something false is not kept
as a moment to forecast from. Where the fleet was saturated, what it held is not what was asked of it; such rows are
flagged, and learned from only where what waited or was refused is known, so that offered load can be told.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from forecaster.telemetry import MAX_CLOCK_SKEW_SECONDS, SIGNAL_INDEX, SIGNALS, Floats, TelemetryWindow
from training.recorded_telemetry import RecordedRows

Mask = NDArray[np.bool_]

MAX_GAP_ROWS = 900
"""A longer gap parts two stretches: no window of a feature reaches across it, but for the memory of bursts."""

STUCK_ROWS = 300
"""A load that is the same number to the last digit for five minutes, and not zero, is an exporter that hangs."""

QUIET_ROWS = 3600
"""An hour without any load is told of: a quiet night, or a source that is not connected."""

FIRST_MINUTE_ROWS = 60
MAX_YOUNG_RATIO = 0.1
"""A few pods in their first minute, whose metrics begin at zero, do not bend the sums of a large fleet."""

SATURATED_KV_RATIO = 0.95

_LOADS = ("request_rate_per_second", "prompt_tokens_per_second", "kv_blocks_used")
_RATES = np.array([signal.name.endswith("_per_second") for signal in SIGNALS])
_MAXIMA = np.array([signal.maximum for signal in SIGNALS])


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One kind of thing that was found.

    Attributes
    ----------
    name : str
    num_rows : int
        Rows it concerns (missing seconds for gaps, files for unreadable ones).
    consequence : str
        What was done about it.
    """

    name: str
    num_rows: int
    consequence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Rows of 1 s without a long gap; missing seconds are rows of unknown values.

    Attributes
    ----------
    window : TelemetryWindow
    kept : ndarray of bool, shape (n_rows,)
        Rows to forecast from in training and scoring.
    saturated : ndarray of bool, shape (n_rows,)
    """

    window: TelemetryWindow
    kept: Mask
    saturated: Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTelemetry:
    """What can be learned from, and what was found.

    Attributes
    ----------
    stretches : tuple of Stretch
        In the order of time.
    findings : tuple of Finding
        Those that concern at least one row.
    num_rows_read : int
    """

    stretches: tuple[Stretch, ...]
    findings: tuple[Finding, ...]
    num_rows_read: int

    @property
    def num_kept(self) -> int:
        """Number of rows to forecast from."""
        return sum(int(one.kept.sum()) for one in self.stretches)

    @property
    def last_at(self) -> float:
        """End of the newest row, POSIX seconds; NaN without one."""
        return float(self.stretches[-1].window.row_at[-1]) if self.stretches else np.nan


@dataclass(slots=True)
class _Counts:
    """What was found so far."""

    found: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, name: str, number: int, consequence: str) -> None:
        if number:
            self.found[name] = (self.found.get(name, (0, ""))[0] + int(number), consequence)

    def findings(self) -> tuple[Finding, ...]:
        return tuple(Finding(name=name, num_rows=n, consequence=told) for name, (n, told) in self.found.items())


def check_telemetry(rows: RecordedRows, *, deployment: str = "recorded") -> CheckedTelemetry:
    """Return the stretches of recorded telemetry that can be trained on, and everything that was found."""
    counts = _Counts()
    counts.add("unreadable file", len(rows.unreadable), "passed over: " + "; ".join(rows.unreadable))
    if not rows.row_at.size:
        counts.add("empty", 1, "nothing was recorded")
    elif rows.missing:
        counts.add("signal not recorded", rows.row_at.size, f"unknown: {', '.join(rows.missing)}")
    row_at, seen_at, values = _ordered(rows, counts)
    _refuse_impossible(values, counts)
    stretches = tuple(
        _stretch(row_at[part], seen_at[part], values[part], deployment, counts) for part in _parts(row_at, counts)
    )
    return CheckedTelemetry(stretches=stretches, findings=counts.findings(), num_rows_read=rows.row_at.size)


def _ordered(rows: RecordedRows, counts: _Counts) -> tuple[Floats, Floats, Floats]:
    """Return the rows by time, one a second, without those whose time cannot be true."""
    timed = np.isfinite(rows.row_at)
    counts.add("no time", int((~timed).sum()), "left out")
    seen_at = np.where(np.isfinite(rows.seen_at), rows.seen_at, rows.row_at)
    ahead = np.where(timed, rows.row_at, 0.0) - np.where(timed, seen_at, 0.0)
    future = ahead > MAX_CLOCK_SKEW_SECONDS
    counts.add("from the future", int(future.sum()), "left out: the source's clock is ahead of the recorder's")
    chosen = np.flatnonzero(timed & ~future)
    late = int((np.diff(rows.row_at[chosen]) < 0).sum())
    counts.add("out of order", late, "put in order")
    order = chosen[np.argsort(rows.row_at[chosen], kind="stable")]
    second = np.rint(rows.row_at[order])
    last = np.append(np.diff(second) > 0, True)[: order.size]  # of two rows in a second the later written one stands
    counts.add("duplicate", int((~last).sum()), "the row written last stands")
    kept = order[last]
    at = second[last]
    return at, np.maximum(seen_at[kept], at), rows.values[kept].copy()


def _refuse_impossible(values: Floats, counts: _Counts) -> None:
    """Make values unknown that cannot be true."""
    reset = (values < 0) & _RATES
    counts.add("counter reset", int(reset.any(axis=1).sum()), "the negative rates are unknown")
    with np.errstate(invalid="ignore"):
        impossible = (np.isinf(values) | (values < 0) | (values > _MAXIMA)) & ~reset
    names = ", ".join(SIGNALS[i].name for i in np.flatnonzero(impossible.any(axis=0)))
    counts.add("impossible value", int(impossible.any(axis=1).sum()), f"unknown: {names}")
    values[reset | impossible] = np.nan


def _parts(row_at: Floats, counts: _Counts) -> Iterator[slice]:
    """Yield the rows of each stretch."""
    if not row_at.size:
        return
    steps = np.diff(row_at) - 1
    long = steps > MAX_GAP_ROWS
    counts.add("gap", int(steps[~long].sum()), "the missing seconds are unknown")
    counts.add("long gap", int(steps[long].sum()), "nothing is learned across it")
    bounds = [0, *(np.flatnonzero(long) + 1).tolist(), row_at.size]
    yield from (slice(start, end) for start, end in pairwise(bounds))


def _stretch(row_at: Floats, seen_at: Floats, values: Floats, deployment: str, counts: _Counts) -> Stretch:
    """Return one stretch on a grid of seconds, its rows judged."""
    slots = (row_at - row_at[0]).astype(np.intp)
    at = row_at[0] + np.arange(slots[-1] + 1, dtype=np.float64)
    grid, seen = np.full((at.size, len(SIGNALS)), np.nan), at.copy()
    grid[slots], seen[slots] = values, seen_at
    stuck = _stuck(grid)
    counts.add("constant", int(stuck.any(axis=1).sum()), "not learned from: the exporter hangs")
    grid[:, [SIGNAL_INDEX[name] for name in _LOADS]] = np.where(stuck, np.nan, _columns(grid, _LOADS))
    first_minute = _first_minutes(grid)
    counts.add("a pod's first minute", int(first_minute.sum()), "not learned from")
    saturated, is_censored = _saturated(grid)
    counts.add("saturated", int((saturated & ~is_censored).sum()), "offered load is used: held, waiting and refused")
    counts.add("saturated, queue unknown", int(is_censored.sum()), "not learned from: what was asked is not known")
    unknown = np.isnan(_columns(grid, _LOADS)).any(axis=1)
    missing = np.ones(at.size, dtype=np.bool_)
    missing[slots] = False
    counts.add("load unknown", int((unknown & ~missing & ~stuck.any(axis=1)).sum()), "not learned from")
    counts.add("quiet hour", _quiet_rows(grid), "learned from: no load is a known load")
    window = TelemetryWindow(deployment=deployment, row_at=at, values=grid, seen_at=seen)
    kept = ~(stuck.any(axis=1) | first_minute | is_censored | unknown)
    return Stretch(window=window, kept=kept, saturated=saturated)


def _columns(grid: Floats, names: tuple[str, ...]) -> Floats:
    return grid[:, [SIGNAL_INDEX[name] for name in names]]


def _stuck(grid: Floats) -> Mask:
    """Return which loads hang at which rows, shape (n_rows, n_loads)."""
    loads = _columns(grid, _LOADS)
    return np.column_stack([in_long_runs(column, STUCK_ROWS) & (column != 0) for column in loads.T])


def in_long_runs(column: Floats, rows: int) -> Mask:
    """Return whether each value is one of at least `rows` equal known ones in a row.

    Examples
    --------
    >>> in_long_runs(np.array([1.0, 2.0, 2.0, 2.0, np.nan, np.nan]), 2).tolist()
    [False, True, True, True, False, False]
    """
    if not column.size:
        return np.zeros(0, dtype=np.bool_)
    starts = np.concatenate([[0], np.flatnonzero(column[1:] != column[:-1]) + 1])  # NaN differs from itself
    lengths = np.diff(np.append(starts, column.size))
    return np.asarray(np.repeat(lengths >= rows, lengths) & ~np.isnan(column), dtype=np.bool_)


def _first_minutes(grid: Floats) -> Mask:
    """Return the rows where pods younger than a minute are a large share; a promotion of a warm one is no new pod."""
    serving, warm = grid[:, SIGNAL_INDEX["serving_replicas"]], grid[:, SIGNAL_INDEX["warm_replicas"]]
    ready = serving + np.nan_to_num(warm)
    known = np.flatnonzero(~np.isnan(ready))
    born = np.zeros(len(grid))
    born[known[1:]] = np.maximum(np.diff(ready[known]), 0)
    young = np.convolve(born, np.ones(FIRST_MINUTE_ROWS))[: len(grid)]
    return np.asarray(young > MAX_YOUNG_RATIO * np.fmax(ready, 1), dtype=np.bool_)


def _saturated(grid: Floats) -> tuple[Mask, Mask]:
    """Return where the fleet held less than was asked of it, and where besides nobody knows how much less."""
    used, total, running, waiting, tokens, refused, refused_tokens = _columns(
        grid,
        (
            "kv_blocks_used",
            "kv_blocks_total",
            "running_requests",
            "waiting_requests",
            "waiting_prompt_tokens",
            "rejected_rate_per_second",
            "rejected_prompt_tokens_per_second",
        ),
    ).T
    is_full = used >= SATURATED_KV_RATIO * total
    is_refusing = (refused > 0) | (refused_tokens > 0)
    queue_unknown = np.isnan(waiting) & np.isnan(tokens)
    censored = (is_full & queue_unknown) | (is_refusing & np.isnan(refused_tokens))
    return is_full | is_refusing | (waiting > np.maximum(running, 1)), censored


def _quiet_rows(grid: Floats) -> int:
    """Return how many rows belong to at least an hour without load."""
    idle = (_columns(grid, _LOADS) == 0).all(axis=1)
    return int(in_long_runs(np.where(idle, 0.0, np.arange(1.0, len(grid) + 1)), QUIET_ROWS).sum())
