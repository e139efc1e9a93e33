"""The figures of a comparison of policies, one list for the terminal and the report, and the comparison in words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan

from training.scorecard import Scorecard

# Differences below these are not worth a word: 0.05 points of attainment, half a percent of cost.
SAME_ATTAINMENT_RATIO = 0.0005
SAME_COST_RATIO = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One column of a comparison.

    Attributes
    ----------
    name : str
    heading : str
        The same in two short lines, for a terminal.
    value : callable
        Takes it from a scorecard.
    show : callable
        Writes it.
    meaning : str
        In one sentence.
    more_is_better : bool
    on_terminal : bool
        Whether it is important enough for the width of a terminal.
    """

    name: str
    heading: str
    value: Callable[[Scorecard], float]
    show: Callable[[float], str]
    meaning: str
    more_is_better: bool = False
    on_terminal: bool = True


def percent(ratio: float) -> str:
    """Return a ratio as a percentage with two decimals, a dash if it is not known.

    Examples
    --------
    >>> percent(0.98765), percent(float("nan"))
    ('98.77 %', '-')
    """
    return "-" if isnan(ratio) else f"{100 * ratio:.2f} %"


def _seconds(value: float) -> str:
    return "-" if isnan(value) else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _count(value: float) -> str:
    return "-" if isnan(value) else f"{value:,.0f}"


def _hours(value: float) -> str:
    return "-" if isnan(value) else f"{value:.2f}"


def _by_priority(name: str, priority: int) -> Figure:
    return Figure(
        name=f"{name} within SLO",
        heading=f"\n{name}",
        value=lambda card: card.attainment_ratio_by_priority[priority],
        show=percent,
        meaning=f"the same share of the {name} requests alone",
        more_is_better=True,
        on_terminal=False,
    )


FIGURES: tuple[Figure, ...] = (
    Figure(
        name="within SLO",
        heading="within\nSLO",
        value=lambda card: card.attainment_ratio,
        show=percent,
        meaning="share of all requests that arrived that met both targets; shed and unfinished ones are misses",
        more_is_better=True,
    ),
    _by_priority("core", 2),
    _by_priority("normal", 1),
    _by_priority("batch", 0),
    Figure(
        name="TTFT p50 s",
        heading="TTFT s\np50",
        value=lambda card: card.ttft_p50_seconds,
        show=_seconds,
        meaning="time to first token from the arrival of a request, in seconds: the median over requests",
    ),
    Figure(
        name="TTFT p95 s",
        heading="\np95",
        value=lambda card: card.ttft_p95_seconds,
        show=_seconds,
        meaning="its 0.95 quantile",
    ),
    Figure(
        name="TTFT p99 s",
        heading="\np99",
        value=lambda card: card.ttft_p99_seconds,
        show=_seconds,
        meaning="its 0.99 quantile",
    ),
    Figure(
        name="TPOT p50 s",
        heading="TPOT s\np50",
        value=lambda card: card.tpot_p50_seconds,
        show=_seconds,
        meaning="mean time per output token of a request after the first, in seconds: the median over requests",
    ),
    Figure(
        name="TPOT p95 s",
        heading="\np95",
        value=lambda card: card.tpot_p95_seconds,
        show=_seconds,
        meaning="its 0.95 quantile",
    ),
    Figure(
        name="GPU-hours",
        heading="GPU-\nhours",
        value=lambda card: card.gpu_hours,
        show=_hours,
        meaning="GPUs of a replica x (serving + promoting + draining + starting + c_w x warm) replica-hours",
    ),
    Figure(
        name="replica-hours",
        heading="replica-\nhours",
        value=lambda card: card.replica_hours,
        show=_hours,
        meaning="the same without the GPUs of a replica",
        on_terminal=False,
    ),
    Figure(
        name="preemptions",
        heading="pre-\nempted",
        value=lambda card: card.preemptions,
        show=_count,
        meaning="times that a request lost its KV blocks and was computed again",
    ),
    Figure(
        name="shed",
        heading="\nshed",
        value=lambda card: card.shed_requests,
        show=_count,
        meaning="requests that admission refused",
    ),
    Figure(
        name="unfinished",
        heading="unfin-\nished",
        value=lambda card: card.unfinished_requests,
        show=_count,
        meaning="requests that had no last token by the end of the run and the time given to finish after it",
    ),
    Figure(
        name="scaling actions",
        heading="scaling\nactions",
        value=lambda card: card.scaling_actions,
        show=_count,
        meaning="promotions, demotions, orders and removals of single pods",
    ),
)


def is_best(figure: Figure, card: Scorecard, cards: tuple[Scorecard, ...]) -> bool:
    """Return whether no other policy is better in a figure, as written; never where all are alike."""
    return is_best_value(figure, figure.value(card), [figure.value(other) for other in cards])


def is_best_value(figure: Figure, value: float, values: Sequence[float]) -> bool:
    """Return the same of one value among the values of a figure."""
    known = [other for other in values if not isnan(other)]
    if len({figure.show(other) for other in values}) < 2 or not known:
        return False
    best = max(known) if figure.more_is_better else min(known)
    return figure.show(value) == figure.show(best)


def headline(cards: tuple[Scorecard, ...]) -> str:
    """Return what the first policy did, and how that compares with each other one, in figures.

    Raises
    ------
    ValueError
        If there is no scorecard.
    """
    if not cards:
        raise ValueError("headline needs at least one scorecard")
    first, *others = cards
    sentence = (
        f"{first.policy} served {percent(first.attainment_ratio)} of {first.num_requests:,} requests within the SLO "
        f"with {first.gpu_hours:.2f} GPU-hours"
    )
    return "; ".join([sentence, *(_against(first, other) for other in others)]) + "."


def _against(first: Scorecard, other: Scorecard) -> str:
    points = other.attainment_ratio - first.attainment_ratio
    if isnan(points) or abs(points) < SAME_ATTAINMENT_RATIO:
        quality = f"{other.policy} the same share"
    else:
        more_or_less = "more" if points > 0 else "less"
        quality = f"{other.policy} {percent(other.attainment_ratio)} ({abs(100 * points):.2f} points {more_or_less})"
    return f"{quality} with {other.gpu_hours:.2f} GPU-hours{_cost_difference(first, other)}"


def _cost_difference(first: Scorecard, other: Scorecard) -> str:
    if not first.gpu_hours > 0:
        return ""
    more = other.gpu_hours / first.gpu_hours - 1
    if abs(more) < SAME_COST_RATIO:
        return ""
    return f" ({abs(100 * more):.0f} % {'more' if more > 0 else 'fewer'})"
