from dataclasses import fields, replace

import pytest

from training.comparison import FIGURES, headline, is_best
from training.scorecard import Scorecard

CARD = Scorecard(
    policy="foreshock",
    num_requests=1234,
    attainment_ratio=0.99,
    attainment_ratio_by_priority=(0.97, 0.99, 1.0),
    ttft_p50_seconds=0.11,
    ttft_p95_seconds=0.52,
    ttft_p99_seconds=1.73,
    tpot_p50_seconds=0.024,
    tpot_p95_seconds=0.068,
    replica_hours=2.5,
    gpu_hours=10.0,
    warm_cost_ratio=0.3,
    preemptions=7,
    shed_requests=12,
    unfinished_requests=3,
    scaling_actions=41,
)
NAN = float("nan")


class TestFigures:
    def test_cover_every_field_of_a_scorecard(self):
        counted = dict.fromkeys(("policy", "num_requests", "warm_cost_ratio"), 1.0)
        for field in fields(Scorecard):
            if field.name in counted:
                continue
            changed = replace(CARD, **{field.name: (0.5, 0.5, 0.5) if field.name.endswith("priority") else 99})
            assert any(f.show(f.value(changed)) != f.show(f.value(CARD)) for f in FIGURES), field.name

    def test_write_what_is_not_known_as_a_dash(self):
        unknown = replace(CARD, attainment_ratio=NAN, ttft_p50_seconds=NAN)
        shown = {figure.name: figure.show(figure.value(unknown)) for figure in FIGURES}
        assert (shown["within SLO"], shown["TTFT p50 s"]) == ("-", "-")


def figure(name: str):
    return next(figure for figure in FIGURES if figure.name == name)


class TestIsBest:
    def test_more_attainment_and_less_cost_are_better(self):
        other = replace(CARD, policy="hpa", attainment_ratio=0.9, gpu_hours=9.0)
        both = (CARD, other)
        assert [is_best(figure("within SLO"), card, both) for card in both] == [True, False]
        assert [is_best(figure("GPU-hours"), card, both) for card in both] == [False, True]

    def test_nobody_is_best_where_all_are_written_alike(self):
        other = replace(CARD, policy="hpa", gpu_hours=10.0001)
        assert not any(is_best(figure("GPU-hours"), card, (CARD, other)) for card in (CARD, other))

    def test_what_is_not_known_is_not_best(self):
        other = replace(CARD, policy="hpa", ttft_p95_seconds=NAN)
        both = (other, CARD)
        assert [is_best(figure("TTFT p95 s"), card, both) for card in both] == [False, True]


class TestHeadline:
    def test_gives_the_figures_of_both_and_the_difference(self):
        other = replace(CARD, policy="hpa", attainment_ratio=0.55, gpu_hours=12.5)
        assert headline((CARD, other)) == (
            "foreshock served 99.00 % of 1,234 requests within the SLO with 10.00 GPU-hours; "
            "hpa 55.00 % (44.00 points less) with 12.50 GPU-hours (25 % more)."
        )

    def test_does_not_hide_that_the_other_was_better(self):
        other = replace(CARD, policy="static:9", attainment_ratio=0.999, gpu_hours=5.0)
        assert "static:9 99.90 % (0.90 points more) with 5.00 GPU-hours (50 % fewer)" in headline((CARD, other))

    def test_makes_nothing_of_differences_that_are_none(self):
        other = replace(CARD, policy="hpa", attainment_ratio=0.9901, gpu_hours=10.01)
        assert headline((CARD, other)).endswith("; hpa the same share with 10.01 GPU-hours.")

    def test_one_policy_is_compared_with_none(self):
        assert headline((CARD,)).endswith("with 10.00 GPU-hours.")

    def test_needs_a_scorecard(self):
        with pytest.raises(ValueError, match="at least one"):
            headline(())
