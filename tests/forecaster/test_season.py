"""What recurs is found and answered from the past; what does not is called no season."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.season import BIN_ROWS, NUM_BINS, Season, season_of


def played(rows):
    season = Season()
    for value in np.asarray(rows, dtype=float).tolist():
        season.update(value)
    return season


def impulses(period_rows, num_rows, *, height=10.0, length=30):
    return np.where(np.arange(num_rows) % period_rows < length, height, 1.0)


@pytest.mark.parametrize("period_rows", [120, 300, 450, 900])
def test_the_period_of_impulses_is_found(period_rows):
    noise = np.exp(np.random.default_rng(1).normal(0, 0.1, 4 * period_rows))
    found = played(impulses(period_rows, 4 * period_rows) * noise).period_bins * BIN_ROWS
    assert abs(found - period_rows) <= BIN_ROWS


def test_a_peak_is_expected_before_it_comes_and_not_after_it_went():
    season = played(impulses(300, 1200 + 280))  # the next one comes in 20 s
    assert season.ahead(30) == 10.0
    assert season.ahead(10) == 1.0
    for _ in range(60):
        season.update(1.0)
    assert season.ahead(30) == 1.0


def test_past_seasons_are_averaged():
    rows = np.concatenate([impulses(300, 300, height=h) for h in (4.0, 8.0, 12.0)])
    assert played(rows).ahead(30) == pytest.approx(8.0)


@pytest.mark.parametrize("seed", range(10))
def test_noise_and_a_slow_rise_are_no_season(seed):
    rng = np.random.default_rng(seed)
    assert season_of(np.exp(rng.normal(0, 0.3, 400)))[0] == 0
    assert season_of(np.linspace(1.0, 2.0, 400))[0] == 0


def test_unknown_constant_and_zero_loads_have_no_season():
    for rows in (np.full(2000, np.nan), np.full(2000, 5.0), np.zeros(2000)):
        season = played(rows)
        assert season.period_bins == 0
        assert np.isnan(season.ahead(30))


def test_history_is_bounded():
    assert len(played(np.ones(BIN_ROWS * (NUM_BINS + 50)))._bins) == NUM_BINS


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), num_bins=st.integers(0, 300), share_unknown=st.floats(0, 1))
def test_a_season_found_was_seen_at_least_twice(seed, num_bins, share_unknown):
    rng = np.random.default_rng(seed)
    bins = rng.pareto(1.0, num_bins)
    bins[rng.random(num_bins) < share_unknown] = np.nan
    period, correlation = season_of(bins)
    assert 0 <= period <= num_bins // 2
    assert correlation >= 0.0
