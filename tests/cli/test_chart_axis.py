import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.chart_axis import amount_axis, clock_text, count_axis, latency_axis, short_number


class TestAxes:
    @given(st.floats(0, 1e9))
    def test_amounts_fit_below_a_round_top(self, highest):
        axis = amount_axis(highest)
        assert axis.high >= highest
        assert axis.high <= max(2 * highest, 1.0)
        assert all(len(label) <= 5 for _, label in axis.ticks)

    @given(st.floats(0, 500))
    def test_counts_fit_below_a_multiple_of_four(self, highest):
        axis = count_axis(highest)
        assert axis.high >= highest
        assert axis.high % 4 == 0

    @given(st.floats(0, 1e4), st.floats(0.05, 10))
    def test_latency_axes_always_name_the_target(self, highest, target):
        axis = latency_axis(highest, target_seconds=target)
        assert target in [value for value, _ in axis.ticks]
        assert axis.low < target < axis.high
        assert axis.high >= highest

    @pytest.mark.parametrize(
        ("value", "expected"), [(0, "0"), (9.5, "9.5"), (123.4, "123"), (28_000, "28k"), (1_250_000, "1.25M")]
    )
    def test_numbers_are_short(self, value, expected):
        assert short_number(value) == expected

    def test_hours_are_written_from_an_hour_on(self):
        assert (clock_text(3599), clock_text(3600)) == ("59:59", "1:00:00")
