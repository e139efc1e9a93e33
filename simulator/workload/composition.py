"""Traffic composed client by client: each with a rate, bunching and lengths of its own that change by the window.

Reference: Xiang et al., ServeGen: Workload Characterization and Generation of LLM Serving in Production, 2025,
https://arxiv.org/abs/2505.09999 (few clients make most of the traffic, each with stable lengths and bunching).
"""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from forecaster.telemetry import Floats
from simulator.requests import RequestTable
from simulator.workload.arrivals import gamma_arrivals, weibull_arrivals
from simulator.workload.lengths import DrawsLengths
from simulator.workload.superposition import joined

RENEWALS = {"gamma": gamma_arrivals, "weibull": weibull_arrivals}
"""What the gaps of a client may be, by the name of their distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientWindow:
    """What one client sends in one window.

    Attributes
    ----------
    number : int
        Of the window, from 0 at the start of the run.
    rate_per_second : float
    gaps : str
        A name of `RENEWALS`.
    shape : float
        Of that distribution.
    prompt, output : DrawsLengths
    """

    number: int
    rate_per_second: float
    gaps: str
    shape: float
    prompt: DrawsLengths
    output: DrawsLengths


Client = tuple[ClientWindow, ...]


def composed_requests(
    clients: tuple[Client, ...], factor: Floats, *, window_seconds: int, rng: Generator
) -> RequestTable:
    """Return the requests of all clients; every client has a stream of its own.

    Parameters
    ----------
    clients : tuple of Client
        Windows that a client lacks are silent.
    factor : ndarray of shape (num_seconds,)
        What every rate is multiplied by in each second.
    window_seconds : int
        How long a window is played.
    """
    streams = rng.spawn(len(clients))
    tables = [
        _window_requests(window, factor, window_seconds, stream)
        for client, stream in zip(clients, streams, strict=True)
        for window in client
    ]
    none = np.zeros(0, dtype=np.int64)
    return joined([RequestTable.from_columns(np.zeros(0), none, none), *tables])


def _window_requests(window: ClientWindow, factor: Floats, window_seconds: int, rng: Generator) -> RequestTable:
    begin = window.number * window_seconds
    rates = window.rate_per_second * factor[begin : begin + window_seconds]
    arrivals = begin + RENEWALS[window.gaps](rates, rng, shape=window.shape)
    return RequestTable.from_columns(
        arrivals, window.prompt.draw(arrivals.size, rng), window.output.draw(arrivals.size, rng)
    )
