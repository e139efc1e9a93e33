"""A fixed fleet against queueing theory and against two independent simulators."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simulator.engine_state import FINISHED
from simulator.gateway import ROUTERS
from simulator.profiles import EngineProfile, profile_named
from simulator.requests import RequestTable
from simulator.static_fleet import simulate_static
from simulator.step_time import StepTime

REFERENCE = Path(os.environ.get("FORESHOCK_SHARED", "../shared")) / "reference"
needs_reference = pytest.mark.skipif(not REFERENCE.is_dir(), reason="no reference results: set FORESHOCK_SHARED")

SECONDS_PER_TOKEN = 1e-5
LONGEST_PROMPT = 20_000

# One request at a time, served in its prompt's length: the queue of textbooks.
SINGLE_SERVER = EngineProfile(
    name="single server",
    gpus_per_replica=1,
    kv_blocks=LONGEST_PROMPT // 16 + 1,
    max_num_seqs=1,
    max_num_batched_tokens=LONGEST_PROMPT,
    step_time=StepTime(
        token_knots=(1, LONGEST_PROMPT),
        knot_seconds=(SECONDS_PER_TOKEN, LONGEST_PROMPT * SECONDS_PER_TOKEN),
        seconds_per_decode_context_token=0.0,
        seconds_per_prefill_attention=0.0,
    ),
    fit_error_ratio=(0.0, 0.0),
)


def single_server_run(prompt_tokens, *, utilisation_ratio, seed):
    """Return (result, service times) of Poisson arrivals that keep the server busy for `utilisation_ratio`."""
    service = prompt_tokens * SECONDS_PER_TOKEN
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(service.mean() / utilisation_ratio, prompt_tokens.size))
    requests = RequestTable.from_columns(arrival, prompt_tokens, np.ones(arrival.size))
    result = simulate_static(requests, SINGLE_SERVER, num_replicas=1)
    assert (result.outcome == FINISHED).all()
    return result, service


def waits_of(result, service):
    return result.finished_at - result.requests.arrival_seconds - service


class TestSingleServer:
    num_requests = 200_000

    def exponential_prompts(self):
        tokens = np.ceil(np.random.default_rng(4).exponential(1000, self.num_requests)).astype(np.int64)
        return tokens.clip(1, LONGEST_PROMPT - 1)

    def test_each_request_waits_as_in_lindleys_recursion(self):
        result, service = single_server_run(self.exponential_prompts()[:20_000], utilisation_ratio=0.9, seed=1)
        free_at = 0.0
        expected = []
        for arrival, seconds in zip(result.requests.arrival_seconds, service, strict=True):
            free_at = max(arrival, free_at) + seconds
            expected.append(free_at)
        np.testing.assert_allclose(result.finished_at, expected, rtol=1e-9)

    @pytest.mark.parametrize(
        ("utilisation_ratio", "tolerance_ratio"),
        # some 4 standard errors of the mean of 200,000 waits, which are correlated (Daley 1968)
        [pytest.param(0.5, 0.05, id="half"), pytest.param(0.8, 0.10, id="busy")],
    )
    def test_mean_wait_is_that_of_an_mm1_queue(self, utilisation_ratio, tolerance_ratio):
        result, service = single_server_run(self.exponential_prompts(), utilisation_ratio=utilisation_ratio, seed=2)
        expected = utilisation_ratio / (1 - utilisation_ratio) * service.mean()
        assert waits_of(result, service).mean() == pytest.approx(expected, rel=tolerance_ratio)

    def test_mean_wait_is_that_of_an_md1_queue(self):
        result, service = single_server_run(np.full(self.num_requests, 1000), utilisation_ratio=0.7, seed=3)
        expected = 0.7 / (2 * (1 - 0.7)) * service.mean()
        assert waits_of(result, service).mean() == pytest.approx(expected, rel=0.05)

    def test_wait_that_is_not_zero_is_exponential_in_an_mm1_queue(self):
        result, service = single_server_run(self.exponential_prompts(), utilisation_ratio=0.6, seed=5)
        waits = waits_of(result, service)
        # P(W > t) = rho exp(-(1 - rho) t / mean service)
        for t in (0.0, 1.0, 3.0):
            expected = 0.6 * np.exp(-(1 - 0.6) * t)
            assert (waits > t * service.mean() + 1e-9).mean() == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("router", ROUTERS)
def test_littles_law_holds_between_telemetry_and_sojourn_times(router):
    """Requests in the fleet = arrivals per second x mean time in the fleet."""
    rng = np.random.default_rng(6)
    n = 8000
    requests = RequestTable.from_columns(
        np.cumsum(rng.exponential(0.125, n)), rng.integers(50, 3000, n), 1 + rng.geometric(1 / 150, n)
    )
    result = simulate_static(requests, profile_named("llama-3.1-8b-a100-tp1"), num_replicas=3, router=router)
    held = result.telemetry.column("running_requests") + result.telemetry.column("waiting_requests")
    sojourn = result.finished_at - requests.arrival_seconds
    rate = n / requests.arrival_seconds[-1]
    # held is seen once a second of some 1,000, each holding some 20 requests
    assert held.mean() == pytest.approx(rate * sojourn.mean(), rel=0.02)


@needs_reference
class TestReferenceSimulators:
    """Llama-3.1-8B on A100, round-robin over N replicas: NVIDIA Dynamo's mocker 1.6.1 and Microsoft's Vidur."""

    def latencies_ms(self, num_replicas):
        """Return {name: quantiles in ms} of our run and of both tools."""
        table = pd.read_csv(REFERENCE / "requests.csv")
        requests = RequestTable.from_columns(
            (table["arrival_s"] - table["arrival_s"].iloc[0]).to_numpy(),
            table["prompt_tokens"].to_numpy(),
            table["output_tokens"].to_numpy(),
        )
        result = simulate_static(
            requests, profile_named("llama-3.1-8b-a100-tp1"), num_replicas=num_replicas, router="round_robin"
        )
        assert (result.outcome == FINISHED).all()
        ours = {
            "ttft": (result.first_token_at - requests.arrival_seconds) * 1e3,
            "e2e": (result.finished_at - requests.arrival_seconds) * 1e3,
        }
        summary = pd.read_csv(REFERENCE / "reference_summary.csv")
        theirs = summary[summary["config"].str.endswith(f"_n{num_replicas}")]
        tools = {"dynamo": "dynamo-mocker", "vidur": "vidur"}
        return ours, {name: theirs[theirs["tool"].str.startswith(tool)].iloc[0] for name, tool in tools.items()}

    @pytest.mark.parametrize("level", [50, 90, 99])
    def test_end_to_end_latency_is_within_15_percent_of_both(self, level):
        ours, tools = self.latencies_ms(4)
        for tool, row in tools.items():
            assert np.percentile(ours["e2e"], level) == pytest.approx(row[f"e2e_p{level}"], rel=0.15), tool

    @pytest.mark.parametrize("level", [50, 90, 99])
    def test_ttft_lies_in_the_band_between_them(self, level):
        ours, tools = self.latencies_ms(4)
        ttft = np.percentile(ours["ttft"], level)
        assert 0.7 * tools["dynamo"][f"ttft_p{level}"] <= ttft <= 1.3 * tools["vidur"][f"ttft_p{level}"]

    @pytest.mark.parametrize("level", [50, 90, 99])
    def test_ttft_near_saturation_is_within_a_factor_of_two_of_either(self, level):
        ours, tools = self.latencies_ms(2)
        ratios = [np.percentile(ours["ttft"], level) / row[f"ttft_p{level}"] for row in tools.values()]
        assert any(0.5 <= ratio <= 2.0 for ratio in ratios), ratios


class TestMoreReplicas:
    def test_do_not_make_the_mean_wait_longer(self):
        rng = np.random.default_rng(8)
        n = 3000
        requests = RequestTable.from_columns(
            np.cumsum(rng.exponential(0.05, n)), rng.integers(50, 3000, n), rng.integers(1, 300, n)
        )
        profile = profile_named("llama-3.1-8b-h100-tp1")
        means = [
            (simulate_static(requests, profile, num_replicas=k).first_token_at - requests.arrival_seconds).mean()
            for k in (1, 2, 4, 8)
        ]
        assert means == sorted(means, reverse=True)


class TestMistakes:
    requests = RequestTable.from_columns(np.array([0.0]), np.array([10]), np.array([5]))

    @pytest.mark.parametrize("num_replicas", [0, -1])
    def test_no_replica(self, num_replicas):
        with pytest.raises(ValueError, match=f"num_replicas must be >= 1, got {num_replicas}"):
            simulate_static(self.requests, SINGLE_SERVER, num_replicas=num_replicas)

    def test_unknown_router(self):
        with pytest.raises(ValueError, match="no router is called 'nearest'; known: "):
            simulate_static(self.requests, SINGLE_SERVER, num_replicas=1, router="nearest")

    def test_request_that_no_replica_can_hold(self):
        requests = RequestTable.from_columns(np.array([0.0, 1.0]), np.array([10, 19_000]), np.array([5, 2000]))
        with pytest.raises(ValueError, match="request 1 needs 21000 tokens of KV cache but a replica of single server"):
            simulate_static(requests, SINGLE_SERVER, num_replicas=2)

    def test_no_request_is_no_mistake(self):
        nobody = RequestTable.from_columns(np.zeros(0), np.zeros(0), np.zeros(0))
        assert simulate_static(nobody, SINGLE_SERVER, num_replicas=2).first_token_at.size == 0
