"""The three charts of a policy in the live view, each under a line that says what its colours mean."""

from dataclasses import dataclass, replace

import numpy as np
from rich.text import Text

from cli.chart_axis import TimeAxis, ValueAxis
from cli.terminal_chart import Curve, Layer, Shade, Steps, draw_chart, draw_stack
from training.timeline import ForecastBand, Timeline

LABEL_WIDTH = 5

_HELD = ("⠒", "bold", "held")
_TOTAL = ("╌", "dim", "total")
_FORECAST = (("▒", "cyan dim", "forecast q95"), ("░", "cyan dim", "q99"))
_MET, _OVER = ("⠒", "green", "met"), ("⠒", "bold red", "over")
_DEMAND = ("╌", "bold", "demand")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAxes:
    """The axes of a policy's charts; policies that stand side by side have the same."""

    kv_blocks: ValueAxis
    ttft: ValueAxis
    replicas: ValueAxis
    time: TimeAxis


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLayer:
    """One state of replicas in the stack, from the bottom up: the curve, its colour, and what fills it."""

    curve: str
    colour: str
    glyph: str
    name: str


COLOURED_LAYERS = (
    FleetLayer(curve="serving_replicas", colour="green", glyph="█", name="serving"),
    FleetLayer(curve="draining_replicas", colour="bright_black", glyph="█", name=""),
    FleetLayer(curve="warm_replicas", colour="yellow", glyph="█", name="warm"),
    FleetLayer(curve="starting_replicas", colour="blue", glyph="█", name="starting"),
)
TEXTURED_LAYERS = tuple(replace(layer, glyph=glyph) for layer, glyph in zip(COLOURED_LAYERS, "█▚▓▒", strict=True))


def kv_chart(curves: Timeline, band: ForecastBand, width: int, height: int, *, axes: PolicyAxes) -> list[Text]:
    """Return the KV blocks held and in all, over the forecast made for each moment, in `height` lines and a legend.

    A total above the axis is not drawn: there is more than enough.
    """
    low, middle, high = band.kv_blocks.T
    with np.errstate(invalid="ignore"):
        total = np.where(curves.kv_blocks_total <= axes.kv_blocks.high, curves.kv_blocks_total, np.nan)
    marks = (
        Shade(at=band.at, low=middle, high=high, glyph="░", style="cyan dim"),
        Shade(at=band.at, low=low, high=middle, glyph="▒", style="cyan dim"),
        Steps(at=curves.at, values=total, style="dim"),
        Curve(at=curves.at, values=curves.kv_blocks_used, style="bold"),
    )
    entries = (_HELD, *(_FORECAST if band.at.size else ()), _TOTAL)
    chart = draw_chart(width, height, label_width=LABEL_WIDTH, axis=axes.kv_blocks, time=axes.time, marks=marks)
    return [_legend("KV blocks", entries, width), *chart]


def ttft_chart(curves: Timeline, width: int, height: int, *, axes: PolicyAxes, target_seconds: float) -> list[Text]:
    """Return the TTFT p95 of each second, red where it is over the target, in `height` lines and a legend."""
    ends = np.array([axes.time.start, axes.time.end])
    marks = (
        Steps(at=ends, values=np.full(2, target_seconds), style="red dim"),
        Curve(at=curves.at, values=curves.ttft_p95_seconds, style="green", breach_above=target_seconds),
    )
    entries = (_MET, _OVER, ("╌", "red dim", f"SLO {target_seconds:g} s"))
    chart = draw_chart(width, height, label_width=LABEL_WIDTH, axis=axes.ttft, time=axes.time, marks=marks)
    return [_legend("TTFT p95", entries, width), *chart]


def replica_chart(
    curves: Timeline, width: int, height: int, *, axes: PolicyAxes, layers: tuple[FleetLayer, ...]
) -> list[Text]:
    """Return the replicas by state, stacked, under the demand, in `height` lines and a legend."""
    entries = (*((layer.glyph, layer.colour, layer.name) for layer in layers if layer.name), _DEMAND)
    chart = draw_stack(
        width,
        height,
        label_width=LABEL_WIDTH,
        axis=axes.replicas,
        time=axes.time,
        at=curves.at,
        layers=tuple(
            Layer(values=getattr(curves, layer.curve), colour=layer.colour, glyph=layer.glyph) for layer in layers
        ),
        over=(Steps(at=curves.at, values=curves.demand_replicas, style="bold"),),
    )
    return [_legend("Replicas", entries, width), *chart]


def _legend(title: str, entries: tuple[tuple[str, str, str], ...], width: int) -> Text:
    """Return a chart's title and as many of its entries (glyph, style, name) as there is room for."""
    line = Text(title, style="bold", end="", no_wrap=True)
    for i, (glyph, style, name) in enumerate(entries):
        space = " " if i else "  "
        if line.cell_len + len(space) + len(name) + 2 > width:
            break
        line.append(space)
        line.append(glyph, style=f"not bold {style}")
        line.append(f" {name}", style="not bold dim")
    line.truncate(width)
    return line
