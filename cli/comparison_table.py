"""The comparison of policies on a terminal."""

from rich import box
from rich.table import Table
from rich.text import Text

from forecaster.config import Slo
from training.comparison import FIGURES, Figure, is_best
from training.scorecard import Scorecard

FIGURES_ON_TERMINAL = tuple(figure for figure in FIGURES if figure.on_terminal)


def comparison_table(cards: tuple[Scorecard, ...]) -> Table:
    """Return one row a policy; the best value of a column is bold and green where policies differ in it."""
    table = plain_table()
    table.add_column("\npolicy", no_wrap=True)
    for figure in FIGURES_ON_TERMINAL:
        table.add_column(figure.heading, justify="right", no_wrap=True)
    for card in cards:
        table.add_row(Text(card.policy, style="bold"), *(_cell(figure, card, cards) for figure in FIGURES_ON_TERMINAL))
    return table


def narrow_table(cards: tuple[Scorecard, ...]) -> Table:
    """Return the same figures with one row a figure, for a terminal that is too narrow for the other."""
    table = plain_table()
    table.add_column("")
    for card in cards:
        table.add_column(card.policy, justify="right")
    for figure in FIGURES_ON_TERMINAL:
        table.add_row(figure.name, *(_cell(figure, card, cards) for card in cards))
    return table


def plain_table() -> Table:
    """Return an empty table in the manner of all."""
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
