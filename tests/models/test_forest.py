"""The compiled forest predicts exactly what LightGBM predicts, unknown values included, and refuses what it cannot."""

import lightgbm as lgb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.forest import Forest

NUM_FEATURES = 6


def training_rows(seed, *, unknown_ratio):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(600, NUM_FEATURES))
    rows[:, 1] = np.round(rows[:, 1])  # ties, and splits at zero
    target = np.where(rows[:, 0] > 0, 2.0, -1.0) * rows[:, 1] + np.abs(rows[:, 2]) + rng.normal(size=600)
    unknown = rng.random(rows.shape) < unknown_ratio
    unknown[:, 5] = False  # one feature that training never saw unknown
    rows[unknown] = np.nan
    return rows, target


def booster(seed=0, *, unknown_ratio=0.1, num_trees=12, **params):
    rows, target = training_rows(seed, unknown_ratio=unknown_ratio)
    options = {
        "objective": "quantile",
        "alpha": 0.9,
        "num_leaves": 12,
        "min_data_in_leaf": 5,
        "verbose": -1,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
    } | params
    return lgb.train(options, lgb.Dataset(rows, target), num_trees)


BOOSTERS = {
    "unknown values seen": booster(1),
    "no unknown value seen": booster(2, unknown_ratio=0.0),
    "missing values off": booster(3, use_missing=False),
    "deep": booster(4, num_leaves=60, min_data_in_leaf=1),
    "stumps": booster(5, num_leaves=2),
    "a constant": booster(6, min_data_in_leaf=600),
    "another objective": booster(7, objective="regression", num_trees=3),
}
values = st.one_of(
    st.just(np.nan), st.just(0.0), st.just(-0.0), st.floats(-4, 4), st.floats(-1e300, 1e300), st.just(1e-36)
)
matrices = st.lists(st.lists(values, min_size=NUM_FEATURES, max_size=NUM_FEATURES), min_size=1, max_size=40)


@pytest.mark.parametrize("name", BOOSTERS)
@settings(max_examples=60, deadline=None)
@given(rows=matrices)
def test_equals_lightgbm_bit_for_bit(name, rows):
    rows = np.array(rows)
    model = BOOSTERS[name]
    found = Forest.from_texts([model.model_to_string()]).predict(rows)[:, 0]
    np.testing.assert_array_equal(found, model.predict(rows))


def test_several_boosters_keep_their_order_in_batches_longer_than_a_block():
    models = list(BOOSTERS.values())
    rows, _ = training_rows(99, unknown_ratio=0.3)
    found = Forest.from_texts([model.model_to_string() for model in models]).predict(rows)
    np.testing.assert_array_equal(found, np.column_stack([model.predict(rows) for model in models]))


def test_a_threshold_itself_goes_left():
    model = BOOSTERS["deep"]
    threshold = model.trees_to_dataframe()["threshold"].dropna().iloc[0]
    rows = np.full((1, NUM_FEATURES), threshold)
    forest = Forest.from_texts([model.model_to_string()])
    np.testing.assert_array_equal(forest.predict(rows)[:, 0], model.predict(rows))


def test_no_rows_give_no_predictions():
    forest = Forest.from_texts([BOOSTERS["stumps"].model_to_string()])
    assert forest.predict(np.empty((0, NUM_FEATURES))).shape == (0, 1)


def test_refuses_rows_of_another_width():
    forest = Forest.from_texts([BOOSTERS["stumps"].model_to_string()])
    with pytest.raises(ValueError, match=r"\(n, 6\), got \(1, 5\)"):
        forest.predict(np.zeros((1, 5)))


def test_refuses_text_that_is_no_model():
    with pytest.raises(ValueError, match="booster 0: not a LightGBM model text"):
        Forest.from_texts(["hello"])


def test_refuses_boosters_of_different_width():
    narrow = lgb.train(
        {"verbose": -1, "num_threads": 1},
        lgb.Dataset(np.random.default_rng(0).normal(size=(100, 2)), np.arange(100)),
        2,
    )
    with pytest.raises(ValueError, match="booster 1: has 2 features, the boosters before it 6"):
        Forest.from_texts([BOOSTERS["stumps"].model_to_string(), narrow.model_to_string()])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"zero_as_missing": True}, "zero_as_missing"),
        ({"linear_tree": True, "objective": "regression"}, "linear leaves"),
        ({"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}, "averaged"),
    ],
    ids=["zero as missing", "linear leaves", "random forest"],
)
def test_refuses_what_it_cannot_evaluate(params, message):
    with pytest.raises(ValueError, match=message):
        Forest.from_texts([booster(8, **params).model_to_string()])


def test_refuses_categorical_splits():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 6, (400, 1)).astype(float)
    data = lgb.Dataset(rows, (rows[:, 0] == 3) + rng.normal(0, 0.1, 400), categorical_feature=[0])
    model = lgb.train({"verbose": -1, "num_threads": 1, "min_data_per_group": 5}, data, 2)
    with pytest.raises(ValueError, match="categorical"):
        Forest.from_texts([model.model_to_string()])
