"""Agents that fan out: a root request, children that share its context and run at once, and a request that joins."""

from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.random import Generator

from forecaster.errors import ConfigError
from forecaster.telemetry import Floats
from simulator.requests import NO_REQUEST, RequestTable
from simulator.workload.lengths import DrawsLengths
from simulator.workload.nested_prefixes import nested_prefixes


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """How wide agents fan out.

    Attributes
    ----------
    mean_children : float
        >= 1; 1 and a Poisson number more.
    tool_seconds : float
        >= 0: mean time that a tool takes before a child or the join is asked, exponential.
    shared_prompt_tokens : int
        >= 0: a system prompt that every agent begins with.
    group_tokens : int
        Tokens of a prefix group, see `Prefixes`.
    """

    mean_children: float = 4.0
    tool_seconds: float = 1.0
    shared_prompt_tokens: int = 0
    group_tokens: int = 128

    def __post_init__(self) -> None:
        problems = []
        if not 1 <= self.mean_children < 1000:
            problems.append(f"mean_children must be in [1, 1000), got {self.mean_children}")
        if not (self.tool_seconds >= 0 and isfinite(self.tool_seconds)):
            problems.append(f"tool_seconds must be finite and >= 0, got {self.tool_seconds}")
        if self.shared_prompt_tokens < 0:
            problems.append(f"shared_prompt_tokens must be >= 0, got {self.shared_prompt_tokens}")
        if self.group_tokens < 1:
            problems.append(f"group_tokens must be >= 1, got {self.group_tokens}")
        if problems:
            raise ConfigError.from_problems("agents", problems)

    @property
    def mean_requests(self) -> float:
        """Requests of one agent on average: the root, its children and the join."""
        return self.mean_children + 2

    def requests(
        self, start_seconds: Floats, *, message: DrawsLengths, output: DrawsLengths, rng: Generator
    ) -> RequestTable:
        """Return the requests of agents whose root arrives at `start_seconds`.

        A child's prompt is the root's prompt and answer and a message of its own; the join's is the root's, all the
        children's answers and a message. A request can wait for one other only: the join waits for the child with
        the longest answer, which ends last where children are served alike.

        Parameters
        ----------
        start_seconds : ndarray of shape (num_agents,)
        message, output : DrawsLengths
        """
        sizes = 3 + rng.poisson(self.mean_children - 1, start_seconds.size)
        agent = np.repeat(np.arange(sizes.size), sizes)
        n, root = agent.size, np.cumsum(sizes) - sizes
        join = root + sizes - 1
        is_root, is_join = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        is_root[root], is_join[join] = True, True
        message_tokens, output_tokens = message.draw(n, rng), output.draw(n, rng)
        think = np.where(is_root, 0.0, rng.exponential(self.tool_seconds, n))

        children_tokens = np.where(is_root | is_join, 0, output_tokens)
        order = np.lexsort((children_tokens, agent))  # by agent, its longest child last
        follows = np.where(is_root, NO_REQUEST, root[agent])
        follows[join] = order[join]  # the last row of an agent is the join's
        arrival = start_seconds[agent] + think
        arrival[join] += think[follows[join]]

        common = self.shared_prompt_tokens + message_tokens[root] + output_tokens[root]
        prompt_tokens = common[agent] + message_tokens
        prompt_tokens[root] = self.shared_prompt_tokens + message_tokens[root]
        prompt_tokens[join] += np.bincount(agent, children_tokens, minlength=sizes.size).astype(np.int64)
        return RequestTable.from_columns(
            arrival,
            prompt_tokens,
            output_tokens,
            follows=follows,
            think_seconds=think,
            prefixes=nested_prefixes(
                prompt_tokens,
                shared_tokens=self.shared_prompt_tokens,
                common_tokens=np.where(is_root, prompt_tokens, common[agent]),
                family=agent,
                group_tokens=self.group_tokens,
            ),
        )
