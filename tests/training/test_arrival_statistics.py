import gzip
import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.requests import Prefixes
from training.arrival_statistics import (
    UnknownFigureError,
    autocorrelation,
    dfa_exponent,
    hurst_dfa,
    index_of_dispersion,
    prefix_hit_potential_ratio,
)
from training.traces import read_trace

# traces/README.md of the public data: hurst_dfa_1s, acf30_prompt10s
PUBLISHED = {"code": (0.89, 0.095), "conv": (0.69, 0.739), "mooncake": (0.35, 0.067)}


@pytest.fixture(params=PUBLISHED)
def published(request, shared):
    """Return a public trace's arrivals and prompt tokens as they are written, and its published figures."""
    if request.param == "mooncake":  # its published figures are those of times on a grid of 3 s, which read_trace mends
        with gzip.open(shared / "traces" / "mooncake_conversation.jsonl.gz") as file:
            rows = [json.loads(line) for line in file]
        arrival = np.array([row["timestamp"] / 1e3 for row in rows])
        prompt = np.array([row["input_length"] for row in rows])
    else:
        requests = read_trace(shared / "traces" / f"azure_llm_2023_{request.param}.csv.gz").requests
        arrival, prompt = requests.arrival_seconds, requests.prompt_tokens
    return arrival, prompt, *PUBLISHED[request.param]


def test_hurst_is_the_published_one(published):
    arrival, _, hurst, _ = published
    assert round(hurst_dfa(arrival), 2) == hurst


def test_autocorrelation_is_the_published_one(published):
    arrival, prompt, _, acf = published
    assert round(autocorrelation(arrival, prompt, window_seconds=10, lag_seconds=30), 3) == acf


def test_prefix_hit_potential_of_mooncake_agrees_with_walking_a_set(shared):
    requests = read_trace(shared / "traces" / "mooncake_conversation.jsonl.gz").requests
    found = prefix_hit_potential_ratio(requests.prompt_tokens, requests.prefixes)
    starts, ids = requests.prefixes.starts, requests.prefixes.ids.tolist()
    lists = [ids[a:b] for a, b in pairwise(starts)]
    assert found == pytest.approx(walked(requests.prompt_tokens, lists, 512))


def walked(prompt_tokens, ids_by_request, group_tokens):
    seen, num_hit = set(), 0
    for tokens, ids in zip(prompt_tokens, ids_by_request, strict=True):
        leading = next((i for i, group in enumerate(ids) if group not in seen), len(ids))
        num_hit += min(leading, (tokens - 1) // group_tokens) * group_tokens
        seen |= set(ids)
    return num_hit / sum(prompt_tokens)


@given(st.data())
def test_prefix_hit_potential_agrees_with_walking_a_set(data):
    ids = data.draw(st.lists(st.lists(st.integers(0, 9), max_size=4, unique=True), min_size=1, max_size=12))
    ids.append([3])  # one prompt has an id, so that there is a figure
    tokens = np.array([4 * max(len(i), 1) - data.draw(st.integers(0, 3)) for i in ids])
    found = prefix_hit_potential_ratio(tokens, Prefixes.from_lists(ids, group_tokens=4))
    assert found == pytest.approx(walked(tokens, ids, 4))


@pytest.mark.parametrize("window_seconds", [1, 30, 60])
def test_dispersion_of_poisson_arrivals_is_about_1(window_seconds):
    rng = np.random.default_rng(3)
    arrival = np.sort(rng.uniform(0, 60_000, rng.poisson(300_000)))
    standard_error = np.sqrt(2 / (60_000 / window_seconds))
    assert index_of_dispersion(arrival, window_seconds) == pytest.approx(1, abs=4 * standard_error)


@given(st.integers(1, 5), st.sampled_from([1, 30, 60]))
def test_dispersion_of_regular_arrivals_is_0(per_second, window_seconds):
    assert index_of_dispersion(np.arange(700 * per_second) / per_second, window_seconds) == 0


def test_dispersion_of_doubled_arrivals_is_doubled():
    arrival = np.sort(np.random.default_rng(5).uniform(0, 1000, 3000))
    assert index_of_dispersion(np.repeat(arrival, 2), 1) == pytest.approx(2 * index_of_dispersion(arrival, 1))


def test_hurst_of_white_noise_is_about_a_half_and_of_its_sum_one_more():
    noise = np.random.default_rng(7).normal(size=20_000)
    assert dfa_exponent(noise) == pytest.approx(0.5, abs=0.05)
    assert dfa_exponent(np.cumsum(noise)) == pytest.approx(1.5, abs=0.1)


def test_hurst_of_poisson_arrivals_is_about_a_half():
    arrival = np.sort(np.random.default_rng(9).uniform(0, 20_000, 100_000))
    assert hurst_dfa(arrival) == pytest.approx(0.5, abs=0.05)


def test_autocorrelation_follows_a_period():
    arrival = np.arange(0, 1201, 0.5)
    period = np.where(arrival // 10 % 6 < 3, 1, 5)  # 60 s, so that 30 s is half of it
    found = autocorrelation(arrival, period, window_seconds=10, lag_seconds=30)
    assert found == pytest.approx(-1, abs=0.05)


@pytest.mark.parametrize(
    ("figure", "reason"),
    [
        (lambda: index_of_dispersion(np.zeros(0), 1), "needs 10 whole 1-s windows, the trace has 0"),
        (lambda: index_of_dispersion(np.array([0, 3e9]), 1), "3,000,000,000 windows of 1 s are more than"),
        (lambda: hurst_dfa(np.arange(255.0)), "needs 256 whole 1-s windows, the trace has 254"),
        (lambda: hurst_dfa(np.arange(3000.0)), "the seconds do not vary"),
        (
            lambda: autocorrelation(np.arange(500.0), np.ones(500, dtype=int), window_seconds=10, lag_seconds=30),
            "the 10-s windows do not vary",
        ),
        (lambda: prefix_hit_potential_ratio(np.array([5]), Prefixes.none(1)), "the trace has no prefix ids"),
    ],
)
def test_what_a_trace_cannot_tell_has_a_reason(figure, reason):
    with pytest.raises(UnknownFigureError, match=reason):
        figure()
