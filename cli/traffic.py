"""The traffic that a command plays: a trace file or a scenario, by the options that every such command has."""

from dataclasses import dataclass
from pathlib import Path

import click

from cli.trace_table import warn_of_skipped_rows
from simulator.profiles import EngineProfile
from simulator.requests import RequestTable
from simulator.workload.scenarios import scenario_named
from training.closed_loop import servable_requests
from training.traces import read_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Requests to play, and what they are called.

    Attributes
    ----------
    name : str
        Of the file or the scenario.
    meaning : str
        What it is, in a sentence.
    requests : RequestTable
    duration_seconds : float or None
        None: up to the last arrival.
    """

    name: str
    meaning: str
    requests: RequestTable
    duration_seconds: float | None


def traffic_from(trace: Path | None, scenario: str | None, *, seed: int) -> Traffic:
    """Return the traffic that the options name.

    Raises
    ------
    click.UsageError
        If they name both or neither, or no such scenario.
    TraceFormatError
        If the file cannot be read as a trace.
    """
    if trace is not None and scenario is not None:
        raise click.UsageError("--trace and --scenario name two different things to play; give one of them")
    if trace is not None:
        return _from_trace(trace, seed)
    if scenario is None:
        raise click.UsageError("nothing to play: give --trace FILE or --scenario NAME, for example --scenario surge")
    return _from_scenario(scenario, seed)


def _from_trace(path: Path, seed: int) -> Traffic:
    read = read_trace(path, seed=seed)
    warn_of_skipped_rows(read)
    return Traffic(name=path.name, meaning=f"{read.format} trace", requests=read.requests, duration_seconds=None)


def _from_scenario(name: str, seed: int) -> Traffic:
    try:
        scenario = scenario_named(name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--scenario") from error
    return Traffic(
        name=scenario.name,
        meaning=scenario.description,
        requests=scenario.build(seed),
        duration_seconds=float(scenario.duration_seconds),
    )


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
