from dataclasses import replace

import pytest
from rich.console import Console

from cli.comparison_table import comparison_table, narrow_table, table_notes
from forecaster.config import Slo
from training.comparison import FIGURES
from training.scorecard import Scorecard

CARD = Scorecard(
    policy="foreshock",
    num_requests=1234,
    attainment_ratio=0.9876,
    attainment_ratio_by_priority=(0.97, float("nan"), 1.0),
    ttft_p50_seconds=0.111,
    ttft_p95_seconds=0.522,
    ttft_p99_seconds=1.733,
    tpot_p50_seconds=0.024,
    tpot_p95_seconds=float("nan"),
    replica_hours=2.5,
    gpu_hours=10.25,
    warm_cost_ratio=0.3,
    preemptions=7,
    shed_requests=1212,
    unfinished_requests=3,
    scaling_actions=41,
)
CARDS = (CARD, replace(CARD, policy="hpa", attainment_ratio=0.5, gpu_hours=9.0))


def printed(table, *, width=110, colour=False) -> str:
    console = Console(width=width, record=True, force_terminal=colour, color_system="standard" if colour else None)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


class TestTables:
    @pytest.mark.parametrize("table", [comparison_table, narrow_table], ids=["wide", "narrow"])
    def test_give_the_figures_of_every_policy(self, table):
        text = printed(table(CARDS))
        for figure in FIGURES:
            if figure.on_terminal:
                for card in CARDS:
                    assert figure.show(figure.value(card)) in text
        assert "foreshock" in text
        assert "hpa" in text

    def test_one_line_a_policy(self):
        lines = [line for line in printed(comparison_table(CARDS)).splitlines() if line.strip()]
        assert len(lines) == 3 + len(CARDS)  # two of headings, a rule

    def test_the_narrow_one_fits_a_narrow_terminal(self):
        assert max(len(line) for line in printed(narrow_table(CARDS), width=60).splitlines()) <= 60
        assert "…" not in printed(narrow_table(CARDS), width=60)

    def test_colour_only_where_the_terminal_has_it(self):
        assert "\x1b[" not in printed(comparison_table(CARDS))
        assert "\x1b[1;32m98.76 %" in printed(comparison_table(CARDS), colour=True)
        assert "\x1b[1;32m50.00 %" not in printed(comparison_table(CARDS), colour=True)


def test_notes_state_the_targets_and_what_a_warm_replica_costs():
    notes = table_notes(Slo(ttft_seconds=0.8, tpot_seconds=0.1), 0.3)
    for words in ("TTFT <= 0.8 s", "TPOT <= 0.1 s", "as 0.3 of an active one"):
        assert words in notes
