"""From the options of `run`, `simulate` and `sweep` to a closed loop that can be played."""

import click
import numpy as np
from rich.console import Console

from cli.traffic import without_unservable
from forecaster.errors import ConfigError
from simulator.profiles import DEFAULT_PROFILE, profile_named
from simulator.requests import RequestTable
from simulator.static_fleet import simulate_static
from training.closed_loop import ClosedLoopRun
from training.fleet_options import FleetOptions
from training.policies import policy_named
from training.traffic import Traffic


def prepare_run(traffic: Traffic, options: FleetOptions, *, policies: tuple[str, ...], seed: int) -> ClosedLoopRun:
    """Return the run that the options describe.

    Raises
    ------
    click.UsageError
        If an option names something that there is not, or options contradict each other.
    """
    try:
        profile = options.engine_profile(traffic)
    except (ConfigError, ValueError) as error:
        raise click.BadParameter(str(error), param_hint="--profile") from error
    try:
        run = options.closed_loop(traffic, without_unservable(traffic, profile), policies=policies, seed=seed)
    except (ConfigError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    _refuse_unknown_policies(run)
    return run


def _refuse_unknown_policies(run: ClosedLoopRun) -> None:
    if len(set(run.policies)) < len(run.policies):
        raise click.UsageError(f"a policy is named twice: {', '.join(run.policies)}; name each once")
    for name in run.policies:
        try:
            policy_named(name, run.config)
        except ValueError as error:
            raise click.UsageError(str(error)) from error


def prepare_simulator(messages: Console) -> None:
    """Have the engine compiled before anything is shown; only the first run on a machine takes time for it."""
    with messages.status("preparing the simulator (the first run compiles it: some 20 s)"):
        simulate_static(one_request(), profile_named(DEFAULT_PROFILE), num_replicas=1, duration_seconds=1.0)


def one_request() -> RequestTable:
    """Return the least that can be played."""
    return RequestTable.from_columns(np.zeros(1), np.full(1, 100), np.full(1, 2))
