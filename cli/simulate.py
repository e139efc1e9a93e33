"""`foreshock simulate`: a trace or a scenario under one or more policies, as fast as it can be computed."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.traffic_options import seed_option, trace_option

if TYPE_CHECKING:
    from rich.console import Console

    from training.closed_loop import ClosedLoopRun, PlayedPolicy

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
Policies: foreshock, hpa, static:N. Scenarios: surge, steady, seckill, ramp, diurnal.
"""


@click.command(epilog=EPILOG)
@trace_option
@click.option("--scenario", metavar="NAME", help="Play a generated scenario.")
@click.option("--policy", metavar="P", help="Play one policy.  [default: foreshock]")
@click.option("--compare", metavar="P,P,...", help="Play several policies on the same traffic.")
@click.option(
    "--profile",
    metavar="NAME",
    help="Replica type, or a YAML file by `foreshock calibrate`.  [default: llama-3.1-70b-h100-tp4]",
)
@click.option(
    "--cold-start", type=click.FloatRange(min=0), metavar="S", help="Seconds from order to ready.  [default: 30]"
)
@click.option(
    "--warm-cost",
    type=click.FloatRange(0, 1),
    metavar="R",
    help="What a warm replica costs of an active one.  [default: 0.3]",
)
@click.option("--initial", type=click.IntRange(min=1), metavar="N", help="Replicas at the start.  [default: by load]")
@click.option(
    "--max-replicas", type=click.IntRange(min=1), metavar="N", help="Most replicas there may be.  [default: 48]"
)
@click.option("--duration", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Play only so many seconds.")
@click.option("--router", metavar="NAME", help="least_outstanding_tokens (default) or round_robin.")
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
def simulate(
    trace: Path | None,
    scenario: str | None,
    policy: str | None,
    compare: str | None,
    profile: str | None,
    cold_start: float | None,
    warm_cost: float | None,
    initial: int | None,
    max_replicas: int | None,
    duration: float | None,
    router: str | None,
    seed: int,
    as_json: bool,
    report: Path,
    no_report: bool,
) -> None:
    """Play a trace or a scenario under one or more policies.

    Prints SLO attainment, TTFT, TPOT, GPU-hours, preemptions, shed requests and scaling actions of each policy, and
    writes a self-contained HTML report with the plots and every decision.
    """
    from rich.console import Console

    from cli.closed_loop_setup import FleetOptions, prepare_run, prepare_simulator
    from cli.outcome import print_comparison, print_comparison_json, write_and_name_report
    from cli.traffic import traffic_from

    options = FleetOptions(
        profile=profile,
        initial=initial,
        max_replicas=max_replicas,
        cold_start_seconds=cold_start,
        warm_cost_ratio=warm_cost,
        duration_seconds=duration,
        router=router,
    )
    names = _policy_names(policy, compare)
    run = prepare_run(traffic_from(trace, scenario, seed=seed), options, policies=names, seed=seed)
    messages = Console(stderr=True)
    prepare_simulator(run, messages)
    played = _play(run, messages)
    console = Console()
    if as_json:
        print_comparison_json(run, played)
    else:
        print_comparison(console, run, played)
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
