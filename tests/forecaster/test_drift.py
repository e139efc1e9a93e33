"""Drift and heartbeat: what is stable says ok, what moved says so, and what is unknown is never ok."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.drift import (
    MIN_PSI_ROWS,
    FeatureReference,
    Word,
    bin_counts,
    coverage_drift,
    feature_drift,
    loss_drift,
    population_stability,
    retrain_age,
)

NAMES = ("a", "b")
HOUR = 3600.0


def rows(seed, *, shift=0.0, n=4000):
    found = np.random.default_rng(seed).normal(0, 1, (n, 2))
    found[:, 1] += shift
    return found


REFERENCE = FeatureReference.of(rows(0), NAMES)


@pytest.mark.parametrize(("shift", "word"), [(0.0, Word.OK), (0.35, Word.WARN), (1.0, Word.ALERT)])
def test_a_feature_that_moves_is_told_by_name(shift, word):
    signal = feature_drift(REFERENCE, rows(1, shift=shift), NAMES)
    assert signal.word == word
    if shift:
        assert signal.detail.startswith("b moved most")


def test_the_index_of_shifted_normals_is_their_symmetric_divergence():
    # for two normals of one variance, KL(p|q) + KL(q|p) = shift^2; ten bins see a little less of it
    index = feature_drift(REFERENCE, rows(1, shift=0.5, n=40000), NAMES).value
    assert 0.2 < index < 0.26


def test_a_feature_that_goes_unknown_has_drifted():
    lost = rows(1)
    lost[: len(lost) // 2, 0] = np.nan
    assert feature_drift(REFERENCE, lost, NAMES).word == Word.ALERT


@pytest.mark.parametrize("value", [0.0, np.nan], ids=["constant", "unknown"])
def test_a_feature_that_never_varied_is_stable_while_it_does_not(value):
    still = np.full((1000, 1), value)
    reference = FeatureReference.of(still, ("still",))
    assert feature_drift(reference, still, ("still",)).word == Word.OK
    assert feature_drift(reference, still + np.arange(1000)[:, None] + 1, ("still",)).word == (
        Word.OK if np.isnan(value) else Word.ALERT
    )


def test_too_few_rows_or_no_reference_is_unknown():
    assert feature_drift(None, rows(1), NAMES).word == Word.UNKNOWN
    assert feature_drift(REFERENCE, rows(1)[: MIN_PSI_ROWS - 1], NAMES).word == Word.UNKNOWN
    assert feature_drift(REFERENCE, rows(1), ("x", "y")).word == Word.UNKNOWN


@settings(deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6) | st.just(np.nan), min_size=1, max_size=60),
    st.lists(st.floats(-1e6, 1e6) | st.just(np.nan), min_size=1, max_size=60),
)
def test_the_index_is_finite_not_negative_and_zero_for_the_same_rows(trained, seen):
    reference = FeatureReference.of(np.array(trained)[:, None], ("x",))
    ratios = np.array(reference.ratios["x"])
    assert ratios.sum() == pytest.approx(1.0)
    index = population_stability(ratios, bin_counts(np.array(seen), reference.edges["x"]))
    assert np.isfinite(index)
    assert index >= 0
    same = population_stability(ratios, bin_counts(np.array(trained), reference.edges["x"]))
    assert same == pytest.approx(0.0, abs=1e-9)


def test_the_reference_survives_a_manifest():
    kept = FeatureReference.from_json(json.loads(json.dumps(REFERENCE.to_json())))
    assert feature_drift(kept, rows(1, shift=0.3), NAMES).value == pytest.approx(
        feature_drift(REFERENCE, rows(1, shift=0.3), NAMES).value, rel=1e-6
    )


def test_a_value_that_many_rows_share_keeps_its_bin_in_a_manifest():
    shared = np.where(np.arange(1000) < 500, 1 / 3, np.linspace(0, 1, 1000))[:, None]
    kept = FeatureReference.from_json(json.loads(json.dumps(FeatureReference.of(shared, ("x",)).to_json())))
    assert feature_drift(kept, shared, ("x",)).value == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "damaged", [{"a": 1}, {"a": {"edges": [1]}}, {"a": {"edges": [1.0], "ratios": [1.0]}}, {"a": {"edges": ["x"]}}]
)
def test_a_damaged_reference_is_refused(damaged):
    with pytest.raises(ValueError, match=r"could not convert|train the model again"):
        FeatureReference.from_json(damaged)


def test_rows_that_do_not_fit_the_names_are_refused():
    with pytest.raises(ValueError, match="rows must have shape"):
        FeatureReference.of(np.empty((0, 2)), NAMES)


@pytest.mark.parametrize(
    ("covered", "windows", "word"),
    [
        (0.9, 100, Word.OK),
        (0.85, 100, Word.OK),
        (0.79, 100, Word.WARN),
        (0.7, 100, Word.ALERT),
        (1.0, 2000, Word.ALERT),
        (0.5, 19, Word.UNKNOWN),
        (np.nan, 100, Word.UNKNOWN),
    ],
)
def test_coverage_is_judged_beyond_two_standard_errors(covered, windows, word):
    assert coverage_drift(covered, level=0.9, num_windows=windows).word == word


@pytest.mark.parametrize(
    ("loss", "trivial", "windows", "word"),
    [
        (1.0, 1.0, 100, Word.OK),
        (1.05, 1.0, 100, Word.WARN),
        (1.2, 1.0, 100, Word.ALERT),
        (0.0, 0.0, 100, Word.OK),
        (0.1, 0.0, 100, Word.ALERT),
        (1.0, 1.0, 5, Word.UNKNOWN),
        (np.nan, 1.0, 100, Word.UNKNOWN),
    ],
)
def test_losing_to_the_trivial_is_told(loss, trivial, windows, word):
    assert loss_drift(loss, trivial, num_windows=windows).word == word


def test_a_retrain_that_fails_every_night_for_a_week_alerts_after_three():
    words = [retrain_age(0.0, now=night * 24 * HOUR + HOUR).word for night in range(8)]
    assert words == [Word.OK] * 2 + [Word.WARN] + [Word.ALERT] * 5


def test_a_retrain_that_never_succeeded_alerts_and_a_clock_ahead_does_not():
    assert retrain_age(None, now=0.0).word == Word.ALERT
    assert retrain_age(100.0, now=0.0).value == 0.0
