"""A replica where it is a queue of textbooks, against their formulas; what any fleet conserves, whatever it does.

Every band is four standard errors of the simulated mean at its fixed seed. Blocks at every step, under preemption,
cancellation and death, are in test_faults, test_engine_detail and test_gateway: books.py counts them afresh.
"""

from heapq import heapify, heapreplace
from math import ceil, factorial

import numpy as np
import pytest
from queues import (
    SECONDS_PER_TOKEN,
    SINGLE_SERVER,
    STEP_SECONDS,
    assert_mean_is,
    four_standard_errors,
    many_servers,
    played,
    poisson_arrivals,
)

from simulator.gateway import ROUTERS
from simulator.profiles import profile_named
from simulator.requests import RequestTable

MEAN_PROMPT_TOKENS = 1000
MEAN_SERVICE_SECONDS = MEAN_PROMPT_TOKENS * SECONDS_PER_TOKEN


def exponential_prompts(rng, n):
    return np.ceil(rng.exponential(MEAN_PROMPT_TOKENS, n)).astype(np.int64).clip(1, 19_999)


def equal_prompts(rng, n):
    return np.full(n, MEAN_PROMPT_TOKENS)


def two_kinds_of_prompts(rng, n):
    """One in ten takes five times the mean."""
    return np.where(rng.random(n) < 0.1, 5000, 5000 // 9).astype(np.int64)


def single_server_requests(prompts, *, utilisation_ratio, num_requests, seed, **columns):
    rng = np.random.default_rng(seed)
    tokens = prompts(rng, num_requests)
    arrival = poisson_arrivals(rng, num_requests, rate_per_second=utilisation_ratio / MEAN_SERVICE_SECONDS)
    return RequestTable.from_columns(arrival, tokens, np.ones(num_requests), **columns)


def service_of(requests):
    return requests.prompt_tokens * SECONDS_PER_TOKEN


def waits_of(result):
    return result.finished_at - result.requests.arrival_seconds - service_of(result.requests)


class TestSingleServer:
    """Steps of one prompt each, as long as the prompt."""

    def test_each_request_waits_as_in_lindleys_recursion(self):
        requests = single_server_requests(exponential_prompts, utilisation_ratio=0.9, num_requests=20_000, seed=1)
        free_at, expected = 0.0, []
        for arrival, seconds in zip(requests.arrival_seconds, service_of(requests), strict=True):
            free_at = max(arrival, free_at) + seconds
            expected.append(free_at)
        np.testing.assert_allclose(played(requests, SINGLE_SERVER).finished_at, expected, rtol=1e-9)

    @pytest.mark.parametrize(
        ("prompts", "squared_variation", "utilisation_ratio"),
        [
            pytest.param(exponential_prompts, 1.0, 0.5, id="M/M/1 half busy"),
            pytest.param(exponential_prompts, 1.0, 0.8, id="M/M/1 busy"),
            pytest.param(equal_prompts, 0.0, 0.7, id="M/D/1"),
            pytest.param(equal_prompts, 0.0, 0.9, id="M/D/1 busy"),
            pytest.param(two_kinds_of_prompts, 1.777, 0.7, id="M/G/1"),
        ],
    )
    def test_mean_wait_is_pollaczek_and_khinchines(self, prompts, squared_variation, utilisation_ratio):
        """W = rho (1 + c^2) / (2 (1 - rho)) x mean service; c^2 is 1 for M/M/1, 0 for M/D/1."""
        requests = single_server_requests(prompts, utilisation_ratio=utilisation_ratio, num_requests=200_000, seed=2)
        expected = utilisation_ratio * (1 + squared_variation) / (2 * (1 - utilisation_ratio)) * MEAN_SERVICE_SECONDS
        assert_mean_is(expected, waits_of(played(requests, SINGLE_SERVER)))

    def test_wait_that_is_not_zero_is_exponential_in_an_mm1_queue(self):
        """P(W > t) = rho exp(-(1 - rho) t / mean service)."""
        requests = single_server_requests(exponential_prompts, utilisation_ratio=0.6, num_requests=200_000, seed=5)
        waits = waits_of(played(requests, SINGLE_SERVER))
        for services in (0.0, 1.0, 3.0):
            longer = waits > services * MEAN_SERVICE_SECONDS + 1e-9
            assert_mean_is(0.6 * np.exp(-(1 - 0.6) * services), longer.astype(float))

    def test_mean_wait_of_each_priority_is_cobhams(self):
        """Without preemption W_k = W0 / ((1 - sigma_more_important) (1 - sigma_up_to_k)), W0 = rho mean service.

        Cobham (1954), "Priority assignment in waiting line problems".
        """
        n, rho, shares = 300_000, 0.8, (0.5, 0.3, 0.2)
        priority = np.random.default_rng(8).choice(3, n, p=shares)
        requests = single_server_requests(
            exponential_prompts, utilisation_ratio=rho, num_requests=n, seed=9, priority=priority
        )
        waits = waits_of(played(requests, SINGLE_SERVER, scheduling_policy="priority"))
        above = 0.0
        for level in (2, 1, 0):
            upto = above + rho * shares[level]
            expected = rho * MEAN_SERVICE_SECONDS / ((1 - above) * (1 - upto))
            assert_mean_is(expected, waits[requests.priority == level])
            above = upto


def erlang_c(num_servers, offered):
    """Return the probability of waiting in an M/M/c queue at `offered` = arrival rate x mean service (Erlang 1917)."""
    last = offered**num_servers / factorial(num_servers) * num_servers / (num_servers - offered)
    return last / (sum(offered**k / factorial(k) for k in range(num_servers)) + last)


class TestManyServers:
    """Steps that last as long whatever they hold: `max_num_seqs` servers, answers of a geometric number of steps."""

    mean_steps = 200

    def requests(self, num_servers, utilisation_ratio, *, num_requests, seed):
        rng = np.random.default_rng(seed)
        rate = utilisation_ratio * num_servers / (self.mean_steps * STEP_SECONDS)
        arrival = poisson_arrivals(rng, num_requests, rate_per_second=rate)
        steps = rng.geometric(1 / self.mean_steps, num_requests)
        return RequestTable.from_columns(arrival, np.ones(num_requests), steps)

    @pytest.mark.parametrize(("num_servers", "utilisation_ratio"), [(1, 0.6), (3, 0.9), (8, 0.8)])
    def test_each_request_begins_as_in_kiefer_and_wolfowitz_recursion(self, num_servers, utilisation_ratio):
        """The first free server takes it, at the end of the step under way."""
        requests = self.requests(num_servers, utilisation_ratio, num_requests=10_000, seed=11)
        free_at, grid_at, expected = [0.0] * num_servers, 0.0, []
        heapify(free_at)
        for arrival, steps in zip(requests.arrival_seconds, requests.output_tokens, strict=True):
            if max(free_at) <= arrival:
                grid_at = arrival  # nobody is served: the next step begins at once
            num_steps = ceil((max(arrival, free_at[0]) - grid_at) / STEP_SECONDS - 1e-6)
            start = grid_at + num_steps * STEP_SECONDS
            heapreplace(free_at, start + steps * STEP_SECONDS)
            expected.append((start + STEP_SECONDS, start + steps * STEP_SECONDS))
        result = played(requests, many_servers(num_servers))
        np.testing.assert_allclose(np.column_stack([result.first_token_at, result.finished_at]), expected, rtol=1e-9)

    @pytest.mark.parametrize(
        ("num_servers", "utilisation_ratio"),
        [
            pytest.param(1, 0.7, id="M/M/1"),
            pytest.param(2, 0.8, id="M/M/2"),
            pytest.param(5, 0.8, id="M/M/5"),
        ],
    )
    def test_mean_wait_is_erlangs(self, num_servers, utilisation_ratio):
        """W = C(c, a) / (c (1 - rho)) x mean service, and at most one step more: a free server waits for its end."""
        requests = self.requests(num_servers, utilisation_ratio, num_requests=300_000, seed=12)
        result = played(requests, many_servers(num_servers))
        waits = result.first_token_at - requests.arrival_seconds - STEP_SECONDS
        mean_service = self.mean_steps * STEP_SECONDS
        c = erlang_c(num_servers, num_servers * utilisation_ratio)
        expected = c / (num_servers * (1 - utilisation_ratio)) * mean_service
        assert_mean_is(expected, waits, bias=STEP_SECONDS)
        # the same queue as telemetry sees it: L = lambda W
        waiting = result.telemetry.column("waiting_requests")[: int(requests.arrival_seconds[-1])]
        rate = num_servers * utilisation_ratio / mean_service
        assert_mean_is(rate * expected, waiting, bias=rate * STEP_SECONDS)


@pytest.fixture(scope="module", params=ROUTERS)
def run(request):
    """Three replicas of a real profile, at some 20 requests at a time."""
    rng = np.random.default_rng(6)
    n = 8000
    requests = RequestTable.from_columns(
        np.cumsum(rng.exponential(0.125, n)), rng.integers(50, 3000, n), 1 + rng.geometric(1 / 150, n)
    )
    return played(requests, profile_named("llama-3.1-8b-a100-tp1"), num_replicas=3, router=request.param)


class TestLittlesLaw:
    """Of what there is, the mean = arrivals per second x what each brings, on the real profile and by any router."""

    def sampling_error(self, run):
        """Return four standard errors of seeing what is held once a second rather than all the time."""
        arrival, finished = run.requests.arrival_seconds, run.finished_at
        held = run.telemetry.column("running_requests") + run.telemetry.column("waiting_requests")
        ends = run.telemetry.row_at
        within = [np.clip(np.minimum(finished, end) - np.maximum(arrival, end - 1), 0, None).sum() for end in ends]
        return four_standard_errors(held - within)

    def test_requests_held_are_rate_times_time_in_the_fleet(self, run):
        telemetry = run.telemetry
        held = (telemetry.column("running_requests") + telemetry.column("waiting_requests")).mean()
        finished = telemetry.column("finished_rate_per_second")
        time_in_fleet = np.nansum(telemetry.column("e2e_mean_seconds") * finished) / finished.sum()
        expected = telemetry.column("request_rate_per_second").mean() * time_in_fleet
        error = self.sampling_error(run)
        assert error < 0.02 * expected
        assert abs(held - expected) < error

    def test_telemetrys_mean_times_are_the_requests_own(self, run):
        arrival, telemetry = run.requests.arrival_seconds, run.telemetry
        finished = telemetry.column("finished_rate_per_second")
        assert finished.sum() == run.requests.num_requests
        mean = np.nansum(telemetry.column("e2e_mean_seconds") * finished) / finished.sum()
        assert mean == pytest.approx((run.finished_at - arrival).mean(), rel=1e-9)

    def test_tokens_that_come_in_are_computed_once(self, run):
        """Work conservation: nothing is lost and nothing is done twice where nothing is preempted."""
        telemetry, requests = run.telemetry, run.requests
        assert telemetry.column("prefill_tokens_per_second").sum() == requests.prompt_tokens.sum()
        assert telemetry.column("decode_tokens_per_second").sum() == (requests.output_tokens - 1).sum()


def test_blocks_held_are_rate_times_block_seconds_of_a_request():
    """Little's law for what each request holds: a block for every 16 tokens of prompt and answer so far."""
    rng = np.random.default_rng(14)
    n, step_seconds = 20_000, 0.02
    requests = RequestTable.from_columns(
        poisson_arrivals(rng, n, rate_per_second=10.0), rng.integers(1, 400, n), rng.integers(1, 80, n)
    )
    result = played(requests, many_servers(256, step_seconds=step_seconds))
    # in its step k a request holds its prompt and the k - 1 tokens before
    tokens = np.concatenate(
        [np.arange(p, p + k) for p, k in zip(requests.prompt_tokens, requests.output_tokens, strict=True)]
    )
    expected = step_seconds * np.ceil(tokens / 16).sum() / result.telemetry.num_rows
    used = result.telemetry.column("kv_blocks_used")
    assert_mean_is(expected, used)


class TestWorkConservation:
    """What there is to do does not depend on the order in which it is done."""

    def requests(self, prompts, *, seed, **columns):
        return single_server_requests(prompts, utilisation_ratio=0.9, num_requests=30_000, seed=seed, **columns)

    def busy_periods(self, requests):
        """Return (first request, end) of each time without a pause, from arrivals and service alone."""
        free_at, periods = -1.0, []
        for i, (arrival, seconds) in enumerate(zip(requests.arrival_seconds, service_of(requests), strict=True)):
            if arrival > free_at:
                periods.append([i, 0.0])
                free_at = arrival
            free_at += seconds
            periods[-1][1] = free_at
        return periods

    @pytest.mark.parametrize("scheduling_policy", ["fcfs", "priority"])
    def test_server_is_idle_only_when_nothing_waits(self, scheduling_policy):
        """Its busy periods are those of the work that arrives: whatever the order, they end when all of it is done."""
        rng = np.random.default_rng(21)
        requests = self.requests(exponential_prompts, seed=22, priority=rng.integers(0, 3, 30_000))
        periods = self.busy_periods(requests)
        assert len(periods) > 1000
        starts = [first for first, _ in periods]
        finished = played(requests, SINGLE_SERVER, scheduling_policy=scheduling_policy).finished_at
        ends = np.maximum.reduceat(finished, starts)
        np.testing.assert_allclose(ends, [end for _, end in periods], rtol=1e-9)
        assert (np.maximum.accumulate(finished)[np.array(starts[1:]) - 1] <= requests.arrival_seconds[starts[1:]]).all()

    def test_equal_requests_leave_at_the_same_times_in_any_order(self):
        rng = np.random.default_rng(23)
        requests = self.requests(equal_prompts, seed=24, priority=rng.integers(0, 3, 30_000))
        by_order, by_importance = (
            played(requests, SINGLE_SERVER, scheduling_policy=policy).finished_at for policy in ("fcfs", "priority")
        )
        assert not np.array_equal(by_order, by_importance)
        np.testing.assert_allclose(np.sort(by_order), np.sort(by_importance), rtol=1e-9)

    def test_no_request_queues_behind_another_while_a_replica_is_idle(self):
        """By the router that counts outstanding tokens; round-robin does not look."""
        rng = np.random.default_rng(25)
        n, num_replicas = 20_000, 4
        arrival = poisson_arrivals(rng, n, rate_per_second=0.7 * num_replicas / MEAN_SERVICE_SECONDS)
        requests = RequestTable.from_columns(arrival, exponential_prompts(rng, n), np.ones(n))
        result = played(requests, SINGLE_SERVER, num_replicas=num_replicas, router="least_outstanding_tokens")
        waits, busy_until = waits_of(result), np.zeros(num_replicas)
        num_queued = 0
        for i in range(n):
            if waits[i] > 1e-9:
                assert (busy_until > arrival[i]).all()
                num_queued += 1
            busy_until[result.served_by[i]] = result.finished_at[i]
        assert num_queued > 1000
