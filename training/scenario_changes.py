"""Arrival processes and changes of the rate, as a scenario file may describe them."""

from functools import partial
from typing import Annotated, Literal

import numpy as np
from numpy.random import Generator
from pydantic import BaseModel, ConfigDict, Field, model_validator

from forecaster.telemetry import Floats
from simulator.workload import curves
from simulator.workload.arrivals import (
    ArrivalProcess,
    gamma_arrivals,
    gamma_shape,
    hawkes_arrivals,
    modulated_arrivals,
    poisson_arrivals,
    weibull_arrivals,
    weibull_shape,
)

MAX_DURATION_SECONDS = 31 * 86_400

Seconds = Annotated[float, Field(ge=0, le=MAX_DURATION_SECONDS)]
PositiveSeconds = Annotated[float, Field(gt=0, le=MAX_DURATION_SECONDS)]
Factor = Annotated[float, Field(ge=0, le=1000)]


class Part(BaseModel):
    """A part of a scenario file: every key known, every value of its type, nothing infinite."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class _Process(Part):
    def process(self) -> ArrivalProcess:
        """Return the arrival process."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _refuse_impossible(self) -> "_Process":
        self.process()(np.zeros(1), np.random.default_rng(0))  # the process checks its own numbers
        return self


class Poisson(_Process):
    """Requests that know nothing of each other."""

    kind: Literal["poisson"] = "poisson"

    def process(self) -> ArrivalProcess:
        """Return the arrival process."""
        return poisson_arrivals


class Gamma(_Process):
    """Gaps with a gamma distribution of that coefficient of variation."""

    kind: Literal["gamma"]
    cv: float

    def process(self) -> ArrivalProcess:
        """Return the arrival process."""
        return partial(gamma_arrivals, shape=gamma_shape(self.cv))


class Weibull(_Process):
    """Gaps with a Weibull distribution of that coefficient of variation."""

    kind: Literal["weibull"]
    cv: float

    def process(self) -> ArrivalProcess:
        """Return the arrival process."""
        return partial(weibull_arrivals, shape=weibull_shape(self.cv))


class Modulated(_Process):
    """A Markov-modulated Poisson process: states with relative rates, each left after a mean stay."""

    kind: Literal["mmpp"]
    levels: tuple[float, ...]
    dwell_seconds: tuple[float, ...]

    def process(self) -> ArrivalProcess:
        """Return the arrival process."""
        return partial(modulated_arrivals, levels=self.levels, dwell_seconds=self.dwell_seconds)


class Hawkes(_Process):
    """Requests that bring about further requests."""

    kind: Literal["hawkes"]
    branching_ratio: float
    decay_seconds: float

    def process(self) -> ArrivalProcess:
        """Return the arrival process."""
        return partial(hawkes_arrivals, branching_ratio=self.branching_ratio, decay_seconds=self.decay_seconds)


class Impulse(Part):
    """A burst that rises to `height` times the traffic, holds and falls; at given, recurring or drawn times."""

    kind: Literal["impulse"]
    height: Factor
    ramp_seconds: Seconds
    length_seconds: PositiveSeconds
    at_seconds: tuple[Seconds, ...] | None = None
    every_seconds: PositiveSeconds | None = None
    first_seconds: Seconds | None = None
    num_drawn: int | None = Field(default=None, ge=1, le=10_000)

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> "Impulse":
        given = [name for name in ("at_seconds", "every_seconds", "num_drawn") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"say when by one of at_seconds, every_seconds and num_drawn, got {', '.join(given) or 'none of them'}"
            )
        if self.first_seconds is not None and self.every_seconds is None:
            raise ValueError("first_seconds belongs to every_seconds; use at_seconds for a single time")
        return self

    @property
    def whole_seconds(self) -> float:
        """Time from the first rise to the end."""
        return 2 * self.ramp_seconds + self.length_seconds

    def starts(self, num_seconds: int, rng: Generator) -> tuple[float, ...]:
        """Return when the impulses begin."""
        if self.at_seconds is not None:
            return self.at_seconds
        if self.every_seconds is not None:
            first = self.every_seconds if self.first_seconds is None else self.first_seconds
            return curves.recurring_starts(
                first_seconds=first, every_seconds=self.every_seconds, num_seconds=num_seconds
            )
        return curves.drawn_starts(
            self.num_drawn or 0, num_seconds=num_seconds, length_seconds=self.whole_seconds, rng=rng
        )

    def factor(self, num_seconds: int, rng: Generator) -> Floats:
        """Return what the rate is multiplied by in each second."""
        factor = np.ones(num_seconds)
        for start in self.starts(num_seconds, rng):
            factor *= curves.impulse(
                num_seconds,
                start_seconds=start,
                height=self.height,
                ramp_seconds=self.ramp_seconds,
                length_seconds=self.length_seconds,
            )
        return factor

    def at_other_times(self, num_seconds: int) -> "Impulse":
        """Return the impulses of the same service's past: as many within the time, at drawn times."""
        if self.at_seconds is None:
            return self
        fit = min(len(self.at_seconds), int(num_seconds // self.whole_seconds))
        if fit == 0:
            return self.model_copy(update={"at_seconds": ()})
        return self.model_copy(update={"at_seconds": None, "num_drawn": fit})


class Ramp(Part):
    """A rise to `height` times the traffic, a plateau and a fall."""

    kind: Literal["ramp"]
    height: Factor
    start_seconds: Seconds
    rise_seconds: Seconds
    hold_seconds: Seconds
    fall_seconds: Seconds

    def factor(self, num_seconds: int, rng: Generator) -> Floats:
        """Return what the rate is multiplied by in each second."""
        return curves.ramp(
            num_seconds,
            start_seconds=self.start_seconds,
            height=self.height,
            rise_seconds=self.rise_seconds,
            hold_seconds=self.hold_seconds,
            fall_seconds=self.fall_seconds,
        )


class Diurnal(Part):
    """A day's wave, between 1 - `swing_ratio` and 1 + `swing_ratio` times the traffic."""

    kind: Literal["diurnal"]
    period_seconds: PositiveSeconds
    swing_ratio: float = Field(ge=0, le=1)
    peak_seconds: Seconds

    def factor(self, num_seconds: int, rng: Generator) -> Floats:
        """Return what the rate is multiplied by in each second."""
        return curves.diurnal(
            num_seconds,
            period_seconds=self.period_seconds,
            swing_ratio=self.swing_ratio,
            peak_seconds=self.peak_seconds,
        )


class Noise(Part):
    """Slow noise: normal draws some time apart, with straight lines between."""

    kind: Literal["noise"]
    spread_ratio: float = Field(gt=0, le=1)
    every_seconds: float = Field(ge=1, le=MAX_DURATION_SECONDS)

    def factor(self, num_seconds: int, rng: Generator) -> Floats:
        """Return what the rate is multiplied by in each second."""
        return curves.slow_noise(num_seconds, rng, spread_ratio=self.spread_ratio, every_seconds=self.every_seconds)


Process = Annotated[Poisson | Gamma | Weibull | Modulated | Hawkes, Field(discriminator="kind")]
Change = Annotated[Impulse | Ramp | Diurnal | Noise, Field(discriminator="kind")]
