"""Lead times: what is drawn is what the distribution says, and a planner expects no more than can be known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.errors import ConfigError
from simulator.lead_times import Constant, Empirical, LogNormal, lead_time, remaining_seconds

LEADS = (
    Constant(30.0),
    LogNormal(median_seconds=40.0, sigma=0.5),
    Empirical(samples_seconds=(300.0, 20.0, 25.0, 31.0, 25.0)),
)
each = pytest.mark.parametrize("lead", LEADS, ids=lambda lead: type(lead).__name__)


@each
def test_draws_follow_the_distribution(lead):
    rng = np.random.default_rng(1)
    draws = np.sort([lead.draw(rng) for _ in range(20_000)])
    for seconds in np.unique(draws)[:: max(np.unique(draws).size // 200, 1)]:
        share = np.searchsorted(draws, seconds, side="right") / draws.size
        # Kolmogorov-Smirnov, 0.999 quantile: 1.95 / sqrt(n)
        assert abs(share - lead.cdf(seconds)) < 1.95 / np.sqrt(draws.size)


@each
@settings(max_examples=100, deadline=None, derandomize=True)
@given(level=st.floats(0.001, 0.999))
def test_quantile_is_the_least_that_the_share_does_not_exceed(lead, level):
    quantile = lead.quantile(level)
    assert lead.cdf(quantile * (1 + 1e-9)) >= level
    assert lead.cdf(quantile * (1 - 1e-6)) <= level + 1e-5


@each
@settings(max_examples=50, deadline=None, derandomize=True)
@given(age=st.floats(0, 400))
def test_what_remains_is_the_median_of_those_that_last_longer(lead, age):
    rng = np.random.default_rng(2)
    draws = np.array([lead.draw(rng) for _ in range(4_000)])
    left = draws[draws > age] - age
    expected = remaining_seconds(lead, age)
    assert expected >= 0
    if left.size > 500:
        assert np.quantile(left, 0.42) - 1e-9 <= expected <= np.quantile(left, 0.58) + 1e-9


def test_a_start_that_should_be_over_has_no_time_left():
    assert remaining_seconds(Constant(30.0), 31.0) == 0.0
    assert remaining_seconds(Empirical(samples_seconds=(5.0,)), 9.0) == 0.0


def test_a_number_is_a_constant():
    assert lead_time(30) == Constant(30.0)
    assert lead_time(LEADS[1]) is LEADS[1]


@pytest.mark.parametrize("given", [{"median_seconds": 0.0, "sigma": 1.0}, {"median_seconds": 1.0, "sigma": np.nan}])
def test_impossible_log_normal_is_refused(given):
    with pytest.raises(ConfigError, match="log-normal lead time: median_seconds and sigma must be > 0 and finite"):
        LogNormal(**given)


@pytest.mark.parametrize("samples", [(), (-1.0,), (np.inf,), (np.nan, 1.0)])
def test_impossible_samples_are_refused(samples):
    with pytest.raises(ConfigError, match="empirical lead time: samples_seconds must be"):
        Empirical(samples_seconds=samples)
