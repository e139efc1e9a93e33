"""The gate: what may become champion, and that nothing worse than the trivial or unknown ever does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.promotion import MIN_BLOCKS, GateRules, decide, mean_interval

LEVELS = (0.5, 0.9, 0.99)
RULES = GateRules(block_rows=10, num_draws=200)
ROWS = 40 * RULES.block_rows


def losses(mean, seed=0, rows=ROWS):
    """Losses with noise that all forecasters share, as they share the outcomes."""
    noise = np.random.default_rng(seed).gamma(2.0, 0.5, rows)
    return mean * noise / noise.mean()


def decided(candidate, champion, trivial, *, coverage=LEVELS, fresher=True, alone=None, rules=RULES):
    return decide(
        candidate,
        champion,
        trivial,
        coverage_ratio=np.array(coverage),
        levels=LEVELS,
        fresher=fresher,
        rng=np.random.default_rng(1),
        alone=alone,
        rules=rules,
    )


@pytest.mark.parametrize(
    ("candidate", "champion", "fresher", "promote", "reason"),
    [
        (0.8, 1.0, False, True, "better than the champion"),
        (0.8, 1.0, True, True, "better than the champion"),
        (1.005, 1.0, True, True, "on fresher data and not worse"),
        (1.005, 1.0, False, False, "not clearly better"),
        (1.0, 1.0, False, False, "not clearly better"),
        (1.02, 1.0, True, False, "worse than the champion"),
        (1.0, None, False, True, "no champion yet"),
    ],
)
def test_the_champion_is_replaced_by_what_is_better_or_fresher_and_not_worse(
    candidate, champion, fresher, promote, reason
):
    decision = decided(losses(candidate), None if champion is None else losses(champion), losses(1.2), fresher=fresher)
    assert decision.promote == promote
    assert reason in decision.reasons[0]
    assert len(decision.reasons) == 1


def test_a_gain_within_the_noise_is_no_gain():
    rng = np.random.default_rng(3)
    candidate = losses(1.0) + rng.normal(0, 0.3, ROWS) - 0.001
    decision = decided(np.abs(candidate), losses(1.0), losses(1.2), fresher=False)
    low, high = decision.difference_interval
    assert low < 0 < high
    assert not decision.promote


def test_freshness_does_not_excuse_a_model_that_the_mixture_ignores():
    one, trivial = losses(1.0), losses(1.2)
    decision = decided(one, one, trivial, alone=(losses(9.0), losses(1.1)))
    assert not decision.promote
    assert "outside the mixture: 9.0000 against 1.1000" in decision.reasons[0]
    assert decided(one, one, trivial, alone=(losses(1.1), losses(1.1))).promote
    assert decided(losses(0.8), one, trivial, alone=(losses(1.2), losses(1.1))).promote


def test_every_objection_is_told():
    decision = decided(losses(1.5), losses(1.0), losses(1.2), coverage=(0.9, 0.9, 0.5))
    text = "; ".join(decision.reasons)
    for part in ("trivial", "coverage at 0.5 is 0.900", "coverage at 0.99 is 0.500", "worse than the champion"):
        assert part in text


@settings(max_examples=100, deadline=None)
@given(
    ratio=st.floats(1.021, 50),
    champion=st.floats(0.01, 100) | st.none(),
    fresher=st.booleans(),
    seed=st.integers(0, 99),
)
def test_what_is_worse_than_the_trivial_is_never_promoted(ratio, champion, fresher, seed):
    trivial = losses(1.0, seed)
    other = None if champion is None else losses(champion, seed + 1)
    assert not decided(trivial * ratio, other, trivial, fresher=fresher).promote


@settings(max_examples=100, deadline=None)
@given(
    position=st.integers(0, ROWS - 1),
    bad=st.sampled_from([np.nan, np.inf, -np.inf]),
    where=st.sampled_from(["candidate", "champion", "trivial", "coverage"]),
)
def test_nothing_unknown_is_promoted(position, bad, where):
    given = {"candidate": losses(0.5), "champion": losses(1.0), "trivial": losses(1.2), "coverage": np.array(LEVELS)}
    assert decided(**given).promote
    given[where][position % given[where].size] = bad
    decision = decided(**given)
    assert not decision.promote
    assert "NaN or infinite" in decision.reasons[0]


@given(rows=st.integers(0, MIN_BLOCKS * RULES.block_rows - 1))
def test_too_few_rows_prove_nothing(rows):
    decision = decided(losses(1.0)[:rows] * 0.1, losses(1.0)[:rows], losses(1.0)[:rows])
    assert not decision.promote
    assert f"only {rows} held-out rows" in decision.reasons[0]


def test_a_night_without_load_proves_nothing():
    nothing = np.zeros(ROWS)
    decision = decided(nothing, nothing, nothing)
    assert not decision.promote
    assert "no load" in decision.reasons[0]


@settings(max_examples=60, deadline=None)
@given(st.floats(0.3, 3), st.floats(0.3, 3), st.floats(0.3, 3), st.booleans(), st.integers(0, 99))
def test_a_promoted_candidate_is_at_most_a_hundredth_worse_than_the_champion(a, b, c, fresher, seed):
    decision = decided(losses(a, seed), losses(b, seed), losses(c, seed + 1), fresher=fresher)
    if decision.promote:
        assert decision.candidate_loss <= decision.champion_loss * (1 + RULES.worse_ratio)
        assert decision.candidate_loss <= decision.trivial_loss * (1 + RULES.worse_than_trivial_ratio)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.5, 1.5), st.floats(0.1, 1.0), st.integers(0, 99))
def test_less_loss_never_turns_a_promotion_into_a_refusal(mean, factor, seed):
    champion, trivial = losses(1.0, seed), losses(1.1, seed)
    if decided(losses(mean, seed), champion, trivial).promote:
        assert decided(losses(mean * factor, seed), champion, trivial).promote


def test_the_same_question_has_the_same_answer():
    one, two = (decided(losses(0.99), losses(1.0, 5), losses(1.2)) for _ in range(2))
    assert one == two


def test_coverage_within_two_standard_errors_and_the_tolerance_passes():
    error = 2 * np.sqrt(0.9 * 0.1 / (ROWS / RULES.block_rows))
    for off, promoted in ((0.9 * (RULES.coverage_tolerance_ratio + error), True), (0.04 + error, False)):
        assert decided(losses(0.8), losses(1.0), losses(1.2), coverage=(0.5, 0.9 - off, 0.99)).promote == promoted


def test_the_interval_covers_the_mean_of_independent_values_as_often_as_it_says():
    rng = np.random.default_rng(11)
    rules = GateRules(block_rows=5, num_draws=200)
    inside = 0
    for _ in range(200):
        low, high = mean_interval(rng.normal(1.0, 2.0, 400), rng, rules=rules)
        inside += low <= 1.0 <= high
    # 0.95 nominal; two binomial standard errors are 0.03, a bootstrap of 80 blocks is a little short
    assert 0.89 <= inside / 200 <= 0.99


def test_the_interval_of_runs_is_wider_than_if_rows_were_independent():
    rng = np.random.default_rng(12)
    runs = np.repeat(rng.normal(0, 1, 40), 10)
    wide, narrow = (
        np.ptp(mean_interval(runs, np.random.default_rng(0), rules=GateRules(block_rows=rows, num_draws=400)))
        for rows in (10, 1)
    )
    assert wide > 2 * narrow


def test_losses_of_different_rows_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        decided(losses(1.0), losses(1.0)[:-1], losses(1.0))
    with pytest.raises(ValueError, match="coverage that of levels"):
        decided(losses(1.0), losses(1.0), losses(1.0), coverage=(0.5,))
