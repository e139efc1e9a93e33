"""Feature rows: batch equals stream, nothing looks ahead, scale does not matter, gaps are unknown time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.capacity import ReplicaCapacity
from forecaster.demand import offered_load
from forecaster.errors import InvalidTelemetryError
from forecaster.features import FEATURE_SCHEMA, SCALE_FEATURES, FeatureStream, build_features, floors_for, scale_name
from forecaster.features.definitions import DEFINITIONS, LONGEST_ROWS, SERIES
from forecaster.forecast import DEMAND, KV_BLOCKS, PREFILL, TARGETS
from forecaster.telemetry import SIGNAL_INDEX, SIGNALS, TelemetryWindow

CAPACITY = ReplicaCapacity(
    kv_blocks=28_000, block_size_tokens=16, prefill_tokens_per_second=14_000, decode_tokens_per_second=7_500
)


def random_window(seed, num_rows, *, unknown_ratio=0.0, max_step=1):
    rng = np.random.default_rng(seed)
    values = np.abs(rng.lognormal(4.0, 1.0, (num_rows, len(SIGNALS))))
    for i, signal in enumerate(SIGNALS):
        if signal.maximum == 1.0:
            values[:, i] = rng.random(num_rows)
    values[rng.random(values.shape) < 0.05] = 0.0
    values[rng.random(values.shape) < unknown_ratio] = np.nan
    row_at = 1e9 + np.cumsum(rng.integers(1, max_step + 1, num_rows)).astype(np.float64)
    return window_of(row_at, values)


def window_of(row_at, values):
    return TelemetryWindow(deployment="d", row_at=row_at, values=values, seen_at=row_at)


def streamed(window):
    stream = FeatureStream(CAPACITY)
    return np.array([stream.update(at, row) for at, row in zip(window.row_at.tolist(), window.values, strict=True)])


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_rows=st.integers(1, 200),
    unknown_ratio=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    max_step=st.sampled_from([1, 4]),
)
def test_stream_equals_batch(seed, num_rows, unknown_ratio, max_step):
    window = random_window(seed, num_rows, unknown_ratio=unknown_ratio, max_step=max_step)
    np.testing.assert_allclose(streamed(window), build_features(window, CAPACITY), rtol=1e-9, atol=1e-9)


def test_stream_equals_batch_over_a_window_longer_than_every_memory_and_a_gap_longer_still():
    window = random_window(3, 2500, unknown_ratio=0.02)
    row_at = window.row_at.copy()
    row_at[1200:] += 3 * LONGEST_ROWS
    window = window_of(row_at, window.values)
    np.testing.assert_allclose(streamed(window), build_features(window, CAPACITY), rtol=1e-9, atol=1e-9)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), cutoff=st.integers(1, 79))
def test_altering_the_future_changes_no_feature_before_it(seed, cutoff):
    window = random_window(seed, 80, unknown_ratio=0.05)
    altered = random_window(seed + 1, 80, unknown_ratio=0.3).values.copy()
    altered[:cutoff] = window.values[:cutoff]
    np.testing.assert_array_equal(
        build_features(window_of(window.row_at, altered), CAPACITY)[:cutoff], build_features(window, CAPACITY)[:cutoff]
    )


def test_missing_seconds_count_as_unknown_rows():
    window = random_window(5, 60)
    kept = np.r_[0:20, 35:60]
    blanked = window.values.copy()
    blanked[20:35] = np.nan
    missing = build_features(window_of(window.row_at[kept], window.values[kept]), CAPACITY)
    np.testing.assert_array_equal(missing, build_features(window_of(window.row_at, blanked), CAPACITY)[kept])


def test_scales_are_the_floored_trailing_minute_of_each_target():
    window = random_window(11, 200)
    features = build_features(window, CAPACITY)
    load = offered_load(window, CAPACITY)
    series = {
        KV_BLOCKS: load.kv_blocks,
        PREFILL: load.prefill_tokens_per_second,
        DEMAND: load.demand_replicas,
    }
    for target in TARGETS:
        expected = max(series[target][140:200].mean(), floors_for(CAPACITY)[target])
        assert features[199, FEATURE_SCHEMA.index[scale_name(target)]] == pytest.approx(expected)


def test_features_other_than_scales_and_noise_levels_do_not_depend_on_the_size_of_the_fleet():
    """Ten times the traffic of the same shape gives the same ratios: only the Poisson noise level tells it apart."""
    window = random_window(13, 400)
    extensive = [not signal.name.endswith(("_seconds", "_ratio")) for signal in SIGNALS]
    above_floor = np.where(extensive, 1e3 * (1.0 + window.values), window.values)
    tenfold = np.where(extensive, 10.0, 1.0) * above_floor
    small = build_features(window_of(window.row_at, above_floor), CAPACITY)[100:]
    large = build_features(window_of(window.row_at, tenfold), CAPACITY)[100:]
    levels = {*SCALE_FEATURES, "request_rate_log", "in_flight_log", "request_dispersion_1s", "request_dispersion_10s"}
    for name, column in FEATURE_SCHEMA.index.items():
        if name not in levels:
            np.testing.assert_allclose(small[:, column], large[:, column], rtol=1e-6, atol=1e-9, err_msg=name)


def test_a_doubling_shows_as_log_two_over_the_trailing_minute():
    row_at = np.arange(1.0, 301.0)
    used = np.full(300, 10_000.0)
    used[299] = 20_000.0
    window = TelemetryWindow.from_columns(
        "d",
        row_at,
        columns={"kv_blocks_used": used, "waiting_prompt_tokens": np.zeros(300), "waiting_requests": np.zeros(300)},
    )
    last = build_features(window, CAPACITY)[-1]
    expected = np.log(20_000 / ((59 * 10_000 + 20_000) / 60))
    assert last[FEATURE_SCHEMA.index["kv_blocks_last_log_ratio"]] == pytest.approx(expected)
    assert last[FEATURE_SCHEMA.index["kv_blocks_max_900_log_ratio"]] == pytest.approx(expected)


def test_idle_fleet_has_finite_ratios():
    row_at = np.arange(1.0, 121.0)
    columns = {signal.name: np.zeros(120) for signal in SIGNALS}
    last = build_features(TelemetryWindow.from_columns("d", row_at, columns=columns), CAPACITY)[-1]
    assert not np.isinf(last).any()
    for target in TARGETS:
        assert last[FEATURE_SCHEMA.index[f"{target}_last_log_ratio"]] == 0.0


def test_wholly_unknown_telemetry_gives_unknown_ratios():
    row_at = np.arange(1.0, 31.0)
    last = build_features(window_of(row_at, np.full((30, len(SIGNALS)), np.nan)), CAPACITY)[-1]
    known = {name for name, column in FEATURE_SCHEMA.index.items() if not np.isnan(last[column])}
    assert known == {"seconds_since_burst", "known_history_ratio"}


def test_an_empty_window_gives_no_rows():
    empty = window_of(np.empty(0), np.empty((0, len(SIGNALS))))
    assert build_features(empty, CAPACITY).shape == (0, FEATURE_SCHEMA.num_features)


def test_stream_refuses_a_row_that_is_not_later():
    stream = FeatureStream(CAPACITY)
    stream.update(10.0, np.full(len(SIGNALS), np.nan))
    with pytest.raises(InvalidTelemetryError, match=r"10\.0 is not later than the last at 10\.0"):
        stream.update(10.0, np.full(len(SIGNALS), np.nan))


def test_refuses_rows_that_are_not_a_second_long():
    window = random_window(1, 5)
    coarse = TelemetryWindow(
        deployment="d", row_at=window.row_at * 5, values=window.values, seen_at=window.row_at * 5, step_seconds=5.0
    )
    with pytest.raises(InvalidTelemetryError, match=r"5\.0 s"):
        build_features(coarse, CAPACITY)


def test_every_definition_uses_only_columns_before_it():
    known = set(SERIES)
    for definition in DEFINITIONS:
        assert definition.source in known, definition.name
        assert not definition.over or definition.over in known, definition.name
        assert not definition.floor or definition.floor in floors_for(CAPACITY), definition.name
        known.add(definition.name)


def test_telemetry_signals_that_the_features_read_exist():
    assert {"request_rate_per_second", "kv_blocks_used", "ttft_mean_seconds"} <= set(SIGNAL_INDEX)
