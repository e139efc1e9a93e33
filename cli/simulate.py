"""`foreshock simulate`: a trace or a scenario under one or more policies, as fast as it can be computed."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.fleet_options import fleet_options
from cli.traffic_options import seed_option, trace_option

if TYPE_CHECKING:
    from rich.console import Console

    from training.closed_loop import ClosedLoopRun, PlayedPolicy
    from training.fleet_options import FleetOptions

EPILOG = """
\b
Examples:
  # Foreshock on ten minutes with a surprise burst
  foreshock simulate --scenario surge

\b
  # your trace: Foreshock, an HPA and eight fixed replicas, with pods that take three minutes to start
  foreshock simulate --trace requests.csv.gz --compare foreshock,hpa,static:8 --cold-start 180

\b
  # the first ten minutes of it on another replica type, for a script
  foreshock simulate --trace requests.csv.gz --duration 600 --profile llama-3.1-8b-h100-tp1 --json --no-report

\b
  # every request, row of telemetry, plan and decision as Parquet, in out/surge/foreshock and out/surge/static-8
  foreshock simulate --scenario surge --compare foreshock,static:8 --out out/surge

\b
  # a scenario of your own, with its fleet and its clients
  foreshock simulate --scenario sale.yaml

\b
Policies: foreshock, hpa, static:N. Scenarios: foreshock scenarios list.
"""


@click.command(epilog=EPILOG)
@trace_option
@click.option("--scenario", metavar="NAME_OR_FILE", help="Play a scenario, a shipped one or a YAML file.")
@click.option("--policy", metavar="P", help="Play one policy.  [default: foreshock]")
@click.option("--compare", metavar="P,P,...", help="Play several policies on the same traffic.")
@fleet_options
@seed_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("out/simulate.html"),
    show_default=True,
    help="Where to write the HTML report.",
)
@click.option("--no-report", is_flag=True, help="Write none.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Also write each policy's requests, telemetry, plans and decisions there, as Parquet.",
)
def simulate(
    trace: Path | None,
    scenario: str | None,
    policy: str | None,
    compare: str | None,
    fleet: "FleetOptions",
    seed: int,
    as_json: bool,
    report: Path,
    no_report: bool,
    out: Path | None,
) -> None:
    """Play a trace or a scenario under one or more policies.

    A scenario's own fleet, engine and clients hold but for what the options say.

    Prints SLO attainment, TTFT, TPOT, GPU-hours, preemptions, shed requests and scaling actions of each policy, and
    writes a self-contained HTML report with the plots and every decision.
    """
    from rich.console import Console

    from cli.closed_loop_setup import prepare_run, prepare_simulator
    from cli.outcome import print_comparison, print_comparison_json, write_and_name_report, write_and_name_runs
    from cli.traffic import traffic_from

    names = _policy_names(policy, compare)
    run = prepare_run(traffic_from(trace, scenario, seed=seed), fleet, policies=names, seed=seed)
    messages = Console(stderr=True)
    prepare_simulator(messages)
    played = _play(run, messages)
    console = Console()
    if as_json:
        print_comparison_json(run, played)
    else:
        print_comparison(console, run, played)
    if out is not None:
        write_and_name_runs(messages if as_json else console, out, played)
    if not no_report:
        write_and_name_report(messages if as_json else console, report, run, played)


def _policy_names(policy: str | None, compare: str | None) -> tuple[str, ...]:
    if policy and compare:
        raise click.UsageError(f"--policy plays one and --compare several; put {policy} into --compare")
    names = tuple(name.strip() for name in (compare or policy or "foreshock").split(","))
    if not all(names):
        raise click.BadParameter(f"an empty name in {compare or policy!r}", param_hint="--compare")
    return names


def _play(run: "ClosedLoopRun", messages: "Console") -> "tuple[PlayedPolicy, ...]":
    """Return the played policies, after a progress bar with the time left on a terminal."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from training.closed_loop import compare

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=messages, transient=True, disable=not messages.is_terminal) as progress:
        bars = {name: progress.add_task(name, total=run.duration_seconds) for name in run.policies}
        return compare(run, on_tick=lambda name, fleet: progress.update(bars[name], completed=fleet.now))
