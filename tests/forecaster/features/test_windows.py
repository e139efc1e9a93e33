"""Trailing statistics: the two forms agree, they see nothing later, and they say what the plain definition says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.features.catalog import TRANSFORMS, transform_named

ROWS = (1, 2, 3, 7, 60)
values = st.one_of(st.just(np.nan), st.floats(0, 1e9, allow_subnormal=False), st.floats(-1e3, 1e3), st.just(0.0))
columns = st.lists(values, min_size=0, max_size=150).map(lambda column: np.array(column, dtype=np.float64))


def _cases():
    for name in TRANSFORMS:
        for rows in ROWS:
            if name == "slope" and rows < 2:
                continue
            yield pytest.param(name, rows, id=f"{name}-{rows}")


CASES = tuple(_cases())


def updated(name, rows, column):
    transform = transform_named(name, rows)
    return np.array([transform.update(value) for value in column.tolist()])


def assert_close(left, right, column):
    scale = max(1.0, float(np.nanmax(np.abs(column), initial=0.0)))
    np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.parametrize(("name", "rows"), CASES)
@settings(max_examples=25, deadline=None)
@given(column=columns)
def test_batch_equals_incremental(name, rows, column):
    batch = transform_named(name, rows).transform(column)
    assert batch.shape == column.shape
    assert_close(updated(name, rows, column), batch, column)


@pytest.mark.parametrize(("name", "rows"), CASES)
def test_batch_equals_incremental_over_a_long_walk_with_gaps(name, rows):
    rng = np.random.default_rng(7)
    column = np.exp(np.cumsum(rng.normal(0, 0.05, 3000)))
    column[rng.random(3000) < 0.2] = np.nan
    column[1000:1200] = np.nan
    np.testing.assert_allclose(
        updated(name, rows, column), transform_named(name, rows).transform(column), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize(("name", "rows"), CASES)
@settings(max_examples=10, deadline=None)
@given(column=columns, data=st.data())
def test_altering_the_future_changes_nothing_before_it(name, rows, column, data):
    cutoff = data.draw(st.integers(0, column.size))
    altered = column.copy()
    altered[cutoff:] = np.where(np.isnan(column[cutoff:]), 5.0, np.nan)
    before = transform_named(name, rows).transform(column)[:cutoff]
    np.testing.assert_array_equal(transform_named(name, rows).transform(altered)[:cutoff], before)


NAIVE = {"mean": np.mean, "max": np.max, "min": np.min, "std": np.std}


@pytest.mark.parametrize("name", NAIVE)
@settings(max_examples=40, deadline=None)
@given(column=columns, rows=st.integers(1, 20))
def test_window_statistics_equal_their_plain_definition(name, column, rows):
    expected = []
    for i in range(column.size):
        seen = column[max(0, i + 1 - rows) : i + 1]
        known = seen[~np.isnan(seen)]
        expected.append(NAIVE[name](known) if known.size else np.nan)
    assert_close(transform_named(name, rows).transform(column), np.array(expected), column)


@pytest.mark.parametrize("name", [name for name in TRANSFORMS if name not in ("known", "rows_since_burst")])
def test_all_unknown_is_unknown(name):
    assert np.isnan(transform_named(name, 4).transform(np.full(9, np.nan))).all()


def test_a_huge_value_leaves_no_rounding_error_behind():
    column = np.concatenate([[1e18], np.full(200, 0.1)])
    assert updated("mean", 20, column)[-1] == pytest.approx(0.1, rel=1e-14)


def test_slope_of_a_straight_line_is_its_gain_per_row():
    column = 5.0 + 0.25 * np.arange(60)
    assert transform_named("slope", 10).transform(column)[30:] == pytest.approx(0.25)


def test_known_ratio_counts_rows_before_the_first_as_unknown():
    column = np.array([1.0, np.nan, 3.0, 4.0])
    assert transform_named("known", 4).transform(column).tolist() == [0.25, 0.25, 0.5, 0.75]


def test_peak_memory_halves_over_its_rows_and_holds_while_unknown():
    memory = transform_named("peak_memory", 10)
    assert memory.update(2.0) == 2.0
    assert memory.update(np.nan) == 2.0
    assert [memory.update(0.0) for _ in range(10)][-1] == pytest.approx(1.0)
    assert memory.update(3.0) == 3.0


def test_rows_since_burst_restarts_at_a_burst_and_is_capped():
    column = np.array([0.0, 0.5, 0.1, np.nan, 0.2, 0.0, 0.0])
    assert transform_named("rows_since_burst", 4).transform(column).tolist() == [4, 0, 1, 2, 3, 4, 4]


def test_ewma_starts_at_the_first_known_value():
    assert updated("ewma", 3, np.array([np.nan, 4.0, np.nan, 8.0])).tolist()[1:] == [4.0, 4.0, 6.0]


def test_unknown_statistic_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'median'.*mean"):
        transform_named("median", 5)


@pytest.mark.parametrize("name", ["mean", "max", "std", "ewma", "slope"])
def test_refuses_a_window_without_rows(name):
    with pytest.raises(ValueError, match="rows must be"):
        transform_named(name, 0)
