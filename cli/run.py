"""`foreshock run`: Foreshock and another policy on the same traffic, side by side, faster than real time."""

from pathlib import Path

import click

from cli.traffic_options import seed_option, trace_option

EPILOG = """
\b
Examples:
  # a surprise burst of three times the traffic, beside a plain HPA
  foreshock run

\b
  # your own traffic, ten times as fast as it happened
  foreshock run --trace requests.csv.gz --speed 10

\b
  # beside six replicas that never change, as plain lines for a log
  foreshock run --against static:6 --no-live

\b
Ctrl-C at any moment ends it with the comparison up to there (exit code 130).
"""


@click.command(epilog=EPILOG)
@trace_option
@click.option(
    "--scenario", metavar="NAME_OR_FILE", help="Play a scenario, a shipped one or a YAML file.  [default: surge]"
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    metavar="X",
    help="Simulated seconds per second of the live view.  [default: what takes half a minute]",
)
@seed_option
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("out"),
    show_default=True,
    help="Folder for report.html.",
)
@click.option("--no-live", is_flag=True, help="Print plain lines even on a terminal.")
@click.option(
    "--against", default="hpa", show_default=True, metavar="POLICY", help="The policy beside: hpa or static:N."
)
def run(
    trace: Path | None,
    scenario: str | None,
    speed: float | None,
    seed: int,
    out: Path,
    no_live: bool,
    against: str,
) -> int:
    """Watch Foreshock handle traffic beside another policy.

    Plays both on simulated fleets in a live view: KV blocks with the forecast band, TTFT, replicas, the latest
    decisions and why. Ends with the comparison and the path of a self-contained HTML report.
    """
    from rich.console import Console

    from cli.chart_axis import clock_text
    from cli.closed_loop_setup import prepare_run, prepare_simulator
    from cli.errors import DONE, INTERRUPTED
    from cli.outcome import print_comparison, write_and_name_report
    from cli.playing import play_side_by_side
    from cli.traffic import traffic_from
    from serving.system_clock import SystemClock
    from training.closed_loop import Lockstep
    from training.fleet_options import FleetOptions

    traffic = traffic_from(trace, scenario or (None if trace else "surge"), seed=seed)
    loop = prepare_run(traffic, FleetOptions(), policies=("foreshock", against), seed=seed)
    console = Console()
    title = f"{traffic.name}: {traffic.meaning}"
    console.print(f"{title} ({loop.requests.num_requests:,} requests)", markup=False, highlight=False, soft_wrap=True)
    prepare_simulator(Console(stderr=True))
    lockstep = Lockstep(loop)
    finished = play_side_by_side(
        lockstep,
        console=console,
        clock=SystemClock(),
        title=f"{traffic.name} on {loop.profile.name}: {traffic.meaning}",
        speed=speed,
        is_live=console.is_terminal and not console.is_dumb_terminal and not no_live,
    )
    reached = lockstep.reached_seconds
    played = lockstep.played()
    if not finished:
        console.print(f"stopped at {clock_text(reached)} of {clock_text(loop.duration_seconds)}; up to there:")
    print_comparison(console, loop, played)
    if not finished:
        return INTERRUPTED
    write_and_name_report(console, out / "report.html", loop, played)
    return DONE
