"""What a sweep found: each figure's median and range over the seeds, for every scenario and policy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import isnan, nan
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from training.parquet_columns import Column, write_table
from training.scorecard import Scorecard
from training.sweep_tasks import SweepRun

SUMMARISED: tuple[str, ...] = tuple(field.name for field in fields(Scorecard) if field.type in (int, float))
"""The scorecard's single figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A figure over the seeds; NaN where no run knows it."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySummary:
    """One policy on one scenario.

    Attributes
    ----------
    scenario, policy : str
    cards : tuple of Scorecard
        Of the runs that did not fail.
    num_failed : int
    """

    scenario: str
    policy: str
    cards: tuple[Scorecard, ...]
    num_failed: int

    def spread(self, value: Callable[[Scorecard], float]) -> Spread:
        """Return the median and the range of what `value` takes from a scorecard, over the runs that know it."""
        known = [number for card in self.cards if not isnan(number := value(card))]
        if not known:
            return Spread(median=nan, low=nan, high=nan)
        return Spread(median=median(known), low=min(known), high=max(known))

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, every single figure of the scorecard; what is not known is null."""
        figures = {name: self.spread(lambda card, name=name: getattr(card, name)) for name in SUMMARISED}
        return {
            "scenario": self.scenario,
            "policy": self.policy,
            "num_finished_runs": len(self.cards),
            "num_failed_runs": self.num_failed,
            "figures": {
                name: {"median": _known(spread.median), "low": _known(spread.low), "high": _known(spread.high)}
                for name, spread in figures.items()
            },
        }


def _known(value: float) -> float | None:
    return None if isnan(value) else value


def summaries(runs: Sequence[SweepRun]) -> tuple[PolicySummary, ...]:
    """Return a summary for every scenario and policy, in the order in which they first appear."""
    pairs = dict.fromkeys((run.scenario, run.policy) for run in runs)
    return tuple(_summary(scenario, policy, runs) for scenario, policy in pairs)


def _summary(scenario: str, policy: str, runs: Sequence[SweepRun]) -> PolicySummary:
    those = [run for run in runs if (run.scenario, run.policy) == (scenario, policy)]
    cards = tuple(run.scorecard for run in those if run.scorecard is not None)
    return PolicySummary(scenario=scenario, policy=policy, cards=cards, num_failed=len(those) - len(cards))


def _figure(name: str, unit: str, meaning: str, *, kind: pa.DataType | None = None) -> Column[Sequence[SweepRun]]:
    """Return a column of the scorecards' field `name`, null where a run failed."""

    def values(runs: Sequence[SweepRun], rows: slice) -> list[Any]:
        return [None if run.scorecard is None else getattr(run.scorecard, name) for run in runs[rows]]

    return Column(name, kind or pa.float64(), unit, meaning, values)


def _of_run(name: str, kind: pa.DataType, unit: str, meaning: str) -> Column[Sequence[SweepRun]]:
    return Column(name, kind, unit, meaning, lambda runs, rows: [getattr(run, name) for run in runs[rows]])


_COUNT = pa.int64()

RUN_COLUMNS: tuple[Column[Sequence[SweepRun]], ...] = (
    _of_run("scenario", pa.string(), "", "what was played"),
    _of_run("policy", pa.string(), "", "who planned"),
    _of_run("seed", _COUNT, "1", "what the traffic was drawn with"),
    _of_run("key", pa.string(), "", "digest of everything that determines the run"),
    _of_run("error", pa.string(), "", "why it failed; empty if it did not"),
    _of_run("num_left_out", _COUNT, "requests", "longer than a replica's KV cache, not played"),
    _figure("num_requests", "requests", "that arrived", kind=_COUNT),
    _figure("attainment_ratio", "ratio", "share of them that met both targets"),
    _figure("attainment_ratio_by_priority", "ratio", "of batch, normal, core", kind=pa.list_(pa.float64())),
    _figure("ttft_p50_seconds", "s", "time to first token, median over requests"),
    _figure("ttft_p95_seconds", "s", "its 0.95 quantile"),
    _figure("ttft_p99_seconds", "s", "its 0.99 quantile"),
    _figure("tpot_p50_seconds", "s", "mean time per further output token of a request, median over requests"),
    _figure("tpot_p95_seconds", "s", "its 0.95 quantile"),
    _figure("replica_hours", "h", "active replicas and warm_cost_ratio x warm ones"),
    _figure("gpu_hours", "h", "the same by GPUs"),
    _figure("warm_cost_ratio", "ratio", "cost of a warm replica over that of an active one"),
    _figure("preemptions", "1", "times that a request lost its KV blocks", kind=_COUNT),
    _figure("shed_requests", "requests", "refused by admission", kind=_COUNT),
    _figure("unfinished_requests", "requests", "without a last token by the end", kind=_COUNT),
    _figure("scaling_actions", "1", "promotions, demotions, orders and removals of single pods", kind=_COUNT),
)


def write_runs(path: Path, runs: Sequence[SweepRun]) -> Path:
    """Return `path`, which now holds a row for each run, as Parquet.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    return write_table(path, RUN_COLUMNS, runs, num_rows=len(runs))
