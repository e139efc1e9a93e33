"""Step times: more work never takes less time, and the table that the engine reads is what the knots say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.errors import ConfigError
from simulator.step_time import StepTime

seconds = st.floats(1e-4, 1.0)
coefficients = st.floats(0.0, 1e-3)


@st.composite
def step_times(draw):
    knots = sorted(draw(st.sets(st.integers(1, 5000), min_size=2, max_size=8)))
    return StepTime(
        token_knots=tuple(knots),
        knot_seconds=tuple(sorted(draw(st.lists(seconds, min_size=len(knots), max_size=len(knots))))),
        seconds_per_decode_context_token=draw(coefficients),
        seconds_per_prefill_attention=draw(coefficients),
        seconds_per_sequence=draw(coefficients),
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

    def test_are_all_named_at_once(self):
        with pytest.raises(ConfigError, match=r"knot_seconds must be .*; coefficients must be"):
            StepTime(**{**GOOD, "knot_seconds": (0.2, 0.1), "seconds_per_sequence": -1.0})
