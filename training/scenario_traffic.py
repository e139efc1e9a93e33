"""From what a scenario file says to the requests that are played.

Every consumer of randomness has a stream of its own, spawned from the seed in a fixed order.
"""

from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np
from numpy.random import Generator, SeedSequence
from numpy.typing import NDArray

from forecaster.telemetry import Floats
from simulator.requests import NO_REQUEST, RequestTable
from simulator.workload.closed_users import ClosedUsers
from simulator.workload.composition import composed_requests
from simulator.workload.superposition import copies_of_trace
from training.public_traces import refuse_missing_trace
from training.scenario_changes import Impulse
from training.scenario_schema import (
    GeneratedTraffic,
    PriorityShares,
    ScenarioContent,
    ServeGenTraffic,
    TraceTraffic,
    UserTraffic,
)
from training.servegen import LengthPair, servegen_clients
from training.traces import read_trace, spread_over_grid


class _Streams:
    """The random streams of one seed, one for each consumer; a new one goes to the end of the list."""

    def __init__(self, seed: SeedSequence) -> None:
        children = seed.spawn(8)
        self.changes, self.arrivals, self.prompt, self.output, self.priority, self.structure, self.copies, self.grid = (
            np.random.default_rng(child) for child in children
        )


def scenario_requests(content: ScenarioContent, *, seed: int, folder: Path, shared: Path) -> RequestTable:
    """Return the requests of a scenario.

    Parameters
    ----------
    seed : int
        The same seed gives the same bytes.
    folder : Path
        Where the scenario file lies: its traces are looked for there first.
    shared : Path
        The folder of public data.

    Raises
    ------
    TraceFormatError
        If a trace is missing or cannot be read.
    ValueError
        If the parts contradict each other.
    """
    return _requests(content, _Streams(SeedSequence(seed)), folder=folder, shared=shared)


def trace_paths(content: ScenarioContent, *, folder: Path, shared: Path) -> tuple[Path, ...]:
    """Return the files that a scenario's traffic is drawn from, whether they are there or not."""
    traffic = content.traffic
    if isinstance(traffic, TraceTraffic):
        return (_trace_path(traffic, folder=folder, shared=shared),)
    if isinstance(traffic, ServeGenTraffic):
        return tuple((shared / "traces").glob(f"servegen_{traffic.data_set}_*"))
    return ()


def _trace_path(traffic: TraceTraffic, *, folder: Path, shared: Path) -> Path:
    beside = folder / traffic.file
    return beside if beside.is_file() else shared / "traces" / traffic.file


def past_requests(content: ScenarioContent, *, seed: int, folder: Path, shared: Path) -> RequestTable | None:
    """Return the past of the same service that a primed controller has seen, None if there is none.

    The same kind of traffic from other draws, with as many impulses at other times; a trace is shifted by a drawn time.
    """
    if not content.past_seconds:
        return None
    seconds = ceil(content.past_seconds)
    changes = tuple(
        change.at_other_times(seconds) if isinstance(change, Impulse) else change for change in content.changes
    )
    traffic = content.traffic
    if isinstance(traffic, TraceTraffic):
        traffic = traffic.model_copy(update={"shifts": "drawn"})
    past = content.model_copy(update={"duration_seconds": seconds, "changes": changes, "traffic": traffic})
    # a stream beyond those of the scenario itself
    return _requests(past, _Streams(SeedSequence(seed, spawn_key=(1_000,))), folder=folder, shared=shared)


def rate_factor(content: ScenarioContent, rng: Generator) -> Floats:
    """Return what the changes multiply the traffic by in each second, shape (duration_seconds,)."""
    factor = np.ones(content.duration_seconds)
    for change, stream in zip(content.changes, rng.spawn(len(content.changes)), strict=True):
        factor *= change.factor(content.duration_seconds, stream)
    return factor


def _requests(content: ScenarioContent, streams: _Streams, *, folder: Path, shared: Path) -> RequestTable:
    factor = rate_factor(content, streams.changes)
    traffic = content.traffic
    if isinstance(traffic, TraceTraffic):
        requests = _from_trace(traffic, factor, streams, folder=folder, shared=shared)
    elif isinstance(traffic, GeneratedTraffic):
        requests = _generated(traffic, factor, streams)
    elif isinstance(traffic, ServeGenTraffic):
        requests = _from_servegen(traffic, factor, streams, shared=shared)
    else:
        requests = _from_users(traffic, content.duration_seconds, streams)
    return _with_priorities(requests, content.priority_shares, streams.priority)


def _from_trace(
    traffic: TraceTraffic, factor: Floats, streams: _Streams, *, folder: Path, shared: Path
) -> RequestTable:
    path = _trace_path(traffic, folder=folder, shared=shared)
    refuse_missing_trace(path)
    read = read_trace(path, seed=int(streams.grid.integers(2**32)))
    trace = read.requests
    if traffic.spread_over_grid and read.format != "mooncake":  # those are spread as they are read
        trace = replace(trace, arrival_seconds=spread_over_grid(trace.arrival_seconds, streams.grid))
    if traffic.first_requests is not None:
        trace = trace.take(np.arange(min(traffic.first_requests, trace.num_requests)))
    num_copies = traffic.num_copies * traffic.rate_ratio * factor
    period = traffic.period_seconds or max(factor.size, ceil(trace.span_seconds) + 1)
    return copies_of_trace(
        trace,
        num_copies=num_copies,
        shift_seconds=_shifts(traffic, ceil(num_copies.max()), period, streams.copies),
        period_seconds=period,
        rng=streams.copies,
    )


def _shifts(traffic: TraceTraffic, num_shifts: int, period_seconds: float, rng: Generator) -> Floats:
    """Return where each copy begins on the circle: the first ones as told, further ones at drawn places."""
    shifts = rng.uniform(0.0, period_seconds, max(num_shifts, traffic.num_copies))
    if traffic.shifts == "none":
        shifts[0] = 0.0
    elif traffic.shifts == "even":  # a seed turns the whole circle
        steps = np.arange(traffic.num_copies) * period_seconds / traffic.num_copies
        shifts[: traffic.num_copies] = (shifts[0] + steps) % period_seconds
    return shifts


def _generated(traffic: GeneratedTraffic, factor: Floats, streams: _Streams) -> RequestTable:
    kind = traffic.sessions or traffic.agents
    process = traffic.process.process()
    prompt, output = traffic.lengths.prompt, traffic.lengths.output
    if kind is None:
        arrivals = process(traffic.rate_per_second * factor, streams.arrivals)
        return RequestTable.from_columns(
            arrivals, prompt.draw(arrivals.size, streams.prompt), output.draw(arrivals.size, streams.output)
        )
    begin = process(traffic.rate_per_second / kind.mean_requests * factor, streams.arrivals)
    requests = kind.requests(begin, message=prompt, output=output, rng=streams.structure)
    return requests.take(np.flatnonzero(requests.arrival_seconds < factor.size))


def _from_users(traffic: UserTraffic, duration_seconds: int, streams: _Streams) -> RequestTable:
    users = ClosedUsers(num_users=traffic.num_users, think_seconds=traffic.think_seconds)
    lengths = traffic.lengths
    return users.requests(duration_seconds, prompt=lengths.prompt, output=lengths.output, rng=streams.structure)


def _from_servegen(traffic: ServeGenTraffic, factor: Floats, streams: _Streams, *, shared: Path) -> RequestTable:
    given = traffic.lengths
    clients = servegen_clients(
        traffic.data_set,
        shared=shared,
        start_seconds=traffic.start_seconds,
        num_windows=ceil(factor.size / traffic.seconds_per_window),
        lengths=LengthPair(prompt=given.prompt, output=given.output) if given else None,
    )
    return composed_requests(
        clients, traffic.rate_ratio * factor, window_seconds=traffic.seconds_per_window, rng=streams.structure
    )


def _with_priorities(requests: RequestTable, shares: PriorityShares | None, rng: Generator) -> RequestTable:
    """Return the requests with drawn priorities; what follows has the priority of what it follows."""
    if shares is None:
        return requests
    drawn = rng.choice(len(shares.by_priority), size=requests.num_requests, p=shares.by_priority).astype(np.int8)
    return replace(requests, priority=drawn[_first_of_chain(requests.follows)])


def _first_of_chain(follows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each request the one that began its session or agent: itself if it follows none."""
    before = np.where(follows == NO_REQUEST, np.arange(follows.size), follows)
    while (before[before] != before).any():
        before = before[before]
    return before
