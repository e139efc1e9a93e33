"""A simulated run as Parquet files: requests, telemetry, plans, replicas, events, decisions.

Each column is one line below: its name, Arrow type, unit, meaning, and where it comes from. Units and meanings go into
the files, as metadata of the Arrow fields. What is not known is null.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forecaster.plan import CapacityPlan
from forecaster.telemetry import SIGNALS, Floats, TelemetryWindow
from simulator.engine_state import NONE, OUTCOMES
from simulator.history import FleetEvents, ReplicaTimeline
from simulator.lifecycle import PodState
from simulator.requests import RequestTable
from simulator.result import SimulationResult
from training.decisions import Decision, decision_log
from training.parquet_columns import Column, write_table
from training.scorecard import latencies

_OUTCOME = pa.dictionary(pa.int8(), pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Requests:
    """The requests of a run and what is derived from them once; a row each."""

    run: SimulationResult
    table: RequestTable
    ttft_seconds: Floats
    tpot_seconds: Floats

    def e2e_seconds(self, at: slice) -> Floats:
        return self.run.finished_at[at] - self.run.arrival_at[at]


def _outcome_words(codes: NDArray[np.int8]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes), list(OUTCOMES))


def _numbered(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers of replicas or requests, masked where there is none."""
    return np.ma.masked_equal(values, NONE)


def _each(attribute: str) -> Callable[[Sequence[Any], slice], list[Any]]:
    """Return what takes one attribute, dotted or not, of each object in a slice."""
    value = attrgetter(attribute)
    return lambda objects, at: [value(each) for each in objects[at]]


_FLOAT, _COUNT, _SMALL, _WORD = pa.float64(), pa.int64(), pa.int32(), pa.string()
_CLASS = pa.int8()
_RATIOS = pa.list_(_FLOAT)
_STATES = [state.name.lower() for state in PodState]

REQUEST_COLUMNS: tuple[Column[_Requests], ...] = (
    Column("arrival_seconds", _FLOAT, "s", "arrival in the table", lambda r, at: r.table.arrival_seconds[at]),
    Column("prompt_tokens", _COUNT, "tokens", "length of the prompt", lambda r, at: r.table.prompt_tokens[at]),
    Column("output_tokens", _COUNT, "tokens", "length of the answer", lambda r, at: r.table.output_tokens[at]),
    Column("priority", _CLASS, "class", "0 batch, 1 normal, 2 core", lambda r, at: r.table.priority[at]),
    Column("follows", _COUNT, "row", "row whose end it waits for", lambda r, at: _numbered(r.table.follows[at])),
    Column("think_seconds", _FLOAT, "s", "from that end to its arrival", lambda r, at: r.table.think_seconds[at]),
    Column("arrival_at", _FLOAT, "s", "first attempt's arrival, from the start", lambda r, at: r.run.arrival_at[at]),
    Column("ttft_seconds", _FLOAT, "s", "arrival_at to first token", lambda r, at: r.ttft_seconds[at]),
    Column("e2e_seconds", _FLOAT, "s", "arrival_at to last token", lambda r, at: r.e2e_seconds(at)),
    Column("tpot_seconds", _FLOAT, "s", "mean per output token after the first", lambda r, at: r.tpot_seconds[at]),
    Column("outcome", _OUTCOME, "", "what became of it", lambda r, at: _outcome_words(r.run.outcome[at])),
    Column("served_by", _SMALL, "slot", "replica that had it", lambda r, at: _numbered(r.run.served_by[at])),
    Column("num_attempts", _SMALL, "1", "times it was sent; 0: not at all", lambda r, at: r.run.num_attempts[at]),
    Column("num_preemptions", _SMALL, "1", "times it lost its KV blocks", lambda r, at: r.run.num_preemptions[at]),
)

TELEMETRY_COLUMNS: tuple[Column[TelemetryWindow], ...] = (
    Column("row_at", _FLOAT, "s", "end of the row, from the start", lambda t, at: t.row_at[at]),
    Column("seen_at", _FLOAT, "s", "when the planner saw it", lambda t, at: t.seen_at[at]),
    *(Column(s.name, _FLOAT, s.unit, s.meaning, lambda t, at, i=i: t.values[at, i]) for i, s in enumerate(SIGNALS)),
)

PLAN_COLUMNS: tuple[Column[Sequence[CapacityPlan]], ...] = (
    Column("planned_at", _FLOAT, "s", "when it was made, from the start", _each("planned_at")),
    Column("serving_replicas", _SMALL, "replicas", "should serve", _each("serving_replicas")),
    Column("supply_replicas", _SMALL, "replicas", "should exist", _each("supply_replicas")),
    Column("is_valid", pa.bool_(), "", "no: too little was known to plan", _each("is_valid")),
    Column("ttft_p95_seconds", _FLOAT, "s", "forecast 30 s ahead", _each("ttft_p95_seconds")),
    Column(
        "admission_prefill_tokens_per_second",
        _FLOAT,
        "tokens/s",
        "refill of admission's bucket; inf admits all",
        _each("admission.prefill_tokens_per_second"),
    ),
    Column("admission_burst_tokens", _FLOAT, "tokens", "size of that bucket", _each("admission.burst_tokens")),
    Column(
        "admitted_ratio_by_priority",
        _RATIOS,
        "ratio",
        "share of batch, normal and core requests let in at all",
        _each("admission.admitted_ratio_by_priority"),
    ),
)

DECISION_COLUMNS: tuple[Column[Sequence[Decision]], ...] = (
    Column("first_at", _FLOAT, "s", "first plan that gave the reason, from the start", _each("first_at")),
    Column("last_at", _FLOAT, "s", "last consecutive plan that gave it", _each("last_at")),
    Column("num_plans", _SMALL, "1", "consecutive plans that gave it", _each("num_plans")),
    Column("code", _WORD, "", "which rule", _each("code.value")),
    Column("message", _WORD, "", "its sentence in the first of them", _each("message")),
    Column("before", _FLOAT, "the rule's", "what the rule was given", _each("before")),
    Column("after", _FLOAT, "the rule's", "what it made of that", _each("after")),
)


REPLICA_COLUMNS: tuple[Column[ReplicaTimeline], ...] = (
    Column("at_seconds", _FLOAT, "s", "when its state changed, from the start", lambda t, at: t.at_seconds[at]),
    Column("slot", _SMALL, "slot", "place that holds one pod after the other", lambda t, at: t.slot[at]),
    Column("pod_id", _SMALL, "pod", "pods are numbered as they are ordered", lambda t, at: t.pod_id[at]),
    Column("state", _WORD, "", "its state from then on", lambda t, at: [_STATES[code] for code in t.state[at]]),
)

EVENT_COLUMNS: tuple[Column[FleetEvents], ...] = (
    Column("at_seconds", _FLOAT, "s", "when, from the start", lambda e, at: e.at_seconds[at]),
    Column("kind", _WORD, "", "what happened", lambda e, at: e.kind[at].tolist()),
    Column("slot", _SMALL, "slot", "to the pod in this slot; null: to the fleet", lambda e, at: _numbered(e.slot[at])),
    Column("detail", _WORD, "", "further words", lambda e, at: e.detail[at].tolist()),
)


def write_run(result: SimulationResult, folder: Path) -> tuple[Path, ...]:
    """Return the files that now hold a run in `folder`, which is made if need be; files of these names are replaced.

    Raises
    ------
    OSError
        If one cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ttft, tpot = latencies(result)
    requests = _Requests(run=result, table=result.requests, ttft_seconds=ttft, tpot_seconds=tpot)
    timeline, events = result.timeline, result.events
    telemetry, plans, decisions = result.telemetry, result.plans, decision_log(result.plans).decisions
    return (
        write_table(folder / "requests.parquet", REQUEST_COLUMNS, requests, num_rows=result.requests.num_requests),
        write_table(folder / "telemetry.parquet", TELEMETRY_COLUMNS, telemetry, num_rows=telemetry.num_rows),
        write_table(folder / "plans.parquet", PLAN_COLUMNS, plans, num_rows=len(plans)),
        write_table(folder / "replicas.parquet", REPLICA_COLUMNS, timeline, num_rows=timeline.at_seconds.size),
        write_table(folder / "events.parquet", EVENT_COLUMNS, events, num_rows=events.at_seconds.size),
        write_table(folder / "decisions.parquet", DECISION_COLUMNS, decisions, num_rows=len(decisions)),
    )
