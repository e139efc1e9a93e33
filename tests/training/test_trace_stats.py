from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.requests import RequestTable
from training.trace_stats import peak_to_mean, rolling_peak_to_mean, trace_statistics
from training.traces import read_trace

# traces/README.md of the public data: n, span_s, rate, p2m 1/5/10 s, ia_cv, prompt and output mean/p50/p99, prompt p2m
PUBLISHED = {
    "azure_llm_2023_code": (8819, 3435.9, 2.567, 26.11, 20.88, 12.79, 13.15, 2047.8, 1469, 7436, 27.9, 13, 251, 13.43),
    "azure_llm_2023_conv": (19366, 3501.7, 5.53, 2.89, 1.92, 1.77, 1.09, 1154.7, 1020, 4142, 211.1, 129, 601, 2.58),
}
DIGITS = (0, 1, 3, 2, 2, 2, 2, 1, 0, 0, 1, 0, 0, 2)


def table(arrivals, tokens=10):
    arrival = np.asarray(arrivals, dtype=np.float64)
    lengths = np.full(arrival.size, tokens)
    return RequestTable.from_columns(arrival, lengths, lengths)


@pytest.mark.parametrize("name", PUBLISHED)
def test_matches_the_published_figures_to_their_last_digit(shared, name):
    s = trace_statistics(read_trace(shared / "traces" / f"{name}.csv.gz").requests)
    mine = (
        s.num_requests,
        s.span_seconds,
        s.request_rate_per_second,
        s.peak_to_mean_1s,
        s.peak_to_mean_5s,
        s.peak_to_mean_10s,
        s.inter_arrival_cv,
        s.prompt_tokens.mean,
        s.prompt_tokens.p50,
        s.prompt_tokens.p99,
        s.output_tokens.mean,
        s.output_tokens.p50,
        s.output_tokens.p99,
        s.prompt_tokens_peak_to_mean_10s,
    )
    for value, published, digits in zip(mine, PUBLISHED[name], DIGITS, strict=True):
        # half a digit, and a hair for figures that were themselves halfway
        assert abs(value - published) <= 0.5001 * 10.0**-digits


@pytest.mark.parametrize(("name", "bursty"), [("azure_llm_2023_code", True), ("azure_llm_2023_conv", False)])
def test_verdict_on_real_traces(shared, name, bursty):
    assert trace_statistics(read_trace(shared / "traces" / f"{name}.csv.gz").requests).is_bursty is bursty


@given(st.lists(st.floats(0, 500), min_size=3, max_size=200), st.sampled_from([1, 5, 10]))
def test_peak_to_mean_agrees_with_counting_window_by_window(times, seconds):
    arrival = np.sort(np.array(times))
    arrival -= arrival[0]
    counts = [
        sum(1 for t in arrival if i * seconds <= t < (i + 1) * seconds) for i in range(int(arrival[-1] // seconds))
    ]
    if not counts or sum(counts) == 0:
        assert np.isnan(peak_to_mean(arrival, seconds))
    else:
        assert peak_to_mean(arrival, seconds) == pytest.approx(max(counts) / (sum(counts) / len(counts)))


@given(
    st.lists(st.floats(0, 60), min_size=2, max_size=60),
    st.sampled_from([1, 5, 10]),
    st.none() | st.integers(0, 80),
)
def test_rolling_peak_to_mean_agrees_with_counting_from_every_second(times, seconds, recorded):
    arrival = np.sort(np.array(times))
    num_seconds = int(arrival[-1]) if recorded is None else recorded
    within = [t for t in arrival if t < num_seconds]
    counts = [sum(1 for t in within if at <= t < at + seconds) for at in range(num_seconds - seconds + 1)]
    found = rolling_peak_to_mean(arrival, seconds, num_seconds=recorded)
    if not counts or not within:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(max(counts) / (len(within) / num_seconds * seconds))


def test_a_burst_across_a_border_counts_whole_when_the_window_rolls():
    arrival = np.concatenate([np.arange(0, 100, 1.0), np.linspace(13, 16.9, 40), [100]])
    statistics = trace_statistics(table(np.sort(arrival)))
    assert statistics.rolling_peak_to_mean_5s > 1.5 * statistics.peak_to_mean_5s


@pytest.mark.parametrize("late", [1e9, 3e9])
def test_one_far_request_costs_no_memory(late):
    statistics = trace_statistics(table([*np.arange(0, 60, 0.5), late]))
    assert statistics.peak_to_mean_1s == pytest.approx(2 / (120 / late))


def test_a_trace_too_short_to_tell_says_so():
    statistics = trace_statistics(table([0, 0.5]))
    assert statistics.peak_to_mean_1s is None
    assert statistics.unknown["peak_to_mean_1s"] == "needs a whole 1-s window, the trace has none"
    assert statistics.unknown["dispersion_60s"] == "needs 10 whole 60-s windows, the trace has 0"
    assert not statistics.is_bursty
    assert "as far as can be told" in statistics.verdict


def test_one_odd_second_does_not_make_a_trace_bursty():
    steady = np.arange(0, 600, 0.5)
    once = np.concatenate([steady, np.full(100, 100.25)])
    twice = np.concatenate([once, np.full(100, 450.25)])
    assert trace_statistics(table(once)).peak_to_mean_1s > 5
    assert not trace_statistics(table(once)).is_bursty
    assert trace_statistics(table(twice)).is_bursty


def test_does_not_depend_on_when_the_trace_begins():
    requests = table(np.arange(0, 60, 0.5))
    later = replace(requests, arrival_seconds=requests.arrival_seconds + 1000)
    assert trace_statistics(later) == trace_statistics(requests)


@pytest.mark.parametrize("arrivals", [[], [1.0], [1.0, 1.0]], ids=["none", "one", "at one time"])
def test_too_few_requests_are_an_error(arrivals):
    with pytest.raises(ValueError, match="two requests at different times"):
        trace_statistics(table(arrivals))
