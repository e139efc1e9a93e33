"""Generated scenarios by name: what `foreshock simulate --scenario` plays."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.random import Generator, SeedSequence

from forecaster.telemetry import Floats
from simulator.requests import RequestTable
from simulator.workload.arrivals import poisson_arrivals
from simulator.workload.curves import impulse
from simulator.workload.lengths import CONV_OUTPUT, CONV_PROMPT

PRIORITY_SHARES = (0.2, 0.6, 0.2)
"""Batch, normal and core requests."""

BASE_RATE_PER_SECOND = 26.0
"""Some three replicas of the 70B profile at rest: enough to see single replicas come and go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Traffic of conversation-like requests whose rate follows a curve.

    Attributes
    ----------
    name, description : str
    duration_seconds : int
    rate_per_second : callable
        From a generator to the rate in each second, shape (duration_seconds,).
    """

    name: str
    description: str
    duration_seconds: int
    rate_per_second: Callable[[Generator], Floats]

    def build(self, seed: int) -> RequestTable:
        """Return the scenario's requests; rate, arrivals, lengths and priorities each have a stream of their own."""
        rate_rng, arrival_rng, prompt_rng, output_rng, priority_rng = (
            np.random.default_rng(child) for child in SeedSequence(seed).spawn(5)
        )
        arrivals = poisson_arrivals(self.rate_per_second(rate_rng), arrival_rng)
        return RequestTable.from_columns(
            arrivals,
            CONV_PROMPT.draw(arrivals.size, prompt_rng),
            CONV_OUTPUT.draw(arrivals.size, output_rng),
            priority=priority_rng.choice(len(PRIORITY_SHARES), size=arrivals.size, p=PRIORITY_SHARES).astype(np.int8),
        )


def _steady(rng: Generator) -> Floats:
    return np.full(1800, BASE_RATE_PER_SECOND)


def _surge(rng: Generator) -> Floats:
    return BASE_RATE_PER_SECOND * impulse(600, start_seconds=240, height=3.0, ramp_seconds=5, length_seconds=120)


def _seckill(rng: Generator) -> Floats:
    factor = np.ones(3600)
    for start in (500, 1100, 1700, 2300, 2900):
        factor *= impulse(3600, start_seconds=start, height=3.0, ramp_seconds=5, length_seconds=120)
    return BASE_RATE_PER_SECOND * factor


def _ramp(rng: Generator) -> Floats:
    return BASE_RATE_PER_SECOND * impulse(3600, start_seconds=900, height=4.0, ramp_seconds=300, length_seconds=600)


def _diurnal(rng: Generator) -> Floats:
    """Return a day in four hours: a sine between 0.4 and 1.6 of the base, and slow noise of some 10 %."""
    seconds = np.arange(4 * 3600)
    daily = 1.0 - 0.6 * np.cos(2 * np.pi * seconds / seconds.size)
    steps = rng.normal(0.0, 0.1, seconds.size // 300 + 2)
    noise = np.interp(seconds, np.arange(steps.size) * 300, steps)
    return np.asarray(BASE_RATE_PER_SECOND * np.maximum(daily * (1 + noise), 0.05))


def _registry(*scenarios: Scenario) -> Mapping[str, Scenario]:
    names = [scenario.name for scenario in scenarios]
    if len(set(names)) != len(names):
        raise ValueError(f"two scenarios share a name: {sorted(names)}")
    return MappingProxyType({scenario.name: scenario for scenario in scenarios})


SCENARIOS: Mapping[str, Scenario] = _registry(
    Scenario(
        name="surge",
        description="ten minutes with one surprise x3 impulse of 120 s, 5-s ramp, at 240 s",
        duration_seconds=600,
        rate_per_second=_surge,
    ),
    Scenario(
        name="steady",
        description="half an hour at a constant rate",
        duration_seconds=1800,
        rate_per_second=_steady,
    ),
    Scenario(
        name="seckill",
        description="an hour with five x3 impulses of 120 s, 5-s ramps",
        duration_seconds=3600,
        rate_per_second=_seckill,
    ),
    Scenario(
        name="ramp",
        description="an hour rising x4 over 5 min, holding 10, falling over 5",
        duration_seconds=3600,
        rate_per_second=_ramp,
    ),
    Scenario(
        name="diurnal",
        description="a day in four hours, with slow noise",
        duration_seconds=4 * 3600,
        rate_per_second=_diurnal,
    ),
)


def scenario_named(name: str) -> Scenario:
    """Return a scenario.

    Raises
    ------
    ValueError
        If there is none of that name; the message lists those there are.
    """
    if name not in SCENARIOS:
        raise ValueError(f"no scenario is called {name!r}; known: {', '.join(SCENARIOS)}")
    return SCENARIOS[name]
