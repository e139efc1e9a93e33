"""The options by which every command that plays traffic on a fleet of the user's says which fleet."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

_OPTIONS = (
    click.option(
        "--profile",
        metavar="NAME",
        help="Replica type, or a YAML file by `foreshock calibrate`.  [default: llama-3.1-70b-h100-tp4]",
    ),
    click.option(
        "--cold-start",
        "cold_start_seconds",
        type=click.FloatRange(min=0),
        metavar="S",
        help="Seconds from order to ready.  [default: 30]",
    ),
    click.option(
        "--warm-cost",
        "warm_cost_ratio",
        type=click.FloatRange(0, 1),
        metavar="R",
        help="What a warm replica costs of an active one.  [default: 0.3]",
    ),
    click.option(
        "--initial", type=click.IntRange(min=1), metavar="N", help="Replicas at the start.  [default: by load]"
    ),
    click.option(
        "--max-replicas", type=click.IntRange(min=1), metavar="N", help="Most replicas there may be.  [default: 48]"
    ),
    click.option(
        "--duration",
        "duration_seconds",
        type=click.FloatRange(min=0, min_open=True),
        metavar="S",
        help="Play only so many seconds.",
    ),
    click.option(
        "--router",
        metavar="NAME",
        help="least_outstanding_tokens (default), round_robin, power_of_two, prefix_aware or least_kv.",
    ),
)


def fleet_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that has these options and is handed what they say as `fleet`, a `FleetOptions`."""

    @wraps(command)
    def with_fleet(**given: Any) -> Any:
        from dataclasses import fields

        from training.fleet_options import FleetOptions

        fleet = FleetOptions(**{field.name: given.pop(field.name) for field in fields(FleetOptions)})
        return command(fleet=fleet, **given)

    decorated: Callable[..., Any] = with_fleet
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
