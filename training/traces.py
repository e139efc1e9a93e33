"""Request traces from files: public formats and plain named columns, plain or compressed."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecaster.errors import TraceFormatError
from forecaster.plan import NUM_PRIORITIES
from simulator.requests import NORMAL_PRIORITY, Prefixes, RequestTable
from training.trace_files import read_table

KEPT_PROBLEMS = 20
"""Skipped rows that are named one by one; all are counted."""

MAX_TOKENS = 10_000_000
"""More tokens than any context window there is: a larger number is a mistake in the file."""


HASH_IDS = "hash_ids"

GROUP_TOKENS = 512
"""Tokens that one of Mooncake's hash_ids stands for (Qin et al., FAST 2025, and the trace's README)."""

MAX_DAYS_FROM_MEDIAN = 366
"""Farther from the median arrival a time is a mistake too (BurstGPT, a long public trace, spans some 120 days).

One such row (a zero among epoch seconds) would stretch a trace of an hour over half a century.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRow:
    """A row that is no request: its line in the uncompressed file (Parquet: its row) and what is wrong with it."""

    line_number: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace that was read.

    Attributes
    ----------
    path : Path
    format : str
        "azure", "mooncake", "burstgpt" or "columns".
    requests : RequestTable
        Arrivals count from the first request. Mooncake's have prefixes, from its hash_ids.
    num_failed : int
        Requests that failed when they were recorded (BurstGPT: no response tokens). They are neither among the requests
        nor among the skipped.
    num_skipped : int
        Rows that are no requests.
    skipped : tuple of SkippedRow
        The first of them.
    """

    path: Path
    format: str
    requests: RequestTable
    num_failed: int
    num_skipped: int
    skipped: tuple[SkippedRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format:
    name: str
    arrival: tuple[str, ...]  # names that the column may have, in order of preference
    prompt: tuple[str, ...]
    output: tuple[str, ...]
    arrival_seconds: Callable[[pd.Series], NDArray[np.float64]]
    has_coarse_grid: bool = False
    has_failures: bool = False  # an output of 0 tokens is a failed request, not a mistake of the file

    @property
    def required(self) -> tuple[tuple[str, ...], ...]:
        return (self.arrival, self.prompt, self.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """The columns of all rows, NaN where they are no numbers; arrivals in seconds."""

    arrival: NDArray[np.float64]
    prompt: NDArray[np.float64]
    output: NDArray[np.float64]
    priority: NDArray[np.float64]
    hash_ids: list[list[Hashable] | None] | None  # None: no such column; of a row: no list of ids
    has_extra_fields: NDArray[np.bool_]


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
        has_coarse_grid=True,
    ),
    _Format(
        name="burstgpt",
        arrival=("Timestamp",),
        prompt=("Request tokens",),
        output=("Response tokens",),
        arrival_seconds=_numbers,
        has_failures=True,
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
    table = read_table(path, list_columns=frozenset({HASH_IDS}))
    kind = _format_of(path, table.rows)
    names = tuple(next(name for name in known if name in table.rows.columns) for known in kind.required)
    arrival_name, prompt_name, output_name = names
    columns = _Columns(
        arrival=kind.arrival_seconds(table.rows[arrival_name]),
        prompt=_numbers(table.rows[prompt_name]),
        output=_numbers(table.rows[output_name]),
        priority=_priorities(table.rows),
        hash_ids=_hash_ids(table.rows) if kind.name == "mooncake" else None,
        has_extra_fields=table.has_extra_fields,
    )
    problem_of, problems = _problems(columns, names, has_failures=kind.has_failures)
    failed = (problem_of == 0) & (columns.output == 0)
    usable = (problem_of == 0) & ~failed
    bad_rows = np.flatnonzero(problem_of)
    skipped = tuple(
        SkippedRow(line_number=int(row) + table.first_line, problem=problems[problem_of[row]])
        for row in bad_rows[:KEPT_PROBLEMS]
    )
    if not usable.any():
        why = f"; line {skipped[0].line_number}: {skipped[0].problem}" if skipped else ""
        why = why or ("; all of them failed when they were recorded" if failed.any() else "")
        raise TraceFormatError(f"{path}: no usable request in {problem_of.size} rows{why}")
    return Trace(
        path=path,
        format=kind.name,
        requests=_requests(columns, usable, seed=seed if kind.has_coarse_grid else None),
        num_failed=int(failed.sum()),
        num_skipped=bad_rows.size,
        skipped=skipped,
    )


def _requests(columns: _Columns, usable: NDArray[np.bool_], *, seed: int | None) -> RequestTable:
    """Return the usable rows; a seed spreads them over their grid."""
    rows = np.flatnonzero(usable)
    rows = rows[np.argsort(columns.arrival[rows], kind="stable")]  # spreading gives times in order, whatever the rows'
    arrival = columns.arrival[rows]
    if seed is not None:
        arrival = spread_over_grid(arrival, np.random.default_rng(seed))
    return RequestTable.from_columns(
        arrival - arrival[0],
        columns.prompt[rows].astype(np.int64),
        columns.output[rows].astype(np.int64),
        priority=columns.priority[rows].astype(np.int8),
        prefixes=_prefixes(columns.hash_ids, rows),
    )


def _prefixes(hash_ids: list[list[Hashable] | None] | None, rows: NDArray[np.int64]) -> Prefixes | None:
    """Return the prefixes of the rows, ids numbered from 0 as they come; None if there is no such column."""
    if hash_ids is None:
        return None
    number_of: dict[Hashable, int] = {}
    numbered = [[number_of.setdefault(i, len(number_of)) for i in hash_ids[row] or []] for row in rows]
    return Prefixes.from_lists(numbered, group_tokens=GROUP_TOKENS)


def spread_over_grid(arrival_seconds: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return arrivals moved uniformly within their grid step, the time to the next distinct arrival, in their order.

    A recorder that writes times on a grid of seconds makes every step look like a burst of simultaneous requests.
    """
    grid, step_of = np.unique(arrival_seconds, return_inverse=True)
    usual = float(np.median(np.diff(grid))) if grid.size > 1 else 0.0
    widths = np.minimum(np.diff(grid, append=grid[-1] + usual), usual)
    return np.asarray(np.sort(arrival_seconds + rng.random(arrival_seconds.size) * widths[step_of]))


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


def _priorities(table: pd.DataFrame) -> NDArray[np.float64]:
    if "priority" not in table.columns:
        return np.full(len(table), float(NORMAL_PRIORITY))
    return _numbers(table["priority"])


def _hash_ids(table: pd.DataFrame) -> list[list[Hashable] | None] | None:
    """Return each row's ids: none where the file gives none, None where they are no list of whole numbers or texts."""
    if HASH_IDS not in table.columns:
        return None

    def ids_of(value: object) -> list[Hashable] | None:
        ids = value.tolist() if isinstance(value, np.ndarray) else value  # Parquet gives arrays
        if isinstance(ids, list):
            return ids if all(type(i) in (int, str) for i in ids) else None
        return [] if pd.isna(ids) is True else None

    return [ids_of(value) for value in table[HASH_IDS]]


def _has_wrong_ids(columns: _Columns) -> NDArray[np.bool_]:
    """Return whether a row's ids are no ids, or more than its prompt has groups."""
    if columns.hash_ids is None:
        return np.zeros(columns.prompt.size, dtype=bool)
    counts = np.array([np.inf if ids is None else len(ids) for ids in columns.hash_ids])
    return np.asarray(counts > np.ceil(columns.prompt / GROUP_TOKENS))


def _problems(
    columns: _Columns, names: tuple[str, ...], *, has_failures: bool
) -> tuple[NDArray[np.int8], tuple[str, ...]]:
    """Return each row's problem as an index into the texts that follow; 0 where there is none."""
    arrival_name, prompt_name, output_name = names
    arrival, prompt, output = columns.arrival, columns.prompt, columns.output
    known = arrival[arrival >= 0]
    days_off = np.abs(arrival - (np.median(known) if known.size else 0.0)) / 86_400
    checks = [
        (columns.has_extra_fields, "more fields than the header names"),
        (np.isnan(arrival), f"{arrival_name} is missing or no time"),
        (arrival < 0, f"{arrival_name} must be >= 0"),
        (days_off > MAX_DAYS_FROM_MEDIAN, f"{arrival_name} is over {MAX_DAYS_FROM_MEDIAN} days from the median"),
        (np.isnan(prompt), f"{prompt_name} is missing or no number"),
        (np.isnan(output), f"{output_name} is missing or no number"),
        (prompt < 1, f"{prompt_name} must be >= 1"),
        ((output == 0) & (not has_failures), f"{output_name} is 0: a failed request"),
        (output < 0, f"{output_name} must be >= 1"),
        ((prompt > MAX_TOKENS) | (output > MAX_TOKENS), f"more than {MAX_TOKENS} tokens"),
        (prompt % 1 != 0, f"{prompt_name} is no whole number"),
        (output % 1 != 0, f"{output_name} is no whole number"),
        (
            _has_wrong_ids(columns),
            f"{HASH_IDS} must be a list of ids, one for each {GROUP_TOKENS} tokens of the prompt",
        ),
        (~np.isin(columns.priority, range(NUM_PRIORITIES)), f"priority must be 0 to {NUM_PRIORITIES - 1}"),
    ]
    problem_of = np.zeros(arrival.size, dtype=np.int8)
    for i in range(len(checks), 0, -1):  # the first check that fails names the problem
        problem_of[checks[i - 1][0]] = i
    return problem_of, ("", *(text for _, text in checks))
