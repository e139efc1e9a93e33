"""The traffic that a command plays: a trace file or a scenario, by the options that every such command has."""

import os
from pathlib import Path

import click

from cli.trace_table import warn_of_skipped_rows
from simulator.profiles import EngineProfile
from simulator.requests import RequestTable
from training.closed_loop import servable_requests
from training.scenario_files import load_scenario
from training.scenario_yaml import ScenarioFileError
from training.traces import read_trace
from training.traffic import Traffic, scenario_traffic

DEFAULT_SHARED = Path("../shared")


def shared_folder() -> Path:
    """Return the folder of public data: FORESHOCK_SHARED, or ../shared."""
    return Path(os.environ.get("FORESHOCK_SHARED") or DEFAULT_SHARED)


def traffic_from(trace: Path | None, scenario: str | None, *, seed: int) -> Traffic:
    """Return the traffic that the options name.

    Raises
    ------
    click.UsageError
        If they name both or neither, or no such scenario.
    TraceFormatError
        If the file cannot be read as a trace, or one that a scenario plays is missing.
    """
    if trace is not None and scenario is not None:
        raise click.UsageError("--trace and --scenario name two different things to play; give one of them")
    if trace is not None:
        return _from_trace(trace, seed)
    if scenario is None:
        raise click.UsageError(
            "nothing to play: give --trace FILE or --scenario NAME_OR_FILE, for example --scenario surge"
        )
    return _from_scenario(scenario, seed)


def _from_trace(path: Path, seed: int) -> Traffic:
    read = read_trace(path, seed=seed)
    warn_of_skipped_rows(read)
    return Traffic(name=path.name, meaning=f"{read.format} trace", requests=read.requests, duration_seconds=None)


def _from_scenario(name: str, seed: int) -> Traffic:
    try:
        scenario = load_scenario(name)
        traffic = scenario_traffic(scenario, seed, shared=shared_folder())
    except ScenarioFileError as error:
        raise click.BadParameter(str(error), param_hint="--scenario") from error
    if scenario.content.past_seconds:
        click.echo(
            f"warning: {scenario.name} is primed with {scenario.content.past_seconds:g} s of the past; here every "
            "policy starts from nothing",
            err=True,
        )
    return traffic


def without_unservable(traffic: Traffic, profile: EngineProfile) -> RequestTable:
    """Return the requests that a replica of the profile can hold; a warning says how many it cannot."""
    requests, num_dropped = servable_requests(traffic.requests, profile)
    if num_dropped:
        most = profile.kv_blocks * profile.block_size_tokens
        click.echo(
            f"warning: {num_dropped:,} of {traffic.requests.num_requests:,} requests of {traffic.name} are longer than "
            f"the KV cache of a {profile.name} replica ({most:,} tokens) and are left out",
            err=True,
        )
    return requests
