"""Forecasts replayed over a recorded or simulated run, scored beside trivial ones: nothing sees past its row.

The run's second half is scored, every second of it; trivial forecasts that need a residual take it from the first half.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.random import Generator

from forecaster.capacity import ReplicaCapacity
from forecaster.features import build_features
from forecaster.forecast import LEVELS, TARGETS, Forecaster
from forecaster.online import HORIZONS_ROWS, OnlineForecaster, loads_of
from forecaster.telemetry import Floats, TelemetryWindow
from training.datasets import maximum_ahead
from training.scores import pinball_loss

FIRST_SCORED_ROW = 60
"""Starting from a minute of history is part of the promise, so residuals are taken from there on."""

BLOCK_ROWS = 60
"""Length of a block of the bootstrap: twice the horizon, so that blocks are nearly independent."""

_LEVELS = np.array(LEVELS)
_EWMA_WEIGHTS = (0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
_SEASONS = range(60, 1201, 30)
TRAILING_ROWS = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """One target of one run, at one horizon.

    Attributes
    ----------
    target : str
    row_at : ndarray of shape (n_rows,), POSIX seconds
        When each forecast was made.
    actual : ndarray of shape (n_rows,)
        The maximum over the horizon, of every scored row.
    quantiles : mapping of forecaster's name to ndarray of shape (n_rows, n_levels)
    trivial : tuple of str
        Which of them are trivial.
    """

    target: str
    row_at: Floats
    actual: Floats
    quantiles: Mapping[str, Floats]
    trivial: tuple[str, ...]

    def losses(self, name: str) -> Floats:
        """Return the pinball loss over the mean of the target, averaged over levels, shape (n_rows,)."""
        return np.asarray(pinball_loss(self.actual, self.quantiles[name], _LEVELS).mean(axis=1) / self.actual.mean())

    @property
    def best_trivial(self) -> str:
        """Name of the trivial forecast that turned out best, which nobody knows beforehand."""
        return min(self.trivial, key=lambda name: float(self.losses(name).mean()))

    def ratio(self, name: str) -> float:
        """Return a forecast's loss over that of the best trivial one."""
        return float(self.losses(name).mean() / self.losses(self.best_trivial).mean())

    def coverage_ratio(self, name: str) -> Floats:
        """Return the share of outcomes at or below each level's quantile, shape (n_levels,)."""
        return np.asarray((self.actual[:, None] <= self.quantiles[name]).mean(axis=0))

    def wape(self, name: str) -> float:
        """Return the absolute error of the median over the sum of the target."""
        return float(np.abs(self.actual - self.quantiles[name][:, 0]).sum() / self.actual.sum())

    def coverage_error(self) -> Floats:
        """Return the standard error of the coverage of a calibrated forecast: horizons that do not overlap count.

        Returns
        -------
        ndarray of shape (n_levels,)
        """
        windows = max(self.actual.size / HEADLINE_ROWS, 1.0)
        return np.asarray(np.sqrt(_LEVELS * (1 - _LEVELS) / windows))


HEADLINE_ROWS = HORIZONS_ROWS[1]


def backtest(
    telemetry: TelemetryWindow,
    capacity: ReplicaCapacity,
    forecasters: Mapping[str, Forecaster],
    *,
    truth: TelemetryWindow | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Backtest, ...]:
    """Return a backtest of every target at 30 s.

    Parameters
    ----------
    telemetry : TelemetryWindow
        What is seen, rows of 1 s.
    capacity : ReplicaCapacity
    forecasters : mapping of name to Forecaster
        Each is played twice: `name` in the live mixture and `name, alone` as it is.
    truth : TelemetryWindow, optional
        Where outcomes come from: the same traffic on so many replicas that nothing queued. By default `telemetry`.
    progress : callable, optional
        Called with rows done and rows in all.

    Raises
    ------
    ValueError
        If the run is too short to have two halves of ten horizons.
    """
    if telemetry.num_rows < 20 * HEADLINE_ROWS:
        raise ValueError(
            f"backtest of {telemetry.deployment!r}: {telemetry.num_rows} rows of 1 s are too few, at least "
            f"{20 * HEADLINE_ROWS} are needed; record for longer"
        )
    features = build_features(telemetry, capacity)
    loads = loads_of(features)
    outcomes = loads if truth is None else loads_of(build_features(truth, capacity))
    scored = np.arange(telemetry.num_rows // 2, telemetry.num_rows - HEADLINE_ROWS)
    said = _said(features, telemetry.row_at, capacity, forecasters, first=int(scored[0]), progress=progress)
    found = []
    for i, target in enumerate(TARGETS):
        actual = maximum_ahead(outcomes[:, i], HEADLINE_ROWS)
        trivial = trivial_quantiles(loads[:, i], train_until=int(scored[0]))
        quantiles = {name: rows[scored] for name, rows in trivial.items()}
        quantiles |= {name: rows[:, i] for name, rows in said.items()}
        known = np.isfinite(actual[scored]) & np.all([np.isfinite(q).all(axis=1) for q in quantiles.values()], axis=0)
        found.append(
            Backtest(
                target=target,
                row_at=telemetry.row_at[scored][known],
                actual=actual[scored][known],
                quantiles={name: rows[known] for name, rows in quantiles.items()},
                trivial=tuple(trivial),
            )
        )
    return tuple(found)


def _said(
    features: Floats,
    row_at: Floats,
    capacity: ReplicaCapacity,
    forecasters: Mapping[str, Forecaster],
    *,
    first: int,
    progress: Callable[[int, int], None] | None,
) -> dict[str, Floats]:
    """Return what each forecaster says from row `first` on, shape (n_rows, n_targets, n_levels), live and alone."""
    live = {name: OnlineForecaster(one, capacity) for name, one in forecasters.items()}
    last = len(features) - HEADLINE_ROWS
    said: dict[str, list[Floats]] = {name: [] for one in forecasters for name in (one, f"{one}, alone")}
    for row in range(last):
        for name, online in live.items():
            online.observe(features[row], row_at=float(row_at[row]))
            if row < first:
                continue
            made = online.forecast(made_at=float(row_at[row]), horizons_seconds=(float(HEADLINE_ROWS),))
            alone = online.said
            said[name].append(
                np.full((len(TARGETS), len(LEVELS)), np.nan)
                if made is None
                else np.array([made.values[target][0] for target in TARGETS])
            )
            said[f"{name}, alone"].append(said[name][-1] * np.nan if alone is None else alone[:, 1])
        if progress and row % 60 == 0:
            progress(row, last)
    if progress:
        progress(last, last)
    return {name: np.array(rows) for name, rows in said.items()}


def trivial_quantiles(load: Floats, *, train_until: int) -> dict[str, Floats]:
    """Return the five trivial forecasts of the maximum over 30 s, each of shape (n_rows, n_levels).

    The last value, the trailing mean of a minute, an exponentially weighted mean and the value a season ago, each plus
    the quantiles that its error had before row `train_until` (the mean's weight and the season's length are chosen
    there too); and the quantiles of the maxima over the last quarter of an hour.

    Parameters
    ----------
    load : ndarray of shape (n_rows,), NaN where unknown
    train_until : int
    """
    series = pd.Series(load).ffill()
    filled = series.to_numpy(dtype=np.float64)
    outcome = maximum_ahead(filled, HEADLINE_ROWS)
    train = np.arange(FIRST_SCORED_ROW, train_until - HEADLINE_ROWS)
    means = {weight: series.ewm(alpha=weight, adjust=False).mean().to_numpy() for weight in _EWMA_WEIGHTS}
    weight = min(means, key=lambda one: float(np.nanmean(np.abs(outcome[train] - means[one][train]))))
    season = max(_SEASONS, key=lambda rows: _correlation(filled[:train_until], rows))
    points = {
        "last value": filled,
        "trailing mean": series.rolling(60, min_periods=1).mean().to_numpy(),
        "EWMA": means[weight],
        "seasonal naive": series.shift(season).fillna(series).to_numpy(),
    }
    made = {
        name: point[:, None] + np.nanquantile(outcome[train] - point[train], LEVELS) for name, point in points.items()
    }
    maxima = series.rolling(HEADLINE_ROWS, min_periods=1).max().rolling(TRAILING_ROWS, min_periods=1)
    made["trailing quantile"] = np.column_stack([maxima.quantile(level).to_numpy() for level in LEVELS])
    return {name: np.maximum.accumulate(np.maximum(rows, 0.0), axis=1) for name, rows in made.items()}


def _correlation(series: Floats, lag_rows: int) -> float:
    if series.size <= 2 * lag_rows:
        return -np.inf
    a, b = series[lag_rows:], series[:-lag_rows]
    known = np.isfinite(a) & np.isfinite(b)
    spread = float(a[known].std() * b[known].std())
    return float(np.cov(a[known], b[known], bias=True)[0, 1] / spread) if spread > 0 else -np.inf


def ratio_interval(
    losses: Floats, reference: Floats, rng: Generator, *, num_draws: int = 500, level: float = 0.95
) -> tuple[float, float]:
    """Return the interval of mean(losses) / mean(reference) by a block bootstrap over time.

    Parameters
    ----------
    losses, reference : ndarray of shape (n_rows,)
        Of the same rows, in order.
    rng : Generator

    References
    ----------
    H. R. Kuensch, "The jackknife and the bootstrap for general stationary observations", Annals of Statistics 17, 1989.
    """
    block = min(BLOCK_ROWS, losses.size)
    starts = rng.integers(0, losses.size - block + 1, (num_draws, -(-losses.size // block)))
    sums = [np.concatenate([[0.0], np.cumsum(one)]) for one in (losses, reference)]
    drawn = [(total[starts + block] - total[starts]).sum(axis=1) for total in sums]
    low, high = np.quantile(drawn[0] / drawn[1], [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
