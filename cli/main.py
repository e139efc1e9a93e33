"""The `foreshock` command: its subcommands are loaded when they are called, so that help is quick."""

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from types import MappingProxyType

import click

# name -> (module:attribute, what help says of it)
SUBCOMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "run": ("cli.run:run", "Watch a simulated fleet survive a burst, beside a plain HPA."),
        "scenarios": ("cli.scenarios:scenarios", "List and show what there is to play."),
        "simulate": ("cli.simulate:simulate", "Play a trace or a scenario under one or more policies."),
        "sweep": ("cli.sweep:sweep", "Play scenarios x policies x seeds on all cores."),
        "calibrate": ("cli.calibrate:calibrate", "Fit a replica profile to the request log of a real engine."),
        "trace": ("cli.trace:trace", "Look into request traces."),
        "retrain": ("cli.retrain:retrain", "Train on recorded telemetry; replace the champion if that is better."),
        "models": ("cli.models:models", "List, show, promote and roll back trained models."),
        "train": ("cli.train:train", "Train the demand forecaster on generated fleets."),
    }
)

EPILOG = """
\b
Examples:
  # the two-minute tour: a surprise burst, live
  foreshock run

\b
  # is my traffic bursty?
  foreshock trace stats requests.csv.gz

\b
  # my traffic under Foreshock, an HPA and four fixed replicas
  foreshock simulate --trace requests.csv.gz --compare foreshock,hpa,static:4

\b
Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return a subcommand, imported now."""
        if name not in SUBCOMMANDS:
            return None
        module, attribute = SUBCOMMANDS[name][0].split(":")
        command = getattr(import_module(module), attribute)
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in SUBCOMMANDS.items()])


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("foreshock"), prog_name="foreshock")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def foreshock(debug: bool) -> None:
    """Keep an LLM serving fleet ahead of its traffic.

    Foreshock forecasts the KV-cache blocks and the TTFT of a fleet 30 s ahead, sizes serving and warm replicas for
    it, and sheds by priority what capacity cannot absorb in time.
    """


def main() -> None:
    """Run the command and leave with its exit code."""
    arguments = sys.argv[1:]
    try:
        from cli.errors import run_command  # takes a moment to load, in which Ctrl-C must be clean too

        sys.exit(run_command(foreshock, arguments, debug="--debug" in arguments))
    except KeyboardInterrupt:
        sys.exit(130)
