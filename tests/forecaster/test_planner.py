"""What `plan()` promises whatever it is given."""

from dataclasses import replace
from math import ceil, isfinite

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.capacity import ReplicaCapacity
from forecaster.config import PlannerConfig
from forecaster.forecast import DEMAND, KV_BLOCKS, LEVELS, PREFILL, QuantileForecast
from forecaster.plan import PlanInput, ReasonCode
from forecaster.planner import plan
from forecaster.telemetry import SIGNAL_INDEX, FleetState, TelemetryWindow

REPLICA = ReplicaCapacity(
    kv_blocks=4000, block_size_tokens=16, prefill_tokens_per_second=10_000, decode_tokens_per_second=5000
)
NOW = 1000.0
KEY_SIGNALS = ("request_rate_per_second", "prompt_tokens_per_second", "kv_blocks_used", "running_requests")
LOAD_SIGNALS = (
    "request_rate_per_second",
    "prompt_tokens_per_second",
    "running_requests",
    "waiting_requests",
    "waiting_prompt_tokens",
    "kv_blocks_used",
    "prefill_tokens_per_second",
    "decode_tokens_per_second",
    "finished_rate_per_second",
    "finished_output_tokens_per_second",
)


def telemetry(load, *, serving=4, rows=120, reporting=None, age_seconds=1.0, **columns):
    """Return rows of a fleet under `load` replicas' worth of prompts, a scalar or one value a row."""
    load = np.broadcast_to(np.asarray(load, dtype=float), rows)
    tokens = load * REPLICA.usable_prefill_tokens_per_second
    row_at = NOW - age_seconds - np.arange(rows)[::-1]
    known = {
        "request_rate_per_second": tokens / 1000,
        "rejected_rate_per_second": np.zeros(rows),
        "rejected_prompt_tokens_per_second": np.zeros(rows),
        "prompt_tokens_per_second": tokens,
        "running_requests": load * 5,
        "waiting_requests": np.zeros(rows),
        "waiting_prompt_tokens": np.zeros(rows),
        "oldest_waiting_age_seconds": np.zeros(rows),
        "kv_blocks_used": load * 1000,
        "kv_blocks_total": np.full(rows, serving * 4000.0),
        "prefill_tokens_per_second": tokens,
        "decode_tokens_per_second": load * 500,
        "finished_rate_per_second": tokens / 1000,
        "finished_output_tokens_per_second": tokens / 10,
        "ttft_mean_seconds": np.full(rows, 0.1),
        "ttft_p95_seconds": np.full(rows, 0.2),
        "tpot_mean_seconds": np.full(rows, 0.03),
        "e2e_mean_seconds": np.full(rows, 2.0),
        "serving_replicas": np.full(rows, float(serving)),
        "reporting_replicas": np.full(rows, float(serving if reporting is None else reporting)),
    }
    known.update({name: np.broadcast_to(np.asarray(value, dtype=float), rows) for name, value in columns.items()})
    return TelemetryWindow.from_columns("llama", row_at, columns=known, seen_at=row_at + 0.5)


def fleet(serving=4, **more):
    given_more = {"reporting_replicas": serving, "time_to_ready_seconds": 30.0, "time_to_promote_seconds": 4.0, **more}
    return FleetState(serving_replicas=serving, **given_more)


def forecast(median, *, spread=0.5):
    row = median * (1 + spread * np.linspace(0, 1, len(LEVELS)))
    grid = np.array([row, 1.1 * row, 1.2 * row])
    values = {DEMAND: grid, PREFILL: grid * REPLICA.usable_prefill_tokens_per_second, KV_BLOCKS: grid * 1000}
    return QuantileForecast(made_at=NOW, horizons_seconds=(6.0, 30.0, 180.0), values=values)


def given_input(load=2.0, *, serving=4, predicted=None, previous=None, fleet_more=None, **columns):
    return PlanInput(
        now=NOW,
        telemetry=telemetry(load, serving=serving, **columns),
        fleet=fleet(serving, **(fleet_more or {})),
        forecast=None if predicted is None else forecast(predicted),
        previous=previous,
    )


def blanked(window, names, rows=None):
    values = window.values.copy()
    for name in names:
        values[slice(None) if rows is None else rows, SIGNAL_INDEX[name]] = np.nan
    return replace(window, values=values)


loads = st.floats(0, 60)
configs = st.builds(
    lambda low, more, budget, step: PlannerConfig(
        capacity=REPLICA,
        min_replicas=low,
        max_replicas=low + more,
        gpus_per_replica=4,
        gpu_budget=None if budget is None else 4 * (low + budget),
        max_step_up=step,
    ),
    st.integers(0, 5),
    st.integers(1, 40),
    st.one_of(st.none(), st.integers(1, 50)),
    st.integers(1, 48),
)


@st.composite
def any_inputs(draw):
    serving = draw(st.integers(0, 20))
    inputs = given_input(
        draw(loads),
        serving=serving,
        predicted=draw(st.one_of(st.none(), loads)),
        fleet_more={
            "warm_replicas": draw(st.integers(0, 10)),
            "promoting_replicas": draw(st.integers(0, 3)),
            "starting_ready_in_seconds": tuple(sorted(draw(st.lists(st.floats(0, 200), max_size=5)))),
            "unschedulable_replicas": draw(st.integers(0, 3)),
            "reporting_replicas": draw(st.integers(0, serving)) if serving else 0,
            "rollout_in_progress": draw(st.booleans()),
        },
        ttft_mean_seconds=draw(st.floats(0, 100)),
        waiting_requests=draw(st.floats(0, 1e4)),
        waiting_prompt_tokens=draw(st.floats(0, 1e7)),
        kv_blocks_used=draw(st.floats(0, 1e5)),
        age_seconds=draw(st.floats(0.6, 60)),
    )
    names = draw(st.lists(st.sampled_from(sorted(SIGNAL_INDEX)), max_size=6))
    inputs = replace(inputs, telemetry=blanked(inputs.telemetry, names, slice(draw(st.integers(0, 119)), None)))
    if draw(st.booleans()):
        earlier = replace(inputs, now=NOW - 2.0, telemetry=inputs.telemetry.since(0.0))
        inputs = replace(inputs, previous=plan(earlier, PlannerConfig(capacity=REPLICA)))
    return inputs


@settings(max_examples=300, deadline=None, derandomize=True)
@given(inputs=any_inputs(), config=configs)
def test_targets_are_within_bounds_and_budget_whatever_comes(inputs, config):
    made = plan(inputs, config)
    assert config.min_replicas <= made.serving_replicas <= made.supply_replicas <= config.largest_fleet
    ratios = made.admission.admitted_ratio_by_priority
    assert list(ratios) == sorted(ratios)
    assert made.admission.prefill_tokens_per_second >= 0
    for reason in made.reasons:
        assert isinstance(reason.code, ReasonCode)
        assert reason.message


@settings(max_examples=100, deadline=None, derandomize=True)
@given(inputs=any_inputs(), config=configs)
def test_the_same_input_gives_the_same_plan(inputs, config):
    one, other = plan(inputs, config), plan(inputs, config)
    # reprs, since an unknown TTFT is not equal to itself
    assert repr(one) == repr(other)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(inputs=any_inputs(), factor=st.floats(1, 5))
def test_more_load_never_gives_fewer_replicas(inputs, factor):
    config = PlannerConfig(capacity=REPLICA)
    values = inputs.telemetry.values.copy()
    columns = [SIGNAL_INDEX[name] for name in LOAD_SIGNALS]
    values[:, columns] *= factor
    more_forecast = inputs.forecast and replace(
        inputs.forecast, values={name: factor * grid for name, grid in inputs.forecast.values.items()}
    )
    more = replace(inputs, telemetry=replace(inputs.telemetry, values=values), forecast=more_forecast)
    less_plan, more_plan = plan(inputs, config), plan(more, config)
    assert more_plan.serving_replicas >= less_plan.serving_replicas
    assert more_plan.supply_replicas >= less_plan.supply_replicas


@settings(max_examples=200, deadline=None, derandomize=True)
@given(inputs=any_inputs())
def test_a_repeated_plan_changes_nothing(inputs):
    config = PlannerConfig(capacity=REPLICA, max_step_up=48, max_step_down=48)
    first = plan(inputs, config)
    again = plan(replace(inputs, previous=first), config)
    once_more = plan(replace(inputs, previous=again), config)
    assert (again.serving_replicas, again.supply_replicas) == (once_more.serving_replicas, once_more.supply_replicas)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    inputs=any_inputs(),
    names=st.lists(st.sampled_from(KEY_SIGNALS), min_size=1, unique=True),
    from_row=st.integers(0, 100),
)
def test_unknown_input_never_lowers_a_target(inputs, names, from_row):
    config = PlannerConfig(capacity=REPLICA)
    held = plan(replace(inputs, now=NOW), config)
    unknown = replace(inputs, telemetry=blanked(inputs.telemetry, names, slice(from_row, None)), previous=held)
    made = plan(unknown, config)
    assert made.serving_replicas >= held.serving_replicas
    assert made.supply_replicas >= held.supply_replicas


@settings(max_examples=100, deadline=None, derandomize=True)
@given(load=loads, predicted=st.one_of(st.none(), loads), serving=st.integers(1, 20))
def test_never_below_what_is_needed_now(load, predicted, serving):
    config = PlannerConfig(capacity=REPLICA)
    made = plan(given_input(load, serving=serving, predicted=predicted), config)
    assert made.serving_replicas >= min(ceil(load - 1e-6), config.largest_fleet)


class TestStaleness:
    """CASES 1 and 10: unknown is not zero."""

    @pytest.mark.parametrize("age_seconds", [16.0, 60.0, 900.0])
    def test_old_telemetry_holds_and_sheds_nothing(self, age_seconds):
        made = plan(
            given_input(5.0, serving=8, predicted=0.1, age_seconds=age_seconds), PlannerConfig(capacity=REPLICA)
        )
        assert not made.is_valid
        assert (made.serving_replicas, made.supply_replicas) == (8, 8)
        assert made.admission.prefill_tokens_per_second == float("inf")
        assert ReasonCode.STALE_TELEMETRY in [reason.code for reason in made.reasons]

    def test_no_rows_at_all_hold_and_the_minimum_is_kept(self):
        config = PlannerConfig(capacity=REPLICA, min_replicas=3)
        inputs = given_input(1.0, serving=2)
        made = plan(replace(inputs, telemetry=inputs.telemetry.since(NOW)), config)
        assert (made.is_valid, made.serving_replicas) == (False, 3)

    def test_known_zero_load_may_go_down_to_the_minimum(self):
        config = PlannerConfig(capacity=REPLICA, min_replicas=1, max_step_down=48)
        made = plan(given_input(0.0, serving=1, predicted=0.0, ttft_mean_seconds=np.nan), config)
        assert (made.is_valid, made.serving_replicas) == (True, 1)


class TestForecastFailure:
    """CASES 9: a forecaster that fails is seen and never takes the fleet below what is needed now."""

    def test_without_a_forecast_it_sizes_on_the_past_and_says_so(self):
        made = plan(given_input(3.0), PlannerConfig(capacity=REPLICA))
        assert made.is_valid
        assert made.serving_replicas >= 3
        assert ReasonCode.NO_FORECAST in [reason.code for reason in made.reasons]

    def test_a_baseline_forecast_is_named_with_its_reason(self):
        inputs = given_input(3.0, predicted=3.0)
        fallback = replace(inputs.forecast, source="baseline", fallback_reason="the model returned NaN")
        made = plan(replace(inputs, forecast=fallback), PlannerConfig(capacity=REPLICA))
        (reason,) = [reason for reason in made.reasons if reason.code == ReasonCode.FORECAST_FALLBACK]
        assert "the model returned NaN" in reason.message

    def test_a_forecast_far_too_low_stays_above_the_reactive_floor(self):
        assert plan(given_input(6.0, predicted=0.0), PlannerConfig(capacity=REPLICA)).serving_replicas >= 6


class TestBursts:
    def test_one_tick_promotes_the_pool_and_orders_the_rest(self):
        load = np.r_[np.full(114, 2.0), np.full(6, 9.0)]
        inputs = given_input(load, predicted=9.0, fleet_more={"warm_replicas": 2})
        made = plan(inputs, PlannerConfig(capacity=REPLICA))
        assert made.serving_replicas >= 6
        assert made.supply_replicas >= 9

    def test_admission_tightens_when_demand_outruns_what_serves(self):
        made = plan(given_input(9.0, predicted=9.0), PlannerConfig(capacity=REPLICA))
        assert made.admission.prefill_tokens_per_second <= 4 * REPLICA.prefill_tokens_per_second
        assert ReasonCode.SHEDDING in [reason.code for reason in made.reasons]


def test_load_around_a_boundary_does_not_flap():
    """CASES 8: +-15 % around a replica boundary every 30 s for an hour."""
    config, previous, served = PlannerConfig(capacity=REPLICA), None, []
    load = 3.0 * np.where((np.arange(-120, 3600) // 30) % 2, 1.15, 0.85)
    for tick in range(0, 3600, 2):
        serving = previous.serving_replicas if previous else 4
        warm = previous.warm_replicas if previous else 0
        inputs = given_input(
            load[tick : tick + 120],
            serving=serving,
            predicted=3.45,
            previous=previous,
            fleet_more={"warm_replicas": warm},
        )
        seen = inputs.telemetry
        shifted = replace(seen, row_at=seen.row_at + tick, seen_at=seen.seen_at + tick)
        previous = plan(replace(inputs, now=NOW + tick, telemetry=shifted), config)
        served.append(previous.serving_replicas)
    changes = np.diff(served)
    reversals = int((np.diff(np.sign(changes[changes != 0])) != 0).sum())
    assert reversals <= 3600 / config.burst_cooldown_seconds


def test_an_impossible_budget_is_an_error_not_zero():
    """CASES 15."""
    with pytest.raises(Exception, match="gpu_budget 12 allows 3 replicas"):
        PlannerConfig(capacity=REPLICA, min_replicas=4, gpus_per_replica=4, gpu_budget=12)


def test_half_of_the_replicas_silent_never_lowers_a_target():
    """CASES 5: 4 ready, only 2 report."""
    inputs = given_input(0.5, predicted=0.5, fleet_more={"reporting_replicas": 1}, reporting=1)
    made = plan(inputs, PlannerConfig(capacity=REPLICA))
    assert made.serving_replicas >= 4


def test_forecast_ttft_is_finite_or_unknown_never_infinite():
    made = plan(given_input(2.0, predicted=2.0), PlannerConfig(capacity=REPLICA))
    assert isfinite(made.ttft_p95_seconds)
    assert made.ttft_p95_seconds < 0.8
