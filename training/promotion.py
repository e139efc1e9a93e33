"""The gate between a trained candidate and the place of the champion: pure, from losses on the same held-out rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from forecaster.telemetry import Floats

MIN_BLOCKS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRules:
    """What the gate asks for.

    Attributes
    ----------
    worse_ratio : float
        A candidate on fresher data may have this much more loss than the champion: what it would lose within noise, it
        gains by knowing the traffic of today.
    worse_than_trivial_ratio : float
        No candidate may have more loss than the best trivial forecast times 1 + this; the best is chosen after the
        fact, so a little more is no sign of harm.
    coverage_tolerance_ratio : float
        Coverage at each level may be off by this and two standard errors.
    interval_level : float
        Of the interval of the difference to the champion.
    block_rows : int
        Rows of a block of the bootstrap; neighbouring outcomes share most of their horizon.
    num_draws : int
    """

    worse_ratio: float = 0.01
    worse_than_trivial_ratio: float = 0.02
    coverage_tolerance_ratio: float = 0.03
    interval_level: float = 0.95
    block_rows: int = 60
    num_draws: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
    """Whether the candidate takes over, and why.

    Attributes
    ----------
    promote : bool
    reasons : tuple of str
        What spoke against it, every point; or the one thing that spoke for it.
    candidate_loss, champion_loss, trivial_loss : float
        Means; NaN where there is none.
    difference_interval : tuple of two float
        Of candidate minus champion loss; NaN without a champion.
    """

    promote: bool
    reasons: tuple[str, ...]
    candidate_loss: float = np.nan
    champion_loss: float = np.nan
    trivial_loss: float = np.nan
    difference_interval: tuple[float, float] = (np.nan, np.nan)


def decide(
    candidate_losses: Floats,
    champion_losses: Floats | None,
    trivial_losses: Floats,
    *,
    coverage_ratio: Floats,
    levels: Sequence[float],
    fresher: bool,
    rng: Generator,
    alone: tuple[Floats, Floats] | None = None,
    rules: GateRules | None = None,
) -> GateDecision:
    """Return whether a candidate becomes champion.

    It does if its loss is below the champion's with an interval clear of zero, or not above it by more than
    `worse_ratio` and it was trained on fresher data; and never if it loses to the trivial forecast, its coverage is
    off, or anything about it is unknown.

    Parameters
    ----------
    candidate_losses, trivial_losses : ndarray of shape (n_rows,), >= 0
        Pinball loss of every held-out row, in order of time; the trivial's of the best of them.
    champion_losses : ndarray of shape (n_rows,), or None
        None: there is no champion, so the trivial forecast alone has to be met.
    coverage_ratio : ndarray of shape (n_levels,)
        Share of outcomes at or below the candidate's quantiles.
    levels : sequence of float
    fresher : bool
        The candidate's data end later than the champion's.
    rng : Generator
    alone : tuple of two ndarray of shape (n_rows,), optional
        Losses of candidate and champion outside the mixture of the live forecast. The mixture hides a model that says
        nothing of worth by not listening to it; freshness is no merit of such a one.
    rules : GateRules, optional

    Raises
    ------
    ValueError
        If shapes do not fit each other.
    """
    rules = rules or GateRules()
    nominal = np.asarray(levels, dtype=np.float64)
    given = [candidate_losses, trivial_losses, *([] if champion_losses is None else [champion_losses]), *(alone or ())]
    if any(one.shape != candidate_losses.shape or one.ndim != 1 for one in given) or (
        coverage_ratio.shape != nominal.shape
    ):
        shapes = [one.shape for one in given]
        raise ValueError(
            f"losses must have one shape (n_rows,), got {shapes}, and coverage that of levels {nominal.shape}, got "
            f"{coverage_ratio.shape}"
        )
    unknown = _unknown(given, coverage_ratio, rules)
    if unknown:
        return GateDecision(promote=False, reasons=(unknown,))
    candidate, trivial = float(candidate_losses.mean()), float(trivial_losses.mean())
    against = _against(candidate, trivial, coverage_ratio, nominal, num_rows=candidate_losses.size, rules=rules)
    champion, interval, hurdle, merit = np.nan, (np.nan, np.nan), "", "there is no champion yet"
    if champion_losses is not None:
        champion = float(champion_losses.mean())
        interval = mean_interval(candidate_losses - champion_losses, rng, rules=rules)
        hurdle, merit = _beside_champion(candidate, champion, interval, fresher=fresher, alone=alone, rules=rules)
    reasons = (*against, *([hurdle] if hurdle else []))
    return GateDecision(
        promote=not reasons,
        reasons=reasons or (merit,),
        candidate_loss=candidate,
        champion_loss=champion,
        trivial_loss=trivial,
        difference_interval=interval,
    )


def _unknown(losses: Sequence[Floats], coverage_ratio: Floats, rules: GateRules) -> str:
    """Return what is not known well enough to judge, empty if nothing."""
    num_rows = losses[0].size
    if num_rows < MIN_BLOCKS * rules.block_rows:
        return (
            f"only {num_rows} held-out rows could be scored, at least {MIN_BLOCKS * rules.block_rows} are needed: "
            f"record for longer"
        )
    if not all(np.isfinite(one).all() for one in losses) or not np.isfinite(coverage_ratio).all():
        return "a loss or a coverage is NaN or infinite: the candidate or its rows are damaged"
    if not losses[1].any():
        return "the held-out rows hold no load that a forecast could miss: nothing was proved"
    return ""


def _against(
    candidate: float, trivial: float, coverage_ratio: Floats, nominal: Floats, *, num_rows: int, rules: GateRules
) -> list[str]:
    """Return what speaks against a candidate whatever the champion."""
    found = []
    if candidate > trivial * (1 + rules.worse_than_trivial_ratio):
        found.append(
            f"worse than the best trivial forecast: loss {candidate:.4f} against {trivial:.4f}, at most "
            f"{1 + rules.worse_than_trivial_ratio:.2f} times that is allowed"
        )
    # a block holds about one independent outcome at its horizon, so their number is that of the rows' blocks
    error = np.sqrt(nominal * (1 - nominal) / (num_rows / rules.block_rows))
    allowed = rules.coverage_tolerance_ratio + 2 * error
    off = np.abs(coverage_ratio - nominal) > allowed
    found += [
        f"coverage at {level:g} is {ratio:.3f}, allowed is {level - band:.3f} to {min(level + band, 1.0):.3f}"
        for level, ratio, band in zip(nominal[off], coverage_ratio[off], allowed[off], strict=True)
    ]
    return found


def _beside_champion(
    candidate: float,
    champion: float,
    interval: tuple[float, float],
    *,
    fresher: bool,
    alone: tuple[Floats, Floats] | None,
    rules: GateRules,
) -> tuple[str, str]:
    """Return what speaks against a candidate beside the champion, empty if nothing, and else what speaks for it."""
    told = f"loss {candidate:.4f} against the champion's {champion:.4f}"
    span = f"difference {interval[0]:+.4f} to {interval[1]:+.4f}"
    if interval[1] < 0:
        return "", f"better than the champion: {told}, {span}"
    if candidate > champion * (1 + rules.worse_ratio):
        return f"worse than the champion: {told}, {span}", ""
    if not fresher:
        return f"not clearly better than the champion and not on fresher data: {told}, {span}", ""
    if alone is not None and alone[0].mean() > alone[1].mean() * (1 + rules.worse_ratio):
        return f"worse than the champion outside the mixture: {alone[0].mean():.4f} against {alone[1].mean():.4f}", ""
    return "", f"on fresher data and not worse than the champion: {told}, {span}"


def mean_interval(values: Floats, rng: Generator, *, rules: GateRules) -> tuple[float, float]:
    """Return the interval of a mean by a moving-block bootstrap.

    Parameters
    ----------
    values : ndarray of shape (n_rows,), in order of time
    rng : Generator
    rules : GateRules

    References
    ----------
    H. R. Kuensch, "The jackknife and the bootstrap for general stationary observations", Annals of Statistics 17, 1989.

    Examples
    --------
    >>> mean_interval(np.full(100, 2.0), np.random.default_rng(0), rules=GateRules())
    (2.0, 2.0)
    """
    block = min(rules.block_rows, values.size)
    starts = rng.integers(0, values.size - block + 1, (rules.num_draws, -(-values.size // block)))
    sums = np.concatenate([[0.0], np.cumsum(values)])
    means = (sums[starts + block] - sums[starts]).mean(axis=1) / block
    tail = (1 - rules.interval_level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)
