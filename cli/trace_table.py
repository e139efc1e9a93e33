"""What `foreshock trace stats` prints."""

from dataclasses import fields

from rich.console import Console
from rich.table import Table

from training.trace_stats import TokenQuantiles, TraceStatistics
from training.traces import Trace


def print_statistics(trace: Trace, statistics: TraceStatistics) -> None:
    """Print the figures of a trace and its verdict."""
    console = Console()
    # names of files are no markup, and no line is folded: a script may read them
    console.print(f"{trace.path.name} ({trace.format})", style="italic", markup=False, highlight=False, soft_wrap=True)
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in _figures(trace, statistics).items():
        table.add_row(_words(name), value)
    console.print(table)
    for name, reason in statistics.unknown.items():
        console.print(f"{_words(name)} is unknown: {reason}", highlight=False, soft_wrap=True)
    console.print(_lengths(statistics))
    colour = "red" if statistics.is_bursty else "green"
    console.print(statistics.verdict, style=f"bold {colour}", highlight=False, soft_wrap=True)


def warn_of_skipped_rows(trace: Trace) -> None:
    """Print how many rows were skipped and why the first of them were, on stderr."""
    if not trace.num_skipped:
        return
    console = Console(stderr=True)
    rows = "row that is no request" if trace.num_skipped == 1 else "rows that are no requests"
    lines = [f"  line {row.line_number}: {row.problem}" for row in trace.skipped]
    if trace.num_skipped > len(trace.skipped):
        lines.append(f"  and {trace.num_skipped - len(trace.skipped):,} more")
    warning = f"warning: {trace.path}: skipped {trace.num_skipped:,} {rows}"
    console.print(warning, style="yellow", highlight=False, markup=False, soft_wrap=True)
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def _figures(trace: Trace, statistics: TraceStatistics) -> dict[str, str]:
    """Return each figure as it is printed, by its name in the JSON."""
    figures = {field.name: getattr(statistics, field.name) for field in fields(statistics)}
    ratios = {name: value for name, value in figures.items() if value is None or isinstance(value, float)}
    return {
        "num_requests": f"{statistics.num_requests:,}",
        "num_failed": f"{trace.num_failed:,}",
        **{name: "-" if value is None else f"{value:.3f}" for name, value in ratios.items()},
        "span_seconds": f"{statistics.span_seconds:,.1f} s",
        "request_rate_per_second": f"{statistics.request_rate_per_second:.3f} requests/s",
    }


def _words(name: str) -> str:
    return name.replace("_", " ")


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
