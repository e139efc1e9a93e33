"""Replicas that are the queues of textbooks, and how far a simulated mean may lie from the true one."""

from math import inf

import numpy as np

from simulator.engine_options import EngineOptions
from simulator.engine_state import FINISHED
from simulator.fleet import simulate
from simulator.fleet_limits import FleetLimits
from simulator.gateway import ROUTERS
from simulator.profiles import EngineProfile
from simulator.run_settings import RunSettings
from simulator.static_fleet import StaticPolicy
from simulator.step_time import StepTime

SECONDS_PER_TOKEN = 1e-5
LONGEST_PROMPT = 20_000
STEP_SECONDS = 0.001
NUM_BATCHES = 32

# One request at a time, served in its prompt's length.
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


def many_servers(num_servers, *, step_seconds=STEP_SECONDS):
    """Return a replica whose every step takes as long: as many servers as sequences, a step for each token."""
    return EngineProfile(
        name="many servers",
        gpus_per_replica=1,
        kv_blocks=100_000,
        max_num_seqs=num_servers,
        step_time=StepTime(
            token_knots=(1, 2048),
            knot_seconds=(step_seconds, step_seconds),
            seconds_per_decode_context_token=0.0,
            seconds_per_prefill_attention=0.0,
        ),
        fit_error_ratio=(0.0, 0.0),
    )


def played(requests, profile, *, num_replicas=1, router=ROUTERS[0], scheduling_policy="fcfs"):
    """Return the outcome on a fixed fleet that gets all done within the telemetry."""
    result = simulate(
        requests,
        profile,
        policy=StaticPolicy(num_replicas),
        duration_seconds=float(np.ceil(requests.arrival_seconds[-1])) + 60.0,
        limits=FleetLimits(initial_replicas=num_replicas, max_replicas=num_replicas),
        settings=RunSettings(
            plan_interval_seconds=inf, router=router, engine=EngineOptions(scheduling_policy=scheduling_policy)
        ),
    )
    assert (result.outcome == FINISHED).all()
    assert (result.num_preemptions == 0).all()
    return result


def poisson_arrivals(rng, num_requests, *, rate_per_second):
    return np.cumsum(rng.exponential(1 / rate_per_second, num_requests))


def four_standard_errors(values):
    """Return four standard errors of the mean of a correlated series, from the means of `NUM_BATCHES` batches of it.

    A batch is thousands of services long and the queue forgets within some hundred (1 / (1 - sqrt(rho))^2), so batch
    means are as good as independent; beyond four of their standard errors lies one t-distributed mean in 2,700.
    """
    means = np.array([batch.mean() for batch in np.array_split(values, NUM_BATCHES)])
    return 4 * means.std(ddof=1) / np.sqrt(NUM_BATCHES)


def assert_mean_is(expected, values, *, bias=0.0):
    """Check that the mean is `expected` to within its own error (and a known `bias`), and that the error is small."""
    band = four_standard_errors(values) + bias
    assert band < 0.15 * expected, "too few requests to tell anything"
    assert abs(np.mean(values) - expected) < band
