"""The live view: two policies on the same traffic side by side, drawn anew for whatever size the terminal has."""

from dataclasses import dataclass

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from cli.chart_axis import TimeAxis, amount_axis, clock_text, count_axis, latency_axis
from cli.policy_charts import (
    COLOURED_LAYERS,
    LABEL_WIDTH,
    TEXTURED_LAYERS,
    FleetLayer,
    PolicyAxes,
    kv_chart,
    replica_chart,
    ttft_chart,
)
from cli.policy_track import PolicyTrack
from cli.terminal_chart import draw_time_axis
from training.decisions import Change
from training.timeline import BAND_HORIZON_SECONDS, ForecastBand, Timeline

GAP = 3
POLICY_STYLES = ("bold cyan", "bold magenta")
# Below this a terminal has no room for two charts side by side; what counts is then given in words.
SMALLEST_WIDTH, SMALLEST_HEIGHT = 64, 20
# A run up to this long is shown whole and nothing scrolls; a longer one through a window that takes so long to pass.
WHOLE_RUN_SECONDS = 900.0
WINDOW_SECONDS = 300.0
WINDOW_WALL_SECONDS = 10.0
# What tracks must keep for the widest picture.
MOST_SECONDS = 1800.0


@dataclass(slots=True, kw_only=True)
class Pace:
    """How the playing goes, for the header.

    Attributes
    ----------
    now_seconds, duration_seconds : float
        Simulated.
    wanted_speed : float
        Simulated seconds per second of wall time that were asked for.
    speed : float
        Those that are reached.
    """

    now_seconds: float = 0.0
    duration_seconds: float
    wanted_speed: float = 1.0
    speed: float = float("nan")

    @property
    def remaining_seconds(self) -> float:
        """Wall time to the end, NaN while the speed is not known."""
        return (self.duration_seconds - self.now_seconds) / self.speed if self.speed > 0 else float("nan")


class LiveView:
    """A renderable that always shows the tracks as they are now."""

    def __init__(self, title: str, tracks: tuple[PolicyTrack, ...], *, pace: Pace, target_seconds: float) -> None:
        self.title, self.tracks, self.pace, self.target_seconds = title, tracks, pace, target_seconds
        self._highest_blocks = 0.0
        self._highest_replicas = 0.0
        self._highest_seconds = 0.0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Return the frame for the space there is."""
        width, height = options.max_width, options.height or console.height
        has_colour = console.color_system is not None and not console.no_color
        for i, line in enumerate(self.frame(width, height, has_colour=has_colour)):
            if i:
                yield Text("\n", end="")
            yield line

    def frame(self, width: int, height: int, *, has_colour: bool = True) -> list[Text]:
        """Return at most `height` lines of at most `width` cells; without colours, glyphs tell the parts apart."""
        header = _header(self.title, self.pace, width)
        shown = [(track, track.curves, track.band) for track in self.tracks]
        if width < SMALLEST_WIDTH or height < SMALLEST_HEIGHT:
            return _in_words(header, shown, width, height)
        self._raise_axes(shown)
        columns = len(shown)
        column_width = (width - GAP * (columns - 1)) // columns
        heights = _heights(height)
        layers = COLOURED_LAYERS if has_colour else TEXTURED_LAYERS
        drawn = [
            self._column(i, *part, width=column_width, heights=heights, layers=layers) for i, part in enumerate(shown)
        ]
        lines = header + [_side_by_side(parts, column_width) for parts in zip(*drawn, strict=True)]
        return lines + _decision_lines(self.tracks, width, heights.decisions)

    def _raise_axes(self, shown: list[tuple[PolicyTrack, Timeline, ForecastBand]]) -> None:
        """Widen the axes, which all columns share, to what is shown; they never shrink, so that nothing jumps."""
        for _, curves, band in shown:
            blocks = (curves.kv_blocks_used, curves.kv_blocks_offered, band.kv_blocks[:, -1])
            # the total only as far as its lowest: many idle replicas would press the load flat
            lowest_total = -_highest(-curves.kv_blocks_total)
            self._highest_blocks = max(self._highest_blocks, lowest_total, *(_highest(part) for part in blocks))
            fleet = curves.serving_replicas + curves.draining_replicas + curves.warm_replicas + curves.starting_replicas
            self._highest_replicas = max(self._highest_replicas, _highest(fleet), _highest(curves.demand_replicas))
            self._highest_seconds = max(self._highest_seconds, _highest(curves.ttft_p95_seconds))

    def _column(
        self,
        index: int,
        track: PolicyTrack,
        curves: Timeline,
        band: ForecastBand,
        *,
        width: int,
        heights: "Heights",
        layers: tuple[FleetLayer, ...],
    ) -> list[Text]:
        axes = PolicyAxes(
            kv_blocks=amount_axis(self._highest_blocks),
            ttft=latency_axis(self._highest_seconds, target_seconds=self.target_seconds),
            replicas=count_axis(self._highest_replicas),
            time=self._time_axis(),
        )
        return [
            _policy_line(track, index, width),
            *kv_chart(curves, band, width, heights.kv, axes=axes),
            *ttft_chart(curves, width, heights.ttft, axes=axes, target_seconds=self.target_seconds),
            *replica_chart(curves, width, heights.replicas, axes=axes, layers=layers),
            draw_time_axis(width, label_width=LABEL_WIDTH, time=axes.time),
        ]

    def _time_axis(self) -> TimeAxis:
        pace = self.pace
        if pace.duration_seconds <= WHOLE_RUN_SECONDS:
            return TimeAxis(start=0.0, end=pace.duration_seconds, now=pace.now_seconds)
        window = min(max(WINDOW_SECONDS, WINDOW_WALL_SECONDS * pace.wanted_speed), MOST_SECONDS)
        end = max(pace.now_seconds + BAND_HORIZON_SECONDS, window)
        return TimeAxis(start=end - window, end=end, now=pace.now_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heights:
    """Lines of each part of a frame."""

    kv: int
    ttft: int
    replicas: int
    decisions: int


_FIXED_LINES = 8  # header 2, policy, three legends, time axis, heading of the decisions


def _heights(height: int) -> Heights:
    free = height - _FIXED_LINES
    decisions = max(round(free * 0.2), 3)
    charts = free - decisions
    kv = round(charts * 0.4)
    ttft = round(charts * 0.27)
    return Heights(kv=kv, ttft=ttft, replicas=charts - kv - ttft, decisions=decisions)


def _highest(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.max()) if known.size else 0.0


def _header(title: str, pace: Pace, width: int) -> list[Text]:
    left = Text(" foreshock ", style="bold reverse")
    left.append(f" {title}", style="not reverse not bold")
    speed = f"×{pace.speed:.0f}" if pace.speed > 0 else "×-"
    eta = f"{clock_text(pace.remaining_seconds)} left" if pace.speed > 0 else "starting"
    right = Text(f"{clock_text(pace.now_seconds)} / {clock_text(pace.duration_seconds)}", style="bold")
    right.append(f"  {speed}  {eta} ", style="dim")
    left.truncate(max(width - right.cell_len - 1, 0), overflow="ellipsis")
    line = Text(no_wrap=True, end="", overflow="crop")
    line.append_text(left)
    line.append(" " * max(width - left.cell_len - right.cell_len, 0))
    line.append_text(right)
    line.truncate(width)
    done = round(width * min(pace.now_seconds / max(pace.duration_seconds, 1e-9), 1.0))
    bar = Text("━" * done, style="cyan", end="")
    bar.append("━" * (width - done), style="bright_black")
    return [line, bar]


def _policy_line(track: PolicyTrack, index: int, width: int) -> Text:
    over, shed = track.seconds_over_target, track.shed_requests
    parts = (
        ("over SLO", f"{over} s", "bold red" if over else "bold green"),
        ("shed", f"{shed:,}", "bold yellow" if shed else "bold"),
        ("GPU-h", f"{track.gpu_hours:.2f}", "bold"),
    )
    line = Text(end="", no_wrap=True)
    line.append(track.policy, style=POLICY_STYLES[index % len(POLICY_STYLES)])
    needed = line.cell_len + sum(len(name) + len(value) + 3 for name, value, _ in parts)
    for name, value, style in parts:
        label = f"  {name} " if needed <= width else f" {name.removesuffix(' SLO')} "
        if line.cell_len + len(label) + len(value) > width:
            break
        line.append(label, style="dim")
        line.append(value, style=style)
    line.truncate(width)
    return line


def _side_by_side(parts: tuple[Text, ...], column_width: int) -> Text:
    line = Text(end="", no_wrap=True)
    for i, part in enumerate(parts):
        if i:
            line.append(" " * GAP)
        line.append_text(part)
        if i < len(parts) - 1:
            line.append(" " * (column_width - part.cell_len))
    return line


def _decision_lines(tracks: tuple[PolicyTrack, ...], width: int, height: int) -> list[Text]:
    """Return a heading and the latest changes of all policies, the newest first."""
    changes = [(change, i) for i, track in enumerate(tracks) for change in track.log.changes]
    changes.sort(key=lambda change: -change[0].at)
    name_width = max(len(track.policy) for track in tracks)
    heading = Text("Decisions", style="bold", end="")
    heading.append("  newest first; serving+reserve", style="not bold dim")
    heading.truncate(width)
    lines = [heading]
    for change, i in changes[:height]:
        lines.append(_change_line(change, tracks[i].policy, i, name_width=name_width, width=width))
    return lines + [Text("", end="") for _ in range(height + 1 - len(lines))]


def _change_line(change: Change, policy: str, index: int, *, name_width: int, width: int) -> Text:
    line = Text(f"{clock_text(change.at):>7}  ", style="dim", end="", no_wrap=True)
    line.append(f"{policy:<{name_width}}  ", style=f"not dim {POLICY_STYLES[index % len(POLICY_STYLES)]}")
    what = change.after if change.after[0].isalpha() else f"{change.before}→{change.after}"
    line.append(f"{what:<11} ", style="not dim bold")
    line.append(change.why, style="not dim")
    line.truncate(width, overflow="ellipsis")
    return line


def _in_words(
    header: list[Text], shown: list[tuple[PolicyTrack, Timeline, ForecastBand]], width: int, height: int
) -> list[Text]:
    """Return what fits a terminal too small for charts."""
    lines = list(header)
    for i, (track, curves, _) in enumerate(shown):
        lines.append(_policy_line(track, i, width))
        if curves.at.size:
            state = Text(
                f"  {curves.serving_replicas[-1]:.0f} serving, {curves.warm_replicas[-1]:.0f} warm, "
                f"{curves.starting_replicas[-1]:.0f} starting; TTFT p95 {curves.ttft_p95_seconds[-1]:.2f} s",
                end="",
            )
            state.truncate(width, overflow="ellipsis")
            lines.append(state)
    return lines[: max(height, 1)]
