"""Poisson arrivals, and the curves that their rate follows."""

import numpy as np
from numpy.random import Generator

from forecaster.telemetry import Floats


def poisson_arrivals(rate_per_second: Floats, rng: Generator) -> Floats:
    """Return sorted arrival times in seconds of a Poisson process whose rate is constant within each second.

    Parameters
    ----------
    rate_per_second : ndarray of shape (num_seconds,)
        Finite and >= 0.

    Raises
    ------
    ValueError
        If a rate is negative or not finite.
    """
    rates = np.asarray(rate_per_second, dtype=np.float64)
    if not np.isfinite(rates).all() or (rates < 0).any():
        raise ValueError("rate_per_second must be finite and >= 0 in every second")
    counts = rng.poisson(rates)
    second = np.repeat(np.arange(rates.size, dtype=np.float64), counts)
    return np.asarray(np.sort(second + rng.random(second.size)))


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
    at = np.arange(num_seconds, dtype=np.float64)
    top = start_seconds + ramp_seconds
    end = top + length_seconds
    corners = [start_seconds, top, end, end + ramp_seconds]
    return np.asarray(np.interp(at, corners, [1.0, height, height, 1.0]))
