"""The comparison of policies on a terminal, and the same figures for a program."""

from dataclasses import asdict
from math import isnan
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from forecaster.config import Slo
from training.comparison import FIGURES, Figure, is_best
from training.scorecard import Scorecard


def comparison_table(cards: tuple[Scorecard, ...]) -> Table:
    """Return one row a policy; the best value of a column is bold and green where policies differ in it."""
    table = _table()
    table.add_column("\npolicy", no_wrap=True)
    for figure in _FIGURES:
        table.add_column(figure.heading, justify="right", no_wrap=True)
    for card in cards:
        table.add_row(Text(card.policy, style="bold"), *(_cell(figure, card, cards) for figure in _FIGURES))
    return table


def narrow_table(cards: tuple[Scorecard, ...]) -> Table:
    """Return the same figures with one row a figure, for a terminal that is too narrow for the other."""
    table = _table()
    table.add_column("")
    for card in cards:
        table.add_column(card.policy, justify="right")
    for figure in _FIGURES:
        table.add_row(figure.name, *(_cell(figure, card, cards) for card in cards))
    return table


_FIGURES = tuple(figure for figure in FIGURES if figure.on_terminal)


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), collapse_padding=True)


def _cell(figure: Figure, card: Scorecard, cards: tuple[Scorecard, ...]) -> Text:
    return Text(figure.show(figure.value(card)), style="bold green" if is_best(figure, card, cards) else "")


def table_notes(slo: Slo, warm_cost_ratio: float) -> str:
    """Return what the figures of a table mean, in two lines."""
    return (
        f"SLO: TTFT <= {slo.ttft_seconds:g} s (x prompt/4,096 for longer prompts), TPOT <= {slo.tpot_seconds:g} s; "
        f"shed and unfinished requests are misses.\n"
        f"GPU-hours count a warm replica as {warm_cost_ratio:g} of an active one (c_w)."
    )


def scorecard_json(card: Scorecard) -> dict[str, Any]:
    """Return a scorecard under its fields' own names; what is not known is null."""
    return {name: _known(value) for name, value in asdict(card).items()}


def _known(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_known(part) for part in value]
    return None if isinstance(value, float) and isnan(value) else value
