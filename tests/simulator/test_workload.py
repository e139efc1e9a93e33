import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.workload.arrivals import poisson_arrivals
from simulator.workload.curves import impulse
from simulator.workload.lengths import CONV_OUTPUT, CONV_PROMPT
from simulator.workload.scenarios import BASE_RATE_PER_SECOND, PRIORITY_SHARES, SCENARIOS, scenario_named


@given(st.integers(0, 2**32))
def test_poisson_counts_stay_within_five_standard_deviations(seed):
    rates = np.concatenate([np.full(200, 5.0), np.zeros(50), np.full(200, 20.0)])
    counts = np.histogram(poisson_arrivals(rates, np.random.default_rng(seed)), [0, 200, 250, 450])[0]
    assert counts[1] == 0
    for count, expected in ((counts[0], 1000), (counts[2], 4000)):
        assert abs(count - expected) < 5 * np.sqrt(expected)


@pytest.mark.parametrize("rate", [-1.0, np.nan, np.inf])
def test_an_impossible_rate_is_refused(rate):
    with pytest.raises(ValueError, match="rate_per_second"):
        poisson_arrivals(np.array([1.0, rate]), np.random.default_rng(0))


@given(st.floats(1, 10), st.floats(0, 30), st.floats(0, 100))
def test_an_impulse_stays_between_one_and_its_height(height, ramp, length):
    factor = impulse(300, start_seconds=50, height=height, ramp_seconds=ramp, length_seconds=length)
    assert factor.min() == 1
    assert factor.max() <= height + 1e-9
    assert factor[49] == 1


@pytest.mark.parametrize(
    ("lengths", "mean", "p50", "p99"),
    [
        (CONV_PROMPT, 1154.7, 1020, 4142),
        (CONV_OUTPUT, 211.1, 129, 601),
    ],
    ids=["conv prompt", "conv output"],
)
def test_lengths_resemble_the_published_traces(lengths, mean, p50, p99):
    tokens = lengths.draw(200_000, np.random.default_rng(0))
    assert tokens.min() >= 1
    assert tokens.mean() == pytest.approx(mean, rel=0.15)
    assert np.median(tokens) == pytest.approx(p50, rel=0.2)
    assert np.quantile(tokens, 0.99) == pytest.approx(p99, rel=0.5)


@pytest.mark.parametrize("name", SCENARIOS)
class TestScenarios:
    def test_arrivals_follow_the_rate_within_five_standard_deviations(self, name):
        scenario = scenario_named(name)
        rate_rng = np.random.default_rng(np.random.SeedSequence(5).spawn(1)[0])
        rate = scenario.rate_per_second(rate_rng)
        assert rate.size == scenario.duration_seconds
        minutes = np.arange(0, scenario.duration_seconds + 1, 60)
        counts = np.histogram(scenario.build(5).arrival_seconds, minutes)[0]
        expected = np.add.reduceat(rate, minutes[:-1])
        assert (np.abs(counts - expected) < 5 * np.sqrt(expected)).all()

    def test_same_seed_same_requests_another_seed_others(self, name):
        first, again, other = (scenario_named(name).build(seed) for seed in (0, 0, 1))
        assert first.arrival_seconds.tobytes() == again.arrival_seconds.tobytes()
        assert first.prompt_tokens.tobytes() == again.prompt_tokens.tobytes()
        assert first.arrival_seconds.tobytes() != other.arrival_seconds.tobytes()

    def test_arrivals_lie_within_the_duration(self, name):
        scenario = scenario_named(name)
        assert scenario.build(0).arrival_seconds[-1] < scenario.duration_seconds

    def test_priorities_have_their_shares(self, name):
        priority = scenario_named(name).build(0).priority
        shares = np.bincount(priority, minlength=3) / priority.size
        np.testing.assert_allclose(shares, PRIORITY_SHARES, atol=0.02)


def test_surge_trebles_the_rate_for_two_minutes():
    arrivals = scenario_named("surge").build(3).arrival_seconds
    per_second = np.histogram(arrivals, [0, 240, 245, 365, 600])[0] / np.array([240, 5, 120, 235])
    assert per_second[0] == pytest.approx(BASE_RATE_PER_SECOND, rel=0.1)
    assert per_second[2] == pytest.approx(3 * BASE_RATE_PER_SECOND, rel=0.1)


@pytest.mark.parametrize(
    ("name", "height", "begin", "end"),
    [("seckill", 3, start + 5, start + 125) for start in (500, 1100, 1700, 2300, 2900)] + [("ramp", 4, 1200, 1800)],
)
def test_impulses_are_as_high_and_long_as_told(name, height, begin, end):
    rate = scenario_named(name).rate_per_second(np.random.default_rng(0)) / BASE_RATE_PER_SECOND
    np.testing.assert_allclose(rate[begin : end + 1], height)
    assert rate[begin - 1] < height
    assert rate[end + 1] < height


def test_an_unknown_scenario_lists_those_there_are():
    with pytest.raises(ValueError, match="known: surge, steady"):
        scenario_named("rush")
