"""Step times: more work never takes less time, and the table that the engine reads is what the knots say."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.errors import ConfigError
from simulator.profiles import profile_named
from simulator.requests import RequestTable
from simulator.static_fleet import simulate_static
from simulator.step_time import StepTime

seconds = st.floats(1e-4, 1.0)
coefficients = st.floats(0.0, 1e-3)


@st.composite
def step_times(draw):
    knots = sorted(draw(st.sets(st.integers(1, 5000), min_size=2, max_size=8)))
    formula = StepTime(
        token_knots=tuple(knots),
        knot_seconds=tuple(sorted(draw(st.lists(seconds, min_size=len(knots), max_size=len(knots))))),
        seconds_per_decode_context_token=draw(coefficients),
        seconds_per_prefill_attention=draw(coefficients),
        seconds_per_sequence=draw(coefficients),
    )
    return draw(st.sampled_from([formula, draw(with_decode_knots(formula))]))


@st.composite
def with_decode_knots(draw, formula):
    """The same with any table of steps that only decode that is nowhere slower than a step with a prompt token."""
    knots = np.array(sorted(draw(st.sets(st.integers(1, 300), min_size=2, max_size=6))))
    ratios = st.lists(st.floats(0.01, 1.0), min_size=knots.size, max_size=knots.size)
    # no knot is above the mixed step at the knot before, so none between them is
    most = formula.token_seconds(300)[np.r_[1, knots[:-1]]]
    base = np.maximum.accumulate(most * draw(ratios))
    product = np.maximum.accumulate(knots * formula.seconds_per_decode_context_token * draw(ratios))
    return replace(
        formula,
        decode_knots=tuple(knots.tolist()),
        decode_knot_seconds=tuple(base.tolist()),
        decode_knot_context_seconds=tuple((product / knots).tolist()),
    )


@settings(max_examples=50, deadline=None, derandomize=True)
@given(step=step_times())
def test_table_never_falls_and_meets_the_knots(step):
    table = step.token_seconds(6000)
    assert table.shape == (6001,)
    assert (np.diff(table) >= -1e-15).all()
    np.testing.assert_allclose(table[list(step.token_knots)], step.knot_seconds, rtol=1e-12)
    assert (table[: step.token_knots[0]] == step.knot_seconds[0]).all()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    step=step_times(),
    chunk=st.integers(0, 3000),
    prefix=st.integers(0, 9000),
    num_decodes=st.integers(0, 200),
    context=st.integers(0, 9000),
    more=st.integers(1, 500),
)
def test_more_work_never_takes_less_time(step, chunk, prefix, num_decodes, context, more):
    given_work = {
        "prefill_tokens": chunk,
        "prefix_tokens": prefix,
        "num_decodes": num_decodes,
        "mean_context_tokens": context,
    }
    base = step.seconds(**given_work)
    for name, amount in given_work.items():
        assert step.seconds(**{**given_work, name: amount + more}) >= base * (1 - 1e-12), name


def test_goes_on_as_between_the_last_two_knots():
    step = StepTime(
        token_knots=(1, 10, 20),
        knot_seconds=(1.0, 2.0, 4.0),
        seconds_per_decode_context_token=0.0,
        seconds_per_prefill_attention=0.0,
    )
    assert step.token_seconds(40)[[0, 1, 15, 20, 30, 40]].tolist() == pytest.approx([1.0, 1.0, 3.0, 4.0, 6.0, 8.0])


def test_terms_add_up():
    step = StepTime(
        token_knots=(1, 101),
        knot_seconds=(1.0, 101.0),
        seconds_per_decode_context_token=0.5,
        seconds_per_prefill_attention=0.25,
        seconds_per_sequence=10.0,
    )
    # 4 + 3 tokens, 4 sequences, context 3 x 20, pairs 4 x (6 + 2)
    expected = 7.0 + 0.5 * 60 + 0.25 * 32 + 10.0 * 4
    assert step.seconds(prefill_tokens=4, prefix_tokens=6, num_decodes=3, mean_context_tokens=20) == expected


class TestDecodeTable:
    step = StepTime(
        token_knots=(1, 100),
        knot_seconds=(1.0, 10.0),
        seconds_per_decode_context_token=0.1,
        seconds_per_prefill_attention=0.0,
        decode_knots=(2, 4, 8),
        decode_knot_seconds=(0.2, 0.4, 0.5),
        decode_knot_context_seconds=(0.1, 0.06, 0.04),
    )

    def test_meets_its_knots(self):
        expected = [[0.2, 0.1], [0.4, 0.06], [0.5, 0.04]]
        np.testing.assert_allclose(self.step.decode_seconds(8)[[2, 4, 8]], expected)

    def test_is_linear_between_and_beyond(self):
        base, slope = self.step.decode_seconds(16).T
        assert base[[0, 1, 3, 6, 16]].tolist() == pytest.approx([0.2, 0.2, 0.3, 0.45, 0.7])
        # at 3 the product of batch size and slope is halfway between 0.2 and 0.24
        assert slope[[1, 3, 16]].tolist() == pytest.approx([0.1, 0.22 / 3, 0.04])

    def test_is_what_a_step_without_a_prompt_takes(self):
        assert self.step.seconds(num_decodes=4, mean_context_tokens=10) == pytest.approx(0.4 + 0.06 * 40)
        assert self.step.seconds(num_decodes=4, mean_context_tokens=10, prefill_tokens=1) > 1

    @settings(max_examples=100, deadline=None, derandomize=True)
    @given(step=step_times(), more=st.integers(1, 300))
    def test_never_falls_with_the_batch_at_the_same_mean_context(self, step, more):
        base, slope = step.decode_seconds(300).T
        assert (np.diff(base) >= -1e-12).all()
        assert (np.diff(slope * np.arange(301)) >= -1e-12).all()


def test_closed_form_is_linear_in_its_five_terms():
    step = StepTime.closed_form(
        step_seconds=1.0,
        seconds_per_token=0.01,
        seconds_per_context_token=1e-4,
        seconds_per_attention_pair=1e-5,
        seconds_per_sequence=0.1,
    )
    mixed = 1.0 + 0.01 * 503 + 1e-4 * 3 * 2000 + 1e-5 * 500 * (1000 + 250) + 0.1 * 4
    given_work = {"prefill_tokens": 500, "prefix_tokens": 1000, "num_decodes": 3, "mean_context_tokens": 2000}
    assert step.seconds(**given_work) == pytest.approx(mixed)
    assert step.seconds(num_decodes=3, mean_context_tokens=2000) == pytest.approx(1.0 + 0.03 + 0.6 + 0.3)


GOOD = {
    "token_knots": (1, 10),
    "knot_seconds": (0.1, 0.2),
    "seconds_per_decode_context_token": 0.0,
    "seconds_per_prefill_attention": 0.0,
}


class TestMistakes:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            pytest.param({"token_knots": (1,)}, "same length, at least 2", id="too few knots"),
            pytest.param({"token_knots": (10, 1)}, "token_knots must increase", id="falling knots"),
            pytest.param({"token_knots": (0, 1)}, "token_knots must increase from 1", id="knot at zero"),
            pytest.param({"knot_seconds": (0.2, 0.1)}, "not decrease, got", id="falling seconds"),
            pytest.param({"knot_seconds": (0.0, 0.1)}, "knot_seconds must be > 0", id="step of no time"),
            pytest.param({"seconds_per_sequence": -1.0}, "finite and >= 0", id="negative"),
            pytest.param({"seconds_per_prefill_attention": float("nan")}, "finite and >= 0", id="unknown"),
        ],
    )
    def test_are_refused(self, change, message):
        with pytest.raises(ConfigError, match=message):
            StepTime(**{**GOOD, **change})

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            pytest.param({"decode_knots": (1,)}, "same length, at least 2", id="too few knots"),
            pytest.param({"decode_knots": (8, 1)}, "decode_knots must increase from 1", id="falling knots"),
            pytest.param({"decode_knot_seconds": (0.09, 0.08)}, "decode_knot_seconds must be", id="falling seconds"),
            pytest.param({"decode_knot_context_seconds": (0.01, 0.001)}, "must be >= 0 and not", id="falling product"),
            pytest.param({"decode_knot_seconds": (0.05, 0.3)}, "more than with a prompt token", id="slower than mixed"),
            pytest.param({"decode_knot_context_seconds": (0.02, 0.02)}, "more than with a", id="context above a"),
        ],
    )
    def test_of_the_decode_table_are_refused(self, change, message):
        table = {
            "decode_knots": (1, 8),
            "decode_knot_seconds": (0.05, 0.06),
            "decode_knot_context_seconds": (0.01, 0.01),
        }
        good = {**GOOD, "knot_seconds": (0.1, 0.12), "seconds_per_decode_context_token": 0.01}
        StepTime(**{**good, **table})
        with pytest.raises(ConfigError, match=message):
            StepTime(**{**good, **table, **change})

    def test_are_all_named_at_once(self):
        with pytest.raises(ConfigError, match=r"knot_seconds must be .*; coefficients must be"):
            StepTime(**{**GOOD, "knot_seconds": (0.2, 0.1), "seconds_per_sequence": -1.0})


def test_engine_takes_both_tables():
    profile = replace(profile_named("llama-3.1-8b-a100-tp1"), step_time=TestDecodeTable.step)
    requests = RequestTable.from_columns(np.zeros(3), np.full(3, 10), np.full(3, 4))
    result = simulate_static(requests, profile, num_replicas=1)
    # the first request is prefilled alone, then the others beside its first decode, then they decode together
    seconds = TestDecodeTable.step.seconds
    first = seconds(prefill_tokens=10)
    second = first + seconds(prefill_tokens=20, num_decodes=1, mean_context_tokens=10)
    assert result.first_token_at.tolist() == pytest.approx([first, second, second])
    last = second + seconds(num_decodes=3, mean_context_tokens=(11 + 10 + 10) / 3)
    last += seconds(num_decodes=3, mean_context_tokens=(12 + 11 + 11) / 3)
    assert result.finished_at[0] == pytest.approx(last)
