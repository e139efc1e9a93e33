"""Conformal offsets do what their theory says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from models.conformal import conformal_offsets

LEVELS = (0.5, 0.9, 0.99)


def test_coverage_is_nominal_within_its_exact_bounds():
    """Given the offset, coverage of new rows is Beta(k, n + 1 - k): check it, plus binomial error, however bad q is."""
    rng = np.random.default_rng(0)
    num_calibration, num_new = 4000, 40_000
    x = rng.uniform(0, 1, num_calibration + num_new)
    outcome = rng.exponential(1.0 + x)
    bad = np.stack([x, 0.3 + 0 * x, 1.0 - x], axis=-1)[:, None, :]  # far from the truth, each in its own way
    offsets = conformal_offsets(outcome[:num_calibration, None], bad[:num_calibration], levels=LEVELS)
    covered = (outcome[num_calibration:, None] <= bad[num_calibration:, 0] + offsets[0]).mean(axis=0)
    for level, share in zip(LEVELS, covered, strict=True):
        rank = np.ceil((num_calibration + 1) * level)
        low, high = beta.ppf([1e-4, 1 - 1e-4], rank, num_calibration + 1 - rank)
        error = 4 * np.sqrt(level * (1 - level) / num_new)
        assert low - error <= share <= high + error


def test_coverage_is_at_least_nominal_on_average_with_few_rows():
    """The finite-sample correction: without it 20 rows would cover 0.86 of new ones at level 0.9."""
    rng = np.random.default_rng(1)
    num_trials, num_rows = 4000, 20
    outcomes = rng.normal(size=(num_rows + 1, num_trials))
    zero = np.zeros((num_rows, num_trials, 1))
    offsets = conformal_offsets(outcomes[:-1], zero, levels=(0.9,))[:, 0]
    share = (outcomes[-1] <= offsets).mean()
    expected = np.ceil(21 * 0.9) / 21
    assert share == pytest.approx(expected, abs=4 * np.sqrt(0.09 / num_trials))


def test_a_calibrated_forecast_needs_no_offset():
    rng = np.random.default_rng(2)
    outcome = rng.exponential(1.0, 20_000)
    truth = np.broadcast_to(-np.log1p(-np.array(LEVELS)), (20_000, 1, 3))
    assert np.abs(conformal_offsets(outcome[:, None], truth, levels=LEVELS)).max() < 0.1


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=99, max_size=140))
def test_at_least_the_level_of_the_calibration_rows_is_covered(outcomes):
    outcome = np.array(outcomes)[:, None]
    zero = np.zeros((outcome.size, 1, 3))
    offsets = conformal_offsets(outcome, zero, levels=LEVELS)[0]
    covered = (outcome <= offsets).mean(axis=0)
    assert (covered >= np.array(LEVELS) - 1e-12).all()


def test_rows_with_an_unknown_outcome_are_left_out():
    outcome = np.array([[1.0], [np.nan], [3.0], [2.0]])
    assert conformal_offsets(outcome, np.zeros((4, 1, 1)), levels=(0.5,)).tolist() == [[2.0]]


def test_refuses_a_level_that_so_few_rows_cannot_guarantee():
    with pytest.raises(ValueError, match=r"98 calibration rows cannot guarantee level 0.99; at least 99"):
        conformal_offsets(np.zeros((98, 1)), np.zeros((98, 1, 3)), levels=LEVELS)
    conformal_offsets(np.zeros((99, 1)), np.zeros((99, 1, 3)), levels=LEVELS)


def test_refuses_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match="must have shapes"):
        conformal_offsets(np.zeros((5, 2)), np.zeros((5, 1, 3)), levels=LEVELS)
