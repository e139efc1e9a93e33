"""Policies by name, what the HPA does, and what Foreshock does when its forecaster fails."""

import numpy as np
import pytest

from forecaster.config import PlannerConfig
from forecaster.errors import InsufficientHistoryError
from forecaster.plan import ReasonCode
from forecaster.telemetry import FleetState, TelemetryWindow
from simulator.profiles import DEFAULT_PROFILE, profile_named
from training.policies import MIN_HISTORY_ROWS, ForeshockPolicy, HpaPolicy, HpaSettings, policy_named

CONFIG = PlannerConfig(capacity=profile_named(DEFAULT_PROFILE).capacity)
SETTINGS = HpaSettings(target_tokens_per_second=1000.0)


def telemetry(tokens_per_second, *, until, rows=60):
    row_at = until - np.arange(rows)[::-1]
    columns = {
        "request_rate_per_second": np.full(rows, tokens_per_second / 1000),
        "prompt_tokens_per_second": np.full(rows, float(tokens_per_second)),
        "kv_blocks_used": np.full(rows, 100.0),
        "waiting_requests": np.zeros(rows),
        "waiting_prompt_tokens": np.zeros(rows),
    }
    return TelemetryWindow.from_columns("llama", row_at.astype(float), columns=columns)


def fleet(serving):
    return FleetState(
        serving_replicas=serving,
        reporting_replicas=serving,
        time_to_ready_seconds=30.0,
        time_to_promote_seconds=4.0,
    )


class FailingForecaster:
    def __init__(self, error):
        self.error = error
        self.num_calls = 0

    def forecast(self, features, *, made_at, horizons_seconds):
        self.num_calls += 1
        raise self.error


@pytest.mark.parametrize("error", [InsufficientHistoryError("no row"), ValueError("NaN"), RuntimeError("no GPU")])
def test_a_forecaster_that_raises_leaves_the_plan_to_what_was_seen(error):
    policy = ForeshockPolicy(CONFIG, FailingForecaster(error))
    tokens = 3.5 * CONFIG.capacity.usable_prefill_tokens_per_second
    plan = policy.decide(now=101.0, telemetry=telemetry(tokens, until=100.0), fleet=fleet(5))
    assert plan.is_valid
    assert plan.serving_replicas >= 4
    assert ReasonCode.NO_FORECAST in [reason.code for reason in plan.reasons]


def test_no_forecast_is_asked_for_on_too_little_history():
    forecaster = FailingForecaster(ValueError("asked"))
    policy = ForeshockPolicy(CONFIG, forecaster)
    policy.decide(now=101.0, telemetry=telemetry(1000, until=100.0, rows=MIN_HISTORY_ROWS - 1), fleet=fleet(2))
    assert forecaster.num_calls == 0
    policy.decide(now=102.0, telemetry=telemetry(1000, until=101.0, rows=MIN_HISTORY_ROWS), fleet=fleet(2))
    assert forecaster.num_calls == 1


class TestHpa:
    def target(self, policy, tokens, *, now, serving):
        plan = policy.decide(now=now, telemetry=telemetry(tokens, until=now - 1), fleet=fleet(serving))
        assert plan.serving_replicas == plan.supply_replicas
        return plan.serving_replicas

    def test_scales_by_the_ratio_rounded_up(self):
        assert self.target(HpaPolicy(SETTINGS), 5500, now=100.0, serving=4) == 6

    def test_does_nothing_within_its_tolerance(self):
        assert self.target(HpaPolicy(SETTINGS), 4390, now=100.0, serving=4) == 4

    def test_at_most_doubles_or_adds_four_a_sync(self):
        assert self.target(HpaPolicy(SETTINGS), 40_000, now=100.0, serving=2) == 6
        assert self.target(HpaPolicy(SETTINGS), 40_000, now=100.0, serving=8) == 16

    def test_acts_once_a_sync_period(self):
        policy = HpaPolicy(SETTINGS)
        assert self.target(policy, 4000, now=100.0, serving=4) == 4
        assert self.target(policy, 8000, now=110.0, serving=4) == 4
        assert self.target(policy, 8000, now=115.0, serving=4) == 8

    def test_scales_down_only_after_the_stabilisation_window(self):
        policy = HpaPolicy(SETTINGS)
        assert self.target(policy, 8000, now=100.0, serving=8) == 8
        assert self.target(policy, 2000, now=115.0, serving=8) == 8
        assert self.target(policy, 2000, now=385.0, serving=8) == 8
        assert self.target(policy, 2000, now=415.0, serving=8) == 2

    def test_an_unknown_metric_changes_nothing(self):
        assert self.target(HpaPolicy(SETTINGS), np.nan, now=100.0, serving=4) == 4


@pytest.mark.parametrize("name", ["best", "static:0", "static:x", "static", "hpa:3", "foreshock:1"])
def test_an_unknown_policy_is_refused(name):
    with pytest.raises(ValueError, match="static:N"):
        policy_named(name, CONFIG)
