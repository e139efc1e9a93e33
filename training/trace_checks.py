"""Which rows of a trace cannot be requests, and why."""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecaster.plan import NUM_PRIORITIES

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
class TraceColumns:
    """The columns of all rows, NaN where they are no numbers; arrivals in seconds."""

    arrival: NDArray[np.float64]
    prompt: NDArray[np.float64]
    output: NDArray[np.float64]
    priority: NDArray[np.float64]
    hash_ids: list[list[Hashable] | None] | None  # None: no such column; of a row: no list of ids
    has_extra_fields: NDArray[np.bool_]


def _has_wrong_ids(columns: TraceColumns) -> NDArray[np.bool_]:
    """Return whether a row's ids are no ids, or more than its prompt has groups."""
    if columns.hash_ids is None:
        return np.zeros(columns.prompt.size, dtype=bool)
    counts = np.array([np.inf if ids is None else len(ids) for ids in columns.hash_ids])
    return np.asarray(counts > np.ceil(columns.prompt / GROUP_TOKENS))


def row_problems(
    columns: TraceColumns, names: tuple[str, ...], *, has_failures: bool
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
