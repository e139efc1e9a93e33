"""Factors for every second that a mean rate is multiplied by: impulses, ramps, days, slow noise."""

import numpy as np
from numpy.random import Generator

from forecaster.telemetry import Floats

LEAST_NOISE_FACTOR = 0.05  # a normal draw far below its mean must not make a rate negative


def impulse(
    num_seconds: int, *, start_seconds: float, height: float, ramp_seconds: float, length_seconds: float
) -> Floats:
    """Return a factor for each second: 1, rising linearly to `height` over the ramp, held, and falling likewise.

    `length_seconds` is the time at full height.

    Examples
    --------
    >>> impulse(8, start_seconds=1, height=3, ramp_seconds=2, length_seconds=2).tolist()
    [1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 2.0, 1.0]
    """
    return ramp(
        num_seconds,
        start_seconds=start_seconds,
        height=height,
        rise_seconds=ramp_seconds,
        hold_seconds=length_seconds,
        fall_seconds=ramp_seconds,
    )


def ramp(
    num_seconds: int,
    *,
    start_seconds: float,
    height: float,
    rise_seconds: float,
    hold_seconds: float,
    fall_seconds: float,
) -> Floats:
    """Return a factor for each second: 1, rising linearly to `height`, held, and falling linearly back to 1.

    Examples
    --------
    >>> ramp(7, start_seconds=1, height=3, rise_seconds=2, hold_seconds=1, fall_seconds=1).tolist()
    [1.0, 1.0, 2.0, 3.0, 3.0, 1.0, 1.0]
    """
    corners = np.cumsum([start_seconds, rise_seconds, hold_seconds, fall_seconds])
    at = np.arange(num_seconds, dtype=np.float64)
    return np.asarray(np.interp(at, corners, [1.0, height, height, 1.0]))


def recurring_starts(*, first_seconds: float, every_seconds: float, num_seconds: int) -> tuple[float, ...]:
    """Return the times at which something that recurs begins, those before `num_seconds`.

    Examples
    --------
    >>> recurring_starts(first_seconds=50, every_seconds=100, num_seconds=300)
    (50.0, 150.0, 250.0)
    """
    return tuple(np.arange(first_seconds, num_seconds, every_seconds, dtype=np.float64).tolist())


def diurnal(num_seconds: int, *, period_seconds: float, swing_ratio: float, peak_seconds: float) -> Floats:
    """Return a cosine for each second, between 1 - `swing_ratio` and 1 + `swing_ratio`, highest at `peak_seconds`.

    Examples
    --------
    >>> diurnal(4, period_seconds=4, swing_ratio=0.5, peak_seconds=2).round(6).tolist()
    [0.5, 1.0, 1.5, 1.0]
    """
    phase = 2 * np.pi * (np.arange(num_seconds) - peak_seconds) / period_seconds
    return np.asarray(1.0 + swing_ratio * np.cos(phase))


def slow_noise(num_seconds: int, rng: Generator, *, spread_ratio: float, every_seconds: float) -> Floats:
    """Return a factor for each second of mean about 1: normal draws `every_seconds` apart, with straight lines between.

    `spread_ratio` is their standard deviation.
    """
    steps = rng.normal(0.0, spread_ratio, int(num_seconds // every_seconds) + 2)
    noise = np.interp(np.arange(num_seconds), np.arange(steps.size) * every_seconds, steps)
    return np.asarray(np.maximum(1.0 + noise, LEAST_NOISE_FACTOR))


def drawn_starts(count: int, *, num_seconds: float, length_seconds: float, rng: Generator) -> tuple[float, ...]:
    """Return `count` sorted times at which something of `length_seconds` begins: none overlap, all are over by the end.

    Raises
    ------
    ValueError
        If so many do not fit.
    """
    free = num_seconds - count * length_seconds
    if free < 0:
        raise ValueError(f"{count} impulses of {length_seconds:g} s do not fit into {num_seconds:g} s")
    return tuple((np.sort(rng.uniform(0.0, free, count)) + length_seconds * np.arange(count)).tolist())
