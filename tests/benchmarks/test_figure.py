from math import inf, isnan, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.figure import Figure, number
from benchmarks.figure_tables import markdown, summary, write_between

numbers = st.floats(-1e6, 1e6)


def figure(value, **limits):
    return Figure(group="g", name="n", unit="ms", value=value, **limits)


@given(value=numbers, low=numbers, width=st.floats(0, 1e6))
def test_is_met_exactly_within_its_limits(value, low, width):
    one = figure(value, low=low, high=low + width)
    assert (one.verdict == "met") == (low <= value <= low + width) == (one.missed_by == 0)


@pytest.mark.parametrize(
    ("value", "limits", "target", "verdict"),
    [
        pytest.param(-27.3, {"low": -9.0, "high": 9.0}, "within ±9", "missed by 18.3 ms", id="band around zero"),
        pytest.param(150_000, {"low": 200_000}, "≥ 200,000", "missed by 50,000 ms", id="too little"),
        pytest.param(9, {"high": 20.0}, "≤ 20", "met", id="less than the most"),
        pytest.param(2, {"low": 1, "high": 1}, "1", "missed by 1 ms", id="one value"),
        pytest.param(nan, {"high": 20.0}, "≤ 20", "not measured", id="unknown is not met"),
        pytest.param(5, {}, "", "", id="no target"),
        pytest.param(inf, {"high": 20.0}, "≤ 20", "missed by inf ms", id="infinitely late"),
    ],
)
def test_says_what_was_asked_and_by_how_much_it_is_missed(value, limits, target, verdict):
    one = figure(value, **limits)
    assert (one.target, one.verdict) == (target, verdict)
    assert isnan(one.missed_by) == (verdict in ("", "not measured"))


@pytest.mark.parametrize(
    ("value", "text"), [(204_321.7, "204,322"), (17.25, "17.2"), (0.0312, "0.031"), (2.0, "2"), (nan, "-")]
)
def test_numbers_have_as_many_digits_as_a_reader_needs(value, text):
    assert number(value) == text


def test_summary_counts_what_was_not_measured_as_neither_met_nor_missed():
    figures = [figure(1, high=2), figure(3, high=2), figure(nan, high=2), figure(3)]
    assert summary(figures) == "1 of 3 targets met, 1 missed."


def test_tables_replace_only_what_stands_between_their_markers(tmp_path):
    path = tmp_path / "doc.md"
    path.write_text("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n")
    text = markdown([figure(3, high=2)])
    write_between(path, "bench", text)
    assert path.read_text() == f"before\n<!-- bench -->\n{text}<!-- /bench -->\nafter\n"
    assert "| n | 3 | ms | ≤ 2 | **missed by 1 ms** |" in text


def test_a_document_without_markers_is_left_alone(tmp_path):
    path = tmp_path / "doc.md"
    path.write_text("words\n")
    with pytest.raises(ValueError, match="write both lines"):
        write_between(path, "bench", "tables\n")
    assert path.read_text() == "words\n"
