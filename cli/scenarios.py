"""`foreshock scenarios`: what there is to play, and how a scenario file is written."""

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from training.scenario_files import ScenarioFile

EPILOG = """
\b
Examples:
  # what can be played
  foreshock scenarios list

\b
  # one of them as a start for your own
  foreshock scenarios show surge > sale.yaml
  foreshock simulate --scenario sale.yaml

\b
  # every key that a scenario file may have
  foreshock scenarios schema
"""


@click.group(epilog=EPILOG)
def scenarios() -> None:
    """List and show what there is to play."""


@scenarios.command("list", short_help="Print the shipped scenarios.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def list_scenarios(as_json: bool) -> None:
    """Print the shipped scenarios, how long each is and what it plays."""
    from training.scenario_files import load_scenario, scenario_names

    rows = [_row(load_scenario(name)) for name in scenario_names()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    _print_rows(rows)


@scenarios.command(short_help="Print a scenario file.")
@click.argument("name_or_file", metavar="NAME_OR_FILE")
@click.option("--json", "as_json", is_flag=True, help="Print every setting, defaults included, as JSON.")
def show(name_or_file: str, as_json: bool) -> None:
    """Print the YAML of a scenario, once it has been checked."""
    from training.scenario_files import load_scenario

    scenario = load_scenario(name_or_file)
    if as_json:
        click.echo(json.dumps(json.loads(scenario.content.model_dump_json()), indent=2, allow_nan=False))
        return
    click.echo(scenario.path.read_text(encoding="utf-8"), nl=False)


@scenarios.command(short_help="Print the JSON schema of scenario files.")
def schema() -> None:
    """Print the JSON schema of scenario files: every key, its type, its limits and its default."""
    from training.scenario_files import scenario_schema

    click.echo(json.dumps(scenario_schema(), indent=2, allow_nan=False))


def _row(scenario: "ScenarioFile") -> dict[str, object]:
    traffic = scenario.content.traffic
    return {
        "name": scenario.name,
        "duration_seconds": scenario.duration_seconds,
        "traffic": traffic.kind,
        "description": scenario.description,
    }


def _print_rows(rows: list[dict[str, object]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from cli.chart_axis import clock_text
    from cli.outcome import WIDE_ENOUGH

    table = Table(box=None)
    table.add_column("scenario", style="bold", no_wrap=True)
    table.add_column("length", justify="right", no_wrap=True)
    table.add_column("traffic", no_wrap=True)
    table.add_column("what")
    for row in rows:
        length = clock_text(float(str(row["duration_seconds"])))
        table.add_row(str(row["name"]), length, str(row["traffic"]), str(row["description"]))
    console = Console()
    # where there is no terminal, lines are as long as they are
    (console if console.is_terminal else Console(width=WIDE_ENOUGH)).print(table, highlight=False, markup=False)
