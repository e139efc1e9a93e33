"""The plots of a closed-loop report, and the script that draws them without a network."""

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from forecaster.telemetry import Floats
from training.timeline import ForecastBand, Timeline, thinned

MAX_POINTS = 2000
HEIGHT_PIXELS = 1080

# Middle tones: they are read on white and on black.
ARRIVALS, TOKENS = "#3b82f6", "#a371f7"
USED, OFFERED, BAND, BAND_TAIL = "#0891b2", "#f97316", "rgba(8,145,178,0.30)", "rgba(8,145,178,0.15)"
TTFT_MEAN, TTFT_P95, TARGET = "#7aa2c8", "#2563eb", "#dc2626"
SERVING, DRAINING, WARM, STARTING = "#2da44e", "#8c959f", "#d4a72c", "#539bf5"
NEUTRAL, SHED = "#8b949e", "#dc2626"

_TITLES = ("offered requests/s", "KV blocks", "TTFT, s", "replicas", "shed/s")
_ROW_HEIGHTS = (0.15, 0.30, 0.20, 0.25, 0.10)
_SPACING = 0.035


def plotly_script() -> str:
    """Return the source of plotly.js, to stand once in a page."""
    return str(get_plotlyjs())


def shared_limits(runs: tuple[tuple[Timeline, ForecastBand], ...]) -> dict[str, float]:
    """Return the top of each vertical axis, so that the plots of several policies can be compared by eye."""

    def top(*columns: Floats) -> float:
        highest = [np.nanmax(column) for column in columns if column.size and not np.isnan(column).all()]
        return 1.05 * float(max(highest, default=1.0)) or 1.0

    def over_runs(name: str) -> list[Floats]:
        return [getattr(curves, name) for curves, _ in runs]

    fleet = [c.serving_replicas + c.draining_replicas + c.warm_replicas + c.starting_replicas for c, _ in runs]
    return {
        "kv_blocks": top(
            *over_runs("kv_blocks_total"),
            *over_runs("kv_blocks_offered"),
            *(band.kv_blocks[:, -1] for _, band in runs),
        ),
        "ttft_seconds": top(*over_runs("ttft_p95_seconds")),
        "replicas": top(*fleet, *over_runs("demand_replicas")),
        "shed_per_second": top(*over_runs("shed_per_second")),
    }


def timeline_figure(
    curves: Timeline, band: ForecastBand, *, target_seconds: float, limits: dict[str, float]
) -> go.Figure:
    """Return one policy's plots below one another, on one axis of time."""
    figure = make_subplots(
        rows=len(_TITLES),
        cols=1,
        shared_xaxes=True,
        vertical_spacing=_SPACING,
        row_heights=list(_ROW_HEIGHTS),
        specs=[[{"secondary_y": row == 0}] for row in range(len(_TITLES))],
    )
    _add_load(figure, curves)
    _add_kv(figure, curves, band)
    _add_ttft(figure, curves, target_seconds)
    _add_replicas(figure, curves)
    _add_shed(figure, curves)
    _lay_out(figure, limits, has_shed=bool(np.nansum(curves.shed_per_second)))
    return figure


def _line(at: Floats, values: Floats, *, name: str, colour: str, row: int, unit: str, **style: object) -> go.Scatter:
    """Return a curve in at most `MAX_POINTS` points that keep its maxima."""
    at, (values,) = thinned(at, (values,), max_points=MAX_POINTS)
    line = {"color": colour, "width": 1.5, **style.pop("line", {})}  # type: ignore[dict-item]
    return go.Scatter(
        x=_moments(at),
        y=values.astype(np.float32),
        name=name,
        mode="lines",
        line=line,
        legend=f"legend{row}" if row > 1 else "legend",
        hovertemplate=f"%{{y:,.4~g}} {unit}",
        **style,
    )


def _moments(at: Floats) -> list[float]:
    """Return seconds from the start, short in JSON; the page's script makes them the dates that plotly's axis wants."""
    return [int(moment) if moment.is_integer() else moment for moment in at.tolist()]


def _add_load(figure: go.Figure, curves: Timeline) -> None:
    figure.add_trace(
        _line(curves.at, curves.requests_per_second, name="requests/s", colour=ARRIVALS, row=1, unit="requests/s"),
        row=1,
        col=1,
    )
    figure.add_trace(
        _line(
            curves.at,
            curves.prompt_tokens_per_second,
            name="prompt tokens/s, right axis",
            colour=TOKENS,
            row=1,
            unit="tokens/s",
            opacity=0.6,
        ),
        row=1,
        col=1,
        secondary_y=True,
    )


def _add_kv(figure: go.Figure, curves: Timeline, band: ForecastBand) -> None:
    if band.at.size:
        for level, name, fill in ((0, "", ""), (1, "forecast 0.5-0.95", BAND), (2, "forecast to 0.99", BAND_TAIL)):
            figure.add_trace(
                _line(
                    band.at,
                    band.kv_blocks[:, level],
                    name=name or "forecast 0.5",
                    colour=USED,
                    row=2,
                    unit="blocks",
                    line={"width": 0.5},
                    fill="tonexty" if fill else None,
                    fillcolor=fill or None,
                    showlegend=bool(name),
                ),
                row=2,
                col=1,
            )
    lines: tuple[tuple[Floats, str, str, dict[str, object]], ...] = (
        (curves.kv_blocks_total, "total of the serving", NEUTRAL, {"dash": "dash", "shape": "hv"}),
        (curves.kv_blocks_offered, "offered", OFFERED, {}),
        (curves.kv_blocks_used, "held", USED, {"width": 2}),
    )
    for values, name, colour, line in lines:
        trace = _line(curves.at, values, name=name, colour=colour, row=2, unit="blocks", line=line)
        figure.add_trace(trace, row=2, col=1)


def _add_ttft(figure: go.Figure, curves: Timeline, target_seconds: float) -> None:
    lines: tuple[tuple[Floats, str, str, dict[str, object]], ...] = (
        (curves.ttft_mean_seconds, "mean", TTFT_MEAN, {"width": 1}),
        (curves.ttft_p95_seconds, "p95", TTFT_P95, {}),
    )
    for values, name, colour, line in lines:
        trace = _line(curves.at, values, name=name, colour=colour, row=3, unit="s", line=line)
        figure.add_trace(trace, row=3, col=1)
    ends = curves.at[[0, -1]] if curves.at.size else curves.at
    slo = _line(
        ends,
        np.full(ends.size, target_seconds),
        name=f"SLO {target_seconds:g} s",
        colour=TARGET,
        row=3,
        unit="s",
        line={"dash": "dash"},
    )
    figure.add_trace(slo, row=3, col=1)


def _add_replicas(figure: go.Figure, curves: Timeline) -> None:
    layers = (
        (curves.serving_replicas, "serving", SERVING),
        (curves.draining_replicas, "draining, promoting", DRAINING),
        (curves.warm_replicas, "warm", WARM),
        (curves.starting_replicas, "starting", STARTING),
    )
    for values, name, colour in layers:
        trace = _line(
            curves.at,
            np.nan_to_num(values),
            name=name,
            colour=colour,
            row=4,
            unit="replicas",
            stackgroup="fleet",
            line={"width": 0, "shape": "hv"},
        )
        figure.add_trace(trace, row=4, col=1)
    demand = _line(
        curves.at, curves.demand_replicas, name="demand D", colour=TARGET, row=4, unit="replicas", line={"width": 1.2}
    )
    figure.add_trace(demand, row=4, col=1)


def _add_shed(figure: go.Figure, curves: Timeline) -> None:
    trace = _line(
        curves.at, curves.shed_per_second, name="shed requests/s", colour=SHED, row=5, unit="requests/s", fill="tozeroy"
    )
    figure.add_trace(trace, row=5, col=1)


def _lay_out(figure: go.Figure, limits: dict[str, float], *, has_shed: bool) -> None:
    figure.update_layout(
        height=HEIGHT_PIXELS,
        margin={"l": 64, "r": 24, "t": 24, "b": 40},
        hovermode="x unified",
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": NEUTRAL, "activecolor": USED},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 12},
    )
    figure.update_xaxes(type="date", tickformat="%H:%M:%S", hoverformat="%H:%M:%S", zeroline=False)
    figure.update_yaxes(rangemode="tozero", zeroline=False, nticks=5)
    for row, title in enumerate(_TITLES, start=1):
        figure.update_yaxes(title_text=title, row=row, col=1, secondary_y=False if row == 1 else None)
    figure.update_yaxes(title_text="prompt tokens/s", row=1, col=1, secondary_y=True, showgrid=False, tickmode="auto")
    figure.update_yaxes(range=[0, limits["kv_blocks"]], row=2, col=1)
    figure.update_yaxes(range=_ttft_range(limits["ttft_seconds"]), type="log", dtick=1, row=3, col=1)
    figure.update_yaxes(range=[0, limits["replicas"]], row=4, col=1)
    figure.update_yaxes(range=[0, limits["shed_per_second"] if has_shed else 1], row=5, col=1)
    for row in range(1, len(_TITLES) + 1):
        _, top = figure.layout["yaxis" if row == 1 else f"yaxis{row + 1}"].domain
        legend = {"orientation": "h", "x": 0, "y": top, "xanchor": "left", "yanchor": "bottom"}
        legend |= {"font": {"size": 11}, "traceorder": "normal"}
        figure.update_layout({"legend" if row == 1 else f"legend{row}": legend})


def _ttft_range(highest_seconds: float) -> list[float]:
    """Return a logarithmic range, in powers of ten, from 0.05 s to above what was seen and at least 2 s."""
    return [float(np.log10(0.05)), float(np.log10(max(highest_seconds * 1.1, 2.0)))]
