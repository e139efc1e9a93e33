"""The features, as data: which series, which trailing statistic, and what it is divided by.

Both forms, over a window and row by row, read these tables, so there is one definition of each feature. Features are
ratios to the trailing minute wherever that makes sense: a model that learns log(target / trailing mean) from them
works at any level of traffic (trees do not extrapolate; DESIGN section 4). Levels appear only where they say how
noisy a ratio is, since the noise of Poisson arrivals shrinks with their number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from forecaster.capacity import ReplicaCapacity
from forecaster.features.schema import FeatureColumn, FeatureSchema
from forecaster.forecast import DEMAND, KV_BLOCKS, PREFILL, TARGETS
from forecaster.telemetry import SIGNAL_INDEX

SCALE_ROWS = 60
"""The trailing mean that targets and features are divided by covers a minute: below it noise, above it stale."""

LONGEST_ROWS = 900
"""No window is longer; after a gap of that many rows everything but the slow memories has forgotten."""

MAXIMUM_ROWS: tuple[int, ...] = (10, 30, 60, 300, 900)
"""Windows of the trailing maxima, which the baseline reads as quantiles."""

FLOOR_REPLICAS = 0.02
"""Loads below 2 % of a replica count as 2 %: their ratios would be noise about nothing."""

SERIES: tuple[str, ...] = (
    KV_BLOCKS,
    PREFILL,
    DEMAND,
    "request_rate",
    "prompt_rate",
    "prompt_blocks_rate",
    "prefill_gap",
    "in_flight",
    "waiting",
    "ttft",
    "kv_used",
    "kv_total",
)
"""What `series_of` returns, in order."""

_AT = SIGNAL_INDEX


def series_of(load: Sequence[Any], signals: Sequence[Any], block_size_tokens: int) -> tuple[Any, ...]:
    """Return the base series in the order of `SERIES`, of one row (floats) or of a window (columns) alike.

    Parameters
    ----------
    load : (kv_blocks, prefill_tokens_per_second, demand_replicas)
        Offered load.
    signals : sequence in the order of `forecaster.telemetry.SIGNALS`
    block_size_tokens : int
    """
    kv_blocks, prefill, demand = load
    prompt_rate = signals[_AT["prompt_tokens_per_second"]]
    waiting = signals[_AT["waiting_requests"]]
    return (
        kv_blocks,
        prefill,
        demand,
        signals[_AT["request_rate_per_second"]],
        prompt_rate,
        prompt_rate / block_size_tokens,
        prompt_rate - signals[_AT["prefill_tokens_per_second"]],
        signals[_AT["running_requests"]] + waiting,
        waiting,
        signals[_AT["ttft_mean_seconds"]],
        signals[_AT["kv_blocks_used"]],
        signals[_AT["kv_blocks_total"]],
    )


class Form(IntEnum):
    """What becomes of a trailing statistic v; w is the column it is set against, f a floor."""

    LEVEL = 0  # v
    FLOORED = 1  # max(v, f)
    LOG_LEVEL = 2  # log(1 + v)
    LOG_RATIO = 3  # log(max(v, f) / w), unknown where w is 0
    RATIO = 4  # v / w, unknown where w is 0
    DISPERSION = 5  # v^2 / w, unknown where w is 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One column: a trailing statistic of `source` over `rows` rows in a form.

    `source` and `over` name a series or an earlier definition. `floor` names an entry of `floors_for`. A hidden
    column serves others and is no feature.
    """

    name: str
    unit: str
    source: str
    statistic: str
    rows: int
    form: Form
    over: str = ""
    floor: str = ""
    hidden: bool = False


def scale_name(target: str) -> str:
    """Return the name of the feature that holds a target's floored trailing mean, in the target's own unit."""
    return f"{target}_trailing_mean"


def maximum_name(target: str, rows: int) -> str:
    """Return the name of the feature log(trailing maximum / trailing mean)."""
    return f"{target}_max_{rows}_log_ratio"


def floors_for(capacity: ReplicaCapacity) -> Mapping[str, float]:
    """Return the smallest load of each kind that counts as load."""
    return {
        KV_BLOCKS: FLOOR_REPLICAS * capacity.usable_kv_blocks,
        PREFILL: FLOOR_REPLICAS * capacity.usable_prefill_tokens_per_second,
        DEMAND: FLOOR_REPLICAS,
        "request_rate": 0.02,  # one request in the trailing minute is 0.017/s
        "prompt_length": 1.0,
    }


_TARGET_UNITS = {KV_BLOCKS: "blocks", PREFILL: "tokens/s", DEMAND: "replicas"}


def _scale(target: str) -> Definition:
    return Definition(
        name=scale_name(target),
        unit=_TARGET_UNITS[target],
        source=target,
        statistic="mean",
        rows=SCALE_ROWS,
        form=Form.FLOORED,
        floor=target,
    )


def _log_ratio(name: str, source: str, statistic: str, rows: int, *, over: str, floor: str) -> Definition:
    return Definition(
        name=name, unit="1", source=source, statistic=statistic, rows=rows, form=Form.LOG_RATIO, over=over, floor=floor
    )


def _plain(name: str, source: str, statistic: str, rows: int, form: Form = Form.LEVEL, **more: Any) -> Definition:
    return Definition(
        name=name, unit=more.pop("unit", "1"), source=source, statistic=statistic, rows=rows, form=form, **more
    )


def _target_definitions(target: str) -> list[Definition]:
    """Return the features of one target's own past."""
    scale = scale_name(target)
    statistics = [("last", "lag", 0), ("mean_300", "mean", 300), ("mean_900", "mean", 900)]
    if target == KV_BLOCKS:  # the other two are 5-s means or follow from them; KV moves slowly, so its trend tells
        statistics.append(("mean_30", "mean", 30))
    own = [
        _log_ratio(f"{target}_{name}_log_ratio", target, statistic, rows, over=scale, floor=target)
        for name, statistic, rows in statistics
    ]
    own += [
        _log_ratio(maximum_name(target, rows), target, "max", rows, over=scale, floor=target) for rows in MAXIMUM_ROWS
    ]
    own.append(_plain(f"{target}_std_60_ratio", target, "std", 60, Form.RATIO, over=scale))
    if target == KV_BLOCKS:
        own.append(_plain(f"{target}_slope_10_ratio", target, "slope", 10, Form.RATIO, over=scale, unit="1/s"))
    return own


def _workload_definitions() -> list[Definition]:
    """Return the features of arrivals, token mix and noise."""
    rate, prompt, prefill = "request_rate", "prompt_rate", scale_name(PREFILL)
    length: dict[str, Any] = {"form": Form.RATIO, "hidden": True, "unit": "tokens"}
    renewal: dict[str, Any] = {"form": Form.RATIO, "over": scale_name(KV_BLOCKS), "unit": "1/s"}
    return [
        _plain("rate_60", rate, "mean", 60, Form.FLOORED, floor=rate, hidden=True, unit="requests/s"),
        _plain("rate_300", rate, "mean", 300, hidden=True, unit="requests/s"),
        _plain("rate_10", rate, "mean", 10, hidden=True, unit="requests/s"),
        _plain("rate_std_60", rate, "std", 60, hidden=True, unit="requests/s"),
        _plain("prompt_length_10", prompt, "mean", 10, over="rate_10", **length),
        _plain("prompt_length_300", prompt, "mean", 300, over="rate_300", **length),
        _plain("request_rate_log", "rate_60", "lag", 0, Form.LOG_LEVEL),
        _plain("in_flight_log", "in_flight", "mean", 10, Form.LOG_LEVEL),
        _log_ratio("request_rate_mean_3_log_ratio", rate, "mean", 3, over="rate_60", floor=rate),
        _log_ratio("prompt_rate_mean_3_log_ratio", prompt, "mean", 3, over=prefill, floor=PREFILL),
        _plain("request_dispersion_1s", "rate_std_60", "lag", 0, Form.DISPERSION, over="rate_60"),
        _plain("request_dispersion_10s", "rate_10", "std", 300, Form.DISPERSION, over="rate_300"),
        _log_ratio(
            "prompt_length_log_ratio", "prompt_length_10", "lag", 0, over="prompt_length_300", floor="prompt_length"
        ),
        _plain("prompt_length_log", "prompt_length_300", "lag", 0, Form.LOG_LEVEL),
        # the token influx integral: blocks that the prompts of the last 10 s need, over those held, a second
        _plain("token_influx_ratio", "prompt_blocks_rate", "mean", 10, **renewal),
        _plain("kv_turnover_ratio", "prompt_blocks_rate", "mean", 60, **renewal),
        _plain("token_gap_ratio", "prefill_gap", "mean", 5, Form.RATIO, over=prefill),
    ]


def _state_definitions() -> list[Definition]:
    """Return the features of the fleet's strain and of what bursts there have been."""
    burst = f"{DEMAND}_last_log_ratio"
    return [
        _plain("in_flight_5", "in_flight", "mean", 5, hidden=True, unit="requests"),
        _plain("kv_total_5", "kv_total", "mean", 5, hidden=True, unit="blocks"),
        _plain("ttft_log", "ttft", "mean", 5, Form.LOG_LEVEL),
        _plain("ttft_slope_10", "ttft", "slope", 10, unit="s/s"),
        _plain("waiting_ratio", "waiting", "mean", 5, Form.RATIO, over="in_flight_5"),
        _plain("kv_usage_ratio", "kv_used", "mean", 5, Form.RATIO, over="kv_total_5"),
        _plain("seconds_since_burst", burst, "rows_since_burst", LONGEST_ROWS, unit="s"),
        _plain("demand_burst_memory", burst, "peak_memory", 3600),
        _plain("prefill_burst_memory", f"{PREFILL}_last_log_ratio", "peak_memory", 3600),
        _plain("known_history_ratio", "request_rate", "known", LONGEST_ROWS),
    ]


DEFINITIONS: tuple[Definition, ...] = (
    *(_scale(target) for target in TARGETS),
    *(definition for target in TARGETS for definition in _target_definitions(target)),
    *_workload_definitions(),
    *_state_definitions(),
)
"""In the order of computation."""

FEATURE_SCHEMA = FeatureSchema(
    columns=tuple(FeatureColumn(name=one.name, unit=one.unit) for one in DEFINITIONS if not one.hidden)
)
"""The schema of every feature row."""

SCALE_FEATURES: tuple[str, ...] = tuple(scale_name(target) for target in TARGETS)
"""The features in the targets' own units: predictions are multiplied by them, models must not split on them."""
