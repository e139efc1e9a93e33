import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cli.chart_axis import TimeAxis, ValueAxis, latency_axis
from cli.terminal_chart import (
    Curve,
    Layer,
    Shade,
    Steps,
    column_maxima,
    draw_chart,
    draw_stack,
    draw_time_axis,
)

AXIS = ValueAxis(low=0.0, high=10.0, ticks=((0.0, "0"), (10.0, "10")))
TIME = TimeAxis(start=0.0, end=10.0)
EMPTY = np.zeros(0)

numbers = st.one_of(st.floats(-1e9, 1e9), st.sampled_from([np.nan, 0.0]))
columns = arrays(np.float64, st.integers(0, 40), elements=numbers)
sizes = st.integers(1, 60)


def text(lines) -> list[str]:
    return [line.plain for line in lines]


def chart(values, *, at=None, width=16, height=3, time=TIME, axis=AXIS, make=Curve, **mark) -> list[str]:
    values = np.array(values, dtype=float)
    at = np.arange(1.0, values.size + 1) if at is None else np.array(at, dtype=float)
    marks = (make(at=at, values=values, style="", **mark),)
    return text(draw_chart(width, height, label_width=3, axis=axis, time=time, marks=marks))


class TestSize:
    @settings(max_examples=60)
    @given(columns, columns, sizes, st.integers(1, 20), st.integers(0, 8), st.booleans())
    def test_charts_are_as_high_as_asked_and_never_wider(self, values, other, width, height, label_width, is_log):
        size = min(values.size, other.size)
        at, values, other = np.arange(1.0, size + 1), values[:size], other[:size]
        axis = latency_axis(float(np.nanmax(values, initial=1.0)), target_seconds=0.8) if is_log else AXIS
        marks = (
            Shade(at=at, low=np.minimum(values, other), high=np.maximum(values, other), glyph="░", style="dim"),
            Steps(at=at, values=other, style="red"),
            Curve(at=at, values=values, style="bold", breach_above=1.0),
        )
        time = TimeAxis(start=0.0, end=20.0, now=7.0)
        lines = draw_chart(width, height, label_width=label_width, axis=axis, time=time, marks=marks)
        assert len(lines) == height
        assert max(line.cell_len for line in lines) <= width

    @settings(max_examples=60)
    @given(columns, sizes, st.integers(1, 20), st.integers(0, 8))
    def test_stacks_are_as_high_as_asked_and_never_wider(self, values, width, height, label_width):
        at = np.arange(1.0, values.size + 1)
        layers = (Layer(values=values, colour="green"), Layer(values=values, colour="blue", glyph="▒"))
        over = (Steps(at=at, values=values, style=""),)
        lines = draw_stack(
            width, height, label_width=label_width, axis=AXIS, time=TIME, at=at, layers=layers, over=over
        )
        assert len(lines) == height
        assert max(line.cell_len for line in lines) <= width

    @given(st.integers(1, 200), st.integers(0, 8), st.floats(0, 1e6), st.floats(0.5, 1e6))
    def test_time_axes_are_never_wider(self, width, label_width, start, span):
        time = TimeAxis(start=start, end=start + span)
        assert draw_time_axis(width, label_width=label_width, time=time).cell_len <= width


class TestCurve:
    def test_climbs_from_the_lower_left_to_the_upper_right(self):
        assert chart(range(1, 11)) == [
            " 10┤        ⣀⡠⠔⠊",
            "   │    ⣀⠤⠒⠉    ",
            "  0┤⠤⠔⠊⠉        ",
        ]

    def test_a_constant_stays_in_one_line(self):
        assert chart([5.0] * 10) == [
            " 10┤            ",
            "   │⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤",
            "  0┤            ",
        ]

    def test_a_jump_hangs_together(self):
        assert chart([0, 0, 0, 0, 0, 10, 10, 10, 10, 10]) == [
            " 10┤       ⡏⠉⠉⠉⠉",
            "   │      ⢸     ",
            "  0┤⣀⣀⣀⣀⣀⣀⠎     ",
        ]

    def test_what_is_not_known_is_a_gap(self):
        assert chart([5.0, 5.0, 5.0, np.nan, np.nan, np.nan, np.nan, 5.0, 5.0, 5.0]) == [
            " 10┤            ",
            "   │⠤⠤⠤⠤     ⠠⠤⠤",
            "  0┤            ",
        ]

    def test_nothing_known_is_nothing_drawn(self):
        assert {row[4:].strip() for row in chart([np.nan] * 10)} == {""}
        assert {row[4:].strip() for row in chart([])} == {""}

    def test_what_leaves_the_axis_stays_at_its_edge(self):
        rows = chart([-5.0] * 5 + [50.0] * 5)
        assert rows[0][-1] != " "
        assert rows[2][4] != " "

    def test_takes_the_breach_style_where_it_is_above_its_limit(self):
        at = np.arange(1.0, 11)
        curve = Curve(at=at, values=np.where(at <= 5, 1.0, 9.0), style="green", breach_above=5.0, breach_style="red")
        lines = draw_chart(16, 3, label_width=3, axis=AXIS, time=TIME, marks=(curve,))
        top = [span.style for span in lines[0].spans]
        bottom = [span.style for span in lines[2].spans]
        assert "red" in top
        assert "green" not in top
        assert "green" in bottom

    def test_later_marks_cover_earlier_ones(self):
        at = np.arange(1.0, 11)
        shade = Shade(at=at, low=np.zeros(10), high=np.full(10, 10.0), glyph="░", style="")
        curve = Curve(at=at, values=np.full(10, 5.0), style="")
        rows = text(draw_chart(16, 3, label_width=3, axis=AXIS, time=TIME, marks=(shade, curve)))
        assert rows == [" 10┤" + "░" * 12, "   │" + "⠤" * 12, "  0┤" + "░" * 12]


class TestStack:
    def draw(self, layers, *, height=4, over=()):
        at = np.arange(1.0, 11)
        axis = ValueAxis(low=0.0, high=4.0, ticks=((0.0, "0"), (4.0, "4")))
        parts = tuple(Layer(values=np.full(10, value), colour=colour, glyph=glyph) for value, colour, glyph in layers)
        return draw_stack(9, height, label_width=3, axis=axis, time=TIME, at=at, layers=parts, over=over)

    def test_piles_up_from_the_first_layer(self):
        rows = text(self.draw([(2.0, "green", "█"), (1.0, "yellow", "▓")]))
        assert rows == ["  4┤     ", "   │▓▓▓▓▓", "   │█████", "  0┤█████"]

    def test_shows_parts_of_a_cell_in_eighths_over_the_next_layer(self):
        lines = self.draw([(1.5, "green", "█"), (1.5, "yellow", "▓")])
        assert text(lines) == ["  4┤     ", "   │▓▓▓▓▓", "   │▄▄▄▄▄", "  0┤█████"]
        assert "green on yellow" in [span.style for span in lines[2].spans]

    def test_what_lies_over_it_keeps_the_colour_below(self):
        demand = Steps(at=np.arange(1.0, 11), values=np.zeros(10), style="bold")
        lines = self.draw([(2.0, "green", "█")], over=(demand,))
        assert lines[3].plain == "  0┤╌╌╌╌╌"
        assert "bold black on green" in [span.style for span in lines[3].spans]

    def test_rows_that_are_not_known_are_empty(self):
        assert {row[4:].strip() for row in text(self.draw([(np.nan, "green", "█")]))} == {""}


class TestColumnMaxima:
    @given(columns.filter(lambda values: values.size > 0))
    def test_no_peak_is_lost(self, values):
        at = np.arange(1.0, values.size + 1)
        found = column_maxima(at, values, np.linspace(0.0, values.size, 8))
        if np.isnan(values).all():
            assert np.isnan(found).all()
        else:
            assert np.nanmax(found) == pytest.approx(np.nanmax(values), rel=1e-12)

    def test_columns_between_two_points_lie_between_them(self):
        found = column_maxima(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0]), np.linspace(0, 3, 13))
        assert (np.diff(found) >= 0).all()  # so every one of them is known
        assert (found[0], found[-1]) == (0.0, 2.0)

    def test_knows_nothing_before_the_first_row_or_after_the_last(self):
        found = column_maxima(np.array([5.0, 6.0, 7.0]), np.ones(3), np.linspace(0, 10, 11))
        assert np.isnan(found).tolist() == [True] * 4 + [False] * 3 + [True] * 3

    def test_does_not_bridge_a_gap_in_time(self):
        at = np.array([1.0, 2.0, 3.0, 20.0, 21.0])
        found = column_maxima(at, np.ones(5), np.linspace(0, 24, 25))
        assert np.isnan(found[5:18]).all()


class TestTimeAxis:
    def test_times_are_written_where_they_are(self):
        line = draw_time_axis(64, label_width=3, time=TimeAxis(start=0.0, end=600.0)).plain
        assert line.split() == ["0:00", "2:00", "4:00", "6:00", "8:00", "10:00"]
        assert line.index("6:00") == pytest.approx(4 + 60 * 0.6 - 2, abs=1)
