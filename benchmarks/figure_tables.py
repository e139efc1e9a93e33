"""Figures as tables in a terminal, as JSON, and as the part of a document that a command keeps up to date."""

import json
import os
from dataclasses import asdict
from itertools import groupby
from math import isfinite
from pathlib import Path

from rich import box
from rich.table import Table

from benchmarks.figure import Figure, number

HEADS = ("figure", "Foreshock", "unit", "target", "verdict", "beside it")


def machine() -> str:
    """Return the processor's model and how many cores may be used."""
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{names[0] if names else 'unknown processor'}, {num_cores} cores"


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines() if Path(path).exists() else []


def terminal_tables(figures: list[Figure]) -> list[Table]:
    """Return a table of each group."""
    tables = []
    for group, members in groupby(figures, key=lambda figure: figure.group):
        table = Table(title=group, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
        for head in HEADS:
            table.add_column(head, justify="right" if head in ("Foreshock", "target") else "left")
        for figure in members:
            style = "red" if figure.missed_by > 0 else None
            table.add_row(*_cells(figure), style=style)
        tables.append(table)
    return tables


def _cells(figure: Figure) -> tuple[str, ...]:
    beside = "; ".join(part for part in (figure.beside, figure.note) if part)
    return figure.name, number(figure.value), figure.unit, figure.target, figure.verdict, beside


def markdown(figures: list[Figure]) -> str:
    """Return the same in Markdown, misses in bold."""
    lines = [f"Measured by `make bench-simulator` on {machine()}; {summary(figures)}"]
    for group, members in groupby(figures, key=lambda figure: figure.group):
        lines += ["", f"### {group}", "", f"| {' | '.join(HEADS)} |", "|---|--:|---|--:|---|---|"]
        for figure in members:
            name, value, unit, target, verdict, beside = _cells(figure)
            verdict = f"**{verdict}**" if figure.missed_by > 0 else verdict
            lines.append(f"| {name} | {value} | {unit} | {target} | {verdict} | {beside} |")
    return "\n".join(lines) + "\n"


def summary(figures: list[Figure]) -> str:
    """Return how many targets are met, and how many are missed."""
    targets = [figure for figure in figures if figure.target]
    num_missed = sum(figure.missed_by > 0 for figure in targets)
    num_met = sum(figure.missed_by == 0 for figure in targets)
    return f"{num_met} of {len(targets)} targets met, {num_missed} missed."


def as_json(figures: list[Figure]) -> str:
    """Return everything as JSON; what is unknown or unbounded is null."""
    rows = [
        {
            name: (value if not isinstance(value, float) or isfinite(value) else None)
            for name, value in {**asdict(figure), "verdict": figure.verdict, "missed_by": figure.missed_by}.items()
        }
        for figure in figures
    ]
    return json.dumps({"machine": machine(), "figures": rows}, indent=1)


def write_between(path: Path, marker: str, text: str) -> None:
    """Replace what stands between `<!-- MARKER -->` and `<!-- /MARKER -->` in a file.

    Raises
    ------
    ValueError
        If the file lacks the two markers.
    """
    begin, end = f"<!-- {marker} -->\n", f"<!-- /{marker} -->"
    before, found, rest = path.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{path}: no {begin.strip()} ... {end}; write both lines where the tables belong")
    path.write_text(before + begin + text + end + after, encoding="utf-8")
