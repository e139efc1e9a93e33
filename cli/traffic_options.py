"""The options by which every command that plays traffic says which."""

from pathlib import Path

import click

trace_option = click.option(
    "--trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Play the requests of this file (formats: see foreshock trace stats --help).",
)
seed_option = click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", default=0, show_default=True, help="Seed of the scenario."
)
