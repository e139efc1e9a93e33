"""What `foreshock trace stats` prints."""

from rich.console import Console
from rich.table import Table

from training.trace_stats import TokenQuantiles, TraceStatistics
from training.traces import Trace


def print_statistics(trace: Trace, statistics: TraceStatistics) -> None:
    """Print the figures of a trace and its verdict."""
    console = Console()
    table = Table(title=f"{trace.path.name} ({trace.format})", title_justify="left", show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in _figures(statistics):
        table.add_row(name, value)
    console.print(table)
    console.print(_lengths(statistics))
    colour = "red" if statistics.is_bursty else "green"
    console.print(statistics.verdict, style=f"bold {colour}", highlight=False)


def warn_of_skipped_rows(trace: Trace) -> None:
    """Print how many rows were skipped and why the first of them were, on stderr."""
    if not trace.num_skipped:
        return
    console = Console(stderr=True)
    warning = f"warning: {trace.path}: skipped {trace.num_skipped} rows that are no requests"
    console.print(warning, style="yellow", markup=False)
    for row in trace.skipped:
        console.print(f"  line {row.line_number}: {row.problem}", highlight=False, markup=False)
    if trace.num_skipped > len(trace.skipped):
        console.print(f"  and {trace.num_skipped - len(trace.skipped)} more")


def _figures(statistics: TraceStatistics) -> list[tuple[str, str]]:
    return [
        ("requests", f"{statistics.num_requests:,}"),
        ("span", f"{statistics.span_seconds:,.1f} s"),
        ("rate", f"{statistics.request_rate_per_second:.3f} requests/s"),
        ("peak to mean, 1 s", f"{statistics.peak_to_mean_1s:.2f}"),
        ("peak to mean, 5 s", f"{statistics.peak_to_mean_5s:.2f}"),
        ("peak to mean, 10 s", f"{statistics.peak_to_mean_10s:.2f}"),
        ("prompt tokens peak to mean, 10 s", f"{statistics.prompt_tokens_peak_to_mean_10s:.2f}"),
        ("inter-arrival CV", f"{statistics.inter_arrival_cv:.2f}"),
    ]


def _lengths(statistics: TraceStatistics) -> Table:
    table = Table(box=None)
    for heading in ("tokens per request", "mean", "p50", "p90", "p95", "p99"):
        table.add_column(heading, justify="left" if heading.startswith("tokens") else "right")

    def row(name: str, tokens: TokenQuantiles) -> None:
        values = (tokens.mean, tokens.p50, tokens.p90, tokens.p95, tokens.p99)
        table.add_row(name, *(f"{value:,.1f}" if i == 0 else f"{value:,.0f}" for i, value in enumerate(values)))

    row("prompt", statistics.prompt_tokens)
    row("output", statistics.output_tokens)
    return table
