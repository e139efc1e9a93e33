"""`foreshock models`: what there is in the store, and which of it serves."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from cli.store_option import store_option

if TYPE_CHECKING:
    from models.store import ModelVersion

EPILOG = """
\b
Examples:
  # what was trained, and which version serves
  foreshock models list

\b
  # why version 7 did not become champion
  foreshock models show 7

\b
  # back to the champion before this one
  foreshock models rollback --store http://mlflow:5000
"""
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(epilog=EPILOG)
def models() -> None:
    """List, show, promote and roll back trained models.

    The store keeps every version that `foreshock retrain` published. The alias `champion` says which one serves,
    `challenger` which was trained last.
    """


@models.command(name="list")
@store_option
@_json_option
def list_models(store: str, as_json: bool) -> None:
    """List the versions, newest first."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from models.store import open_store

    versions = open_store(store).versions()[::-1]
    if as_json:
        click.echo(json.dumps([_as_json(one) for one in versions]))
        return
    if not versions:
        click.echo(f"no version in {store} yet; `foreshock retrain` publishes one")
        return
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("version", "trained (UTC)", "loss", "champion", "trivial", "gate", "alias"):
        is_number = name in ("version", "loss", "champion", "trivial")
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for one in versions:
        losses = [_figure(one.metrics.get(name)) for name in ("loss", "champion_loss", "trivial_loss")]
        table.add_row(
            str(one.version), _time(one.created_at), *losses, one.tags.get("gate", ""), ", ".join(one.aliases)
        )
    Console().print(table)


@models.command()
@click.argument("version", type=click.IntRange(min=1))
@store_option
@_json_option
def show(version: int, store: str, as_json: bool) -> None:
    """Show all that is known of VERSION."""
    from models.store import open_store, version_of

    found = version_of(open_store(store), version)
    if as_json:
        click.echo(json.dumps(_as_json(found)))
        return
    click.echo(f"version {found.version}, trained {_time(found.created_at)} UTC, {', '.join(found.aliases) or 'idle'}")
    click.echo(f"digest {found.digest}")
    for title, values in (("tags", found.tags), ("metrics", found.metrics), ("parameters", found.params)):
        if values:
            click.echo(f"\n{title}")
            width = max(map(len, values))
            for name, value in sorted(values.items()):
                click.echo(
                    f"  {name:<{width}}  {value:.6g}" if isinstance(value, float) else f"  {name:<{width}}  {value}"
                )


@models.command()
@click.argument("version", type=click.IntRange(min=1))
@store_option
@_json_option
def promote(version: int, store: str, as_json: bool) -> None:
    """Make VERSION the champion, whatever the gate said of it.

    A model that this code cannot load is refused.
    """
    import tempfile
    from pathlib import Path

    from models.artifact import load_artifact
    from models.champion import promote as promote_version
    from models.store import CHAMPION, open_store
    from serving.system_clock import SystemClock

    opened = open_store(store)
    before = opened.alias(CHAMPION)
    with tempfile.TemporaryDirectory() as scratch:
        load_artifact(opened.fetch(version, Path(scratch) / "model"))
    found = promote_version(opened, version, now=SystemClock().now())
    _tell(found, before, as_json=as_json)


@models.command()
@store_option
@_json_option
def rollback(store: str, as_json: bool) -> None:
    """Make the champion before this one champion again.

    Called again, it goes one further back.
    """
    from models.champion import rollback as roll_back
    from models.store import CHAMPION, open_store
    from serving.system_clock import SystemClock

    opened = open_store(store)
    before = opened.alias(CHAMPION)
    found = roll_back(opened, now=SystemClock().now())
    _tell(found, before, as_json=as_json)


def _tell(found: "ModelVersion", before: int | None, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"champion": found.version, "champion_before": before}))
    else:
        click.echo(f"version {found.version} is champion (before: {before or 'none'})")


def _as_json(version: "ModelVersion") -> dict[str, Any]:
    return {
        "version": version.version,
        "created_at": version.created_at,
        "digest": version.digest,
        "aliases": list(version.aliases),
        "metrics": dict(version.metrics),
        "params": dict(version.params),
        "tags": dict(version.tags),
    }


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"
