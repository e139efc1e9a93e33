"""Targets are what came after the cutoff, of what was asked; features are what was seen before it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.capacity import ReplicaCapacity
from forecaster.features import FEATURE_SCHEMA, build_features, floors_for, scale_name
from forecaster.forecast import DEMAND, KV_BLOCKS, TARGETS
from forecaster.telemetry import TelemetryWindow
from training.datasets import FIRST_CUTOFF_ROW, HORIZONS_SECONDS, joined, maximum_ahead, run_dataset

CAPACITY = ReplicaCapacity(
    kv_blocks=28_000, block_size_tokens=16, prefill_tokens_per_second=14_000, decode_tokens_per_second=7_500
)


def window(seed=0, num_rows=300, *, level=20_000.0):
    rng = np.random.default_rng(seed)
    return TelemetryWindow.from_columns(
        "d",
        np.arange(1.0, num_rows + 1.0),
        columns={
            "kv_blocks_used": level * rng.lognormal(0, 0.3, num_rows),
            "waiting_prompt_tokens": np.zeros(num_rows),
            "waiting_requests": np.zeros(num_rows),
            "request_rate_per_second": rng.poisson(10, num_rows).astype(float),
            "prompt_tokens_per_second": rng.poisson(10, num_rows) * 900.0,
        },
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 100) | st.just(np.nan), max_size=40), st.integers(1, 10))
def test_maximum_ahead_equals_its_plain_definition(values, rows):
    series = np.array(values, dtype=np.float64)
    expected = [
        np.nan if i + rows >= series.size else np.fmax.reduce(series[i + 1 : i + 1 + rows]) for i in range(series.size)
    ]
    np.testing.assert_array_equal(maximum_ahead(series, rows), np.array(expected, dtype=np.float64))


def test_log_ratios_multiply_back_to_the_maximum_ahead():
    seen = window()
    data = run_dataset(seen, CAPACITY)
    scale = data.features[:, FEATURE_SCHEMA.index[scale_name(KV_BLOCKS)]]
    blocks = seen.column("kv_blocks_used")
    for j, horizon in enumerate(HORIZONS_SECONDS):
        for i in (0, 50, data.num_rows - 1):
            row = int(data.cutoff_at[i]) - 1
            expected = max(blocks[row + 1 : row + 1 + horizon].max(), floors_for(CAPACITY)[KV_BLOCKS])
            assert scale[i] * np.exp(data.log_ratios[i, TARGETS.index(KV_BLOCKS), j]) == pytest.approx(expected)


def test_longer_horizons_have_no_smaller_maximum():
    assert (np.diff(run_dataset(window(), CAPACITY).log_ratios, axis=2) >= 0).all()


def test_targets_come_from_the_ample_run_and_features_from_the_seen_one():
    seen, ample = window(), window(level=60_000.0)
    data = run_dataset(seen, CAPACITY, ample=ample)
    alone = run_dataset(seen, CAPACITY)
    np.testing.assert_array_equal(data.features, alone.features)
    gain = data.log_ratios[:, TARGETS.index(KV_BLOCKS)] - alone.log_ratios[:, TARGETS.index(KV_BLOCKS)]
    np.testing.assert_allclose(gain, np.log(3.0))


def test_features_are_those_of_the_telemetry_up_to_the_cutoff():
    seen = window()
    data = run_dataset(seen, CAPACITY, stride_seconds=7)
    i = data.num_rows // 2
    rows = int(data.cutoff_at[i])
    upto = TelemetryWindow(
        deployment="d", row_at=seen.row_at[:rows], values=seen.values[:rows], seen_at=seen.row_at[:rows]
    )
    np.testing.assert_array_equal(data.features[i], build_features(upto, CAPACITY)[-1])


def test_every_target_has_its_whole_horizon_and_the_first_rows_are_left_out():
    data = run_dataset(window(), CAPACITY)
    assert data.cutoff_at[0] == FIRST_CUTOFF_ROW
    assert data.cutoff_at[-1] == 300 - max(HORIZONS_SECONDS)
    assert np.isfinite(data.log_ratios).all()


def test_a_run_shorter_than_the_longest_horizon_gives_no_rows():
    assert run_dataset(window(num_rows=100), CAPACITY).num_rows == 0


def test_splits_by_run_share_no_row():
    data = joined([run_dataset(window(seed), CAPACITY, run=seed, stride_seconds=20) for seed in range(3)])
    parts = [data.of_runs([0, 2]), data.of_runs([1])]
    assert sorted(np.unique(parts[0].run)) == [0, 2]
    assert parts[0].num_rows + parts[1].num_rows == data.num_rows


def test_a_split_in_time_leaves_the_longest_horizon_free():
    before = run_dataset(window(num_rows=600), CAPACITY).before(400.0)
    assert before.cutoff_at[-1] + max(HORIZONS_SECONDS) == 400.0


def test_a_load_under_the_floor_counts_as_the_floor():
    idle = TelemetryWindow.from_columns(
        "d",
        np.arange(1.0, 301.0),
        columns={
            "kv_blocks_used": np.zeros(300),
            "waiting_prompt_tokens": np.zeros(300),
            "prompt_tokens_per_second": np.zeros(300),
            "request_rate_per_second": np.zeros(300),
        },
    )
    data = run_dataset(idle, CAPACITY)
    assert (data.log_ratios == 0).all()
    assert (data.features[:, FEATURE_SCHEMA.index[scale_name(DEMAND)]] == floors_for(CAPACITY)[DEMAND]).all()


def test_refuses_runs_with_different_rows():
    with pytest.raises(ValueError, match="300 and 299"):
        run_dataset(window(), CAPACITY, ample=window(num_rows=299))


def test_refuses_to_join_nothing():
    with pytest.raises(ValueError, match="no dataset to join"):
        joined([])
