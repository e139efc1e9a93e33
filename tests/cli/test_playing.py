import io
import signal

import numpy as np
import pytest
from rich.console import Console

from cli.playing import LAST_FRAME_SECONDS, LIVE_SECONDS, play_side_by_side
from forecaster.clock import ManualClock
from simulator.profiles import DEFAULT_PROFILE, profile_named
from simulator.requests import RequestTable
from simulator.static_fleet import StaticPolicy
from training.closed_loop import Lockstep, closed_loop_run

ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h", "\x1b[?1049l"


class InterruptingPolicy(StaticPolicy):
    """Presses Ctrl-C at second 20."""

    def decide(self, *, now, telemetry, fleet):
        if now == 20.0:
            signal.raise_signal(signal.SIGINT)
        return super().decide(now=now, telemetry=telemetry, fleet=fleet)


def make_policy(name, config):
    return InterruptingPolicy(3) if name == "interrupting" else StaticPolicy(int(name.partition(":")[2]))


def lockstep(*policies):
    requests = RequestTable.from_columns(np.arange(600) / 10, np.full(600, 900), np.full(600, 60))
    run = closed_loop_run("test", requests, profile=profile_named(DEFAULT_PROFILE), policies=policies, initial=3)
    return Lockstep(run, make_policy=make_policy)


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=100, height=30, force_terminal=True, color_system=None)


def play(loop, console, clock, *, speed=None, is_live=True):
    return play_side_by_side(loop, console=console, clock=clock, title="test", speed=speed, is_live=is_live)


class TestLive:
    def test_takes_the_time_that_the_speed_asks_for(self, console):
        clock = ManualClock()
        assert play(lockstep("static:3", "static:4"), console, clock, speed=10.0)
        assert clock.now() == pytest.approx(60 / 10 + LAST_FRAME_SECONDS)

    def test_takes_half_a_minute_unless_told(self, console):
        clock = ManualClock()
        loop = lockstep("static:3", "static:4")
        play(loop, console, clock)
        assert clock.now() == pytest.approx(min(LIVE_SECONDS, loop.run.duration_seconds) + LAST_FRAME_SECONDS)

    def test_draws_on_a_screen_of_its_own_and_gives_the_terminal_back(self, console):
        play(lockstep("static:3", "static:4"), console, ManualClock(), speed=10.0)
        drawn = console.file.getvalue()
        assert drawn.index(ENTER_SCREEN) < drawn.index("static:4") < drawn.index(LEAVE_SCREEN)
        assert drawn.count(ENTER_SCREEN) == drawn.count(LEAVE_SCREEN) == 1
        assert "0:30 / 1:00" in drawn
        assert "1:00 / 1:00" in drawn


class TestPlain:
    def test_is_not_paced(self, console):
        clock = ManualClock()
        assert play(lockstep("static:3", "static:4"), console, clock, is_live=False)
        assert clock.now() == 0.0

    def test_prints_lines_and_no_screen(self, console):
        play(lockstep("static:3", "static:4"), console, ManualClock(), is_live=False)
        printed = console.file.getvalue()
        assert "\x1b" not in printed
        assert [line.split()[:2] for line in printed.splitlines()] == [
            ["0:30", "static:3"],
            ["0:30", "static:4"],
            ["1:00", "static:3"],
            ["1:00", "static:4"],
        ]


@pytest.mark.parametrize("is_live", [True, False], ids=["live", "plain"])
def test_ctrl_c_stops_at_the_next_tick_and_leaves_a_run_that_can_be_scored(console, is_live):
    loop = lockstep("interrupting", "static:4")
    assert not play(loop, console, ManualClock(), is_live=is_live)
    assert 20.0 <= loop.reached_seconds <= 22.0
    assert [part.scorecard.num_requests for part in loop.played()] == [int(10 * loop.reached_seconds) + 1] * 2
    if is_live:
        assert console.file.getvalue().count(LEAVE_SCREEN) == 1
