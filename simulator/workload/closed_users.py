"""A closed loop of users: a fixed number of them who think, ask, wait for the answer, and think again."""

from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.random import Generator

from forecaster.errors import ConfigError
from simulator.requests import NO_REQUEST, RequestTable
from simulator.workload.lengths import DrawsLengths


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedUsers:
    """How many users there are and how long each thinks.

    Attributes
    ----------
    num_users : int
        >= 1.
    think_seconds : float
        > 0: mean, exponential.
    """

    num_users: int
    think_seconds: float

    def __post_init__(self) -> None:
        problems = []
        if self.num_users < 1:
            problems.append(f"num_users must be >= 1, got {self.num_users}")
        if not (self.think_seconds > 0 and isfinite(self.think_seconds)):
            problems.append(f"think_seconds must be finite and > 0, got {self.think_seconds}")
        if problems:
            raise ConfigError.from_problems("closed users", problems)

    def requests(
        self, duration_seconds: float, *, prompt: DrawsLengths, output: DrawsLengths, rng: Generator
    ) -> RequestTable:
        """Return all that the users would ask within the duration if every answer came at once.

        Answers take time, so the last requests of each user arrive after the end of the run, or never: the slower the
        fleet, the fewer requests there are.
        """
        gaps = 1 + int(duration_seconds / self.think_seconds)
        ask_at = np.cumsum(rng.exponential(self.think_seconds, (self.num_users, gaps)), axis=1)
        while ask_at[:, -1].min() < duration_seconds:
            further = np.cumsum(rng.exponential(self.think_seconds, (self.num_users, gaps)), axis=1)
            ask_at = np.concatenate([ask_at, ask_at[:, -1:] + further], axis=1)
        think = np.diff(ask_at, axis=1, prepend=0.0)
        within = ask_at < duration_seconds
        count = within.sum(axis=1)
        n = int(count.sum())
        is_first = np.zeros(n, dtype=bool)
        is_first[(np.cumsum(count) - count)[count > 0]] = True
        return RequestTable.from_columns(
            ask_at[within],
            prompt.draw(n, rng),
            output.draw(n, rng),
            follows=np.where(is_first, NO_REQUEST, np.arange(n) - 1),
            think_seconds=np.where(is_first, 0.0, think[within]),
        )
