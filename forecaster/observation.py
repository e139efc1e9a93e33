"""What the newest rows of a telemetry window say, reduced to the scalars that rules ask for; NaN where unknown."""

from dataclasses import dataclass
from math import inf, isnan, nan

import numpy as np

from forecaster.config import PlannerConfig, RuleSettings
from forecaster.demand import CONTEXT_ROWS
from forecaster.plan import PlanInput
from forecaster.present_load import PresentLoad, measured_demand, present_load
from forecaster.telemetry import MAX_CLOCK_SKEW_SECONDS, SIGNAL_INDEX, FleetState, Floats

_TTFT = SIGNAL_INDEX["ttft_mean_seconds"]
_OLDEST = SIGNAL_INDEX["oldest_waiting_age_seconds"]
_WAITING = SIGNAL_INDEX["waiting_requests"]
_PROMPT = SIGNAL_INDEX["prompt_tokens_per_second"]
_E2E = SIGNAL_INDEX["e2e_mean_seconds"]
_REQUESTS = SIGNAL_INDEX["request_rate_per_second"]
PROMPT_LENGTH_ROWS = 30
LEVEL_SECONDS = 60.0
LEAST_HISTORY_SECONDS = 110.0  # a cache takes a minute or two to fill up after a start: that is no burst


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The newest known second of a deployment.

    Attributes
    ----------
    seen_at : float, POSIX seconds
        End of the newest row in which every required signal is known; -inf if there is none.
    age_seconds : float
        Since then; inf if there is none.
    num_fresh_rows : int
        Known rows up to the newest row without a gap; 0 if the newest row is unknown.
    coverage_ratio : float
        Share of the serving replicas whose metrics arrived.
    load : PresentLoad
        Offered load now, 3-s means; what unreporting replicas hold is imputed from those that report.
    newest_demand_replicas : float
        D of the newest row alone, as measured.
    level_replicas : float
        Median of D over the window, second by second: a burst shorter than half of it does not move it.
    level_before_replicas : float
        Mean of D over a minute that ended a cold lead ago: what one could still order for. NaN while the window does
        not reach back so far.
    recent_prompt_tokens : float
        Prompt tokens that arrived in the last `influx_seconds`.
    residence_seconds : float
        Mean time from arrival to last token of what finished in those seconds; NaN if nothing did.
    prompt_tokens : float
        Mean prompt.
    ttft_seconds : float
        Fleet mean of the last rows as if every prompt were a short one (`Slo.ttft_scale`); while no request gets its
        first token, the age of the oldest.
    ttft_gradient : float
        Its gain in seconds per second.
    """

    seen_at: float
    age_seconds: float
    num_fresh_rows: int
    coverage_ratio: float
    load: PresentLoad
    newest_demand_replicas: float
    level_replicas: float
    level_before_replicas: float
    recent_prompt_tokens: float
    residence_seconds: float
    prompt_tokens: float
    ttft_seconds: float
    ttft_gradient: float

    @property
    def demand_replicas(self) -> float:
        """D now, the reactive demand."""
        return self.load.demand_replicas


_NOTHING = Observation(
    seen_at=-inf,
    age_seconds=inf,
    num_fresh_rows=0,
    coverage_ratio=0.0,
    load=PresentLoad(nan, nan, nan, nan, nan, nan),
    newest_demand_replicas=nan,
    level_replicas=nan,
    level_before_replicas=nan,
    recent_prompt_tokens=nan,
    residence_seconds=nan,
    prompt_tokens=nan,
    ttft_seconds=nan,
    ttft_gradient=nan,
)


def observe(inputs: PlanInput, config: PlannerConfig) -> Observation:
    """Return what the telemetry says now; rows from the future of `now` are left out."""
    telemetry, rules = inputs.telemetry, config.rules
    step = telemetry.step_seconds
    end = int(np.searchsorted(telemetry.row_at, inputs.now + MAX_CLOCK_SKEW_SECONDS, side="right"))
    last = _newest_known_row(telemetry.values, rules.required_signals, end=end)
    if last < 0:
        return _NOTHING
    seen_at = float(telemetry.row_at[last])
    context = telemetry.values[max(last + 1 - CONTEXT_ROWS, 0) : last + 1]
    row_at = telemetry.row_at[max(last + 1 - CONTEXT_ROWS, 0) : last + 1]
    coverage = _coverage_ratio(inputs.fleet)
    imputed = 1.0 / coverage if 0 < coverage < 1 else 1.0

    def within(seconds: float) -> int:
        """Return how many of the last rows are younger than that, the newest at least."""
        return max(row_at.size - int(np.searchsorted(row_at, seen_at - seconds + 1e-6, side="right")), 1)

    mean_rows = within(rules.reactive_mean_seconds)
    load = present_load(context, config.capacity, mean_rows=mean_rows, step_seconds=step, imputed=imputed)
    demand = measured_demand(telemetry.values[: last + 1], config.capacity)
    level, level_before = _levels(demand, telemetry.row_at[: last + 1], inputs.fleet.time_to_ready_seconds)
    prompt_tokens = _mean_prompt(context[-PROMPT_LENGTH_ROWS:])
    scale = config.slo.ttft_scale(prompt_tokens)
    num_ttft_rows = within(max(rules.ttft_mean_seconds, 2 * rules.gradient_mean_seconds))
    ttft = [value / scale for value in _ttft_by_row(context[-num_ttft_rows:])]
    ages = (seen_at - row_at[-num_ttft_rows:]).tolist()
    recent = context[-within(rules.influx_seconds) :]
    return Observation(
        seen_at=seen_at,
        age_seconds=inputs.now - seen_at,
        num_fresh_rows=_num_fresh_rows(inputs, rules, last=last, end=end),
        coverage_ratio=coverage,
        load=load,
        newest_demand_replicas=float(demand[-1]),
        level_replicas=level,
        level_before_replicas=level_before,
        recent_prompt_tokens=_total(recent[:, _PROMPT]) * step,
        residence_seconds=_known_mean(recent[:, _E2E]),
        prompt_tokens=prompt_tokens,
        ttft_seconds=_mean_between(ttft, ages, youngest=0.0, oldest=rules.ttft_mean_seconds)[0],
        ttft_gradient=_gradient(ttft, ages, mean_seconds=rules.gradient_mean_seconds),
    )


def _known_mean(column: Floats) -> float:
    known = column[~np.isnan(column)]
    return float(known.mean()) if known.size else nan


def _levels(demand: Floats, row_at: Floats, ready_seconds: float) -> tuple[float, float]:
    """Return the median of D over the window, and its mean over the minute that ended a cold lead ago."""
    known = demand[~np.isnan(demand)]
    level = float(np.median(known)) if known.size else nan
    span = float(row_at[-1] - row_at[0])
    lead = min(ready_seconds, span - LEVEL_SECONDS)
    if span < LEAST_HISTORY_SECONDS or lead <= 0:
        return level, nan
    first, end = np.searchsorted(row_at, [row_at[-1] - lead - LEVEL_SECONDS, row_at[-1] - lead], side="right").tolist()
    return level, _known_mean(demand[first:end])


def _newest_known_row(values: Floats, required: tuple[str, ...], *, end: int) -> int:
    """Return the last row before `end` in which every required signal is known, -1 if there is none."""
    columns = [SIGNAL_INDEX[name] for name in required]
    for row in range(end - 1, -1, -1):
        if _row_is_known(values[row], columns):
            return row
    return -1


def _row_is_known(row: Floats, columns: list[int]) -> bool:
    return not any(isnan(row[column]) for column in columns)


def _num_fresh_rows(inputs: PlanInput, rules: RuleSettings, *, last: int, end: int) -> int:
    """Return how many rows in a row are known up to the newest, counted as far as matters."""
    if last != end - 1:
        return 0
    columns = [SIGNAL_INDEX[name] for name in rules.required_signals]
    telemetry = inputs.telemetry
    fresh = 1
    for row in range(last - 1, -1, -1):
        gap = float(telemetry.row_at[row + 1] - telemetry.row_at[row])
        if fresh >= rules.fresh_rows_before_scale_down or gap > 1.5 * telemetry.step_seconds:
            break
        if not _row_is_known(telemetry.values[row], columns):
            break
        fresh += 1
    return fresh


def _coverage_ratio(fleet: FleetState) -> float:
    if fleet.serving_replicas == 0:
        return 1.0
    return min(fleet.reporting_replicas / fleet.serving_replicas, 1.0)


def _total(column: Floats) -> float:
    """Return the sum of the known values, NaN without one."""
    known = [value for value in column.tolist() if not isnan(value)]
    return sum(known) if known else nan


def _mean_prompt(rows: Floats) -> float:
    """Return prompt tokens per request over the rows in which both are known, NaN without a request."""
    tokens, requests = 0.0, 0.0
    for row_tokens, row_requests in zip(rows[:, _PROMPT].tolist(), rows[:, _REQUESTS].tolist(), strict=True):
        if not isnan(row_tokens) and not isnan(row_requests):
            tokens += row_tokens
            requests += row_requests
    return tokens / requests if requests > 0 else nan


def _ttft_by_row(rows: Floats) -> list[float]:
    """Return TTFT row by row, of those who got their first token and those who still wait for it.

    The ones who wait count with half the age of the oldest, which is their mean age; so a stall of some replicas is
    not hidden by the others, and one of all replicas shows as the age of the oldest.
    """
    ttft: list[float] = []
    columns = (rows[:, column].tolist() for column in (_TTFT, _OLDEST, _WAITING, _REQUESTS))
    for mean, oldest, waiting, requests in zip(*columns, strict=True):
        if isnan(oldest) or not waiting > 0:
            ttft.append(mean)
        elif isnan(mean):
            ttft.append(oldest)
        elif isnan(requests):
            ttft.append(max(mean, oldest / 2))
        else:
            ttft.append(max(mean, (requests * mean + waiting * oldest / 2) / (requests + waiting)))
    return ttft


def _mean_between(values: list[float], ages: list[float], *, youngest: float, oldest: float) -> tuple[float, float]:
    """Return mean value and mean age of the known values of an age in [youngest, oldest), NaN without one."""
    picked = [
        (value, age)
        for value, age in zip(values, ages, strict=True)
        if youngest - 1e-6 <= age < oldest - 1e-6 and not isnan(value)
    ]
    if not picked:
        return nan, nan
    return sum(value for value, _ in picked) / len(picked), sum(age for _, age in picked) / len(picked)


def _gradient(values: list[float], ages: list[float], *, mean_seconds: float) -> float:
    """Return the gain per second between two neighbouring means, NaN if either has no known value.

    On a straight line it is the slope whichever values are known, as each mean stands at the mean age of its values.
    """
    newer, newer_age = _mean_between(values, ages, youngest=0.0, oldest=mean_seconds)
    older, older_age = _mean_between(values, ages, youngest=mean_seconds, oldest=2 * mean_seconds)
    return (newer - older) / (older_age - newer_age)
