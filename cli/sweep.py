"""`foreshock sweep`: every scenario under every policy with every seed, on all cores, and on from where it stopped."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.fleet_options import fleet_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from training.fleet_options import FleetOptions
    from training.sweep_log import SweepLog
    from training.sweep_tasks import SweepTask

EPILOG = """
\b
Examples:
  # Foreshock beside an HPA on a surprise burst and on steady traffic, five seeds each
  foreshock sweep --scenario surge --scenario steady --policy foreshock --policy hpa --seeds 5

\b
  # certain seeds, two processes, for a script
  foreshock sweep --scenario surge --policy static:6,static:8 --seeds 3,17,42 --jobs 2 --json

\b
  # Ctrl-C at any time: the same command plays only what is missing
  foreshock sweep --scenario diurnal --seeds 20 --out out/diurnal

Policies: foreshock, hpa, static:N. Scenarios: foreshock scenarios list.
"""


@click.command(epilog=EPILOG)
@click.option(
    "--scenario", "scenarios", multiple=True, metavar="NAME_OR_FILE,...", required=True, help="Play it. Repeatable."
)
@click.option(
    "--policy", "policies", multiple=True, metavar="P,...", help="Play it. Repeatable.  [default: foreshock and hpa]"
)
@click.option(
    "--seeds",
    metavar="N|A,B,...",
    default="5",
    show_default=True,
    help="How many seeds, from 0 on, or a list of them ('7,' is seed 7 alone).",
)
@fleet_options
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes.  [default: all cores]")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("out/sweep"),
    show_default=True,
    metavar="DIR",
    help="Folder of runs.jsonl, which a later call goes on from, and runs.parquet.",
)
@click.option("--fresh", is_flag=True, help="Forget the runs that the folder holds, and play all.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def sweep(
    scenarios: tuple[str, ...],
    policies: tuple[str, ...],
    seeds: str,
    fleet: "FleetOptions",
    jobs: int | None,
    out: Path,
    fresh: bool,
    as_json: bool,
) -> int:
    """Play scenarios x policies x seeds.

    Prints, for each scenario, every policy's median and range over the seeds. Runs are kept one by one as they are
    finished; called again, the command plays only those that are missing or that this code would play differently.
    """
    from rich.console import Console

    from cli.errors import DONE, FAILED, INTERRUPTED
    from cli.sweep_outcome import print_sweep, print_sweep_json, tell_of_left_out_requests
    from training.sweep_log import SweepLog
    from training.sweep_summary import write_runs

    messages = Console(stderr=True)
    tasks = _tasks(scenarios, policies, seeds, fleet)
    keys = [task.key for task in tasks]
    with SweepLog(out, fresh=fresh) as log:
        missing = [task for task, key in zip(tasks, keys, strict=True) if not log.finished(key)]
        _tell_of_resumption(log, len(tasks), len(missing), messages)
        if missing and not _play(missing, log, jobs or len(os.sched_getaffinity(0)), messages):
            num_finished = sum(log.finished(key) for key in keys)
            click.echo(
                f"interrupted: {num_finished} of {len(tasks)} runs are finished and kept in {out}; the same command "
                f"{'without --fresh ' if fresh else ''}plays the other {len(tasks) - num_finished}",
                err=True,
            )
            return INTERRUPTED
        runs = [log.runs[key] for key in keys]
    path = write_runs(out / "runs.parquet", runs)
    tell_of_left_out_requests(runs)
    if as_json:
        print_sweep_json(tasks, runs)
    else:
        print_sweep(Console(), tasks, runs)
        click.echo(f"runs: {path}")
    failed = [run for run in runs if run.error]
    for run in failed:
        click.echo(f"failed: {run.scenario}, {run.policy}, seed {run.seed}: {run.error}", err=True)
    return FAILED if failed else DONE


def _tasks(
    scenarios: tuple[str, ...], policies: tuple[str, ...], seeds: str, fleet: "FleetOptions"
) -> "tuple[SweepTask, ...]":
    """Return what is to be played, everything that can be refused at once refused."""
    from cli.closed_loop_setup import one_request, prepare_run
    from cli.traffic import shared_folder
    from training.scenario_yaml import ScenarioFileError
    from training.sweep_scenarios import sweep_scenario
    from training.sweep_tasks import sweep_tasks
    from training.traffic import Traffic

    try:
        chosen = [sweep_scenario(name, shared=shared_folder()) for name in _names(scenarios, "--scenario")]
    except ScenarioFileError as error:
        raise click.BadParameter(str(error), param_hint="--scenario") from error
    names = _names(policies, "--policy") or ("foreshock", "hpa")
    # the fleet's options and the policies are refused here, on a run that takes no time to make
    least = Traffic(name="any", meaning="", requests=one_request(), duration_seconds=1.0)
    prepare_run(least, fleet, policies=names, seed=0)
    return sweep_tasks(chosen, names, _seeds(seeds), fleet)


def _names(given: tuple[str, ...], option: str) -> tuple[str, ...]:
    names = tuple(name.strip() for part in given for name in part.split(","))
    if not all(names):
        raise click.BadParameter(f"an empty name in {','.join(given)!r}", param_hint=option)
    if len(set(names)) < len(names):
        raise click.BadParameter(f"one is named twice: {', '.join(names)}; name each once", param_hint=option)
    return names


def _seeds(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.removesuffix(",").split(",")]
    if not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"expected a number or a list of numbers >= 0, got {text!r}", param_hint="--seeds")
    numbers = tuple(int(part) for part in parts)
    seeds = numbers if "," in text else tuple(range(numbers[0]))
    if not seeds or len(set(seeds)) < len(seeds):
        raise click.BadParameter(f"expected at least one seed, and each once, got {text!r}", param_hint="--seeds")
    return seeds


def _tell_of_resumption(log: "SweepLog", num_tasks: int, num_missing: int, messages: "Console") -> None:
    if log.num_unreadable_lines:
        lines = "1 line" if log.num_unreadable_lines == 1 else f"{log.num_unreadable_lines} lines"
        messages.print(f"warning: {lines} of {log.path} cannot be read and count for nothing", soft_wrap=True)
    if num_missing < num_tasks:
        finished = f"{num_tasks - num_missing} of {num_tasks} runs are finished already and are skipped"
        messages.print(f"{finished} (--fresh plays them again)", highlight=False, soft_wrap=True)


def _play(tasks: "Sequence[SweepTask]", log: "SweepLog", num_jobs: int, messages: "Console") -> bool:
    """Return whether all was played, False if Ctrl-C ended it; a progress bar with the time left on a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from cli.closed_loop_setup import prepare_simulator
    from cli.interruption import Interruption
    from training.sweep import play_tasks

    prepare_simulator(messages)
    # runs differ in length, so the bar and the time left go by simulated seconds, and the runs are counted beside
    total = sum(task.duration_seconds for task in tasks)
    columns = (
        TextColumn("{task.fields[num_done]} of {task.fields[num_runs]} runs"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    num_done = 0
    with (
        Interruption() as interruption,
        Progress(
            *columns, console=messages, transient=True, disable=not messages.is_terminal, speed_estimate_period=300
        ) as progress,
    ):
        bar = progress.add_task("", total=total, num_done=0, num_runs=len(tasks))
        runs = play_tasks(
            tasks,
            num_jobs=num_jobs,
            on_played=lambda seconds: progress.update(bar, completed=seconds),
            is_stopped=lambda: interruption.requested,
        )
        for run in runs:
            log.add(run)
            num_done += 1
            progress.update(bar, num_done=num_done)
    return num_done == len(tasks)
