"""Two-tier sizing: how many replicas serve and how many exist, where an unmet second costs more than an idle one.

Per replica-second an active replica costs c_a, a warm one c_w, unmet demand c_v. A warm replica takes the promotion
lead L_w to help in a burst that lasts T_b, so demand between n and S costs c_e = (c_a - c_w) + c_v L_w / T_b: the
replica itself while it serves, and the share of the burst that it misses. With D the demand,

    C(n, S) = c_a n + c_w (S - n) + c_e E[(D-n)+ - (D-S)+] + c_v E[(D-S)+],     n <= S

Both derivatives are probabilities (the newsvendor's critical fractile), so the sizes are quantiles of D.

References
----------
K. J. Arrow, T. Harris and J. Marschak, "Optimal inventory policy", Econometrica 19(3), 1951: the newsvendor.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, isnan

import numpy as np

from forecaster.config import PlannerConfig
from forecaster.forecast import DEMAND, QuantileForecast
from forecaster.telemetry import Floats

MOST_REPLICAS = 1_000_000
"""No count of replicas is larger: an absurd demand is bounded before it becomes an integer."""

DemandQuantile = Callable[[float, float], float]
"""From a horizon in seconds and a level to the quantile of the largest demand within the horizon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoTierSize:
    """How many replicas should serve and exist, and the levels of demand at which they were read."""

    serving: int
    supply: int
    serving_level: float
    supply_level: float


def whole_replicas(demand: float) -> int:
    """Return demand in replicas rounded up, within 0 and `MOST_REPLICAS`.

    What exceeds a whole number by rounding error only does not cost another replica.

    Raises
    ------
    ValueError
        If the demand is unknown: that is not zero.

    Examples
    --------
    >>> whole_replicas(2.1), whole_replicas(3.0000000001), whole_replicas(-1.0), whole_replicas(float("inf"))
    (3, 3, 0, 1000000)
    """
    if isnan(demand):
        raise ValueError("demand is NaN: unknown demand has no size")
    return max(ceil(min(max(demand, 0.0), MOST_REPLICAS) - 1e-9), 0)


def critical_levels(
    *, active_cost: float, warm_cost: float, unmet_cost: float, missed_ratio: float
) -> tuple[float, float]:
    """Return the levels of demand at which serving and supply are best read.

    Both are the same where warm replicas are no use: then everything that exists should serve.

    Parameters
    ----------
    active_cost, warm_cost, unmet_cost : float
        c_a, c_w and c_v, per replica-second; 0 <= c_w <= c_a, c_a and c_v > 0.
    missed_ratio : float
        L_w / T_b, the share of a burst that is over before a promoted replica serves.

    Examples
    --------
    >>> [round(level, 4) for level in critical_levels(active_cost=1, warm_cost=0.3, unmet_cost=30, missed_ratio=1 / 15)]
    [0.7407, 0.989]
    >>> critical_levels(active_cost=1, warm_cost=1, unmet_cost=20, missed_ratio=0.05)  # as dear as an active one
    (0.95, 0.95)
    """
    serving_alone = max(1.0 - active_cost / unmet_cost, 0.0)
    promoted_cost = (active_cost - warm_cost) + unmet_cost * missed_ratio
    if unmet_cost <= promoted_cost:  # bursts are shorter than a promotion
        return serving_alone, serving_alone
    supply_level = 1.0 - warm_cost / (unmet_cost - promoted_cost)
    # promotion at once and for nothing: c_e = 0, and any n is as good as any other
    serving_level = 1.0 - (active_cost - warm_cost) / promoted_cost if promoted_cost > 0 else 1.0
    if serving_level >= supply_level:  # a warm replica is too dear
        return serving_alone, serving_alone
    return max(serving_level, 0.0), supply_level


def size_two_tier(
    demand_quantile: DemandQuantile, config: PlannerConfig, *, promotion_seconds: float, ready_seconds: float
) -> TwoTierSize:
    """Return the sizes that cost least.

    Serving can change within the promotion lead and is read there, supply at the cold lead; each a tick later, which
    is when the next plan can act.

    Parameters
    ----------
    demand_quantile : callable
        Quantile of D for (horizon in seconds, level); `forecast_demand` or `past_demand`.
    promotion_seconds, ready_seconds : float
        Measured lead times from warm to serving and from order to ready.
    """
    serving_level, supply_level = critical_levels(
        active_cost=config.active_cost,
        warm_cost=config.warm_cost_ratio * config.active_cost,
        unmet_cost=config.unmet_cost * config.active_cost,
        missed_ratio=promotion_seconds / config.typical_burst_seconds,
    )
    tick = config.plan_interval_seconds
    supply = whole_replicas(demand_quantile(ready_seconds + tick, supply_level))
    if serving_level == supply_level:
        return TwoTierSize(serving=supply, supply=supply, serving_level=serving_level, supply_level=supply_level)
    serving = whole_replicas(demand_quantile(promotion_seconds + tick, serving_level))
    return TwoTierSize(
        serving=serving, supply=max(serving, supply), serving_level=serving_level, supply_level=supply_level
    )


def forecast_demand(forecast: QuantileForecast) -> DemandQuantile:
    """Return the quantiles of demand of a forecast."""
    return lambda horizon_seconds, level: forecast.quantile(DEMAND, horizon_seconds=horizon_seconds, level=level)


def past_demand(demand: Floats) -> DemandQuantile:
    """Return the quantiles of demand as they were over a window, for any horizon: what there is without a forecast.

    Parameters
    ----------
    demand : ndarray of shape (n_rows,), replicas
        NaN where unknown.

    Raises
    ------
    ValueError
        If no row is known.
    """
    known = np.sort(demand[~np.isnan(demand)])
    if known.size == 0:
        raise ValueError("no demand is known: there is nothing to take a quantile of")
    return lambda _, level: float(known[max(ceil(level * known.size) - 1, 0)])
