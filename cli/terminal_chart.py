"""Charts of characters: curves in braille dots, forecast bands in shades, stacked columns in eighths of a cell.

A chart is exactly as many lines as asked for and never wider. Values that are not known leave a gap.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from cli.chart_axis import TimeAxis, ValueAxis, clock_text
from forecaster.telemetry import Floats

# Dots of a braille cell, from the top: (left column, right column); U+2800 is the empty cell.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BRAILLE = 0x2800
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_AXIS_STYLE = "dim"
# Points up to this many usual distances apart are joined; farther apart nobody knows what was between.
LARGEST_STRIDE = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line of braille dots; where it is above `breach_above` it takes `breach_style`."""

    at: Floats
    values: Floats
    style: str
    breach_above: float = float("inf")
    breach_style: str = "bold red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shade:
    """An area between two curves, filled with one glyph."""

    at: Floats
    low: Floats
    high: Floats
    glyph: str
    style: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A line that is one glyph a cell: a limit or a capacity."""

    at: Floats
    values: Floats
    style: str
    glyph: str = "╌"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One part of stacked columns; whole cells are drawn with `glyph`."""

    values: Floats
    colour: str
    glyph: str = "█"


Mark = Curve | Shade | Steps


class Canvas:
    """Cells of a character and a style, and a value axis to their left."""

    def __init__(self, width: int, height: int, *, label_width: int, axis: ValueAxis, time: TimeAxis) -> None:
        self.axis, self.time = axis, time
        self.label_width = min(label_width, max(width - 2, 0))
        self.columns = max(width - self.label_width - 1, 1)
        self.rows = max(height, 1)
        self.width = width
        self.glyphs = [[" "] * self.columns for _ in range(self.rows)]
        self.styles = [[""] * self.columns for _ in range(self.rows)]

    def edges(self, per_cell: int) -> Floats:
        """Return the bounds in time of each column's `per_cell` parts, shape (columns * per_cell + 1,)."""
        return np.linspace(self.time.start, self.time.end, self.columns * per_cell + 1)

    def row_of(self, values: Floats, per_cell: int = 1) -> NDArray[np.int64]:
        """Return the line of each value, 0 the highest; -1 where it is not known."""
        lines = self.rows * per_cell
        fraction = self.axis.fraction(values)
        known = ~np.isnan(fraction)
        placed = np.rint((1 - np.where(known, fraction, 0.0)) * (lines - 1)).astype(np.int64)
        return np.where(known, placed, -1)

    def put(self, row: int, column: int, glyph: str, style: str) -> None:
        """Set one cell."""
        self.glyphs[row][column] = glyph
        self.styles[row][column] = style

    def lines(self) -> Iterator[Text]:
        """Return each line with its axis."""
        labels = {int(self.row_of(np.array([value]))[0]): text for value, text in reversed(self.axis.ticks)}
        for row in range(self.rows):
            line = Text(no_wrap=True, end="", overflow="crop")
            label = labels.get(row, "")[: self.label_width]
            line.append(f"{label:>{self.label_width}}{'┤' if label else '│'}"[: self.width], style=_AXIS_STYLE)
            if self.width > self.label_width + 1:
                _append_runs(line, self.glyphs[row], self.styles[row])
            yield line


def _append_runs(line: Text, glyphs: list[str], styles: list[str]) -> None:
    start = 0
    for end in range(1, len(glyphs) + 1):
        if end == len(glyphs) or styles[end] != styles[start]:
            line.append("".join(glyphs[start:end]), style=styles[start] or None)
            start = end


def draw_chart(
    width: int, height: int, *, label_width: int, axis: ValueAxis, time: TimeAxis, marks: tuple[Mark, ...]
) -> list[Text]:
    """Return a chart as `height` lines of at most `width` cells; later marks are drawn over earlier ones."""
    canvas = Canvas(width, height, label_width=label_width, axis=axis, time=time)
    _draw_now(canvas)
    for mark in marks:
        if isinstance(mark, Shade):
            _draw_shade(canvas, mark)
        elif isinstance(mark, Steps):
            _draw_steps(canvas, mark)
        else:
            _draw_curve(canvas, mark)
    return list(canvas.lines())


def draw_stack(
    width: int,
    height: int,
    *,
    label_width: int,
    axis: ValueAxis,
    time: TimeAxis,
    at: Floats,
    layers: tuple[Layer, ...],
    over: tuple[Steps, ...] = (),
) -> list[Text]:
    """Return columns stacked from the first layer up, with `over` drawn on top, as `height` lines."""
    canvas = Canvas(width, height, label_width=label_width, axis=axis, time=time)
    _draw_now(canvas)
    edges = canvas.edges(1)
    values = np.array([column_maxima(at, layer.values, edges) for layer in layers])
    tops = np.cumsum(np.nan_to_num(values), axis=0)
    eighths = np.rint(canvas.axis.fraction(tops) * canvas.rows * 8).astype(np.int64)
    for column in range(canvas.columns):
        if not np.isnan(values[:, column]).all():
            _draw_column(canvas, column, eighths[:, column].tolist(), layers)
    for steps in over:
        _draw_steps(canvas, steps, keep_colour=True)
    return list(canvas.lines())


def draw_time_axis(width: int, *, label_width: int, time: TimeAxis) -> Text:
    """Return the line with times below a chart: minutes:seconds where there is room, "now" at the present."""
    columns = max(width - label_width - 1, 1)
    cells = [" "] * columns
    span = max(time.end - time.start, 1e-9)
    wanted = max(columns // 8, 1)
    step = next((s for s in (10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600) if span / s <= wanted), 7200)
    moments = np.arange(np.ceil(time.start / step) * step, time.end + 1e-9, step)
    for moment in moments:
        _write_centred(cells, (moment - time.start) / span * columns, clock_text(moment))
    line = Text(" " * (label_width + 1), no_wrap=True, end="", style=_AXIS_STYLE)
    line.append("".join(cells))
    line.truncate(width)
    return line


def _write_centred(cells: list[str], position: float, text: str) -> None:
    start = min(max(round(position - len(text) / 2), 0), len(cells) - len(text))
    if start < 0 or any(cell != " " for cell in cells[max(start - 1, 0) : start + len(text) + 1]):
        return
    cells[start : start + len(text)] = list(text)


def column_maxima(at: Floats, values: Floats, edges: Floats) -> Floats:
    """Return the largest known value in each column (edges[i], edges[i + 1]], NaN where there is none.

    A column narrower than the distance of the points takes the value between its neighbours, and one before the first
    point takes that, which speaks of the time up to it: a curve has no holes of drawing, only those of not knowing.
    """
    columns = np.full(edges.size - 1, np.nan)
    inside = (at > edges[0]) & (at <= edges[-1])
    index = np.searchsorted(edges, at[inside], side="left") - 1
    np.fmax.at(columns, index, values[inside])
    if at.size < 2:
        return columns
    empty = np.ones(columns.size, dtype=bool)
    empty[index] = False
    spacing = float(np.median(np.diff(at)))
    at, values = np.append(at[0] - spacing, at), np.append(values[0], values)
    middles = (edges[:-1] + edges[1:]) / 2
    before = np.searchsorted(at, middles, side="right") - 1
    between = empty & (before >= 0) & (before < at.size - 1)
    left = before[between]
    gap = at[left + 1] - at[left]
    weight = (middles[between] - at[left]) / gap
    interpolated = values[left] * (1 - weight) + values[left + 1] * weight
    columns[between] = np.where(gap <= LARGEST_STRIDE * spacing, interpolated, np.nan)
    return columns


def _draw_now(canvas: Canvas) -> None:
    time = canvas.time
    if not time.start < time.now < time.end:
        return
    column = min(int((time.now - time.start) / (time.end - time.start) * canvas.columns), canvas.columns - 1)
    for row in range(canvas.rows):
        canvas.put(row, column, "┊", _AXIS_STYLE)


def _draw_shade(canvas: Canvas, shade: Shade) -> None:
    edges = canvas.edges(1)
    low = canvas.row_of(column_maxima(shade.at, shade.low, edges))
    high = canvas.row_of(column_maxima(shade.at, shade.high, edges))
    for column in np.flatnonzero((low >= 0) & (high >= 0)):
        for row in range(high[column], low[column] + 1):
            canvas.put(row, int(column), shade.glyph, shade.style)


def _draw_steps(canvas: Canvas, steps: Steps, *, keep_colour: bool = False) -> None:
    """Draw a limit; with `keep_colour` the cell keeps the colour of what was drawn there, as its background."""
    rows = canvas.row_of(column_maxima(steps.at, steps.values, canvas.edges(1)))
    for column in np.flatnonzero(rows >= 0):
        row = int(rows[column])
        below = canvas.styles[row][column].partition(" on ")[0] if keep_colour else ""
        covered = below and canvas.glyphs[row][column] != "┊"
        canvas.put(row, int(column), steps.glyph, f"bold black on {below}" if covered else steps.style)


def _draw_curve(canvas: Canvas, curve: Curve) -> None:
    values = column_maxima(curve.at, curve.values, canvas.edges(2))
    dots = canvas.row_of(values, per_cell=4)
    bits: dict[tuple[int, int], int] = {}
    breached: set[tuple[int, int]] = set()
    previous = -1
    for column, dot in enumerate(dots.tolist()):
        if dot >= 0:
            for line in _joined(previous, dot):
                cell = (line // 4, column // 2)
                bits[cell] = bits.get(cell, 0) | _DOTS[line % 4][column % 2]
                if values[column] > curve.breach_above:
                    breached.add(cell)
        previous = dot
    for (row, column), pattern in bits.items():
        style = curve.breach_style if (row, column) in breached else curve.style
        canvas.put(row, column, chr(_BRAILLE + pattern), style)


def _joined(previous: int, dot: int) -> range:
    """Return the dots from next to the previous column's up to this one's, so that the curve hangs together."""
    if previous < 0 or abs(previous - dot) <= 1:
        return range(dot, dot + 1)
    return range(previous + 1, dot + 1) if dot > previous else range(dot, previous)


def _draw_column(canvas: Canvas, column: int, tops: list[int], layers: tuple[Layer, ...]) -> None:
    """Fill one column; the cell in which one layer ends and the next begins shows both, one as its background."""
    for row in range(canvas.rows):
        bottom = (canvas.rows - 1 - row) * 8
        lowest = next((i for i, top in enumerate(tops) if top > bottom), None)
        if lowest is None:
            continue
        filled = min(tops[lowest] - bottom, 8)
        layer = layers[lowest]
        if filled == 8:
            canvas.put(row, column, layer.glyph, layer.colour)
            continue
        above = next((i for i in range(lowest + 1, len(tops)) if tops[i] >= bottom + 8), None)
        background = f" on {layers[above].colour}" if above is not None else ""
        canvas.put(row, column, _EIGHTHS[filled], layer.colour + background)
