"""Tables joined, and traces in shifted copies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.requests import Prefixes, RequestTable
from simulator.workload.composition import ClientWindow, composed_requests
from simulator.workload.lengths import MeasuredLengths, TokenLengths
from simulator.workload.superposition import copies_of_trace, joined


def table(arrivals, *, ids=None, follows=None):
    n = len(arrivals)
    return RequestTable.from_columns(
        np.array(arrivals, dtype=float),
        np.arange(1, n + 1),
        np.arange(1, n + 1),
        follows=follows,
        prefixes=Prefixes.from_lists(ids, group_tokens=16) if ids else None,
    )


def copies(trace, num_copies, *, shifts=(0.0, 0.0, 0.0), period=100.0, seed=0):
    return copies_of_trace(
        trace,
        num_copies=np.array(num_copies, dtype=float),
        shift_seconds=np.array(shifts),
        period_seconds=period,
        rng=np.random.default_rng(seed),
    )


class TestJoined:
    def test_order_followers_and_prefixes_hold(self):
        first = table([0, 4], ids=[[0, 1], [0]], follows=np.array([-1, 0]))
        second = table([1, 2], ids=[[0], [0, 1]], follows=np.array([-1, 0]))
        both = joined([first, second])
        assert both.arrival_seconds.tolist() == [0, 1, 2, 4]
        assert both.follows.tolist() == [-1, -1, 1, 0]
        assert both.prefixes.ids.tolist() == [0, 1, 2, 2, 3, 0]

    def test_groups_of_two_sizes_are_refused(self):
        other = table([0], ids=[[0]])
        grouped = RequestTable.from_columns(
            np.zeros(1), np.ones(1), np.ones(1), prefixes=Prefixes.from_lists([[0]], group_tokens=32)
        )
        with pytest.raises(ValueError, match="prefix groups of"):
            joined([other, grouped])


class TestCopies:
    def test_whole_copies_hold_every_request_once_each_moved_around_the_circle(self):
        trace = table([0, 30, 90])
        made = copies(trace, np.full(100, 2), shifts=(0.0, 20.0))
        assert made.arrival_seconds.tolist() == [0, 10, 20, 30, 50, 90]
        assert made.prompt_tokens.tolist() == [1, 3, 1, 2, 2, 3]

    def test_a_run_longer_than_the_circle_plays_it_again(self):
        assert copies(table([0, 30]), np.ones(150)).arrival_seconds.tolist() == [0, 30, 100, 130]

    def test_copies_share_no_prefix_with_each_other(self):
        made = copies(table([0, 1], ids=[[0], [0, 1]]), np.full(100, 2))
        assert sorted(made.prefixes.ids.tolist()) == [0, 0, 1, 2, 2, 3]

    @given(st.integers(0, 2**32), st.floats(0, 3))
    def test_the_mean_number_is_the_traces_times_the_copies(self, seed, num):
        trace = table(np.arange(2000) / 20)
        made = copies(trace, np.full(100, num), seed=seed)
        assert abs(made.num_requests - 2000 * num) <= 5 * np.sqrt(2000 / 4)

    def test_only_the_seconds_that_are_raised_hold_more(self):
        trace = table(np.arange(1000) / 10)
        made = copies(trace, [1] * 40 + [3] * 20 + [1] * 40)
        assert np.histogram(made.arrival_seconds, [0, 40, 60, 100])[0].tolist() == [400, 600, 400]

    @pytest.mark.parametrize(
        ("trace", "changes", "message"),
        [
            (table([0, 1], follows=np.array([-1, 0])), {}, "follow each other"),
            (table([0, 100]), {}, "longer than the trace"),
            (table([0]), {"num_copies": [4.0]}, "as many shifts, got 3"),
            (table([0]), {"num_copies": [-1.0]}, "finite and >= 0"),
        ],
    )
    def test_contradictions_are_refused(self, trace, changes, message):
        with pytest.raises(ValueError, match=message):
            copies(trace, **({"num_copies": [1.0]} | changes))


class TestComposition:
    def client(self, *windows, gaps="gamma", shape=1.0, prompt=100):
        lengths = TokenLengths(median=prompt, sigma=0, largest=10_000)
        return tuple(
            ClientWindow(number=number, rate_per_second=rate, gaps=gaps, shape=shape, prompt=lengths, output=lengths)
            for number, rate in windows
        )

    def test_every_client_has_its_rate_and_lengths_in_its_windows(self):
        clients = (self.client((0, 5.0), (2, 20.0)), self.client((1, 10.0), gaps="weibull", shape=0.8, prompt=700))
        factor = np.concatenate([np.ones(2000), np.full(1000, 2.0)])
        made = composed_requests(clients, factor, window_seconds=1000, rng=np.random.default_rng(0))
        counts = np.histogram(made.arrival_seconds, [0, 1000, 2000, 3000])[0]
        np.testing.assert_allclose(counts, [5000, 10_000, 40_000], rtol=0.06)
        assert set(made.prompt_tokens[(made.arrival_seconds >= 1000) & (made.arrival_seconds < 2000)]) == {700}

    def test_a_client_more_does_not_move_the_others(self):
        one, two = self.client((0, 5.0)), self.client((0, 3.0), prompt=900)
        alone, both = (
            composed_requests(clients, np.ones(100), window_seconds=100, rng=np.random.default_rng(3))
            for clients in ((one,), (one, two))
        )
        assert both.arrival_seconds[both.prompt_tokens == 100].tolist() == alone.arrival_seconds.tolist()


class TestMeasuredLengths:
    def test_are_drawn_with_their_probabilities_and_never_below_one(self):
        lengths = MeasuredLengths(tokens=np.array([0, 5, 9]), probabilities=np.array([1.0, 3.0, 0.0]))
        drawn = lengths.draw(100_000, np.random.default_rng(0))
        assert set(drawn.tolist()) == {1, 5}
        assert (drawn == 5).mean() == pytest.approx(0.75, abs=0.01)
        assert lengths.mean == 3.75

    @pytest.mark.parametrize("probabilities", [[0.0, 0.0], [1.0, -1.0], [np.nan, 1.0], [1.0]])
    def test_impossible_probabilities_are_refused(self, probabilities):
        with pytest.raises(ValueError, match="probabilit"):
            MeasuredLengths(tokens=np.array([1, 2]), probabilities=np.array(probabilities))
