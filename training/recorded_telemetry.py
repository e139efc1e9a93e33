"""Recorded telemetry as it lies on disk: Parquet with the columns of `run_files.TELEMETRY_COLUMNS`, nothing checked."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forecaster.errors import InvalidTelemetryError
from forecaster.telemetry import SIGNALS, Floats

FILES = "telemetry*.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRows:
    """Rows as they were read, in any order, with any values.

    Attributes
    ----------
    row_at, seen_at : ndarray of shape (n_rows,), POSIX seconds
    values : ndarray of shape (n_rows, n_signals)
        In the order of `SIGNALS`; NaN where null or where the file has no such column.
    missing : tuple of str
        Signals that no file has a column for.
    unreadable : tuple of str
        Why files of a folder were passed over: a recorder may be writing one just now.
    """

    row_at: Floats
    seen_at: Floats
    values: Floats
    missing: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


def read_telemetry(place: Path) -> RecordedRows:
    """Return the rows of one deployment, from a file or from all `telemetry*.parquet` of a folder.

    Raises
    ------
    InvalidTelemetryError
        If there is no file, or none is Parquet of telemetry.
    """
    files = sorted(place.glob(FILES)) if place.is_dir() else [place]
    if not files:
        raise InvalidTelemetryError(f"no {FILES} in {place}; name a file, or the folder that your recorder writes to")
    tables, unreadable = [], []
    for file in files:
        try:
            tables.append(_table(file))
        except InvalidTelemetryError as exc:
            unreadable.append(str(exc))
    if not tables:
        raise InvalidTelemetryError(unreadable[0])
    known = {name for table in tables for name in table.column_names}
    return RecordedRows(
        row_at=np.concatenate([_column(table, "row_at") for table in tables]),
        seen_at=np.concatenate([_column(table, "seen_at", instead="row_at") for table in tables]),
        values=np.concatenate(
            [np.column_stack([_column(table, signal.name) for signal in SIGNALS]) for table in tables]
        ),
        missing=tuple(signal.name for signal in SIGNALS if signal.name not in known),
        unreadable=tuple(unreadable),
    )


def _table(file: Path) -> pa.Table:
    wanted = {"row_at", "seen_at", *(signal.name for signal in SIGNALS)}
    try:
        names = [name for name in pq.read_schema(file).names if name in wanted]
        table = pq.read_table(file, columns=names)
    except (OSError, pa.ArrowException) as exc:
        raise InvalidTelemetryError(f"cannot read {file}: {exc}; it must be Parquet") from exc
    if "row_at" not in names:
        raise InvalidTelemetryError(f"{file}: no column row_at (s); it must be telemetry as `simulate --out` writes it")
    for field in table.schema:
        if not (pa.types.is_floating(field.type) or pa.types.is_integer(field.type)):
            raise InvalidTelemetryError(f"{file}: column {field.name} must be numbers, got {field.type}")
    return table


def _column(table: pa.Table, name: str, *, instead: str = "") -> Floats:
    """Return a column, NaN where null; `instead` or NaN where there is none."""
    if name not in table.column_names:
        return _column(table, instead) if instead else np.full(table.num_rows, np.nan)
    return np.asarray(table[name].cast(pa.float64()).to_numpy(), dtype=np.float64)
