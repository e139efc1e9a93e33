"""Generated fleets: one seed one fleet, the traffic of its kind, and a size that foretells nothing."""

import numpy as np
import pytest

from simulator.profiles import profile_named
from training.generated_fleets import (
    LENGTHS,
    MAX_FLEET_REPLICAS,
    TRAFFIC,
    demand_per_request,
    generated_fleet,
)


def fleet(seed):
    return generated_fleet(np.random.default_rng(seed))


FLEETS = [fleet(seed) for seed in range(40)]


def test_same_seed_gives_the_same_fleet():
    first, second = fleet(3), fleet(3)
    np.testing.assert_array_equal(first.requests.arrival_seconds, second.requests.arrival_seconds)
    np.testing.assert_array_equal(first.requests.output_tokens, second.requests.output_tokens)
    assert (first.kind, first.seen_replicas, first.ample_replicas) == (
        second.kind,
        second.seen_replicas,
        second.ample_replicas,
    )


def test_fleets_stay_within_their_bounds():
    for one in FLEETS:
        assert 1 <= one.seen_replicas <= MAX_FLEET_REPLICAS
        assert 1 <= one.ample_replicas <= MAX_FLEET_REPLICAS
        assert one.requests.num_requests > 0
        assert one.requests.arrival_seconds[-1] < one.duration_seconds


def test_at_least_half_of_the_fleets_are_calm_by_design():
    assert TRAFFIC["calm"][0] >= 0.5
    assert sum(share for share, _ in TRAFFIC.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", TRAFFIC)
def test_shapes_are_positive_and_cover_every_second(kind):
    for seed in range(20):
        shape = TRAFFIC[kind][1](np.random.default_rng(seed), 1000)
        assert shape.shape == (1000,)
        assert shape.min() > 0
        assert np.isfinite(shape).all()


def test_calm_traffic_has_no_bursts_and_seckill_has():
    def highest(kind):
        return [TRAFFIC[kind][1](np.random.default_rng(seed), 2000).max() for seed in range(30)]

    assert max(highest("calm")) == 1.0
    assert np.median(highest("seckill")) > 1.5


def test_the_seen_fleet_is_sized_without_looking_at_the_bursts():
    """Relative to the first minute's traffic, fleets with bursts are no larger than fleets without."""

    def relative_size(one):
        first_minute = max(np.searchsorted(one.requests.arrival_seconds, 60.0), 1)
        lengths = one.requests.prompt_tokens.mean() / one.profile.capacity.usable_prefill_tokens_per_second
        return np.log(one.seen_replicas / (first_minute * lengths))

    calm = [relative_size(one) for one in FLEETS if one.kind in ("calm",)]
    bursty = [relative_size(one) for one in FLEETS if one.kind in ("seckill", "spiky")]
    error = np.sqrt(np.var(calm) / len(calm) + np.var(bursty) / len(bursty))
    assert abs(np.mean(calm) - np.mean(bursty)) < 3 * error


def test_longer_requests_demand_more_of_a_fleet():
    capacity = profile_named("llama-3.1-70b-h100-tp4").capacity
    assert demand_per_request(LENGTHS["long_output"], capacity) > demand_per_request(LENGTHS["chat"], capacity)
    assert demand_per_request(LENGTHS["long_prompt"], capacity) > demand_per_request(LENGTHS["code"], capacity)
