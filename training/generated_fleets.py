"""Generated fleets to learn from: traffic, request lengths and provisioning drawn at random, one seed a fleet.

The default model must not have seen any trace it is judged on, so it learns from traffic made here. Ranges are wide on
purpose (domain randomisation); the request lengths centre on published statistics of production traces. At least half
of the fleets are calm: a quarter of an hour without a burst must come to mean that one is unlikely, not impossible.

References
----------
Length statistics: Azure LLM inference traces 2023 (Patel et al., "Splitwise", ISCA 2024) for `chat` and `code`;
Mooncake (Qin et al., FAST 2025) for `long_prompt`; ServeGen's reasoning workload (Xiang et al., 2025) for
`long_output`. Two-state modulated Poisson arrivals: W. Fischer and K. Meier-Hellstern, Performance Evaluation 18, 1993.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, log
from types import MappingProxyType

import numpy as np
from numpy.random import Generator

from forecaster.capacity import ReplicaCapacity
from forecaster.telemetry import Floats
from simulator.profiles import PROFILES, EngineProfile
from simulator.requests import RequestTable

MAX_FLEET_REPLICAS = 150
_MAX_PROMPT_TOKENS = 60_000
_MAX_OUTPUT_TOKENS = 10_000
_TOKEN_SECONDS = 0.03  # typical time per output token, for the first guess at how many requests are in flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Log-normal prompt and output lengths in tokens."""

    prompt_median: float
    prompt_sigma: float
    output_median: float
    output_sigma: float

    @property
    def mean_prompt_tokens(self) -> float:
        """Mean prompt length."""
        return float(self.prompt_median * np.exp(self.prompt_sigma**2 / 2))

    @property
    def mean_output_tokens(self) -> float:
        """Mean output length."""
        return float(self.output_median * np.exp(self.output_sigma**2 / 2))


LENGTHS: Mapping[str, Lengths] = MappingProxyType(
    {
        "chat": Lengths(prompt_median=1000, prompt_sigma=0.6, output_median=140, output_sigma=0.9),
        "code": Lengths(prompt_median=1450, prompt_sigma=0.7, output_median=13, output_sigma=1.2),
        "long_prompt": Lengths(prompt_median=6500, prompt_sigma=1.0, output_median=340, output_sigma=0.5),
        "long_output": Lengths(prompt_median=700, prompt_sigma=1.0, output_median=1500, output_sigma=0.8),
    }
)
_LENGTH_SHARES = (0.4, 0.2, 0.15, 0.25)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedFleet:
    """One fleet to simulate.

    Attributes
    ----------
    requests : RequestTable
    profile : EngineProfile
    kind : str
        Of its traffic, a key of `TRAFFIC`.
    duration_seconds : int
    ample_replicas : int
        So many that hardly anything queues: what was asked can be read off this run.
    seen_replicas : int
        What serves the run that the features come from: too few in many a fleet, for its bursts or at all.
    """

    requests: RequestTable
    profile: EngineProfile
    kind: str
    duration_seconds: int
    ample_replicas: int
    seen_replicas: int


def generated_fleet(rng: Generator) -> GeneratedFleet:
    """Return a fleet drawn at random."""
    profile = _profile(rng)
    lengths = _varied(LENGTHS[str(rng.choice(list(LENGTHS), p=_LENGTH_SHARES))], rng)
    duration = int(rng.integers(900, 2101))
    kind = str(rng.choice(list(TRAFFIC), p=[share for share, _ in TRAFFIC.values()]))
    shape = TRAFFIC[kind][1](rng, duration) * _drift(rng, duration)
    replicas_per_request = demand_per_request(lengths, profile.capacity)
    peak = float(np.convolve(shape, np.ones(10) / 10, mode="same").max() / shape.mean())
    mean_demand = min(_log_uniform(rng, 0.5, 12.0), 0.6 * MAX_FLEET_REPLICAS / peak)
    rate = float(np.clip(mean_demand / replicas_per_request, 0.3, 60.0))
    ample = min(ceil(1.5 * rate * replicas_per_request * peak) + 3, MAX_FLEET_REPLICAS)
    start_demand = rate * replicas_per_request * float(shape[:60].mean() / shape.mean())
    return GeneratedFleet(
        requests=_requests(rate * shape / shape.mean(), lengths, rng),
        profile=profile,
        kind=kind,
        duration_seconds=duration,
        ample_replicas=ample,
        # sized by its first minute alone: a fleet whose size foretold its bursts would teach just that
        seen_replicas=min(ceil(start_demand * _log_uniform(rng, 0.9, 8.0)), MAX_FLEET_REPLICAS),
    )


def demand_per_request(lengths: Lengths, capacity: ReplicaCapacity) -> float:
    """Return the mean demand of one request per second in replicas, a first guess without queueing."""
    prompt, output = lengths.mean_prompt_tokens, lengths.mean_output_tokens
    seconds = 0.5 + output * _TOKEN_SECONDS
    # long answers hold more for longer: E[output^2] / E[output], not E[output], is what a token-second sees
    held = (prompt + output * float(np.exp(lengths.output_sigma**2)) / 2) / capacity.block_size_tokens
    return max(
        held * seconds / capacity.usable_kv_blocks,
        prompt / capacity.usable_prefill_tokens_per_second,
        output / capacity.decode_tokens_per_second,
    )


def _profile(rng: Generator) -> EngineProfile:
    names = sorted(PROFILES)
    return PROFILES[names[int(rng.integers(len(names)))]]


def _varied(lengths: Lengths, rng: Generator) -> Lengths:
    return Lengths(
        prompt_median=lengths.prompt_median * _log_uniform(rng, 0.6, 1.6),
        prompt_sigma=lengths.prompt_sigma * rng.uniform(0.8, 1.2),
        output_median=lengths.output_median * _log_uniform(rng, 0.6, 1.6),
        output_sigma=lengths.output_sigma * rng.uniform(0.8, 1.2),
    )


def _log_uniform(rng: Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(log(low), log(high))))


def _drift(rng: Generator, seconds: int) -> Floats:
    """Return the slow level: part of a day's wave, and a wandering intensity (Ornstein-Uhlenbeck in the logarithm)."""
    time = np.arange(seconds)
    period, phase = _log_uniform(rng, 1200, 14400), rng.uniform(0, 2 * np.pi)
    wave = rng.uniform(0, 0.5) * np.sin(2 * np.pi * time / period + phase)
    spread, memory_seconds = rng.uniform(0, 0.25), _log_uniform(rng, 20, 300)
    keep = float(np.exp(-1 / memory_seconds))
    steps = rng.normal(0, spread * np.sqrt(1 - keep**2), seconds)
    wander = np.empty(seconds)
    level = rng.normal(0, spread)
    for i, step in enumerate(steps):
        level = keep * level + step
        wander[i] = level
    return np.exp(wave + wander)


def _calm(rng: Generator, seconds: int) -> Floats:
    return np.ones(seconds)


def _seckill(rng: Generator, seconds: int) -> Floats:
    """Return surprise impulses of about one height and length a fleet, at the times of a Poisson process."""
    height, length = _log_uniform(rng, 1.5, 8.0), _log_uniform(rng, 20, 180)
    return _impulses(rng, seconds, gap_seconds=_log_uniform(rng, 300, 2400), height=height, length_seconds=length)


def _spiky(rng: Generator, seconds: int) -> Floats:
    """Return short high spikes over a low floor, down to next to nothing, like an editor plug-in's completions."""
    height, length = _log_uniform(rng, 3.0, 100.0), _log_uniform(rng, 2, 20)
    return _impulses(rng, seconds, gap_seconds=_log_uniform(rng, 30, 400), height=height, length_seconds=length)


def _impulses(rng: Generator, seconds: int, *, gap_seconds: float, height: float, length_seconds: float) -> Floats:
    shape = np.ones(seconds)
    ramp = rng.uniform(1, 8)
    at = rng.exponential(gap_seconds)
    time = np.arange(seconds)
    while at < seconds:
        length = length_seconds * rng.uniform(0.7, 1.3)
        rise = np.clip((time - at) / ramp, 0, 1) * np.clip((at + length + ramp - time) / ramp, 0, 1)
        shape = np.maximum(shape, 1 + rise * (height * rng.uniform(0.7, 1.3) - 1))
        at += length + rng.exponential(gap_seconds)
    return shape


def _modulated(rng: Generator, seconds: int) -> Floats:
    """Return a two-state rate with exponential sojourns."""
    factor = _log_uniform(rng, 1.5, 4.0)
    dwell = (_log_uniform(rng, 40, 400), _log_uniform(rng, 10, 120))
    shape, at, state = np.ones(seconds), 0.0, 0
    while at < seconds:
        sojourn = rng.exponential(dwell[state])
        if state:
            shape[int(at) : int(at + sojourn) + 1] = factor
        at += sojourn
        state = 1 - state
    return shape


def _ramp(rng: Generator, seconds: int) -> Floats:
    """Return one rise, plateau and fall."""
    start, rise = rng.uniform(0.1, 0.7) * seconds, _log_uniform(rng, 60, 600)
    hold, fall, factor = _log_uniform(rng, 60, 900), _log_uniform(rng, 60, 600), _log_uniform(rng, 1.5, 5.0)
    corners = np.cumsum([0.0, start, rise, hold, fall, float(seconds)])
    return np.interp(np.arange(seconds), corners, [1.0, 1.0, factor, factor, 1.0, 1.0])


TRAFFIC: Mapping[str, tuple[float, Callable[[Generator, int], Floats]]] = MappingProxyType(
    {
        "calm": (0.58, _calm),
        "seckill": (0.16, _seckill),
        "spiky": (0.1, _spiky),
        "modulated": (0.08, _modulated),
        "ramp": (0.08, _ramp),
    }
)
"""Kind of traffic to its share of the fleets and its shape: a factor for every second."""


def _requests(rate_per_second: Floats, lengths: Lengths, rng: Generator) -> RequestTable:
    """Return Poisson arrivals at a rate that changes by the second, a third of the fleets more clustered than that."""
    intensity = rate_per_second
    if rng.random() < 1 / 3:  # gamma-mixed: the variance of a second's count is 1 to 4 times its mean
        excess = rng.uniform(0, 3) / max(float(rate_per_second.mean()), 1.0)
        intensity = rate_per_second * rng.gamma(1 / excess, excess, rate_per_second.size)
    counts = rng.poisson(intensity)
    arrival = np.repeat(np.arange(counts.size), counts) + rng.random(int(counts.sum()))
    prompt = lengths.prompt_median * np.exp(rng.normal(0, lengths.prompt_sigma, arrival.size))
    output = lengths.output_median * np.exp(rng.normal(0, lengths.output_sigma, arrival.size))
    return RequestTable.from_columns(
        arrival,
        np.clip(prompt, 1, _MAX_PROMPT_TOKENS).astype(np.int64),
        np.clip(output, 1, _MAX_OUTPUT_TOKENS).astype(np.int64),
    )
