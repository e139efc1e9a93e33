"""Request traces from files: public formats and plain named columns, plain or compressed."""

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecaster.errors import TraceFormatError
from simulator.requests import NORMAL_PRIORITY, Prefixes, RequestTable
from training.trace_checks import GROUP_TOKENS, HASH_IDS, TraceColumns, row_problems
from training.trace_files import read_table
from training.trace_formats import format_of, numbers

KEPT_PROBLEMS = 20
"""Skipped rows that are named one by one; all are counted."""


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
    kind = format_of(path, table.rows)
    names = tuple(next(name for name in known if name in table.rows.columns) for known in kind.required)
    arrival_name, prompt_name, output_name = names
    columns = TraceColumns(
        arrival=kind.arrival_seconds(table.rows[arrival_name]),
        prompt=numbers(table.rows[prompt_name]),
        output=numbers(table.rows[output_name]),
        priority=_priorities(table.rows),
        hash_ids=_hash_ids(table.rows) if kind.name == "mooncake" else None,
        has_extra_fields=table.has_extra_fields,
    )
    problem_of, problems = row_problems(columns, names, has_failures=kind.has_failures)
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


def _requests(columns: TraceColumns, usable: NDArray[np.bool_], *, seed: int | None) -> RequestTable:
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


def _priorities(table: pd.DataFrame) -> NDArray[np.float64]:
    if "priority" not in table.columns:
        return np.full(len(table), float(NORMAL_PRIORITY))
    return numbers(table["priority"])


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
