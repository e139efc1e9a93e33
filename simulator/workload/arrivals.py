"""Arrival processes whose mean rate follows a curve: Poisson, renewal, modulated and self-exciting.

The rate is constant within each second. Renewals and the self-exciting process are stationary and of mean
rate 1 in operational time, the integral of the rate, carried back to seconds. So the mean count between any two moments
is the integral of the curve, whatever the process, and bunching scales with the traffic.

References
----------
Daley and Vere-Jones, An Introduction to the Theory of Point Processes, vol. I, 2nd ed., 2003: sections 4.2 (stationary
renewal processes), 6.3 (Hawkes process as clusters), 7.4 (random time change).
"""

from math import gamma as gamma_function
from math import log, sqrt
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from forecaster.telemetry import Floats

# Times a cluster's time scale, decay / (1 - branching ratio): what began
# earlier has faded to exp(-10) when the run begins.
_WARM_UP_CLUSTERS = 10.0
_BATCH_SPARE = 64  # gaps drawn beyond the expected number, so that one batch mostly does


class ArrivalProcess(Protocol):
    """Sorted arrival times in seconds, shape (n,), of a process whose mean rate is that of each second."""

    def __call__(self, rate_per_second: Floats, rng: Generator, /) -> Floats:
        """Return the arrival times."""
        ...


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
    rates = _checked(rate_per_second)
    counts = rng.poisson(rates)
    second = np.repeat(np.arange(rates.size, dtype=np.float64), counts)
    return np.asarray(np.sort(second + rng.random(second.size)))


def gamma_arrivals(rate_per_second: Floats, rng: Generator, *, shape: float) -> Floats:
    """Return sorted arrival times in seconds of a renewal process with gamma-distributed gaps.

    Parameters
    ----------
    rate_per_second : ndarray of shape (num_seconds,)
    shape : float
        > 0; the gaps' coefficient of variation is 1 / sqrt(shape). 1 is a Poisson process, less is bunched.

    Raises
    ------
    ValueError
        If a rate or the shape is impossible.

    Notes
    -----
    The first gap is what is left of one that a random moment fell into: a uniform share of a gap drawn with a
    probability in proportion to its length, which for a gamma distribution is one of shape + 1.
    """
    _refuse_unless_positive("shape", shape)
    first = rng.gamma(shape + 1) / shape * rng.random()
    return _renewals(rate_per_second, first, lambda n: rng.gamma(shape, 1 / shape, n))


def weibull_arrivals(rate_per_second: Floats, rng: Generator, *, shape: float) -> Floats:
    """Return sorted arrival times in seconds of a renewal process with Weibull-distributed gaps.

    Parameters
    ----------
    rate_per_second : ndarray of shape (num_seconds,)
    shape : float
        > 0, see `weibull_cv`. 1 is a Poisson process, less is bunched.

    Raises
    ------
    ValueError
        If a rate or the shape is impossible.

    Notes
    -----
    (gap / scale) ** shape is exponential; drawn in proportion to the gap's length it is gamma of 1 + 1 / shape.
    """
    _refuse_unless_positive("shape", shape)
    scale = 1 / gamma_function(1 + 1 / shape)
    first = scale * rng.gamma(1 + 1 / shape) ** (1 / shape) * rng.random()
    return _renewals(rate_per_second, first, lambda n: scale * rng.weibull(shape, n))


def weibull_cv(shape: float) -> float:
    """Return the coefficient of variation of a Weibull distribution.

    Examples
    --------
    >>> weibull_cv(1.0), round(weibull_cv(0.5), 3)
    (1.0, 2.236)
    """
    return sqrt(gamma_function(1 + 2 / shape) / gamma_function(1 + 1 / shape) ** 2 - 1)


def gamma_shape(cv: float) -> float:
    """Return the shape of a gamma distribution of that coefficient of variation.

    Examples
    --------
    >>> gamma_shape(2.0)
    0.25
    """
    _refuse_unless_positive("cv", cv)
    return 1 / cv**2


def weibull_shape(cv: float) -> float:
    """Return the shape of a Weibull distribution of that coefficient of variation, by bisection.

    Examples
    --------
    >>> round(weibull_shape(1.0), 9), round(weibull_cv(weibull_shape(3.0)), 9)
    (1.0, 3.0)
    """
    low, high = 0.1, 100.0
    if not weibull_cv(high) <= cv <= weibull_cv(low):
        raise ValueError(f"cv must be in [{weibull_cv(high):.2g}, {weibull_cv(low):.0f}] for Weibull gaps, got {cv}")
    for _ in range(int(log(high / low, 2)) + 60):
        middle = sqrt(low * high)
        low, high = (low, middle) if weibull_cv(middle) < cv else (middle, high)
    return sqrt(low * high)


def modulated_arrivals(
    rate_per_second: Floats, rng: Generator, *, levels: tuple[float, ...], dwell_seconds: tuple[float, ...]
) -> Floats:
    """Return sorted arrival times in seconds of a Markov-modulated Poisson process.

    Parameters
    ----------
    rate_per_second : ndarray of shape (num_seconds,)
    levels : tuple of float
        Rate in each of two or more states, relative to each other; scaled so that their mean over time is 1.
    dwell_seconds : tuple of float
        Mean stay in each state, exponential. Every other state is as likely to come next.

    Raises
    ------
    ValueError
        If a rate, level or stay is impossible.

    References
    ----------
    Fischer and Meier-Hellstern, The Markov-modulated Poisson process (MMPP) cookbook, Performance Evaluation 18
    (1993), https://doi.org/10.1016/0166-5316(93)90035-S.
    """
    stays, heights = np.asarray(dwell_seconds), np.asarray(levels)
    if stays.size != heights.size or stays.size < 2:
        raise ValueError(f"levels and dwell_seconds must be of two or more states, got {levels}, {dwell_seconds}")
    if not (np.isfinite(heights).all() and (heights >= 0).all() and heights.max() > 0):
        raise ValueError(f"levels must be finite, >= 0 and not all 0, got {levels}")
    if not (np.isfinite(stays).all() and (stays > 0).all()):
        raise ValueError(f"dwell_seconds must be finite and > 0, got {dwell_seconds}")
    operational = _operational(rate_per_second)
    switch_at, states = _sojourns(stays, operational.size - 1, rng)
    switch_at = np.interp(switch_at, np.arange(operational.size), operational)
    height = heights[states] / float(stays / stays.sum() @ heights)
    expected = np.concatenate([[0.0], np.cumsum(height * np.diff(switch_at))])
    within = np.sort(rng.random(rng.poisson(expected[-1]))) * expected[-1]
    return _in_seconds(np.interp(within, expected, switch_at), operational)


def _sojourns(stays: Floats, end: int, rng: Generator) -> tuple[Floats, NDArray[np.int64]]:
    """Return when the state changes, from 0 on to beyond `end`, and the states between; stationary from the start."""
    state = int(rng.choice(stays.size, p=stays / stays.sum()))
    at, switch_at, states = 0.0, [0.0], []
    while at < end or not states:
        at += float(rng.exponential(stays[state]))
        switch_at.append(at)
        states.append(state)
        state = (state + int(rng.integers(1, stays.size))) % stays.size
    return np.array(switch_at), np.array(states, dtype=np.int64)


def hawkes_arrivals(rate_per_second: Floats, rng: Generator, *, branching_ratio: float, decay_seconds: float) -> Floats:
    """Return sorted arrival times in seconds of a self-exciting (Hawkes) process with an exponential kernel.

    Parameters
    ----------
    rate_per_second : ndarray of shape (num_seconds,)
    branching_ratio : float
        In [0, 1): requests that one request brings about on average. The variance of a long window's count is
        1 / (1 - branching_ratio)^2 times its mean.
    decay_seconds : float
        > 0: mean delay of a request behind the one that brought it about, where the rate is the curve's mean; at twice
        that rate it is half as long.

    Raises
    ------
    ValueError
        If a rate, the ratio or the decay is impossible.

    References
    ----------
    Hawkes, Spectra of some self-exciting and mutually exciting point processes, Biometrika 58 (1971); its clusters:
    Hawkes and Oakes, A cluster process representation of a self-exciting process, J. Appl. Prob. 11 (1974).
    """
    if not 0 <= branching_ratio < 1:
        raise ValueError(f"branching_ratio must be in [0, 1), got {branching_ratio}: at 1 the traffic never ends")
    _refuse_unless_positive("decay_seconds", decay_seconds)
    operational = _operational(rate_per_second)
    total = float(operational[-1])
    decay = decay_seconds * total / max(operational.size - 1, 1)
    lead = _WARM_UP_CLUSTERS * decay / (1 - branching_ratio)
    parents = rng.uniform(-lead, total, rng.poisson((1 - branching_ratio) * (total + lead)))
    generations = [parents]
    while parents.size:
        children = np.repeat(parents, rng.poisson(branching_ratio, parents.size))
        children = children + rng.exponential(decay, children.size)
        parents = children[children < total]
        generations.append(parents)
    born = np.concatenate(generations)
    return _in_seconds(np.sort(born[born >= 0]), operational)


class _DrawGaps(Protocol):
    def __call__(self, n: int, /) -> Floats: ...


def _renewals(rate_per_second: Floats, first: float, draw_gaps: _DrawGaps) -> Floats:
    """Return arrivals whose gaps in operational time, of mean 1, are drawn one after the other."""
    operational = _operational(rate_per_second)
    total = float(operational[-1])
    batches, end = [np.array([first])], first
    while end < total:
        n = int(1.1 * (total - end)) + _BATCH_SPARE
        batches.append(end + np.cumsum(draw_gaps(n)))
        end = float(batches[-1][-1])
    at = np.concatenate(batches)
    return _in_seconds(at[at < total], operational)


def _checked(rate_per_second: Floats) -> Floats:
    rates = np.asarray(rate_per_second, dtype=np.float64)
    if not np.isfinite(rates).all() or (rates < 0).any():
        raise ValueError("rate_per_second must be finite and >= 0 in every second")
    return rates


def _refuse_unless_positive(name: str, value: float) -> None:
    if not (value > 0 and np.isfinite(value)):
        raise ValueError(f"{name} must be finite and > 0, got {value}")


def _operational(rate_per_second: Floats) -> Floats:
    """Return the expected number of requests before each second and before the end, shape (num_seconds + 1,)."""
    return np.concatenate([[0.0], np.cumsum(_checked(rate_per_second))])


def _in_seconds(at: Floats, operational: Floats) -> Floats:
    """Return the moments in seconds of sorted moments in operational time."""
    second = np.minimum(np.searchsorted(operational, at, side="right"), operational.size - 1)
    begin = second - 1
    width = operational[second] - operational[begin]
    # the share is < 1 but for rounding; arrivals stay within their second
    share = np.divide(at - operational[begin], width, out=np.zeros_like(at), where=width > 0)
    return np.asarray(np.minimum(begin + share, np.nextafter(second, 0.0)))
