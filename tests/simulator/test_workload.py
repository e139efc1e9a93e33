import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.errors import ConfigError
from simulator.workload.arrivals import poisson_arrivals
from simulator.workload.curves import diurnal, drawn_starts, impulse, slow_noise
from simulator.workload.lengths import CONV_OUTPUT, CONV_PROMPT, TokenLengths


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


@given(st.integers(0, 2**32), st.integers(0, 8), st.floats(0, 50))
def test_drawn_impulses_do_not_overlap_and_are_over_by_the_end(seed, count, length):
    starts = drawn_starts(count, num_seconds=400, length_seconds=length, rng=np.random.default_rng(seed))
    assert len(starts) == count
    edges = [0.0, *(edge for start in starts for edge in (start, start + length)), 400.0]
    assert (np.diff(edges) >= -1e-9).all()


def test_more_drawn_impulses_than_there_is_room_for_are_refused():
    with pytest.raises(ValueError, match="5 impulses of 100 s do not fit into 400 s"):
        drawn_starts(5, num_seconds=400, length_seconds=100, rng=np.random.default_rng(0))


@given(st.floats(0, 1), st.floats(0, 1000), st.integers(1, 4))
def test_a_whole_number_of_days_leaves_the_mean_as_it_is(swing, peak, num_days):
    factor = diurnal(400 * num_days, period_seconds=400, swing_ratio=swing, peak_seconds=peak)
    assert factor.mean() == pytest.approx(1)
    assert factor.min() >= 1 - swing - 1e-9


def test_slow_noise_is_never_negative_and_about_one():
    factor = slow_noise(200_000, np.random.default_rng(0), spread_ratio=0.5, every_seconds=10)
    assert factor.min() > 0
    assert factor.mean() == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("values", [{"median": 0.5}, {"sigma": -1.0}, {"largest": 10}])
def test_impossible_lengths_are_refused(values):
    with pytest.raises(ConfigError, match="median must be in"):
        TokenLengths(**({"median": 100, "sigma": 1.0, "largest": 1000} | values))
