"""The trailing statistics a feature may use, by name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from forecaster.features.memory import Ewma, KnownRatio, Lag, PeakMemory, RowsSinceBurst
from forecaster.features.windows import RollingMax, RollingMean, RollingMin, RollingStd, Slope
from forecaster.telemetry import Floats


class Transform(Protocol):
    """A trailing statistic with a batch and an incremental form, which agree."""

    def update(self, value: float) -> float:
        """Take the next value and return the statistic with it; NaN is an unknown value."""
        ...

    def transform(self, column: Floats) -> Floats:
        """Return the statistic at every row, shape (n_rows,), as if updated from nothing."""
        ...


TRANSFORMS: Mapping[str, Callable[[int], Transform]] = MappingProxyType(
    {
        "lag": Lag,
        "mean": RollingMean,
        "max": RollingMax,
        "min": RollingMin,
        "std": RollingStd,
        "slope": Slope,
        "ewma": Ewma,
        "known": KnownRatio,
        "peak_memory": PeakMemory,
        "rows_since_burst": RowsSinceBurst,
    }
)
"""Name to factory; a factory takes the number of rows the statistic looks back on."""


def transform_named(name: str, rows: int) -> Transform:
    """Return a new statistic.

    Raises
    ------
    ValueError
        If no statistic has that name, or `rows` is too small for it.
    """
    if name not in TRANSFORMS:
        raise ValueError(f"no trailing statistic is called {name!r}; known: {', '.join(TRANSFORMS)}")
    return TRANSFORMS[name](rows)
