"""A sweep's figures on a terminal: one table a scenario, a row a figure, each policy's median and range."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from cli.comparison_table import FIGURES_ON_TERMINAL, plain_table
from training.comparison import Figure, is_best_value
from training.sweep_summary import PolicySummary, Spread


def sweep_tables(policies: Sequence[PolicySummary], *, console: Console) -> Iterator[Table]:
    """Yield the table of a scenario, in as many parts as the width of the console makes necessary."""
    remaining = list(policies)
    while remaining:
        num = len(remaining)
        while num > 1 and not _fits(_table(remaining[:num], beside=policies), console):
            num -= 1
        yield _table(remaining[:num], beside=policies)
        del remaining[:num]


def _fits(table: Table, console: Console) -> bool:
    return Measurement.get(console, console.options.update(width=10_000), table).maximum <= console.width


def _table(policies: Sequence[PolicySummary], *, beside: Sequence[PolicySummary]) -> Table:
    """Return the table of some of a scenario's policies; what is best is best of all, `beside`."""
    table = plain_table()
    table.add_column("")
    for policy in policies:
        table.add_column(Text(policy.policy), justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
    if any(policy.num_failed for policy in beside):
        table.add_row("runs finished", *(cell for policy in policies for cell in _runs_cells(policy)))
    for figure in FIGURES_ON_TERMINAL:
        medians = [policy.spread(figure.value).median for policy in beside]
        spreads = [policy.spread(figure.value) for policy in policies]
        table.add_row(figure.name, *(cell for spread in spreads for cell in _cells(figure, spread, medians)))
    return table


def _runs_cells(policy: PolicySummary) -> tuple[Text, Text]:
    finished = len(policy.cards)
    return Text(f"{finished} of {finished + policy.num_failed}", style="red" if policy.num_failed else ""), Text("")


def _cells(figure: Figure, spread: Spread, medians: Sequence[float]) -> tuple[Text, Text]:
    """Return the median, bold and green if it is the best, and the range, empty if there is none to speak of."""
    style = "bold green" if is_best_value(figure, spread.median, medians) else ""
    low, high = figure.show(spread.low), figure.show(spread.high)
    text = "" if low == high else f"{low.removesuffix(' %')} to {high.removesuffix(' %')}"
    return Text(figure.show(spread.median), style=style), Text(text, style="dim")
