"""Telemetry to feature rows, over a window at once or row by row; the two agree, and neither sees past a row."""

from collections.abc import Mapping
from math import log, log1p, nan

import numpy as np

from forecaster.capacity import ReplicaCapacity
from forecaster.demand import offered_load
from forecaster.demand_stream import OfferedLoadStream
from forecaster.errors import InvalidTelemetryError
from forecaster.features.catalog import transform_named
from forecaster.features.definitions import (
    DEFINITIONS,
    FEATURE_SCHEMA,
    LONGEST_ROWS,
    SERIES,
    Definition,
    Form,
    floors_for,
    series_of,
)
from forecaster.telemetry import SIGNALS, Floats, TelemetryWindow

_POSITION: Mapping[str, int] = {
    name: i for i, name in enumerate((*SERIES, *(definition.name for definition in DEFINITIONS)))
}
_FEATURE_POSITIONS: tuple[int, ...] = tuple(_POSITION[name] for name in FEATURE_SCHEMA.names)
_UNKNOWN_ROW: Floats = np.full(len(SIGNALS), nan)


def build_features(window: TelemetryWindow, capacity: ReplicaCapacity) -> Floats:
    """Return the features at every row, shape (n_rows, n_features) in the order of `FEATURE_SCHEMA`, NaN if unknown.

    Row i uses rows 0 to i and nothing else. Missing seconds count as unknown ones.

    Raises
    ------
    InvalidTelemetryError
        If the rows are not 1 s long: the windows count rows.
    """
    if window.step_seconds != 1.0:
        raise InvalidTelemetryError(
            f"features of deployment {window.deployment!r}: rows must be 1 s long, got {window.step_seconds} s; "
            f"resample the telemetry"
        )
    if not window.num_rows:
        return np.empty((0, FEATURE_SCHEMA.num_features))
    grid, slots = _regular(window)
    load = offered_load(grid, capacity)
    columns = list(
        series_of(
            (load.kv_blocks, load.prefill_tokens_per_second, load.demand_replicas),
            list(grid.values.T),
            capacity.block_size_tokens,
        )
    )
    floors = floors_for(capacity)
    for definition in DEFINITIONS:
        columns.append(_column(definition, columns, floors))
    return np.column_stack([columns[position][slots] for position in _FEATURE_POSITIONS])


def _regular(window: TelemetryWindow) -> tuple[TelemetryWindow, "np.ndarray[tuple[int], np.dtype[np.intp]]"]:
    """Return the window with unknown rows where seconds are missing, and where its own rows went."""
    steps = np.maximum(np.rint(np.diff(window.row_at)), 1.0)
    slots = np.concatenate([[0], np.cumsum(np.minimum(steps, LONGEST_ROWS))]).astype(np.intp)
    values = np.full((int(slots[-1]) + 1, len(SIGNALS)), nan)
    values[slots] = window.values
    at = window.row_at[0] + np.arange(len(values), dtype=np.float64)
    return TelemetryWindow(deployment=window.deployment, row_at=at, values=values, seen_at=at), slots


def _column(definition: Definition, columns: list[Floats], floors: Mapping[str, float]) -> Floats:
    """Return one column from those before it."""
    transform = transform_named(definition.statistic, definition.rows)
    value = transform.transform(columns[_POSITION[definition.source]])
    form = definition.form
    if form is Form.LEVEL:
        return value
    if form is Form.LOG_LEVEL:
        return np.log1p(value)
    if definition.floor:
        value = np.maximum(value, floors[definition.floor])
    if form is Form.FLOORED:
        return value
    if form is Form.DISPERSION:
        value = value * value
    over = columns[_POSITION[definition.over]]
    ratio: Floats = np.divide(value, over, out=np.full(value.shape, nan), where=over > 0)
    return np.log(ratio) if form is Form.LOG_RATIO else ratio


class FeatureStream:
    """Features row by row: the same numbers as `build_features`, at a cost that does not grow with the history.

    Values are plain floats throughout: numpy's scalars would cost several times as much.
    """

    __slots__ = ("_block_size_tokens", "_last_at", "_load", "_steps")

    def __init__(self, capacity: ReplicaCapacity) -> None:
        floors = floors_for(capacity)
        self._block_size_tokens = capacity.block_size_tokens
        self._load = OfferedLoadStream(capacity)
        self._last_at = nan
        self._steps = tuple(
            (
                transform_named(one.statistic, one.rows).update,
                _POSITION[one.source],
                int(one.form),
                _POSITION[one.over] if one.over else 0,
                floors[one.floor] if one.floor else 0.0,
            )
            for one in DEFINITIONS
        )

    def update(self, row_at: float, row_values: Floats) -> Floats:
        """Take the next row and return the features at it, shape (n_features,), NaN where unknown.

        Missing seconds since the row before count as unknown ones.

        Raises
        ------
        InvalidTelemetryError
            If the row is not later than the one before.
        """
        gap = row_at - self._last_at
        if gap <= 0:
            raise InvalidTelemetryError(
                f"feature stream: row at {row_at} is not later than the last at {self._last_at}; sort the rows by time"
            )
        if gap >= 1.5:
            for _ in range(min(round(gap), LONGEST_ROWS) - 1):
                self._advance(_UNKNOWN_ROW)
        self._last_at = row_at
        columns = self._advance(row_values)
        return np.array([columns[position] for position in _FEATURE_POSITIONS])

    def _advance(self, row: Floats) -> list[float]:
        """Return every column at the next second."""
        kv_blocks, prefill, _, demand = self._load.update(row)
        columns = list(series_of((kv_blocks, prefill, demand), row.tolist(), self._block_size_tokens))
        append = columns.append
        for update, source, form, over, floor in self._steps:
            value = update(columns[source])
            if form == 3:  # Form.LOG_RATIO, spelt as numbers here: an enum's comparison costs more than the logarithm
                against = columns[over]
                value = log((floor if value < floor else value) / against) if against > 0 else nan
            elif form in (4, 5):
                against = columns[over]
                value = (value * value if form == 5 else value) / against if against > 0 else nan
            elif form == 2:
                value = log1p(value)
            elif form == 1:
                value = floor if value < floor else value
            append(value)
        return columns
