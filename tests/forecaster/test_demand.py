import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.capacity import ReplicaCapacity
from forecaster.demand import RATE_ROWS, offered_load
from forecaster.demand_stream import OfferedLoadStream
from forecaster.present_load import present_load
from forecaster.telemetry import SIGNALS, TelemetryWindow

REPLICA = ReplicaCapacity(
    kv_blocks=1000, block_size_tokens=16, prefill_tokens_per_second=8000, decode_tokens_per_second=2000
)


def window_of(**columns: list[float]) -> TelemetryWindow:
    num_rows = len(next(iter(columns.values())))
    return TelemetryWindow.from_columns(
        "chat",
        np.arange(1, num_rows + 1, dtype=np.float64),
        columns={name: np.asarray(column, dtype=np.float64) for name, column in columns.items()},
    )


@st.composite
def windows(draw: st.DrawFn) -> TelemetryWindow:
    """Windows of any size with gaps of any size, values over many orders of magnitude and often zero."""
    seed = draw(st.integers(0, 2**32 - 1))
    num_rows = draw(st.integers(0, 200))
    unknown_ratio = draw(st.sampled_from([0.0, 0.1, 0.5, 0.95, 1.0]))
    magnitude = draw(st.sampled_from([0.0, 3.0, 9.0]))
    rng = np.random.default_rng(seed)
    maxima = np.array([min(signal.maximum, 1e15) for signal in SIGNALS])
    values = np.minimum(10.0 ** rng.uniform(-magnitude, magnitude, (num_rows, len(SIGNALS))), maxima)
    values[rng.random(values.shape) < 0.3] = 0.0
    values[rng.random(values.shape) < unknown_ratio] = np.nan
    row_at = np.arange(1.0, num_rows + 1)
    return TelemetryWindow(deployment="chat", row_at=row_at, values=values, seen_at=row_at)


@settings(max_examples=60, deadline=None)
@given(windows())
def test_batch_and_stream_agree(window: TelemetryWindow) -> None:
    batch = offered_load(window, REPLICA)
    stream = OfferedLoadStream(REPLICA)
    rows = np.array([stream.update(row) for row in window.values]).reshape(-1, 4)
    columns = (
        batch.kv_blocks,
        batch.prefill_tokens_per_second,
        batch.decode_tokens_per_second,
        batch.demand_replicas,
    )
    for i, column in enumerate(columns):
        np.testing.assert_allclose(rows[:, i], column, rtol=1e-9, atol=0)


@settings(max_examples=25, deadline=None)
@given(windows(), st.integers(0, 199))
def test_no_row_depends_on_a_later_one(window: TelemetryWindow, cut: int) -> None:
    head = TelemetryWindow(
        deployment="chat",
        row_at=window.row_at[:cut],
        values=window.values[:cut],
        seen_at=window.seen_at[:cut],
    )
    np.testing.assert_allclose(
        offered_load(head, REPLICA).demand_replicas,
        offered_load(window, REPLICA).demand_replicas[:cut],
        rtol=1e-12,
    )


def test_waiting_prompts_count_as_blocks_that_running_requests_hold() -> None:
    load = offered_load(window_of(kv_blocks_used=[500.0], waiting_prompt_tokens=[1600.0]), REPLICA)
    assert load.kv_blocks[0] == 600
    assert load.demand_replicas[0] == pytest.approx(600 / 900)


def test_queue_length_is_estimated_from_waiting_requests_where_their_tokens_are_unknown() -> None:
    load = offered_load(
        window_of(
            kv_blocks_used=[500.0],
            waiting_requests=[4.0],
            prompt_tokens_per_second=[800.0],
            request_rate_per_second=[2.0],
        ),
        REPLICA,
    )
    assert load.kv_blocks[0] == 500 + 4 * 400 / 16


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"kv_blocks_used": [np.nan], "waiting_prompt_tokens": [0.0]}, np.nan),
        ({"kv_blocks_used": [7.0]}, np.nan),
        ({"kv_blocks_used": [7.0], "waiting_requests": [0.0]}, 7.0),
        ({"kv_blocks_used": [0.0], "waiting_requests": [0.0]}, 0.0),
    ],
    ids=["unknown blocks", "unknown queue", "known empty queue", "idle"],
)
def test_unknown_parts_are_unknown_not_zero(columns: dict[str, list[float]], expected: float) -> None:
    np.testing.assert_equal(offered_load(window_of(**columns), REPLICA).kv_blocks[0], expected)


def test_refused_prompts_count_for_the_time_they_would_have_been_in_flight() -> None:
    num_rows = 30
    load = offered_load(
        window_of(
            kv_blocks_used=[0.0] * num_rows,
            waiting_requests=[0.0] * num_rows,
            e2e_mean_seconds=[6.0] * num_rows,
            ttft_mean_seconds=[1.0] * num_rows,
            rejected_prompt_tokens_per_second=[0.0] * 10 + [160.0] * 10 + [0.0] * 10,
        ),
        REPLICA,
    )
    # 5 s in flight after the first token: 10, 20, ... 50 blocks, held until 5 s after the last refusal
    assert load.kv_blocks[9:16].tolist() == [0, 10, 20, 30, 40, 50, 50]
    assert load.kv_blocks[19:26].tolist() == [50, 40, 30, 20, 10, 0, 0]


def test_decode_load_follows_arrivals_when_the_fleet_decodes_less_than_they_need() -> None:
    load = offered_load(
        window_of(
            decode_tokens_per_second=[1000.0] * 30,
            request_rate_per_second=[20.0] * 30,
            finished_rate_per_second=[5.0] * 30,
            finished_output_tokens_per_second=[1000.0] * 30,
        ),
        REPLICA,
    )
    assert load.decode_tokens_per_second[-1] == 20 * 200
    assert load.demand_replicas[-1] == 2


def test_prefill_load_is_the_mean_of_the_known_rows_of_the_last_five() -> None:
    prompts = [9e9, 1000.0, np.nan, 3000.0, np.nan, 2000.0]
    assert offered_load(window_of(prompt_tokens_per_second=prompts), REPLICA).prefill_tokens_per_second[-1] == 2000


def test_nothing_known_gives_unknown_demand() -> None:
    assert np.isnan(offered_load(window_of(running_requests=[3.0]), REPLICA).demand_replicas[0])


@settings(max_examples=40, deadline=None)
@given(windows())
def test_present_load_is_the_newest_row_of_the_offered_load_when_means_are_as_long(window: TelemetryWindow) -> None:
    if window.num_rows == 0:
        return
    batch = offered_load(window, REPLICA)
    one_row = present_load(window.values, REPLICA, mean_rows=1)
    five_rows = present_load(window.values, REPLICA, mean_rows=RATE_ROWS)
    np.testing.assert_allclose(one_row.kv_blocks, batch.kv_blocks[-1], rtol=1e-9)
    np.testing.assert_allclose(one_row.decode_tokens_per_second, batch.decode_tokens_per_second[-1], rtol=1e-9)
    np.testing.assert_allclose(five_rows.prefill_tokens_per_second, batch.prefill_tokens_per_second[-1], rtol=1e-9)


def test_replicas_that_do_not_report_are_taken_to_hold_as_much_as_those_that_do() -> None:
    window = window_of(kv_blocks_used=[900.0], waiting_prompt_tokens=[1600.0], prompt_tokens_per_second=[800.0])
    load = present_load(window.values, REPLICA, mean_rows=1, imputed=2.0)
    assert load.kv_blocks == 2000
    assert load.waiting_prompt_tokens == 3200
    assert load.prefill_tokens_per_second == 800
