"""Tables of columns that are written as Parquet a row group at a time, with units and meanings in the file."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP_ROWS = 65_536
"""Rows that are written at a time; a reader skips or takes them together."""

Source = TypeVar("Source")


@dataclass(frozen=True, slots=True)  # by position: a table of columns reads as a table
class Column(Generic[Source]):
    """One column of a file.

    Attributes
    ----------
    name : str
    type : pyarrow.DataType
    unit, meaning : str
        An empty unit: a word or a yes or no.
    values : callable
        Takes the source and a slice of rows, and returns those rows' values; NaN and masked ones are unknown.
    """

    name: str
    type: pa.DataType
    unit: str
    meaning: str
    values: Callable[[Source, slice], Any]

    @property
    def field(self) -> pa.Field:
        """The Arrow field, with unit and meaning as its metadata."""
        return pa.field(self.name, self.type, metadata={"unit": self.unit, "meaning": self.meaning})

    def array(self, source: Source, rows: slice) -> pa.Array:
        """Return the values of `rows` as Arrow holds them."""
        values = self.values(source, rows)
        return values if isinstance(values, pa.Array) else pa.array(values, type=self.type, from_pandas=True)


def write_table(path: Path, columns: tuple[Column[Source], ...], source: Source, *, num_rows: int) -> Path:
    """Return `path`, which holds the rows once they are all written; what it held before is replaced then.

    Memory holds one row group at a time.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    schema = pa.schema([column.field for column in columns])
    partial = path.with_name(path.name + ".part")
    try:
        with pq.ParquetWriter(partial, schema, compression="zstd") as writer:
            for start in range(0, num_rows, ROW_GROUP_ROWS):
                rows = slice(start, min(start + ROW_GROUP_ROWS, num_rows))
                arrays = [column.array(source, rows) for column in columns]
                writer.write_batch(pa.record_batch(arrays, schema=schema))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path
