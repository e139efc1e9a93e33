"""How a closed loop ends on the terminal: the comparison, or its figures as JSON, and where the report is."""

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.measure import Measurement

from cli.comparison_table import comparison_table, narrow_table, table_notes
from simulator.lead_times import Duration
from training.closed_loop import ClosedLoopRun, PlayedPolicy
from training.comparison import headline
from training.scorecard_json import scorecard_json

WIDE_ENOUGH = 200  # where there is no terminal, lines are as long as they are


def print_comparison(console: Console, run: ClosedLoopRun, played: tuple[PlayedPolicy, ...]) -> None:
    """Print the headline, the table and what its figures mean."""
    if not console.is_terminal:
        console = Console(file=console.file, width=WIDE_ENOUGH)
    cards = tuple(part.scorecard for part in played)
    table = comparison_table(cards)
    fits = Measurement.get(console, console.options.update(width=WIDE_ENOUGH), table).maximum <= console.width
    console.print()
    console.print(table if fits else narrow_table(cards))
    console.print()
    is_log = not console.is_terminal
    notes = table_notes(run.config.slo, run.config.warm_cost_ratio)
    console.print(headline(cards), style="bold", highlight=False, markup=False, soft_wrap=is_log)
    console.print(notes, style="dim", highlight=False, markup=False, soft_wrap=is_log)


def print_comparison_json(run: ClosedLoopRun, played: tuple[PlayedPolicy, ...]) -> None:
    """Print the run's parameters and the scorecards for a program."""
    parameters = {
        "name": run.name,
        "duration_seconds": run.duration_seconds,
        "profile": run.profile.name,
        "seed": run.seed,
        "initial_replicas": run.limits.initial_replicas,
        "max_replicas": run.limits.max_replicas,
        "cold_start_seconds": _plain(run.limits.cold_start_seconds),
        "promotion_seconds": _plain(run.limits.promotion_seconds),
        "warm_cost_ratio": run.config.warm_cost_ratio,
        "router": run.settings.router,
        "slo": {"ttft_seconds": run.config.slo.ttft_seconds, "tpot_seconds": run.config.slo.tpot_seconds},
    }
    scorecards = [scorecard_json(part.scorecard) for part in played]
    click.echo(json.dumps({"run": parameters, "scorecards": scorecards}, indent=2, allow_nan=False))


def write_and_name_report(console: Console, path: Path, run: ClosedLoopRun, played: tuple[PlayedPolicy, ...]) -> None:
    """Write the HTML report and print where it is.

    Raises
    ------
    click.ClickException
        If the file cannot be written.
    """
    from training.report import write_report

    try:
        write_report(path, run, played)
    except OSError as error:
        reason = f"cannot write the report {path}: {error.strerror or error}; name another place"
        raise click.ClickException(reason) from error
    console.print(f"report: {path}", highlight=False, markup=False, soft_wrap=True)


def write_and_name_runs(console: Console, folder: Path, played: tuple[PlayedPolicy, ...]) -> None:
    """Write what each policy's run left behind as Parquet, a folder each, and print where.

    Raises
    ------
    click.ClickException
        If a file cannot be written.
    """
    from training.run_files import write_run

    for part in played:
        # a colon in a path is a scheme to some readers of Parquet
        of_policy = folder / part.scorecard.policy.replace(":", "-")
        try:
            written = write_run(part.result, of_policy)
        except OSError as error:
            reason = f"cannot write the run to {of_policy}: {error.strerror or error}; name another place"
            raise click.ClickException(reason) from error
        names = ", ".join(path.stem for path in written)
        console.print(f"run: {of_policy} ({names})", highlight=False, markup=False, soft_wrap=True)


def _plain(duration: Duration) -> object:
    """Return what JSON says of a lead time: a number, or the fields of a distribution."""
    return duration if isinstance(duration, int | float) else asdict(duration)
