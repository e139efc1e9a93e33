import warnings
from dataclasses import replace

import numpy as np
import pytest

from simulator import extrapolation
from simulator.extrapolation import ExtrapolationWarning
from simulator.profiles import DEFAULT_PROFILE, profile_named
from simulator.requests import RequestTable
from simulator.static_fleet import simulate_static

PROFILE = profile_named(DEFAULT_PROFILE)


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch):
    monkeypatch.setattr(extrapolation, "_warned", set())


def requests(prompt_tokens, num_requests=3):
    return RequestTable.from_columns(
        np.arange(num_requests) / 10, np.full(num_requests, prompt_tokens), np.full(num_requests, 5)
    )


def play(profile, prompt_tokens):
    simulate_static(requests(prompt_tokens), profile, num_replicas=1)


def test_warns_once_per_profile_in_one_line():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        play(PROFILE, 9000)
        play(PROFILE, 10_000)
        play(replace(PROFILE, name="another"), 9000)
    first, second = (str(warning.message) for warning in caught)
    assert PROFILE.name in first
    assert "another" in second
    assert "9,005 tokens" in first
    assert "8,192" in first
    assert "\n" not in first


@pytest.mark.parametrize("prompt_tokens", [100, 8187])
def test_is_silent_within_the_points(prompt_tokens):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(PROFILE, prompt_tokens)


def test_is_silent_where_the_points_are_unknown():
    unknown = replace(PROFILE, calibrated_batch_size=None, calibrated_step_tokens=None, calibrated_context_tokens=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(unknown, 20_000)


def test_names_batch_and_step_tokens_that_a_run_may_reach():
    small = replace(PROFILE, calibrated_batch_size=2, calibrated_step_tokens=1024)
    with pytest.warns(ExtrapolationWarning, match=r"batch of up to 3 sequences.*step of up to 2,048 tokens"):
        play(small, 1000)
