"""The axes of terminal charts: round numbers, a latency target, and times, each written short enough for its place."""

from dataclasses import dataclass
from math import floor, log10

import numpy as np

from forecaster.telemetry import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueAxis:
    """The vertical axis: what its lowest and highest line stand for, and which values are written beside it."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    is_logarithmic: bool = False

    def fraction(self, values: Floats) -> Floats:
        """Return where values lie between the lowest line (0) and the highest (1), clipped; NaN stays NaN."""
        with np.errstate(invalid="ignore", divide="ignore"):
            if self.is_logarithmic:
                span = log10(self.high / self.low)
                placed = np.log10(np.maximum(values, self.low) / self.low) / span
            else:
                placed = (values - self.low) / (self.high - self.low)
            return np.clip(placed, 0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAxis:
    """The horizontal axis in seconds, with the present where there is one."""

    start: float
    end: float
    now: float = float("nan")


def amount_axis(highest: float) -> ValueAxis:
    """Return an axis from 0 to a round number at or above `highest` with its ends and its middle written beside it."""
    step = _round_step(max(highest, 1.0))
    high = step * -(-max(highest, 1.0) // step)
    return ValueAxis(low=0.0, high=high, ticks=tuple((value, short_number(value)) for value in (0.0, high / 2, high)))


def count_axis(highest: float) -> ValueAxis:
    """Return an axis from 0 to a multiple of 4 at or above `highest`, for things that are counted."""
    high = max(4 * int(-(-highest // 4)), 4)
    return ValueAxis(low=0.0, high=high, ticks=((0.0, "0"), (high / 2, f"{high // 2}"), (high, f"{high}")))


def latency_axis(highest: float, *, target_seconds: float) -> ValueAxis:
    """Return a logarithmic axis in seconds around a target."""
    low = target_seconds / 8
    high = max(float(highest), target_seconds * 4)
    ticks = [(target_seconds, f"{target_seconds:g}s")]
    ticks += [(value, f"{value:g}s") for value in (10.0, 60.0, 600.0) if target_seconds * 2 <= value <= high]
    return ValueAxis(low=low, high=high, ticks=((low, f"{low:.2g}s"), *ticks), is_logarithmic=True)


def short_number(value: float) -> str:
    """Return a number in at most five characters.

    Examples
    --------
    >>> [short_number(value) for value in (0, 7.5, 950, 12_500, 250_000, 3_400_000)]
    ['0', '7.5', '950', '12.5k', '250k', '3.4M']
    """
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def _round_step(highest: float) -> float:
    """Return a quarter-like round step: 1, 2 or 5 times a power of ten, some four of which reach `highest`."""
    raw = highest / 4
    power = 10.0 ** floor(log10(raw))
    return float(next(power * factor for factor in (1, 2, 5, 10) if raw <= power * factor * (1 + 1e-9)))


def clock_text(seconds: float) -> str:
    """Return simulated time as minutes:seconds, or hours:minutes:seconds.

    Examples
    --------
    >>> clock_text(95), clock_text(3725)
    ('1:35', '1:02:05')
    """
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
