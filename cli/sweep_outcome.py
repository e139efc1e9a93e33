"""How a sweep ends on the terminal: a table for each scenario, or everything as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict

import click
from rich.console import Console

from cli.comparison_table import table_notes
from cli.outcome import WIDE_ENOUGH
from cli.sweep_table import sweep_tables
from forecaster.config import PlannerConfig
from training.sweep_log import sweep_run_json
from training.sweep_summary import summaries
from training.sweep_tasks import SweepRun, SweepTask


def print_sweep(console: Console, tasks: Sequence[SweepTask], runs: Sequence[SweepRun]) -> None:
    """Print the table of each scenario and what its figures mean."""
    is_log = not console.is_terminal
    if is_log:
        console = Console(file=console.file, width=WIDE_ENOUGH)
    by_policy = summaries(runs)
    for scenario in dict.fromkeys(summary.scenario for summary in by_policy):
        console.print()
        console.print(_heading(scenario, tasks), style="bold", highlight=False, markup=False, soft_wrap=is_log)
        of_scenario = [summary for summary in by_policy if summary.scenario == scenario]
        for part, table in enumerate(sweep_tables(of_scenario, console=console)):
            if part:
                console.print()
            console.print(table)
    config = PlannerConfig(capacity=tasks[0].profile.capacity)
    warm_cost = tasks[0].fleet.warm_cost_ratio
    notes = table_notes(config.slo, config.warm_cost_ratio if warm_cost is None else warm_cost)
    console.print()
    console.print(notes, style="dim", highlight=False, markup=False, soft_wrap=is_log)


def _heading(scenario: str, tasks: Sequence[SweepTask]) -> str:
    seeds = list(dict.fromkeys(task.seed for task in tasks))
    if len(seeds) == 1:
        return f"{scenario}: seed {seeds[0]}"
    named = f"{seeds[0]} to {seeds[-1]}" if seeds == list(range(len(seeds))) else ", ".join(map(str, seeds))
    return f"{scenario}: median, and lowest to highest, over {len(seeds)} seeds ({named})"


def print_sweep_json(tasks: Sequence[SweepTask], runs: Sequence[SweepRun]) -> None:
    """Print the parameters, every run, and the medians and ranges, for a program."""
    document = {
        "sweep": {
            "scenarios": list(dict.fromkeys(task.scenario.name for task in tasks)),
            "policies": list(dict.fromkeys(task.policy for task in tasks)),
            "seeds": list(dict.fromkeys(task.seed for task in tasks)),
            "fleet": {**asdict(tasks[0].fleet), "profile": tasks[0].profile.name},
        },
        "runs": [sweep_run_json(run) for run in runs],
        "summary": [summary.to_json() for summary in summaries(runs)],
    }
    click.echo(json.dumps(document, indent=2, allow_nan=False))


def tell_of_left_out_requests(runs: Sequence[SweepRun]) -> None:
    """Warn of requests that no replica can hold, a line a scenario."""
    for scenario in dict.fromkeys(run.scenario for run in runs if run.num_left_out):
        most = max(run.num_left_out for run in runs if run.scenario == scenario)
        click.echo(
            f"warning: up to {most:,} requests of {scenario} are longer than a replica's KV cache and are left out",
            err=True,
        )
