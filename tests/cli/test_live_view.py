import io

import pytest
from hand_driven import hand_driven_tracks, play_until
from rich.console import Console

from cli.live_view import LiveView, Pace


@pytest.fixture(scope="module")
def tracks():
    tracks = hand_driven_tracks("foreshock", "hpa")
    play_until(tracks, 40.0)
    return tracks


@pytest.fixture
def view(tracks):
    pace = Pace(now_seconds=40.0, duration_seconds=60.0, speed=10.0)
    return LiveView("surge on a profile", tracks, pace=pace, target_seconds=0.8)


def plain(view, width, height, **options) -> list[str]:
    return [line.plain for line in view.frame(width, height, **options)]


SIZES = [(100, 30), (160, 45), (80, 24), (64, 20), (200, 60)]
TINY = [(63, 24), (80, 19), (40, 10), (20, 4), (1, 1)]


class TestFrame:
    @pytest.mark.parametrize(("width", "height"), SIZES)
    def test_fills_the_height_and_never_the_width_over(self, view, width, height):
        lines = view.frame(width, height)
        assert len(lines) == height
        assert max(line.cell_len for line in lines) <= width

    @pytest.mark.parametrize(("width", "height"), TINY)
    def test_a_tiny_terminal_is_told_in_words(self, view, width, height):
        lines = view.frame(width, height)
        assert 0 < len(lines) <= height
        assert max(line.cell_len for line in lines) <= width

    def test_says_what_is_played_how_far_it_is_and_when_it_ends(self, view):
        header = plain(view, 100, 30)[0]
        for words in ("surge on a profile", "0:40 / 1:00", "×10", "0:02 left"):
            assert words in header

    def test_shows_both_policies_side_by_side_with_what_went_wrong(self, view, tracks):
        line = plain(view, 100, 30)[2]
        assert line.startswith("foreshock")
        assert line.index("hpa") == 51
        assert f"shed {tracks[0].shed_requests}" in line
        assert f"over SLO {tracks[1].seconds_over_target} s" in line

    def test_charts_of_both_policies_have_the_same_axes(self, view):
        lines = plain(view, 100, 30)
        labels = [(line[:6], line[51:57]) for line in lines if line[5:6] in ("┤", "│")]
        assert len(labels) > 12
        assert all(left == right for left, right in labels)

    def test_only_a_policy_that_forecasts_has_a_band(self, view):
        lines = plain(view, 100, 30)
        kv = next(line for line in lines if line.startswith("KV blocks"))
        assert kv.count("forecast") == 1
        assert any(glyph in line[:48] for line in lines[4:12] for glyph in "░▒")
        assert not any(glyph in line[51:] for line in lines[4:12] for glyph in "░▒")

    def test_gives_the_latest_decisions_and_why(self, view):
        lines = plain(view, 100, 30)
        heading = next(i for i, line in enumerate(lines) if line.startswith("Decisions"))
        assert [line.split(maxsplit=3) for line in lines[heading + 1 : heading + 4]] == [
            ["0:20", "foreshock", "2+0→5+1", "demand is expected to reach 4.2 replicas"],
            ["0:20", "foreshock", "sheds", "demand outruns what serves"],
            ["0:20", "hpa", "2+0→5+1"],
        ]

    def test_without_colours_the_states_of_replicas_differ_in_their_glyphs(self, view):
        legend = next(line for line in plain(view, 100, 30, has_colour=False) if line.startswith("Replicas"))
        assert "█ serving ▓ warm ▒ starting" in legend

    def test_axes_never_shrink_while_it_runs(self, tracks):
        fresh = hand_driven_tracks("foreshock", "hpa")
        pace = Pace(duration_seconds=60.0)
        view = LiveView("title", fresh, pace=pace, target_seconds=0.8)
        tops = []
        for until in range(0, 61, 10):
            play_until(fresh, float(until))
            pace.now_seconds = float(until)
            tops.append(view.frame(100, 30)[4].plain.split("┤")[0].strip())
        assert tops[0] == "1"
        values = [float(top.removesuffix("k")) for top in tops[1:]]
        assert values == sorted(values)

    def test_a_long_run_is_seen_through_a_window(self, tracks):
        pace = Pace(now_seconds=2000.0, duration_seconds=3600.0, wanted_speed=10.0)
        lines = LiveView("title", tracks, pace=pace, target_seconds=0.8).frame(100, 30)
        times = next(line.plain for line in lines if ":" in line.plain and line.plain.startswith("      "))
        assert "30:00" in times
        assert "0:00" not in times.split()

    def test_the_window_is_wider_the_faster_it_passes(self, tracks):
        pace = Pace(now_seconds=2000.0, duration_seconds=3600.0, wanted_speed=100.0)
        lines = LiveView("title", tracks, pace=pace, target_seconds=0.8).frame(100, 30)
        times = next(line.plain for line in lines if ":" in line.plain and line.plain.startswith("      "))
        assert "20:00" in times.split()


class TestRendering:
    def test_fits_the_terminal_that_it_is_drawn_on(self, view):
        console = Console(file=io.StringIO(), width=90, height=28, force_terminal=True, color_system=None)
        console.print(view, end="")
        lines = console.file.getvalue().split("\n")
        assert len(lines) == 28
        assert max(len(line) for line in lines) <= 90
