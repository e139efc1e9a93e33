"""`foreshock retrain`: what a CronJob runs every night."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.store_option import store_option

if TYPE_CHECKING:
    from training.retrain import RetrainOutcome

REFUSED, LOCKED, UNAVAILABLE = 3, 4, 5

EPILOG = """
\b
Examples:
  # nightly, from what the recorder wrote; models in a local SQLite file
  foreshock retrain --telemetry recordings/llama-70b

\b
  # models on an MLflow tracking server, the outcome for a script
  foreshock retrain --telemetry telemetry.parquet --store http://mlflow:5000 --json

\b
  # try it on a simulated day
  foreshock simulate --scenario diurnal --compare foreshock --out out/day
  foreshock retrain --telemetry out/day/foreshock

\b
Exit codes: 0 trained and judged, whether promoted or not; 1 failed; 2 wrong usage; 3 the telemetry was refused;
4 another retrain is running; 5 the store does not answer; 130 interrupted. The champion stays in all but 0.
"""


@click.command(epilog=EPILOG)
@click.option(
    "--telemetry",
    type=click.Path(exists=True, path_type=Path),
    required=True,
    metavar="DIR|FILE",
    help="Recorded telemetry of one deployment: a Parquet file, or a folder of telemetry*.parquet.",
)
@store_option
@click.option(
    "--profile",
    metavar="NAME",
    help="Replica type, or a YAML file by `foreshock calibrate`.  [default: llama-3.1-70b-h100-tp4]",
)
@click.option(
    "--work",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("out/retrain"),
    show_default=True,
    help="Folder of the lock and of fetched models.",
)
@click.option("--fleets", type=click.IntRange(min=3), help="Generated fleets to learn from beside.  [default: 120]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of everything.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: all cores]")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def retrain(
    telemetry: Path,
    store: str,
    profile: str | None,
    work: Path,
    fleets: int | None,
    seed: int,
    workers: int | None,
    as_json: bool,
) -> int:
    """Train on recorded telemetry, and replace the champion if that is better.

    Checks the recording, holds out its newest part, trains on the rest and on generated fleets, and scores the
    candidate beside the champion and the trivial forecasts on what was held out. The candidate is published in any
    case; it becomes champion only if its loss is lower beyond doubt, or not higher and its data fresher, and never
    if it loses to the trivial forecast.
    """
    # imported here: `foreshock --help` must not wait for LightGBM
    from cli.errors import DONE
    from cli.progress_bar import progress_bar
    from forecaster.errors import InsufficientHistoryError, InvalidTelemetryError
    from models.store import StoreUnavailableError, open_store
    from serving.system_clock import SystemClock
    from simulator.profiles import DEFAULT_PROFILE
    from training.profile_files import profile_from
    from training.retrain import RetrainSettings
    from training.retrain import retrain as run_retrain
    from training.retrain_lock import RetrainLockedError
    from training.train import TrainingSettings

    settings = RetrainSettings(
        training=TrainingSettings(
            num_fleets=fleets or RetrainSettings().training.num_fleets,
            seed=seed,
            num_workers=workers or len(os.sched_getaffinity(0)),
        )
    )
    try:
        capacity = profile_from(profile or DEFAULT_PROFILE).capacity
        opened = open_store(store, create=True)
        with progress_bar() as progress:
            outcome = run_retrain(
                telemetry,
                opened,
                capacity,
                work=work,
                now=SystemClock().now(),
                settings=settings,
                progress=progress,
            )
    except (InvalidTelemetryError, InsufficientHistoryError) as error:
        return _failed(REFUSED, error, as_json=as_json)
    except RetrainLockedError as error:
        return _failed(LOCKED, error, as_json=as_json)
    except StoreUnavailableError as error:
        return _failed(UNAVAILABLE, error, as_json=as_json)
    if as_json:
        click.echo(json.dumps(outcome.to_json(), allow_nan=False))
    else:
        _print_outcome(outcome)
    return DONE


def _failed(code: int, error: Exception, *, as_json: bool) -> int:
    """Return the exit code; one line on stderr says why, and JSON too where that was asked for."""
    message = " ".join(str(error).split())
    click.echo(f"error: {message}; the champion stays", err=True)
    if as_json:
        click.echo(json.dumps({"promoted": False, "error": message, "exit_code": code}))
    return code


def _print_outcome(outcome: "RetrainOutcome") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"{outcome.num_rows_read:,} rows of telemetry, {outcome.num_rows_kept:,} learned from or judged on")
    if outcome.findings:
        findings = Table(box=box.SIMPLE_HEAD)
        findings.add_column("found")
        findings.add_column("rows", justify="right")
        findings.add_column("what was done")
        for one in outcome.findings:
            findings.add_row(one.name, f"{one.num_rows:,}", one.consequence)
        console.print(findings)
    decision, scores = outcome.decision, outcome.scores
    table = Table(box=box.SIMPLE_HEAD, title=f"{scores.candidate.size:,} held-out rows", title_justify="left")
    table.add_column("forecast")
    table.add_column("pinball loss", justify="right")
    table.add_column("alone", justify="right")
    table.add_row(
        f"candidate (version {outcome.version})",
        f"{decision.candidate_loss:.4f}",
        f"{scores.candidate_alone.mean():.4f}",
    )
    champion = "shipped model" if outcome.champion_before is None else f"version {outcome.champion_before}"
    table.add_row(f"champion ({champion})", f"{decision.champion_loss:.4f}", f"{scores.champion_alone.mean():.4f}")
    table.add_row("best trivial", f"{decision.trivial_loss:.4f}", "")
    console.print(table)
    if outcome.champion_problem:
        console.print(f"note: {outcome.champion_problem}")
    verdict = "promoted" if outcome.promoted else "not promoted"
    for reason in decision.reasons:
        console.print(f"version {outcome.version} {verdict}: {reason}")
