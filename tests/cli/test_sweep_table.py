import re

import pytest
from rich.console import Console

from cli.comparison_table import FIGURES_ON_TERMINAL
from cli.sweep_table import sweep_tables
from tests.training.sweep_cases import a_failure, a_run
from training.sweep_summary import summaries


def printed(runs, *, width=100, colour=False):
    console = Console(width=width, force_terminal=colour, color_system="standard" if colour else None)
    with console.capture() as capture:
        for table in sweep_tables(summaries(runs), console=console):
            console.print(table)
    return capture.get()


def two_seeds(policy, low, high):
    return [
        a_run(f"{policy}{low}", policy=policy, attainment_ratio=low),
        a_run(f"{policy}{high}", policy=policy, attainment_ratio=high, seed=1),
    ]


def row(text, name):
    return next(line for line in text.splitlines() if line.startswith(name)).removeprefix(name).split()


def test_a_row_a_figure_with_median_and_range():
    text = printed(two_seeds("hpa", 0.9, 0.95))
    assert row(text, "within SLO") == ["92.50", "%", "90.00", "to", "95.00"]
    assert row(text, "GPU-hours") == ["10.25"]  # alike in both runs
    assert row(text, "TPOT p95 s") == ["-"]  # not known
    assert all(figure.name in text for figure in FIGURES_ON_TERMINAL)
    assert "runs finished" not in text


def test_failed_runs_are_counted_and_a_policy_without_runs_has_dashes():
    text = printed([*two_seeds("hpa", 0.9, 0.95), a_failure("x", policy="hpa", seed=2), a_failure("y", policy="bad")])
    assert row(text, "runs finished") == ["2", "of", "3", "0", "of", "1"]
    assert row(text, "shed") == ["1,212", "-"]
    assert row(text, "GPU-hours") == ["10.25", "-"]


@pytest.mark.parametrize("width", [60, 100, 160])
def test_policies_that_do_not_fit_side_by_side_go_below(width):
    names = [f"static:{i}" for i in range(1, 8)]
    text = printed([run for name in names for run in two_seeds(name, 0.9, 0.95)], width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    headers = [line.split() for line in text.splitlines() if "static:" in line]
    assert [name for header in headers for name in header] == names


def test_the_best_median_of_all_parts_is_bold_and_green():
    names = [f"static:{i}" for i in range(1, 8)]
    runs = [run for i, name in enumerate(names) for run in two_seeds(name, 0.8 + i / 100, 0.9 + i / 100)]
    text = printed(runs, width=60, colour=True)
    assert text.count("\x1b[1;32m") == 1
    assert re.search(r"\x1b\[1;32m *91.00 %", text)
    assert "\x1b[" not in printed(runs)
