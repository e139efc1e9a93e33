"""One measured figure beside its target, with a verdict."""

from dataclasses import dataclass
from math import inf, isfinite, isnan, nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What was measured, what it should be, and what else is known of it.

    Attributes
    ----------
    group : str
        The table that it belongs to.
    name, unit : str
    value : float
        NaN: could not be measured.
    low, high : float
        The target; both infinite: there is none.
    beside : str
        What others have measured.
    note : str
    """

    group: str
    name: str
    value: float
    unit: str = ""
    low: float = -inf
    high: float = inf
    beside: str = ""
    note: str = ""

    @property
    def target(self) -> str:
        """The target in words, empty if there is none."""
        if self.low == self.high:
            return number(self.low)
        if self.low == -self.high:
            return f"within ±{number(self.high)}" if isfinite(self.high) else ""
        if isfinite(self.low) and isfinite(self.high):
            return f"{number(self.low)} to {number(self.high)}"
        return f"≥ {number(self.low)}" if isfinite(self.low) else f"≤ {number(self.high)}"

    @property
    def missed_by(self) -> float:
        """How far the value is outside its target, in its unit; 0 inside, NaN if either is missing."""
        if not self.target or isnan(self.value):
            return nan
        return max(self.low - self.value, self.value - self.high, 0.0)

    @property
    def verdict(self) -> str:
        """What the value makes of the target, in words; empty if there is none."""
        if not self.target:
            return ""
        if isnan(self.value):
            return "not measured"
        return f"missed by {number(self.missed_by)} {self.unit}".rstrip() if self.missed_by > 0 else "met"


def number(value: float) -> str:
    """Return a number in as many digits as a reader needs, "-" if it is unknown."""
    if isnan(value):
        return "-"
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"
