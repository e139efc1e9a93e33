"""The estimator keeps scikit-learn's contract, is reproducible, and its quantiles never cross."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from models.lightgbm_quantile import LightGBMQuantileForecaster

TINY = {"num_trees": 8, "num_leaves": 6, "min_rows_in_leaf": 10, "levels": (0.5, 0.9, 0.99)}


def noisy_rows(seed=0, num_rows=400):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(num_rows, 4))
    rows[rng.random(rows.shape) < 0.05] = np.nan
    spread = 0.1 + np.abs(np.nan_to_num(rows[:, 0]))
    outputs = np.column_stack([rng.normal(0, spread), np.nan_to_num(rows[:, 1]) + rng.exponential(1.0, num_rows)])
    return rows, outputs


FITTED = LightGBMQuantileForecaster(**TINY).fit(*noisy_rows())


def test_init_only_stores_its_parameters():
    estimator = LightGBMQuantileForecaster(levels=[2.0, 1.0], num_trees=-3)
    assert estimator.levels == [2.0, 1.0]
    assert estimator.num_trees == -3
    assert set(vars(estimator)) == set(inspect.signature(LightGBMQuantileForecaster).parameters)


def test_get_params_and_clone_carry_every_parameter():
    estimator = LightGBMQuantileForecaster(**TINY, random_state=5)
    copy = clone(estimator)
    assert copy is not estimator
    assert copy.get_params() == estimator.get_params()
    assert copy.set_params(num_trees=3).num_trees == 3


def test_fit_returns_self_and_learned_state_ends_in_an_underscore():
    estimator = LightGBMQuantileForecaster(**TINY)
    parameters = set(vars(estimator))
    assert estimator.fit(*noisy_rows()) is estimator
    assert all(name.endswith("_") for name in set(vars(estimator)) - parameters)
    assert len(estimator.booster_texts_) == 2 * 3


def test_refuses_to_predict_before_it_is_fitted():
    with pytest.raises(NotFittedError):
        LightGBMQuantileForecaster().predict_quantiles(np.zeros((1, 4)))


def test_cloning_a_fitted_estimator_forgets_what_it_learned():
    assert not hasattr(clone(FITTED), "booster_texts_")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.floats(-1e6, 1e6) | st.just(np.nan), min_size=4, max_size=4), min_size=1, max_size=20))
def test_quantiles_never_cross(rows):
    quantiles = FITTED.predict_quantiles(np.array(rows))
    assert quantiles.shape == (len(rows), 2, 3)
    assert (np.diff(quantiles, axis=-1) >= 0).all()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_same_seed_gives_the_same_bytes_however_many_jobs(n_jobs):
    again = LightGBMQuantileForecaster(**TINY, n_jobs=n_jobs).fit(*noisy_rows())
    assert again.booster_texts_ == FITTED.booster_texts_


def test_another_seed_gives_other_boosters():
    other = LightGBMQuantileForecaster(**TINY, random_state=1).fit(*noisy_rows())
    assert other.booster_texts_ != FITTED.booster_texts_


def test_learns_that_noise_differs_between_rows():
    fitted = LightGBMQuantileForecaster(levels=(0.9,), num_trees=40, min_rows_in_leaf=20)
    fitted.fit(*noisy_rows(num_rows=2000))
    rows = np.zeros((2, 4))
    rows[1, 0] = 2.0
    quiet, loud = fitted.predict_quantiles(rows)[:, 0, 0]
    assert loud > 2 * quiet


def test_rows_with_an_unknown_output_are_left_out_for_that_output():
    rows, outputs = noisy_rows()
    extended = np.vstack([rows, rows[:50]])
    unknown = np.vstack([outputs, np.column_stack([np.full(50, np.nan), outputs[:50, 1]])])
    fitted = LightGBMQuantileForecaster(**TINY).fit(extended, unknown)
    assert fitted.booster_texts_[:3] == FITTED.booster_texts_[:3]
    assert fitted.booster_texts_[3:] != FITTED.booster_texts_[3:]


def test_one_output_may_be_a_vector():
    rows, outputs = noisy_rows()
    fitted = LightGBMQuantileForecaster(**TINY).fit(rows, outputs[:, 0])
    assert fitted.booster_texts_ == FITTED.booster_texts_[:3]


def test_tells_its_progress():
    told = []
    LightGBMQuantileForecaster(**TINY).fit(*noisy_rows(), progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("rows", "outputs", "message"),
    [
        (np.zeros(5), np.zeros(5), r"\(n_rows, n_features\), got \(5,\)"),
        (np.full((5, 2), np.inf), np.zeros(5), "holds inf at row 0, column 0"),
        (np.zeros((5, 2)), np.zeros(4), r"y must have shape \(5,\)"),
        (np.zeros((5, 2)), np.empty((5, 0)), "y must have shape"),
        (np.zeros((5, 2)), np.full(5, np.nan), "no known value in output 0"),
    ],
    ids=["no matrix", "infinity", "other length", "no outputs", "all unknown"],
)
def test_fit_refuses(rows, outputs, message):
    with pytest.raises(ValueError, match=message):
        LightGBMQuantileForecaster(**TINY).fit(rows, outputs)


@pytest.mark.parametrize("levels", [(), (0.9, 0.5), (0.5, 0.5), (0.0, 0.5), (0.5, 1.0)])
def test_fit_refuses_levels_that_do_not_increase_within_zero_and_one(levels):
    with pytest.raises(ValueError, match="levels must increase"):
        LightGBMQuantileForecaster(levels=levels).fit(*noisy_rows())


def test_predict_refuses_rows_of_another_width():
    with pytest.raises(ValueError, match=r"\(n_rows, 4\), got \(1, 3\)"):
        FITTED.predict_quantiles(np.zeros((1, 3)))
