"""What the simulator is held to, beside its targets: agreement, determinism, speed.

Run by `make bench-simulator`: --quick leaves out a million requests and the closed form, --json prints JSON, and
--docs FILE replaces the tables of a document.
"""

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from benchmarks.determinism import determinism_figures
from benchmarks.engine_log_agreement import engine_log_figures
from benchmarks.figure_tables import as_json, machine, markdown, summary, terminal_tables, write_between
from benchmarks.reference_agreement import agreement_figures
from benchmarks.reference_speed import reference_speed_figures

SHARED = Path(os.environ.get("FORESHOCK_SHARED", "../shared"))
WIDE_ENOUGH = 160


def measured(progress: Progress, *, quick: bool):
    """Return every figure, in the order in which they are shown."""
    steps = (
        ("agreement with other simulators", lambda: agreement_figures(SHARED)),
        ("replays of engine logs", lambda: engine_log_figures(SHARED, progress, quick=quick)),
        ("speed", lambda: reference_speed_figures(SHARED)),
        ("determinism", lambda: determinism_figures(SHARED)),
    )
    task = progress.add_task("", total=len(steps))
    figures = []
    for name, step in steps:
        progress.update(task, description=name)
        figures += step()
        progress.advance(task)
    return figures


def main():
    """Print the tables, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out a million requests and the closed form")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="replace the tables of this document")
    asked = parser.parse_args()
    if not SHARED.is_dir():
        sys.exit(f"error: public data not found at {SHARED}; set FORESHOCK_SHARED to its folder")
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        figures = measured(progress, quick=asked.quick)
    if asked.docs:
        write_between(asked.docs, "bench-simulator", markdown(figures))
    if asked.json:
        print(as_json(figures))
        return
    console = Console() if sys.stdout.isatty() else Console(width=WIDE_ENOUGH)
    for table in terminal_tables(figures):
        console.print(table, markup=False)
    console.print(f"{machine()}; {summary(figures)}", highlight=False)


if __name__ == "__main__":
    main()
