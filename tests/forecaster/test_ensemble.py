"""The mixture: calibrated by itself, no worse than its best expert for long, and never ahead of its time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.ensemble import (
    EXPERTS,
    FIRST_OUTCOMES,
    LEARN_EVERY_ROWS,
    WARM_UP_ROWS,
    OnlineEnsemble,
    conformal_quantiles,
)
from forecaster.forecast import LEVELS

HORIZON = 6
SPEAKS_FROM = WARM_UP_ROWS + HORIZON + FIRST_OUTCOMES * LEARN_EVERY_ROWS


def played(loads, model=None, *, floor=1.0, first_row=0):
    ensemble = OnlineEnsemble([floor], horizons_rows=(HORIZON,))
    said = [
        ensemble.update(first_row + i, np.array([load]), None if model is None else model[i, None, None])
        for i, load in enumerate(loads)
    ]
    return ensemble, np.array(said)[:, 0, 0]


def ahead(loads):
    return np.array([loads[i + 1 : i + 1 + HORIZON].max() for i in range(len(loads) - HORIZON)])


def noisy(num_rows, *, seed=0):
    return 100.0 * np.exp(np.random.default_rng(seed).normal(0, 0.3, num_rows))


def test_nothing_is_said_before_outcomes_have_come_unless_a_model_speaks():
    loads = noisy(SPEAKS_FROM + 50)
    _, alone = played(loads)
    assert np.isnan(alone[: SPEAKS_FROM - LEARN_EVERY_ROWS]).all()
    assert np.isfinite(alone[SPEAKS_FROM:]).all()
    _, with_model = played(loads, np.full((len(loads), len(LEVELS)), 120.0))
    np.testing.assert_allclose(with_model[:WARM_UP_ROWS], 120.0)
    assert np.isfinite(with_model).all()


def test_coverage_is_nominal_on_noise():
    loads = noisy(6000)
    _, said = played(loads)
    rows = np.arange(1000, len(loads) - HORIZON)
    coverage = (ahead(loads)[rows, None] <= said[rows]).mean(axis=0)
    # 360 outcomes every 5 rows and 5000 rows scored: standard errors of 0.5 to 1.5 points
    np.testing.assert_allclose(coverage, LEVELS, atol=0.035)


def test_an_altered_future_changes_nothing_said_before_it():
    loads = noisy(400)
    _, said = played(loads)
    changed = loads.copy()
    changed[300:] *= 50.0
    _, other = played(changed)
    np.testing.assert_array_equal(said[:300], other[:300])
    assert not np.array_equal(said[300:], other[300:], equal_nan=True)


def test_a_model_that_knows_the_future_takes_the_weight_and_one_that_is_wrong_loses_it():
    loads = noisy(1200)
    truth = np.append(ahead(loads), np.full(HORIZON, 100.0))
    knowing, _ = played(loads, np.repeat(truth[:, None], len(LEVELS), axis=1))
    assert knowing.weights[0, 0, EXPERTS.index("model")].mean() > 0.4
    wrong, _ = played(loads, np.full((len(loads), len(LEVELS)), 5000.0))
    assert wrong.weights[0, 0, EXPERTS.index("model")].max() < 0.01


def test_a_model_that_is_off_by_a_factor_is_put_right_by_its_conformal_twin():
    loads = noisy(1500)
    truth = 3.0 * np.append(ahead(loads), np.full(HORIZON, 100.0))
    ensemble, said = played(loads, np.repeat(truth[:, None], len(LEVELS), axis=1))
    assert ensemble.weights[0, 0, EXPERTS.index("model, conformal")].mean() > 0.4
    _, trivial = played(loads)
    rows = np.arange(1200, len(loads) - HORIZON)
    errors = [np.abs(np.log(one[rows, 0] / ahead(loads)[rows])).mean() for one in (said, trivial)]
    assert errors[0] < errors[1]


def test_unknown_rows_are_no_outcome_of_zero():
    loads = noisy(800)
    loads[400:600] = np.nan
    _, said = played(loads)
    assert np.isfinite(said[SPEAKS_FROM:]).all()
    assert said[599, 0] > 0.5 * said[399, 0]


def test_rows_left_out_count_as_unknown():
    loads = noisy(700)
    with_nan = np.concatenate([loads[:300], np.full(100, np.nan), loads[300:]])
    _, said = played(with_nan)
    ensemble = OnlineEnsemble([1.0], horizons_rows=(HORIZON,))
    rows = np.r_[0:300, 400:800]
    skipped = np.array([ensemble.update(int(row), with_nan[row : row + 1]) for row in rows])[:, 0, 0]
    # trailing means skip what is unknown, so that all but the count of rows since agrees
    np.testing.assert_allclose(skipped[-50:], said[-50:], rtol=0.15)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    scale=st.floats(1e-3, 1e6),
    share_unknown=st.floats(0, 0.6),
    share_zero=st.floats(0, 1),
)
def test_whatever_comes_quantiles_are_finite_positive_and_do_not_cross(seed, scale, share_unknown, share_zero):
    rng = np.random.default_rng(seed)
    loads = scale * rng.pareto(1.2, 250)
    loads[rng.random(250) < share_zero] = 0.0
    loads[rng.random(250) < share_unknown] = np.nan
    _, said = played(loads, floor=0.5)
    known = ~np.isnan(said).any(axis=1)
    assert not (np.isnan(said).any(axis=1) ^ np.isnan(said).all(axis=1)).any()
    assert np.isfinite(said[known]).all()
    assert (said[known] >= 0.5 * (1 - 1e-9)).all()
    assert (np.diff(said[known], axis=1) >= 0).all()


def test_conformal_quantiles_are_the_ranks_that_the_correction_asks_for():
    residuals = np.random.default_rng(5).normal(size=(3, 99))
    expected = np.sort(residuals, axis=1)[:, [49, 89, 98]]
    np.testing.assert_allclose(conformal_quantiles(residuals, np.array([0.5, 0.9, 0.99])), expected)


@pytest.mark.parametrize(
    ("floors", "horizons", "what"), [([0.0], (6,), "floors must be > 0"), ([1.0], (600,), "horizons_rows must be <")]
)
def test_impossible_settings_are_refused(floors, horizons, what):
    with pytest.raises(ValueError, match=what):
        OnlineEnsemble(floors, horizons_rows=horizons)


def test_rows_out_of_order_are_refused():
    ensemble = OnlineEnsemble([1.0], horizons_rows=(HORIZON,))
    ensemble.update(5, np.array([1.0]))
    with pytest.raises(ValueError, match="row 5 is not later than the last, 5"):
        ensemble.update(5, np.array([1.0]))
