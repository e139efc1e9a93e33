"""The plots of a trace and of a retrain, and the self-contained page that holds them."""

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from forecaster.forecast import LEVELS
from simulator.requests import RequestTable
from training.report_figures import plotly_script
from training.trace_stats import BURSTY_PEAK_TO_MEAN, TraceStatistics

if TYPE_CHECKING:
    from training.held_out import HeldOutScores

RATE, ROLLING, LIMIT, PROMPT, OUTPUT = "#9bbcf5", "#1f5fbf", "#dc2626", "#0891b2", "#f97316"
MAX_POINTS = 4000
TOOLBAR = {"displaylogo": False, "modeBarButtonsToRemove": ["sendChartToCloud"]}


def trace_figure(requests: RequestTable, statistics: TraceStatistics) -> go.Figure:
    """Return a trace's request rate with its mean and the burst limit, and its token lengths."""
    figure = make_subplots(
        rows=2,
        cols=2,
        specs=[[{"colspan": 2}, None], [{}, {}]],
        subplot_titles=("requests per second", "prompt tokens per request", "output tokens per request"),
        vertical_spacing=0.14,
        row_heights=[0.58, 0.42],
    )
    _add_rates(figure, requests, statistics)
    for column, (tokens, colour) in enumerate(((requests.prompt_tokens, PROMPT), (requests.output_tokens, OUTPUT)), 1):
        edges = np.geomspace(1, max(float(tokens.max()), 2.0), 60)
        counts, _ = np.histogram(tokens, edges)
        middle = np.sqrt(edges[1:] * edges[:-1])
        bars = go.Bar(x=middle, y=counts, width=np.diff(edges), marker_color=colour, showlegend=False)
        figure.add_trace(bars, row=2, col=column)
        figure.update_xaxes(type="log", title="tokens", dtick=1, row=2, col=column)
        figure.update_yaxes(title="requests", row=2, col=column)
    figure.update_layout(
        template="plotly_white", height=820, margin={"l": 70, "r": 30, "t": 60, "b": 60}, hovermode="x unified"
    )
    figure.update_layout(legend={"orientation": "h", "y": 1.06, "x": 0})
    return figure


def _add_rates(figure: go.Figure, requests: RequestTable, statistics: TraceStatistics) -> None:
    arrival = requests.arrival_seconds - requests.arrival_seconds[0]
    per_second = np.bincount(arrival.astype(np.int64)).astype(np.float64)
    # long traces are shown by the largest second of each stretch: a thinned line must not lose its peaks
    stretch = -(-per_second.size // MAX_POINTS)
    padded = np.pad(per_second, (0, -per_second.size % stretch))
    at = np.arange(padded.size // stretch) * stretch
    peaks = padded.reshape(-1, stretch).max(axis=1)
    name = "in 1 s" if stretch == 1 else f"busiest second of {stretch}"
    rolling = _rolling_mean(per_second, at, seconds=60)
    mean = statistics.request_rate_per_second
    figure.add_trace(go.Scatter(x=at, y=peaks, name=name, line={"color": RATE, "width": 1}), row=1, col=1)
    figure.add_trace(go.Scatter(x=at, y=rolling, name="1-min mean", line={"color": ROLLING, "width": 2}), row=1, col=1)
    limit = BURSTY_PEAK_TO_MEAN * mean
    figure.add_hline(
        y=limit, line={"color": LIMIT, "dash": "dot"}, annotation_text=f"{BURSTY_PEAK_TO_MEAN:.0f} × mean", row=1, col=1
    )
    figure.update_xaxes(title="seconds from the first request", row=1, col=1)
    figure.update_yaxes(title="requests/s", rangemode="tozero", row=1, col=1)


def _rolling_mean(per_second: NDArray[np.float64], at: NDArray[np.int64], *, seconds: int) -> NDArray[np.float64]:
    """Return the mean of the seconds around each of `at`; at the ends, of those that there are."""
    total = np.concatenate(([0.0], np.cumsum(per_second)))
    begins = np.maximum(at - seconds // 2, 0)
    ends = np.minimum(at + seconds // 2, per_second.size)
    return np.asarray((total[ends] - total[begins]) / (ends - begins))


def retrain_figure(scores: "HeldOutScores") -> go.Figure:
    """Return the losses of candidate, champion and trivial forecast over the held-out rows, and the coverage."""
    figure = make_subplots(
        rows=1,
        cols=2,
        column_widths=[0.68, 0.32],
        subplot_titles=("pinball loss over the mean of the target, 5-min mean", "coverage"),
    )
    for name, losses, colour in (
        ("candidate", scores.candidate, ROLLING),
        ("champion", scores.champion, OUTPUT),
        ("best trivial", scores.trivial, RATE),
    ):
        at = np.arange(losses.size)
        mean = _rolling_mean(losses, at, seconds=300)
        figure.add_trace(go.Scatter(x=at / 60, y=mean, name=name, line={"color": colour}), row=1, col=1)
    ideal = {"x": [0.5, 1], "y": [0.5, 1], "mode": "lines", "line": {"color": LIMIT, "dash": "dot"}}
    figure.add_trace(go.Scatter(**ideal, showlegend=False), row=1, col=2)
    figure.add_trace(
        go.Scatter(x=LEVELS, y=scores.coverage_ratio, mode="markers", marker_color=ROLLING, showlegend=False),
        row=1,
        col=2,
    )
    figure.update_xaxes(title="minutes of held-out rows", row=1, col=1)
    figure.update_xaxes(title="level", row=1, col=2)
    figure.update_layout(template="plotly_white", height=480, legend={"orientation": "h", "y": 1.12, "x": 0})
    return figure


def write_page(path: Path, *, title: str, sentence: str, figures: list[go.Figure]) -> None:
    """Write a page that needs no network: a heading, a sentence and figures."""
    plots = "\n".join(figure.to_html(full_html=False, include_plotlyjs=False, config=TOOLBAR) for figure in figures)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<style>body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1280px; margin: 24px auto; padding: 0 20px }}</style>
<script>{plotly_script()}</script></head>
<body><h1>{escape(title)}</h1><p>{escape(sentence)}</p>
{plots}
</body></html>
""",
        encoding="utf-8",
    )
