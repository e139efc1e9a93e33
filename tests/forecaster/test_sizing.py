from math import nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.capacity import ReplicaCapacity
from forecaster.config import PlannerConfig
from forecaster.forecast import DEMAND, QuantileForecast
from forecaster.sizing import (
    MOST_REPLICAS,
    critical_levels,
    forecast_demand,
    past_demand,
    size_two_tier,
    whole_replicas,
)

REPLICA = ReplicaCapacity(
    kv_blocks=1000, block_size_tokens=16, prefill_tokens_per_second=8000, decode_tokens_per_second=2000
)
LARGEST = 12


def cost_of(
    n: int, supply: int, masses: np.ndarray, *, active_cost: float, warm_cost: float, unmet_cost: float, missed: float
) -> float:
    """C(n, S) of DESIGN section 5, term by term."""
    demand = np.arange(masses.size)
    promoted_cost = (active_cost - warm_cost) + unmet_cost * missed
    over_n = float(masses @ np.maximum(demand - n, 0))
    over_supply = float(masses @ np.maximum(demand - supply, 0))
    return (
        active_cost * n + warm_cost * (supply - n) + promoted_cost * (over_n - over_supply) + unmet_cost * over_supply
    )


def cheapest(masses: np.ndarray, **prices: float) -> float:
    return min(cost_of(n, supply, masses, **prices) for supply in range(masses.size + 1) for n in range(supply + 1))


def smallest_with(masses: np.ndarray, level: float) -> int:
    """Smallest d with P(D <= d) >= level."""
    return int(np.searchsorted(np.cumsum(masses), level - 1e-12))


distributions = (
    st.lists(st.integers(0, 20), min_size=LARGEST, max_size=LARGEST)
    .filter(any)
    .map(lambda weights: np.array(weights) / sum(weights))
)


class TestCriticalLevels:
    @settings(max_examples=400, deadline=None)
    @given(
        masses=distributions,
        warm_ratio=st.sampled_from([0.0, 0.1, 0.3, 0.7, 0.95, 1.0]),
        unmet_cost=st.sampled_from([0.5, 1.0, 1.5, 3.0, 30.0, 300.0]),
        missed=st.sampled_from([0.0, 0.02, 1 / 15, 0.5, 1.0, 3.0]),
    )
    def test_no_pair_of_sizes_is_cheaper_than_the_one_at_the_levels(
        self, masses: np.ndarray, warm_ratio: float, unmet_cost: float, missed: float
    ) -> None:
        serving_level, supply_level = critical_levels(
            active_cost=1.0, warm_cost=warm_ratio, unmet_cost=unmet_cost, missed_ratio=missed
        )
        n, supply = smallest_with(masses, serving_level), smallest_with(masses, supply_level)
        prices = {"active_cost": 1.0, "warm_cost": warm_ratio, "unmet_cost": unmet_cost, "missed": missed}
        assert n <= supply
        assert cost_of(n, supply, masses, **prices) == pytest.approx(cheapest(masses, **prices))

    @pytest.mark.parametrize(
        ("warm_cost", "unmet_cost", "missed", "expected"),
        [
            (0.3, 30.0, 4 / 60, (1 - 0.7 / 2.7, 1 - 0.3 / 27.3)),
            (1.0, 30.0, 4 / 60, (1 - 1 / 30, 1 - 1 / 30)),
            (0.3, 30.0, 1.0, (1 - 1 / 30, 1 - 1 / 30)),
            (0.3, 0.5, 0.0, (0.0, 0.0)),
            (1.0, 30.0, 0.0, (1 - 1 / 30, 1 - 1 / 30)),
        ],
        ids=["interior", "warm too dear", "burst as short as a promotion", "unmet demand is cheap", "free promotion"],
    )
    def test_corner_cases(
        self, warm_cost: float, unmet_cost: float, missed: float, expected: tuple[float, float]
    ) -> None:
        levels = critical_levels(active_cost=1.0, warm_cost=warm_cost, unmet_cost=unmet_cost, missed_ratio=missed)
        assert levels == pytest.approx(expected)


class TestSizeTwoTier:
    def test_serving_reads_the_promotion_lead_and_supply_the_cold_lead_a_tick_later(self) -> None:
        asked: list[tuple[float, float]] = []

        def quantile(horizon_seconds: float, level: float) -> float:
            asked.append((horizon_seconds, level))
            return horizon_seconds

        size = size_two_tier(quantile, PlannerConfig(capacity=REPLICA), promotion_seconds=4.0, ready_seconds=30.5)
        assert (size.serving, size.supply) == (6, 33)
        assert sorted(horizon for horizon, _ in asked) == [6.0, 32.5]
        assert sorted(level for _, level in asked) == [size.serving_level, size.supply_level]

    def test_everything_serves_where_warm_replicas_are_no_use(self) -> None:
        config = PlannerConfig(capacity=REPLICA, warm_cost_ratio=1.0)
        size = size_two_tier(lambda horizon, _: horizon, config, promotion_seconds=4.0, ready_seconds=30.0)
        assert size.serving == size.supply == 32

    def test_supply_is_never_below_serving(self) -> None:
        config = PlannerConfig(capacity=REPLICA)
        size = size_two_tier(lambda horizon, _: 100 - horizon, config, promotion_seconds=4.0, ready_seconds=30.0)
        assert (size.serving, size.supply) == (94, 94)

    @settings(max_examples=100, deadline=None)
    @given(masses=distributions, more=st.floats(1.0, 4.0))
    def test_more_load_never_gives_fewer_replicas(self, masses: np.ndarray, more: float) -> None:
        demand = np.repeat(np.arange(LARGEST), np.rint(masses * 1000).astype(int)).astype(float)
        config = PlannerConfig(capacity=REPLICA)
        leads = {"promotion_seconds": 4.0, "ready_seconds": 30.0}
        less = size_two_tier(past_demand(demand), config, **leads)
        size = size_two_tier(past_demand(demand * more), config, **leads)
        assert size.serving >= less.serving
        assert size.supply >= less.supply

    def test_a_forecast_of_a_known_distribution_gives_the_cheapest_size_within_one_replica(self) -> None:
        rng = np.random.default_rng(7)
        demand = np.sort(rng.gamma(9.0, 1.0, 20_000))
        levels = (0.5, 0.7, 0.9, 0.95, 0.98, 0.99)
        row = np.quantile(demand, levels)
        forecast = QuantileForecast(
            made_at=0.0, horizons_seconds=(6.0, 32.0), levels=levels, values={DEMAND: np.array([row, row])}
        )
        config = PlannerConfig(capacity=REPLICA)
        size = size_two_tier(forecast_demand(forecast), config, promotion_seconds=4.0, ready_seconds=30.0)
        masses = np.bincount(np.ceil(demand).astype(int)) / demand.size
        prices = {"active_cost": 1.0, "warm_cost": 0.3, "unmet_cost": config.unmet_cost, "missed": 4 / 60}
        best = min(
            ((n, supply) for supply in range(masses.size + 1) for n in range(supply + 1)),
            key=lambda pair: cost_of(*pair, masses, **prices),
        )
        assert abs(size.serving - best[0]) <= 1
        assert abs(size.supply - best[1]) <= 1


class TestWholeReplicas:
    @given(st.floats(allow_nan=False))
    def test_is_a_bounded_count_for_any_demand(self, demand: float) -> None:
        assert 0 <= whole_replicas(demand) <= MOST_REPLICAS

    def test_refuses_unknown_demand(self) -> None:
        with pytest.raises(ValueError, match="unknown"):
            whole_replicas(nan)


class TestPastDemand:
    def test_skips_unknown_rows(self) -> None:
        assert past_demand(np.array([nan, 1.0, nan, 3.0]))(30.0, 0.99) == 3.0

    def test_refuses_a_window_without_a_known_row(self) -> None:
        with pytest.raises(ValueError, match="no demand is known"):
            past_demand(np.array([nan, nan]))
