"""Traffic put together from tables of requests: joined, and a recorded trace in several copies shifted in time."""

from collections.abc import Sequence
from math import ceil

import numpy as np
from numpy.random import Generator

from forecaster.telemetry import Floats
from simulator.requests import NO_REQUEST, Prefixes, RequestTable


def joined(tables: Sequence[RequestTable]) -> RequestTable:
    """Return the requests of all tables in order of arrival; those of different tables share no prefix.

    Raises
    ------
    ValueError
        If there is no table, or their prefix groups differ in size.
    """
    if not tables:
        raise ValueError("no tables of requests to join")
    rows = np.cumsum([0, *(table.num_requests for table in tables)])
    follows = [
        np.where(table.follows == NO_REQUEST, NO_REQUEST, table.follows + first)
        for table, first in zip(tables, rows[:-1].tolist(), strict=True)
    ]
    return RequestTable.from_columns(
        np.concatenate([table.arrival_seconds for table in tables]),
        np.concatenate([table.prompt_tokens for table in tables]),
        np.concatenate([table.output_tokens for table in tables]),
        priority=np.concatenate([table.priority for table in tables]),
        follows=np.concatenate(follows),
        think_seconds=np.concatenate([table.think_seconds for table in tables]),
        prefixes=_joined_prefixes([table.prefixes for table in tables]),
    )


def _joined_prefixes(parts: list[Prefixes]) -> Prefixes:
    sizes = sorted({part.group_tokens for part in parts if part.ids.size})
    if len(sizes) > 1:
        raise ValueError(f"prefix groups of {sizes} tokens cannot be joined; record all with groups of one size")
    num_ids = np.cumsum([0, *(part.ids.size for part in parts)])
    above = np.cumsum([0, *(int(part.ids.max(initial=-1)) + 1 for part in parts)])
    return Prefixes(
        starts=np.concatenate(
            [[0], *(part.starts[1:] + first for part, first in zip(parts, num_ids[:-1].tolist(), strict=True))]
        ).astype(np.int64),
        ids=np.concatenate([part.ids + base for part, base in zip(parts, above[:-1].tolist(), strict=True)]),
        group_tokens=sizes[0] if sizes else parts[0].group_tokens,
    )


def copies_of_trace(
    trace: RequestTable,
    *,
    num_copies: Floats,
    shift_seconds: Floats,
    period_seconds: float,
    rng: Generator,
) -> RequestTable:
    """Return a trace played in several copies at once, each moved around a circle, as many at any time as told.

    Copy k plays while `num_copies` is above k, and with a probability of the rest where it ends between k and
    k + 1. So traffic is raised by more of the same kind of traffic with lengths and bunching of its own, and nothing
    is drawn where the number of copies is whole.

    Parameters
    ----------
    trace : RequestTable
        None of its requests follows another: a circle has no earlier.
    num_copies : ndarray of shape (num_seconds,)
        >= 0, in each second of the run.
    shift_seconds : ndarray of shape (k,)
        Of each copy, at least as many as the highest `num_copies`.
    period_seconds : float
        Length of the circle, longer than the last arrival; the trace begins anew after it.

    Raises
    ------
    ValueError
        If the arguments contradict each other.
    """
    _refuse_bad_copies(trace, num_copies, shift_seconds, period_seconds)
    tables = []
    for copy, shift in enumerate(shift_seconds[: ceil(num_copies.max(initial=0.0))].tolist()):
        at = (trace.arrival_seconds + shift) % period_seconds
        for turn in range(ceil(num_copies.size / period_seconds)):
            arrival = at + turn * period_seconds
            rows = np.flatnonzero(arrival < num_copies.size)
            share = np.clip(num_copies[arrival[rows].astype(np.int64)] - copy, 0.0, 1.0)
            rows = rows[rng.random(rows.size) < share]
            rows = rows[np.argsort(arrival[rows], kind="stable")]
            tables.append(_moved(trace, rows, arrival[rows]))
    return joined(tables) if tables else trace.take(np.zeros(0, dtype=np.int64))


def _moved(trace: RequestTable, rows: np.ndarray, arrival: Floats) -> RequestTable:
    """Return the requests at `rows` at new times."""
    return RequestTable(
        arrival_seconds=arrival,
        prompt_tokens=trace.prompt_tokens[rows],
        output_tokens=trace.output_tokens[rows],
        priority=trace.priority[rows],
        prefixes=trace.prefixes.take(rows),
    )


def _refuse_bad_copies(trace: RequestTable, num_copies: Floats, shift_seconds: Floats, period_seconds: float) -> None:
    if (trace.follows != NO_REQUEST).any():
        raise ValueError("a trace whose requests follow each other cannot be played in shifted copies")
    if not (np.isfinite(num_copies).all() and (num_copies >= 0).all()):
        raise ValueError("num_copies must be finite and >= 0 in every second")
    if shift_seconds.size < num_copies.max(initial=0.0):
        raise ValueError(f"{num_copies.max():g} copies need as many shifts, got {shift_seconds.size}")
    if trace.num_requests and not trace.arrival_seconds[-1] < period_seconds:
        raise ValueError(
            f"period_seconds must be longer than the trace, whose last request arrives at "
            f"{trace.arrival_seconds[-1]:g} s, got {period_seconds:g}"
        )
