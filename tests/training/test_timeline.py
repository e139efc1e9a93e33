import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scripted_policy import forecast_at

from forecaster.capacity import ReplicaCapacity
from forecaster.demand import offered_load
from forecaster.plan import CapacityPlan
from forecaster.telemetry import TelemetryWindow
from training.timeline import BAND_LEVELS, forecast_band, seconds_over_target, thinned, timeline

CAPACITY = ReplicaCapacity(
    kv_blocks=1000, block_size_tokens=16, prefill_tokens_per_second=8000, decode_tokens_per_second=2000
)


def window(**columns) -> TelemetryWindow:
    size = len(next(iter(columns.values())))
    return TelemetryWindow.from_columns(
        "test", np.arange(1.0, size + 1), columns={name: np.array(column) for name, column in columns.items()}
    )


class TestTimeline:
    def test_a_stall_shows_as_the_age_of_the_oldest_waiting_request(self):
        curves = timeline(
            window(
                ttft_p95_seconds=[0.2, np.nan, np.nan, 3.0],
                oldest_waiting_age_seconds=[0.0, 1.0, 2.0, 0.5],
            ),
            CAPACITY,
        )
        assert curves.ttft_p95_seconds.tolist() == [0.2, 1.0, 2.0, 3.0]
        assert seconds_over_target(curves, 0.8) == 3

    def test_silence_without_anybody_waiting_stays_unknown(self):
        curves = timeline(window(ttft_p95_seconds=[np.nan], oldest_waiting_age_seconds=[0.0]), CAPACITY)
        assert np.isnan(curves.ttft_p95_seconds).all()
        assert seconds_over_target(curves, 0.8) == 0

    def test_shows_the_demand_that_the_planner_is_shown(self):
        rows = window(kv_blocks_used=[100.0, 900.0], prompt_tokens_per_second=[10.0, 20.0], waiting_requests=[0.0, 0.0])
        curves = timeline(rows, CAPACITY)
        np.testing.assert_array_equal(curves.demand_replicas, offered_load(rows, CAPACITY).demand_replicas)


class TestForecastBand:
    def test_stands_where_it_speaks_of_half_a_minute_after_it_was_made(self):
        plans = tuple(
            CapacityPlan(planned_at=now, serving_replicas=1, supply_replicas=1, forecast=forecast_at(now))
            for now in (0.0, 2.0)
        )
        band = forecast_band(plans)
        assert band.at.tolist() == [30.0, 32.0]
        np.testing.assert_allclose(band.kv_blocks, [[1000 * q for q in BAND_LEVELS], [3000 * q for q in BAND_LEVELS]])

    def test_plans_without_a_forecast_leave_no_band(self):
        band = forecast_band((CapacityPlan(planned_at=0.0, serving_replicas=1, supply_replicas=1),))
        assert band.at.shape == (0,)
        assert band.kv_blocks.shape == (0, len(BAND_LEVELS))


values = arrays(np.float64, st.integers(1, 300), elements=st.one_of(st.floats(-1e6, 1e6), st.just(np.nan)))


class TestThinned:
    @given(values, st.integers(1, 50))
    def test_keeps_to_the_limit_and_keeps_the_largest_value(self, column, max_points):
        at, (thin,) = thinned(np.arange(column.size, dtype=float), (column,), max_points=max_points)
        assert at.size == thin.size <= max_points
        assert at[-1] == column.size - 1
        if np.isnan(column).all():
            assert np.isnan(thin).all()
        else:
            assert np.nanmax(thin) == np.nanmax(column)

    @given(values)
    def test_changes_nothing_where_there_is_room(self, column):
        at, (thin,) = thinned(np.arange(column.size, dtype=float), (column,), max_points=300)
        np.testing.assert_array_equal(thin, column)
        assert at.size == column.size

    def test_ordered_curves_stay_in_order(self):
        rng = np.random.default_rng(0)
        low = rng.random(1000)
        high = low + rng.random(1000)
        _, (thin_low, thin_high) = thinned(np.arange(1000.0), (low, high), max_points=37)
        assert (thin_low <= thin_high).all()


@pytest.mark.parametrize("size", [0, 1])
def test_a_run_that_has_hardly_begun_has_curves(size):
    assert timeline(window(kv_blocks_used=[1.0]).since(1.0 - size), CAPACITY).at.size == size
