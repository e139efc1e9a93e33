"""Arrival processes: the mean follows the curve, the variation is as told, the seed decides."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.workload.arrivals import (
    gamma_arrivals,
    gamma_shape,
    hawkes_arrivals,
    modulated_arrivals,
    poisson_arrivals,
    weibull_arrivals,
    weibull_cv,
    weibull_shape,
)

LEVELS, DWELL = (1.0, 5.0), (20.0, 5.0)
BRANCHING = 0.6

PROCESSES = {
    "poisson": poisson_arrivals,
    "gamma": partial(gamma_arrivals, shape=gamma_shape(3.0)),
    "gamma, regular": partial(gamma_arrivals, shape=gamma_shape(0.3)),
    "weibull": partial(weibull_arrivals, shape=weibull_shape(3.0)),
    "modulated": partial(modulated_arrivals, levels=LEVELS, dwell_seconds=DWELL),
    "hawkes": partial(hawkes_arrivals, branching_ratio=BRANCHING, decay_seconds=0.5),
}

# Long-run variance of a count over its mean. Renewal: cv^2. Two states of rates r1, r2, shares p1, p2 and switching
# rates summing to s: 1 + 2 p1 p2 (r1 - r2)^2 / (s mean). Hawkes: 1 / (1 - n)^2.
_MEAN_LEVEL = (LEVELS[0] * DWELL[0] + LEVELS[1] * DWELL[1]) / sum(DWELL)


def dispersion(name, rate):
    if name == "modulated":
        shares = np.array(DWELL) / sum(DWELL)
        apart = (LEVELS[1] - LEVELS[0]) / _MEAN_LEVEL * rate
        return 1 + 2 * shares.prod() * apart**2 / ((1 / DWELL[0] + 1 / DWELL[1]) * rate)
    return {"poisson": 1.0, "gamma": 9.0, "gamma, regular": 0.09, "weibull": 9.0, "hawkes": (1 - BRANCHING) ** -2}[name]


@pytest.mark.parametrize("name", PROCESSES)
class TestEveryProcess:
    def test_mean_count_is_the_integral_of_the_rate_in_every_part_of_the_curve(self, name):
        rate = np.concatenate([np.full(100, 4.0), np.zeros(30), np.full(100, 16.0)])
        edges = [0, 20, 100, 130, 150, 230]
        runs = [PROCESSES[name](rate, np.random.default_rng(seed)) for seed in range(300)]
        counts = np.array([np.histogram(arrivals, edges)[0] for arrivals in runs])
        expected = np.array([80.0, 320.0, 0.0, 320.0, 1280.0])
        error = counts.std(axis=0, ddof=1) / np.sqrt(len(runs))
        assert (np.abs(counts.mean(axis=0) - expected) <= 4.5 * error).all()

    def test_long_counts_vary_as_theory_says(self, name):
        counts = [PROCESSES[name](np.full(2000, 3.0), np.random.default_rng(seed)).size for seed in range(400)]
        found = np.var(counts, ddof=1) / np.mean(counts)
        # the sample variance of 400 about normal counts has a relative error of sqrt(2 / 399) = 0.07
        assert found == pytest.approx(dispersion(name, 3.0), rel=0.3)

    @settings(max_examples=30, deadline=None)
    @given(st.integers(0, 2**32), st.lists(st.sampled_from([0.0, 0.2, 3.0, 40.0]), min_size=0, max_size=30))
    def test_arrivals_are_sorted_within_seconds_that_have_a_rate_and_decided_by_the_seed(self, name, seed, rates):
        curve = np.array(rates)
        arrivals = PROCESSES[name](curve, np.random.default_rng(seed))
        assert (np.diff(arrivals) >= 0).all()
        assert (curve[arrivals.astype(int)] > 0).all()
        assert arrivals.tobytes() == PROCESSES[name](curve, np.random.default_rng(seed)).tobytes()

    @pytest.mark.parametrize("rate", [-1.0, np.nan, np.inf])
    def test_an_impossible_rate_is_refused(self, name, rate):
        with pytest.raises(ValueError, match="rate_per_second"):
            PROCESSES[name](np.array([1.0, rate]), np.random.default_rng(0))


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.0, 4.0])
@pytest.mark.parametrize(("process", "shape_of"), [(gamma_arrivals, gamma_shape), (weibull_arrivals, weibull_shape)])
def test_gaps_of_renewals_vary_as_told(process, shape_of, cv):
    gaps = np.diff(process(np.full(100_000, 2.0), np.random.default_rng(1), shape=shape_of(cv)))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.06)


@given(st.floats(0.05, 50))
def test_weibull_shape_and_variation_are_inverse(cv):
    assert weibull_cv(weibull_shape(cv)) == pytest.approx(cv, rel=1e-6)


def test_three_states_are_played_with_their_shares():
    levels, dwell = (0.0, 10.0, 100.0), (30.0, 20.0, 10.0)
    arrivals = modulated_arrivals(np.full(50_000, 40.0), np.random.default_rng(0), levels=levels, dwell_seconds=dwell)
    per_second = np.bincount(arrivals.astype(int), minlength=50_000)
    low, middle = 10.0, 80.0  # the states' rates are 0, 20 and 200: twice their levels, since the mean level is 20
    shares = [(per_second < low).mean(), ((per_second >= low) & (per_second < middle)).mean()]
    assert shares == pytest.approx([1 / 2, 1 / 3], abs=0.04)


@pytest.mark.parametrize(
    ("process", "settings_", "message"),
    [
        (gamma_arrivals, {"shape": 0.0}, "shape must be finite and > 0"),
        (weibull_arrivals, {"shape": np.nan}, "shape must be finite and > 0"),
        (hawkes_arrivals, {"branching_ratio": 1.0, "decay_seconds": 1.0}, r"branching_ratio must be in \[0, 1\)"),
        (hawkes_arrivals, {"branching_ratio": 0.5, "decay_seconds": 0.0}, "decay_seconds must be finite"),
        (modulated_arrivals, {"levels": (1.0,), "dwell_seconds": (1.0,)}, "two or more states"),
        (modulated_arrivals, {"levels": (0.0, 0.0), "dwell_seconds": (1.0, 1.0)}, "not all 0"),
        (modulated_arrivals, {"levels": (1.0, 2.0), "dwell_seconds": (1.0, 0.0)}, "dwell_seconds must be finite"),
    ],
)
def test_impossible_processes_are_refused(process, settings_, message):
    with pytest.raises(ValueError, match=message):
        process(np.ones(3), np.random.default_rng(0), **settings_)
