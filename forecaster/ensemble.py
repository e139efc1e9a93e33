"""An online mixture of trivial forecasts and a model, each judged by what it said lately and what then came.

Every expert but the raw model is a centre, such as the trailing mean, plus the empirical quantiles of what came after
it within the last half hour: rolling conformal prediction, so each is calibrated by itself. Their quantiles are
averaged in the logarithm with weights that fall with an expert's recent pinball loss. Where the model gains nothing it
loses its weight to the trivial experts, without anybody switching it off.

An outcome is learned from when its horizon has passed and not before.

References
----------
Rolling residual quantiles: Y. Xu and C. Xie, "Conformal prediction interval for dynamic time-series", ICML 2021,
without its bootstrap. Weights that fall exponentially with loss: V. Vovk, "Aggregating strategies", COLT 1990. Here
the loss is a discounted mean relative to the best expert's, so that no scale has to be known.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan

import numpy as np

from forecaster.features.memory import Ewma
from forecaster.features.windows import RollingMax, RollingMean, Slope
from forecaster.forecast import LEVELS
from forecaster.season import Season
from forecaster.telemetry import Floats

LEARN_EVERY_ROWS = 5
"""Neighbouring rows share nearly the whole of their horizon: learning from each would say nothing new."""

MEMORY_OUTCOMES = 360
"""Residuals kept: half an hour of them. A quarter of an hour or a whole one score alike on public traces."""

FIRST_OUTCOMES = 12
"""With fewer residuals (a minute of them) a centre says nothing, and the model speaks alone."""

WARM_UP_ROWS = 60
"""Outcomes of forecasts made before the trailing minute was full are not learned from."""

LOSS_KEEP = 0.998
"""What an outcome still counts after the next one: a memory of 500 outcomes, some 40 minutes."""

LOSS_SCALE_RATIO = 0.1
"""An expert whose recent loss is this share above the best one's has 1/e of its weight."""

EVIDENCE_OUTCOMES = 20.0
"""With as many outcomes seen, losses count half: two good minutes are luck."""

MIN_KNOWN_RATIO = 0.9
"""An outcome of which more than a tenth of the seconds is unknown is not learned from."""

_RING_ROWS = 512
_LOG, _ADD = False, True
_CENTRES: tuple[tuple[str, bool], ...] = (
    ("constant", _LOG),  # its residual quantiles are those of the past maxima themselves
    ("last", _ADD),
    ("mean_60", _LOG),
    ("mean_60", _ADD),
    ("ewma_39", _LOG),  # weight 0.05 of the newest row
    ("ewma_199", _LOG),  # weight 0.01
    ("ewma_199", _ADD),
    ("max_60", _LOG),
    ("season", _LOG),  # the mean of the maxima that past seasons had in their place
    ("season", _ADD),
    ("trend_60", _ADD),  # the line through the last two minutes', and five minutes', halves
    ("trend_150", _ADD),
)
CENTRES: tuple[str, ...] = tuple(f"{name} {'+' if is_added else 'x'}" for name, is_added in _CENTRES)
EXPERTS: tuple[str, ...] = (*CENTRES, "model", "model, conformal")
"""Names of the experts, in the order of `OnlineEnsemble.weights`; + and x say how residuals are applied."""
_IS_ADDED = np.array([is_added for _, is_added in _CENTRES])


class OnlineEnsemble:
    """Quantiles of the maximum of several loads over (now, now + horizon], row by row.

    Parameters
    ----------
    floors : sequence of float, > 0
        One a target, in its unit; smaller loads count as that, since their ratios are noise about nothing.
    horizons_rows : sequence of int
    levels : sequence of float
    """

    def __init__(
        self, floors: Sequence[float], *, horizons_rows: Sequence[int], levels: Sequence[float] = LEVELS
    ) -> None:
        self.floors = np.array(floors, dtype=np.float64)
        if not (self.floors > 0).all():
            raise ValueError(f"floors must be > 0, got {list(floors)}")
        if max(horizons_rows) + LEARN_EVERY_ROWS >= _RING_ROWS:
            raise ValueError(f"horizons_rows must be < {_RING_ROWS - LEARN_EVERY_ROWS}, got {list(horizons_rows)}")
        self._levels = [_Horizon(len(floors), rows, np.array(levels)) for rows in horizons_rows]
        self._centres = [_Centres() for _ in floors]
        self._ring = np.full((_RING_ROWS, len(floors)), np.nan)
        self._first_row: int | None = None
        self._row = 0

    def update(self, row: int, loads: Floats, model: Floats | None = None) -> Floats:
        """Take the row just seen and return the quantiles from it on, NaN where nothing is known yet.

        Parameters
        ----------
        row : int
            Number of the row, increasing; rows left out count as unknown.
        loads : ndarray of shape (n_targets,)
            NaN where unknown.
        model : ndarray of shape (n_targets, n_horizons, n_levels), optional
            What a model says at this row, in the targets' units; NaN or None where it says nothing.

        Returns
        -------
        ndarray of shape (n_targets, n_horizons, n_levels), non-decreasing over levels

        Raises
        ------
        ValueError
            If the row is not later than the last.
        """
        if self._first_row is None:
            self._first_row, self._row = row, row - 1
        if row <= self._row:
            raise ValueError(f"row {row} is not later than the last, {self._row}; feed rows in order")
        for missed in range(max(self._row + 1, row - _RING_ROWS), row):
            self._ring[missed % _RING_ROWS] = np.nan
        self._row = row
        floored = np.maximum(loads, self.floors)
        self._ring[row % _RING_ROWS] = floored
        for one, value in zip(self._centres, floored.tolist(), strict=True):
            one.update(value)
        is_warm = row - self._first_row >= WARM_UP_ROWS
        said = [
            horizon.update(
                row,
                self._ring,
                np.log(np.maximum([one.at(horizon.rows) for one in self._centres], self.floors[:, None])),
                None if model is None else np.log(np.maximum(model[:, i], self.floors[:, None])),
                floors=self.floors,
                is_warm=is_warm,
            )
            for i, horizon in enumerate(self._levels)
        ]
        return np.stack(said, axis=1)

    @property
    def weights(self) -> Floats:
        """Return each expert's weight in the last forecast, shape (n_targets, n_horizons, n_experts, n_levels)."""
        return np.stack([horizon.weights for horizon in self._levels], axis=1)


class _Centres:
    """The centres of one target, in the order of `CENTRES`."""

    def __init__(self) -> None:
        self._last = nan
        self._mean, self._max = RollingMean(60), RollingMax(60)
        self._fast, self._slow = Ewma(39), Ewma(199)
        self._season = Season()
        self._long_mean, self._slope, self._long_slope = RollingMean(150), Slope(120), Slope(300)
        self._lines: tuple[tuple[float, float, int], ...] = ()
        self._values: list[float] = []

    def update(self, value: float) -> None:
        if not isnan(value):
            self._last = value
        mean, fast, slow = self._mean.update(value), self._fast.update(value), self._slow.update(value)
        self._season.update(value)
        self._lines = (
            (mean, self._slope.update(value), 60),
            (self._long_mean.update(value), self._long_slope.update(value), 150),
        )
        self._values = [1.0, self._last, mean, mean, fast, slow, slow, self._max.update(value)]

    def at(self, rows: int) -> list[float]:
        """Return them for a horizon."""
        season = self._season.ahead(rows)
        # a mean is what the line was in the middle of its rows
        ends = [mean + slope * (half / 2 + rows) for mean, slope, half in self._lines]
        return [*self._values, season, season, *ends]


@dataclass(slots=True)
class _Pending:
    """What was said at a row whose outcome is not known yet; logarithms."""

    row: int
    centres: Floats
    model: Floats | None
    experts: Floats


class _Horizon:
    """The mixture of one horizon, all targets at once."""

    def __init__(self, num_targets: int, rows: int, levels: Floats) -> None:
        self.rows, self._levels = rows, levels
        shape = (num_targets, len(EXPERTS), levels.size)
        self._residuals = np.full((num_targets, len(CENTRES), MEMORY_OUTCOMES), np.nan)
        self._model_residuals = np.full((num_targets, levels.size, MEMORY_OUTCOMES), np.nan)
        self._num_outcomes = self._num_model_outcomes = 0
        self._offsets = np.full((num_targets, len(CENTRES), levels.size), np.nan)
        self._model_offsets = np.full((num_targets, levels.size), np.nan)
        self._loss, self._evidence = np.zeros(shape), 0.0
        self._pending: deque[_Pending] = deque()
        self.weights = np.full(shape, 1.0 / shape[1])

    def update(
        self, row: int, ring: Floats, centres: Floats, model: Floats | None, *, floors: Floats, is_warm: bool
    ) -> Floats:
        while self._pending and self._pending[0].row + self.rows <= row:
            self._learn(self._pending.popleft(), row, ring)
        experts = self._experts(centres, model, floors)
        if row % LEARN_EVERY_ROWS == 0 and is_warm:
            self._pending.append(_Pending(row, centres, model, experts))
        return self._mixed(experts)

    def _experts(self, centres: Floats, model: Floats | None, floors: Floats) -> Floats:
        """Return the logarithm of every expert's quantiles, shape (n_targets, n_experts, n_levels)."""
        said = np.full(self._loss.shape, np.nan)
        added = np.maximum(np.exp(centres)[..., None] + self._offsets, floors[:, None, None])
        said[:, : len(CENTRES)] = np.where(
            _IS_ADDED[:, None],
            np.log(added),
            np.maximum(centres[..., None] + self._offsets, np.log(floors)[:, None, None]),
        )
        if model is not None:
            said[:, -2] = model
            said[:, -1] = model + self._model_offsets
        return said

    def _mixed(self, experts: Floats) -> Floats:
        """Return the weighted geometric mean of what was said; experts that say nothing have no weight."""
        loss = self._loss / max(self._evidence, 1e-9)
        best = loss.min(axis=1, keepdims=True) + 1e-12
        trust = self._evidence / (self._evidence + EVIDENCE_OUTCOMES)
        weights = np.exp(-trust * (loss - best) / (LOSS_SCALE_RATIO * best))
        known = np.isfinite(experts)
        weights = np.where(known, weights, 0.0)
        total = weights.sum(axis=1, keepdims=True)
        self.weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
        mixed = np.exp((self.weights * np.where(known, experts, 0.0)).sum(axis=1))
        mixed[total[:, 0] <= 0] = np.nan
        return np.asarray(np.maximum.accumulate(mixed, axis=1))

    def _learn(self, said: _Pending, row: int, ring: Floats) -> None:
        """Take the outcome of what was said."""
        if row - said.row >= _RING_ROWS:
            return
        seconds = ring[np.arange(said.row + 1, said.row + self.rows + 1) % _RING_ROWS]
        known = ~np.isnan(seconds)
        if (known.mean(axis=0) < MIN_KNOWN_RATIO).any():
            return
        outcome = np.fmax.reduce(seconds, axis=0)
        logs = np.log(outcome)
        residual = np.where(_IS_ADDED, outcome[:, None] - np.exp(said.centres), logs[:, None] - said.centres)
        self._residuals[..., self._num_outcomes % MEMORY_OUTCOMES] = residual
        self._num_outcomes += 1
        self._offsets = conformal_quantiles(
            self._residuals[..., : self._num_outcomes], self._levels, least=FIRST_OUTCOMES
        )
        if said.model is not None and np.isfinite(said.model).all():
            self._model_residuals[..., self._num_model_outcomes % MEMORY_OUTCOMES] = logs[:, None] - said.model
            self._num_model_outcomes += 1
            self._model_offsets = self._ramped_offsets()
        self._judge(said.experts, outcome)

    def _ramped_offsets(self) -> Floats:
        """Return the model's offset at each level; it came calibrated, so its first few outcomes count in part."""
        seen = min(self._num_model_outcomes, MEMORY_OUTCOMES)
        every = conformal_quantiles(self._model_residuals[..., :seen], self._levels)
        return np.asarray(np.diagonal(every, axis1=1, axis2=2) * min(seen / (3.0 * FIRST_OUTCOMES), 1.0))

    def _judge(self, experts: Floats, outcome: Floats) -> None:
        """Add the pinball losses; an expert that said nothing is charged the mean of those that did."""
        known = np.isfinite(experts)
        if not known.any(axis=1).all():
            return
        gap = outcome[:, None, None] - np.exp(experts)
        loss = np.where(known, np.maximum(self._levels * gap, (self._levels - 1.0) * gap), 0.0)
        typical = loss.sum(axis=1, keepdims=True) / known.sum(axis=1, keepdims=True)
        self._loss = LOSS_KEEP * self._loss + np.where(known, loss, typical)
        self._evidence = LOSS_KEEP * self._evidence + 1.0


def conformal_quantiles(residuals: Floats, levels: Floats, *, least: int = 1) -> Floats:
    """Return the quantiles over the last axis with the finite-sample correction, shape (..., n_levels).

    Of n residuals the ceil((n + 1) level)-th smallest covers the next exchangeable one with that probability; where
    there is no such one, and between them, values are interpolated, up to the largest.

    Parameters
    ----------
    residuals : ndarray of shape (..., n), n > 0
        NaN where unknown.
    levels : ndarray of shape (n_levels,)
    least : int
        With fewer known residuals the quantiles are NaN.

    References
    ----------
    V. Vovk, A. Gammerman and G. Shafer, "Algorithmic Learning in a Random World", 2005, section 2.2.

    Examples
    --------
    >>> conformal_quantiles(np.arange(9.0), np.array([0.5, 0.9])).tolist()
    [4.0, 8.0]
    """
    ordered = np.sort(residuals, axis=-1)  # NaN comes last
    known = np.isfinite(residuals).sum(axis=-1)[..., None]
    at = np.clip(levels * (known + 1) - 1.0, 0.0, np.maximum(known - 1.0, 0.0))
    low = np.floor(at).astype(np.intp)
    below = np.take_along_axis(ordered, low, axis=-1)
    above = np.take_along_axis(ordered, np.minimum(low + 1, np.maximum(known - 1, 0)), axis=-1)
    return np.where(known >= least, below + (at - low) * (above - below), np.nan)
