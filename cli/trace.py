"""`foreshock trace`: what a request trace is like."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from forecaster.errors import TraceFormatError

EPILOG = """
\b
Examples:
  # rate, peaks, token lengths and whether the traffic is bursty
  foreshock trace stats azure_llm_2023_conv.csv.gz

\b
  # the same for a script
  foreshock trace stats requests.parquet --json

\b
  # and to look at
  foreshock trace stats mooncake_conversation.jsonl.gz --plot out/trace.html

\b
Formats: Azure LLM inference CSV (TIMESTAMP, ContextTokens, GeneratedTokens), Mooncake JSONL (timestamp,
input_length, output_length, hash_ids), BurstGPT CSV (Timestamp, Request tokens, Response tokens), CSV or Parquet with
arrival_seconds, prompt_tokens, output_tokens and, if there, priority; plain, .gz or .zst.
"""


@click.group()
def trace() -> None:
    """Look into request traces."""


@trace.command(epilog=EPILOG, short_help="Print how fast and how bursty a trace is, and its token lengths.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--plot", type=click.Path(path_type=Path), help="Write a self-contained HTML page of plots.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    default=0,
    show_default=True,
    help="Seed of the jitter of traces on a coarse time grid.",
)
def stats(file: Path, as_json: bool, plot: Path | None, seed: int) -> None:
    """Print rate, peaks, dispersion, memory and token lengths of FILE, and whether it is bursty."""
    from cli.trace_table import print_statistics, warn_of_skipped_rows
    from training.trace_stats import trace_statistics
    from training.traces import read_trace

    read = read_trace(file, seed=seed)
    warn_of_skipped_rows(read)
    try:
        statistics = trace_statistics(read.requests)
    except ValueError as error:
        raise TraceFormatError(f"{file}: {error}") from error
    if plot:
        from training.plots import trace_figure, write_page

        write_page(
            plot,
            title=f"Trace {file.name}",
            sentence=statistics.verdict,
            figures=[trace_figure(read.requests, statistics)],
        )
    if as_json:
        skipped = {"num_skipped": read.num_skipped, "skipped": [asdict(row) for row in read.skipped]}
        recorded = {"file": str(file), "format": read.format, "num_failed": read.num_failed}
        page = {**recorded, **asdict(statistics), **skipped}
        click.echo(json.dumps(page, indent=2, allow_nan=False))
        return
    print_statistics(read, statistics)
    if plot:
        click.echo(f"plots: {plot}")
