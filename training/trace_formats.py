"""The public formats of request traces: which columns each has, and how its arrivals become seconds."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecaster.errors import TraceFormatError


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """One format: the names of its columns, in order of preference, and what is particular about it."""

    name: str
    arrival: tuple[str, ...]  # names that the column may have, in order of preference
    prompt: tuple[str, ...]
    output: tuple[str, ...]
    arrival_seconds: Callable[[pd.Series], NDArray[np.float64]]
    has_coarse_grid: bool = False
    has_failures: bool = False  # an output of 0 tokens is a failed request, not a mistake of the file

    @property
    def required(self) -> tuple[tuple[str, ...], ...]:
        """The names that each column without which there is no request may have."""
        return (self.arrival, self.prompt, self.output)


def _from_timestamps(column: pd.Series) -> NDArray[np.float64]:
    """Return seconds since the first of Azure's TIMESTAMPs, with (2024) or without (2023) a time zone.

    NaN if unparsable. The difference is taken before it becomes a float, which would lose the last 100 ns.
    """
    if pd.api.types.is_numeric_dtype(column):
        column = column.astype(str)  # a bare number is no TIMESTAMP: pandas would take it for an epoch of some unit
    stamps = pd.to_datetime(column, format="ISO8601", utc=True, errors="coerce")
    seconds = (stamps - stamps.min()) / pd.Timedelta(seconds=1)
    return seconds.to_numpy(dtype=np.float64)


def _from_milliseconds(column: pd.Series) -> NDArray[np.float64]:
    return numbers(column) / 1e3


def numbers(column: pd.Series) -> NDArray[np.float64]:
    """Return a column as numbers, NaN where it has none that is finite."""
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


FORMATS: tuple[TraceFormat, ...] = (
    TraceFormat(
        name="azure",
        arrival=("TIMESTAMP",),
        prompt=("ContextTokens",),
        output=("GeneratedTokens",),
        arrival_seconds=_from_timestamps,
    ),
    TraceFormat(
        name="mooncake",
        arrival=("timestamp",),
        prompt=("input_length",),
        output=("output_length",),
        arrival_seconds=_from_milliseconds,
        has_coarse_grid=True,
    ),
    TraceFormat(
        name="burstgpt",
        arrival=("Timestamp",),
        prompt=("Request tokens",),
        output=("Response tokens",),
        arrival_seconds=numbers,
        has_failures=True,
    ),
    TraceFormat(
        name="columns",
        arrival=("arrival_seconds", "arrival_s"),
        prompt=("prompt_tokens",),
        output=("output_tokens",),
        arrival_seconds=numbers,
    ),
)


def format_of(path: Path, table: pd.DataFrame) -> TraceFormat:
    """Return the format whose columns a table has.

    Raises
    ------
    TraceFormatError
        If there is none; the message names the closest and what it lacks.
    """

    def missing(kind: TraceFormat) -> list[str]:
        return [" or ".join(names) for names in kind.required if not set(names) & set(table.columns)]

    closest = min(FORMATS, key=lambda kind: len(missing(kind)))
    lacking = missing(closest)
    if not lacking:
        return closest
    known = "; ".join(f"{kind.name}: {', '.join(names[0] for names in kind.required)}" for kind in FORMATS)
    found = ", ".join(map(str, table.columns)) or "none"
    wanted = f"missing {', '.join(lacking)} of format {closest.name}" if len(lacking) < 3 else "no known format"
    raise TraceFormatError(f"{path}: {wanted}; columns found: {found[:200]}; formats: {known}")
