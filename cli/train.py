"""`foreshock train`: a new demand model from generated fleets."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from training.scores import ForecastScores

EPILOG = """
\b
Examples:
  # the model that ships, made again from the same seed
  foreshock train --out models/default

\b
  # a quick look at what training does
  foreshock train --fleets 60 --out out/model
"""


@click.command(epilog=EPILOG)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("out/model"),
    show_default=True,
    help="Folder for manifest.json and boosters.txt.gz; what is there is replaced.",
)
@click.option("--fleets", type=click.IntRange(min=3), help="Fleets to generate.  [default: 480]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of everything.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: all cores]")
@click.option("--json", "as_json", is_flag=True, help="Print the scores as JSON instead of a table.")
def train(out: Path, fleets: int | None, seed: int, workers: int | None, as_json: bool) -> None:
    """Train the demand forecaster on generated fleets.

    Simulates fleets under random traffic, fits quantile boosters, calibrates them on fleets held out for that, and
    scores them on others beside trivial forecasts. The same seed gives the same files, byte for byte.
    """
    # imported here: `foreshock --help` must not wait for LightGBM
    from cli.progress_bar import progress_bar
    from models import save_artifact
    from training.train import TrainingSettings
    from training.train import train as train_model

    defaults = TrainingSettings()
    settings = TrainingSettings(
        num_fleets=fleets or defaults.num_fleets, seed=seed, num_workers=workers or os.cpu_count() or 1
    )
    with progress_bar() as progress:
        result = train_model(settings, progress=progress)
    save_artifact(result.artifact, out)
    if as_json:
        click.echo(json.dumps({"out": str(out), **result.scores.to_json()}))
        return
    _print_scores(result.scores)
    click.echo(f"wrote {out}")


def _print_scores(scores: "ForecastScores") -> None:
    """Print pinball loss beside the trivial forecasts, and coverage, by level."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    title = (
        f"{scores.num_rows} forecasts on {scores.num_runs} fleets held out: pinball loss of target / trailing mean, "
        f"and the model's coverage"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("level")
    for name in scores.pinball:
        table.add_column(name, justify="right")
    for horizon in scores.horizons_seconds:
        table.add_column(f"{horizon:.0f} s", justify="right")
    for i, level in enumerate(scores.levels):
        losses = [f"{loss[:, :, i].mean():.4f}" for loss in scores.pinball.values()]
        covered = [f"{ratio:.3f}" for ratio in scores.coverage_ratio[:, :, i].mean(axis=0)]
        table.add_row(f"{level:g}", *losses, *covered)
    console = Console()
    console.print(table)
    for name in list(scores.pinball)[1:]:
        console.print(f"pinball loss against {name}: {-scores.skill_ratio(name):+.0%}")
