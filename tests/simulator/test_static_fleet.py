"""A fixed fleet against two independent simulators; against queueing theory it is in test_queueing_theory."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from queues import SINGLE_SERVER

from simulator.engine_state import FINISHED
from simulator.profiles import profile_named
from simulator.requests import RequestTable
from simulator.static_fleet import simulate_static

REFERENCE = Path(os.environ.get("FORESHOCK_SHARED", "../shared")) / "reference"
needs_reference = pytest.mark.skipif(not REFERENCE.is_dir(), reason="no reference results: set FORESHOCK_SHARED")


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
