"""Plays the policies of a run in lockstep: in the live view at a steady pace, or as plain lines as fast as it goes."""

from collections.abc import Iterator

from rich.console import Console
from rich.live import Live

from cli.interruption import Interruption
from cli.live_view import MOST_SECONDS, LiveView, Pace
from cli.plain_lines import PlainLines
from cli.policy_track import PolicyTrack
from forecaster.clock import Clock
from training.closed_loop import Lockstep

LIVE_SECONDS = 36.0  # what a live view takes unless told: long enough to watch, short enough to stay
LAST_FRAME_SECONDS = 1.5  # the finished picture stands before the comparison replaces it
FRAMES_PER_SECOND = 12.0


def play_side_by_side(
    lockstep: Lockstep, *, console: Console, clock: Clock, title: str, speed: float | None, is_live: bool
) -> bool:
    """Return whether the run was played to its end; False if Ctrl-C ended it.

    Parameters
    ----------
    speed : float or None
        Simulated seconds per second, None for a view of `LIVE_SECONDS`. Plain lines are not paced.
    """
    run = lockstep.run
    tracks = tuple(
        PolicyTrack(name, fleet, config=run.config, keep_seconds=MOST_SECONDS)
        for name, fleet in lockstep.fleets.items()
    )
    with Interruption() as interruption:
        moments = _until_interrupted(lockstep, tracks, interruption)
        if not is_live:
            _print_lines(moments, PlainLines(tracks), console)
            return not interruption.requested
        wanted = speed or max(run.duration_seconds / LIVE_SECONDS, 1.0)
        pace = Pace(duration_seconds=run.duration_seconds, wanted_speed=wanted)
        view = LiveView(title, tracks, pace=pace, target_seconds=run.config.slo.ttft_seconds)
        with Live(view, console=console, screen=True, auto_refresh=False, transient=True) as live:
            _show(moments, live, pace, clock=clock)
            if not interruption.requested:
                clock.sleep(LAST_FRAME_SECONDS)
        return not interruption.requested


def _until_interrupted(
    lockstep: Lockstep, tracks: tuple[PolicyTrack, ...], interruption: Interruption
) -> Iterator[float]:
    """Play on, yielding the time after each tick and at the end, with the tracks up to date."""
    for now in lockstep:
        for track in tracks:
            track.update()
        yield now
        if interruption.requested:
            return
    for track in tracks:
        track.update()
    yield lockstep.reached_seconds


def _print_lines(moments: Iterator[float], lines: PlainLines, console: Console) -> None:
    for now in moments:
        for line in lines.new_lines(now):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _show(moments: Iterator[float], live: Live, pace: Pace, *, clock: Clock) -> None:
    """Draw the moments, each no earlier than its time; where playing lags behind, frames are left out."""
    started = drawn = clock.monotonic()
    for now in moments:
        pace.now_seconds = now
        clock.sleep(started + now / pace.wanted_speed - clock.monotonic())
        elapsed = clock.monotonic() - started
        if elapsed > 0 and now > 0:
            pace.speed = now / elapsed
        if clock.monotonic() - drawn >= 1 / FRAMES_PER_SECOND:
            live.refresh()
            drawn = clock.monotonic()
    live.refresh()
