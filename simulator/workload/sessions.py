"""Sessions of several turns: a user reads the answer, thinks, and asks again with the whole history in the prompt."""

from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.random import Generator

from forecaster.errors import ConfigError
from forecaster.telemetry import Floats
from simulator.requests import NO_REQUEST, RequestTable
from simulator.workload.lengths import DrawsLengths
from simulator.workload.nested_prefixes import nested_prefixes, sums_within


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """How long conversations are.

    Attributes
    ----------
    mean_turns : float
        >= 1; the number of turns is geometric.
    think_seconds : float
        >= 0: mean time from the end of an answer to the next question, exponential.
    shared_prompt_tokens : int
        >= 0: a system prompt that every session begins with.
    group_tokens : int
        Tokens of a prefix group, see `Prefixes`.
    """

    mean_turns: float = 3.0
    think_seconds: float = 20.0
    shared_prompt_tokens: int = 0
    group_tokens: int = 128

    def __post_init__(self) -> None:
        problems = []
        if not 1 <= self.mean_turns < 1000:
            problems.append(f"mean_turns must be in [1, 1000), got {self.mean_turns}")
        if not (self.think_seconds >= 0 and isfinite(self.think_seconds)):
            problems.append(f"think_seconds must be finite and >= 0, got {self.think_seconds}")
        if self.shared_prompt_tokens < 0:
            problems.append(f"shared_prompt_tokens must be >= 0, got {self.shared_prompt_tokens}")
        if self.group_tokens < 1:
            problems.append(f"group_tokens must be >= 1, got {self.group_tokens}")
        if problems:
            raise ConfigError.from_problems("sessions", problems)

    @property
    def mean_requests(self) -> float:
        """Requests of one session on average."""
        return self.mean_turns

    def requests(
        self, start_seconds: Floats, *, message: DrawsLengths, output: DrawsLengths, rng: Generator
    ) -> RequestTable:
        """Return the turns of sessions that begin at `start_seconds`.

        A turn's prompt is all earlier messages and answers, and a new message.

        Parameters
        ----------
        start_seconds : ndarray of shape (num_sessions,)
        message, output : DrawsLengths
            What the user adds in a turn, and the answer.
        """
        turns = rng.geometric(1 / self.mean_turns, start_seconds.size)
        session = np.repeat(np.arange(turns.size), turns)
        first = np.repeat(np.cumsum(turns) - turns, turns)
        is_first = first == np.arange(session.size)
        message_tokens, output_tokens = message.draw(session.size, rng), output.draw(session.size, rng)
        think = np.where(is_first, 0.0, rng.exponential(self.think_seconds, session.size))
        history = sums_within(message_tokens + output_tokens, first)
        prompt_tokens = (self.shared_prompt_tokens + history - output_tokens).astype(np.int64)
        return RequestTable.from_columns(
            start_seconds[session] + sums_within(think, first),
            prompt_tokens,
            output_tokens,
            follows=np.where(is_first, NO_REQUEST, np.arange(session.size) - 1),
            think_seconds=think,
            prefixes=nested_prefixes(
                prompt_tokens,
                shared_tokens=self.shared_prompt_tokens,
                common_tokens=prompt_tokens,  # the next turn's prompt begins with all of this one's
                family=session,
                group_tokens=self.group_tokens,
            ),
        )
