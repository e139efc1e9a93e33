"""Request traces from files: public formats and plain named columns, plain or compressed."""

import gzip
import io
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import zstandard
from numpy.typing import NDArray

from forecaster.errors import TraceFormatError
from forecaster.plan import NUM_PRIORITIES
from simulator.requests import NORMAL_PRIORITY, RequestTable

KEPT_PROBLEMS = 20
"""Skipped rows that are named one by one; all are counted."""

MAX_TOKENS = 10_000_000
"""More tokens than any context window there is: a larger number is a mistake in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRow:
    """A row that is no request: its line in the (uncompressed) file and what is wrong with it."""

    line_number: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace that was read.

    Attributes
    ----------
    path : Path
    format : str
        "azure", "mooncake" or "columns".
    requests : RequestTable
        Arrivals count from the first request.
    num_skipped : int
        Rows that are no requests.
    skipped : tuple of SkippedRow
        The first of them.
    """

    path: Path
    format: str
    requests: RequestTable
    num_skipped: int
    skipped: tuple[SkippedRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format:
    name: str
    arrival: tuple[str, ...]  # names that the column may have, in order of preference
    prompt: tuple[str, ...]
    output: tuple[str, ...]
    arrival_seconds: Callable[[pd.Series], NDArray[np.float64]]

    @property
    def required(self) -> tuple[tuple[str, ...], ...]:
        return (self.arrival, self.prompt, self.output)


def _from_timestamps(column: pd.Series) -> NDArray[np.float64]:
    """Return seconds since the first of Azure's TIMESTAMPs, with (2024) or without (2023) a time zone.

    NaN if unparsable. The difference is taken before it becomes a float, which would lose the last 100 ns.
    """
    stamps = pd.to_datetime(column, format="ISO8601", utc=True, errors="coerce")
    seconds = (stamps - stamps.min()) / pd.Timedelta(seconds=1)
    return seconds.to_numpy(dtype=np.float64)


def _from_milliseconds(column: pd.Series) -> NDArray[np.float64]:
    return _numbers(column) / 1e3


def _numbers(column: pd.Series) -> NDArray[np.float64]:
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


FORMATS: tuple[_Format, ...] = (
    _Format(
        name="azure",
        arrival=("TIMESTAMP",),
        prompt=("ContextTokens",),
        output=("GeneratedTokens",),
        arrival_seconds=_from_timestamps,
    ),
    _Format(
        name="mooncake",
        arrival=("timestamp",),
        prompt=("input_length",),
        output=("output_length",),
        arrival_seconds=_from_milliseconds,
    ),
    _Format(
        name="columns",
        arrival=("arrival_seconds", "arrival_s"),
        prompt=("prompt_tokens",),
        output=("output_tokens",),
        arrival_seconds=_numbers,
    ),
)


def read_trace(path: Path | str, *, seed: int = 0) -> Trace:
    """Return the requests of a trace file, sorted by arrival.

    Rows that cannot be requests are skipped, counted and named; `seed` places the requests of a trace whose
    timestamps lie on a coarse grid (Mooncake: some 3 s) within their grid step.

    Raises
    ------
    TraceFormatError
        If the file is missing, unreadable, of no known format, or has no usable row.
    """
    path = Path(path)
    table, first_line = _read_table(path)
    kind = _format_of(path, table)
    arrival_name, prompt_name, output_name = (_present(names, table) for names in kind.required)
    columns = {
        "arrival": kind.arrival_seconds(table[arrival_name]),
        "prompt": _numbers(table[prompt_name]),
        "output": _numbers(table[output_name]),
        "priority": _priorities(table),
    }
    problems = _problems(columns, names=(arrival_name, prompt_name, output_name))
    usable = np.array([problem == "" for problem in problems]) if problems else np.zeros(0, dtype=bool)
    skipped = tuple(
        SkippedRow(line_number=int(i) + first_line, problem=problems[i])
        for i in np.flatnonzero(~usable)[:KEPT_PROBLEMS]
    )
    if not usable.any():
        why = f"; line {skipped[0].line_number}: {skipped[0].problem}" if skipped else ""
        raise TraceFormatError(f"{path}: no usable request in {len(problems)} rows{why}")
    arrival = columns["arrival"][usable]
    if kind.name == "mooncake":
        arrival = spread_over_grid(arrival, np.random.default_rng(seed))
    requests = RequestTable.from_columns(
        arrival - arrival.min(),
        columns["prompt"][usable].astype(np.int64),
        columns["output"][usable].astype(np.int64),
        priority=columns["priority"][usable].astype(np.int8),
    )
    return Trace(path=path, format=kind.name, requests=requests, num_skipped=int((~usable).sum()), skipped=skipped)


def spread_over_grid(arrival_seconds: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return arrivals moved uniformly within their grid step, the time to the next distinct arrival, in their order.

    A recorder that writes times on a grid of seconds makes every step look like a burst of simultaneous requests.
    """
    grid, step_of = np.unique(arrival_seconds, return_inverse=True)
    usual = float(np.median(np.diff(grid))) if grid.size > 1 else 0.0
    widths = np.minimum(np.diff(grid, append=grid[-1] + usual), usual)
    return np.asarray(np.sort(arrival_seconds + rng.random(arrival_seconds.size) * widths[step_of]))


def _read_table(path: Path) -> tuple[pd.DataFrame, int]:
    """Return the file as a table of raw values, and the line number of its first row."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    try:
        content = _decompressed(path, suffixes)
        if ".parquet" in suffixes:
            return pd.read_parquet(io.BytesIO(content)), 1
        if not content.strip():
            raise TraceFormatError(f"{path}: the file is empty")
        if content.lstrip()[:1] == b"{":
            return _read_json_lines(content), 1
        return pd.read_csv(io.BytesIO(content), dtype=str, skip_blank_lines=False, on_bad_lines="error"), 2
    except FileNotFoundError as error:
        raise TraceFormatError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise TraceFormatError(f"{path}: is a folder, expected a trace file") from error
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise TraceFormatError(f"{path}: cannot be read: {error}") from error
    except (ValueError, pd.errors.ParserError) as error:
        raise TraceFormatError(f"{path}: cannot be parsed: {error}") from error


def _decompressed(path: Path, suffixes: Sequence[str]) -> bytes:
    if suffixes and suffixes[-1] == ".gz":
        with gzip.open(path) as file:
            return file.read()
    if suffixes and suffixes[-1] == ".zst":
        with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
            return stream.read()
    return path.read_bytes()


def _read_json_lines(content: bytes) -> pd.DataFrame:
    """Return one row a line; a line that is no JSON object is a row of unknown values."""
    rows = []
    for line in content.splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            row = {}
        # lists such as hash_ids are not request columns: keeping them would make the table slow and large
        scalars = row.items() if isinstance(row, dict) else ()
        rows.append({name: value for name, value in scalars if not isinstance(value, list | dict)})
    return pd.DataFrame(rows)


def _format_of(path: Path, table: pd.DataFrame) -> _Format:
    def missing(kind: _Format) -> list[str]:
        return [" or ".join(names) for names in kind.required if not set(names) & set(table.columns)]

    closest = min(FORMATS, key=lambda kind: len(missing(kind)))
    lacking = missing(closest)
    if not lacking:
        return closest
    known = "; ".join(f"{kind.name}: {', '.join(names[0] for names in kind.required)}" for kind in FORMATS)
    found = ", ".join(map(str, table.columns)) or "none"
    wanted = f"missing {', '.join(lacking)} of format {closest.name}" if len(lacking) < 3 else "no known format"
    raise TraceFormatError(f"{path}: {wanted}; columns found: {found[:200]}; formats: {known}")


def _present(names: tuple[str, ...], table: pd.DataFrame) -> str:
    return next(name for name in names if name in table.columns)


def _priorities(table: pd.DataFrame) -> NDArray[np.float64]:
    if "priority" not in table.columns:
        return np.full(len(table), float(NORMAL_PRIORITY))
    return _numbers(table["priority"])


def _problems(columns: dict[str, NDArray[np.float64]], *, names: tuple[str, str, str]) -> list[str]:
    """Return what is wrong with each row, empty where nothing is."""
    arrival_name, prompt_name, output_name = names
    arrival, prompt, output, priority = (columns[key] for key in ("arrival", "prompt", "output", "priority"))
    checks = [
        (np.isnan(arrival), f"{arrival_name} is missing or no time"),
        (np.isnan(prompt), f"{prompt_name} is missing or no number"),
        (np.isnan(output), f"{output_name} is missing or no number"),
        (prompt < 1, f"{prompt_name} must be >= 1"),
        (output == 0, f"{output_name} is 0: a failed request"),
        (output < 0, f"{output_name} must be >= 1"),
        ((prompt > MAX_TOKENS) | (output > MAX_TOKENS), f"more than {MAX_TOKENS} tokens"),
        (~np.isin(priority, range(NUM_PRIORITIES)), f"priority must be 0 to {NUM_PRIORITIES - 1}"),
    ]
    problems = np.full(arrival.size, "", dtype=object)
    for failed, problem in reversed(checks):  # the first check that fails names the problem
        problems[failed] = problem
    return list(problems)
