"""Request logs of a real engine: when each request was queued, got its first token and finished."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd

from forecaster.errors import TraceFormatError
from forecaster.telemetry import Floats
from simulator.requests import RequestTable
from training.trace_files import read_table

MIN_REQUESTS = 20  # of which half are fitted: fewer points than parameters teach nothing

# what we call a column -> what files call it: the first found counts
COLUMNS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "queued_at": ("queued_at", "queued_ts", "arrival"),
        "first_token_at": ("first_token_at", "first_token_ts"),
        "finished_at": ("finished_at", "last_token_ts"),
        "prompt_tokens": ("prompt_tokens", "input_toks"),
        "output_tokens": ("output_tokens", "output_toks"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLog:
    """What one engine was asked and when it answered.

    Attributes
    ----------
    name : str
        The file's name, for messages.
    requests : RequestTable
        In order of arrival; second 0 is when the first was queued.
    first_token_at, finished_at : ndarray of float64, shape (n,), seconds
        On the same clock.
    """

    name: str
    requests: RequestTable
    first_token_at: Floats
    finished_at: Floats

    @property
    def ttft_seconds(self) -> Floats:
        """Time from queued to first token of each request, shape (n,)."""
        return self.first_token_at - self.requests.arrival_seconds

    @property
    def e2e_seconds(self) -> Floats:
        """Time from queued to last token of each request, shape (n,)."""
        return self.finished_at - self.requests.arrival_seconds


def read_engine_log(path: Path) -> EngineLog:
    """Return the requests of a log file: JSON lines or CSV, plain or compressed.

    Columns, in seconds on one clock (any origin) and tokens: queued_at (or queued_ts, arrival), first_token_at (or
    first_token_ts), finished_at (or last_token_ts), prompt_tokens (or input_toks), output_tokens (or output_toks).

    Raises
    ------
    TraceFormatError
        If the file cannot be read, lacks a column, holds values that cannot be true, or fewer than 20 requests.
    """
    raw = read_table(path)
    found = {name: next((known for known in names if known in raw.rows), None) for name, names in COLUMNS.items()}
    missing = [name for name, column in found.items() if column is None]
    if missing:
        raise TraceFormatError(
            f"{path}: no column {', '.join(missing)} among {', '.join(map(str, raw.rows.columns))}; "
            f"rename yours to {', '.join(COLUMNS)}"
        )
    columns = {name: pd.to_numeric(raw.rows[column], errors="coerce") for name, column in found.items()}
    table = pd.DataFrame(columns).astype(np.float64)
    _refuse_bad_rows(path, table, raw.first_line)
    table = table.sort_values("queued_at", kind="stable")
    start = table["queued_at"].iloc[0]
    return EngineLog(
        name=path.name,
        requests=RequestTable.from_columns(
            table["queued_at"].to_numpy() - start,
            table["prompt_tokens"].to_numpy().astype(np.int64),
            table["output_tokens"].to_numpy().astype(np.int64),
        ),
        first_token_at=table["first_token_at"].to_numpy() - start,
        finished_at=table["finished_at"].to_numpy() - start,
    )


def _refuse_bad_rows(path: Path, table: pd.DataFrame, first_line: int) -> None:
    if len(table) < MIN_REQUESTS:
        raise TraceFormatError(f"{path}: {len(table)} requests, but a fit needs at least {MIN_REQUESTS}; log more")
    checks = (
        (~np.isfinite(table).all(axis=1), "a value is missing or no finite number"),
        (table[["prompt_tokens", "output_tokens"]].min(axis=1) < 1, "prompt_tokens and output_tokens must be >= 1"),
        (table["first_token_at"] <= table["queued_at"], "first_token_at must be after queued_at"),
        (table["finished_at"] < table["first_token_at"], "finished_at must not be before first_token_at"),
    )
    for is_bad, problem in checks:
        if is_bad.any():
            at = int(np.argmax(is_bad))
            seen = json.dumps(table.iloc[at].to_dict())
            raise TraceFormatError(
                f"{path}: line {first_line + at}: {problem}, got {seen}; leave out requests that did not finish"
            )
