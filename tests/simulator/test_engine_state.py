"""The state that a run starts from."""

import numpy as np
import pytest

from simulator.engine_state import IDLE, NONE, ROW_COLUMNS, UNFINISHED, new_state
from simulator.profiles import profile_named
from simulator.requests import RequestTable

PROFILE = profile_named("llama-3.1-8b-a100-tp1")
REQUESTS = RequestTable.from_columns(np.array([0.5, 1.0]), np.array([100, 200]), np.array([5, 6]))


def state(num_slots=3, requests=REQUESTS):
    return new_state(requests, PROFILE, num_slots=num_slots, num_rows=10, router_code=0)


def test_starts_empty_idle_and_closed():
    s = state()
    assert s.replica.size == 3
    assert (s.replica["segment_kind"] == IDLE).all()
    assert (s.replica["free_blocks"] == PROFILE.kv_blocks).all()
    assert not s.replica["routable"].any()
    assert (s.replica[["running_head", "in_prefill"]].tolist()) == [(NONE,) * 2] * 3
    assert (s.replica["queue_head"] == NONE).all()
    assert (s.request["outcome"] == UNFINISHED).all()
    assert np.isnan(s.request["first_token_at"]).all()
    assert s.rows.shape == (10, len(ROW_COLUMNS))


def test_step_time_is_known_for_every_batch_there_may_be():
    assert state().step_seconds.shape[0] > PROFILE.max_num_batched_tokens


@pytest.mark.parametrize("num_slots", [0, -2])
def test_fleet_without_a_slot_is_refused(num_slots):
    with pytest.raises(ValueError, match=f"a fleet needs at least one replica, got {num_slots}"):
        state(num_slots)


def test_request_that_just_fits_is_taken_and_one_token_more_is_refused():
    capacity = PROFILE.kv_blocks * PROFILE.block_size_tokens
    state(requests=RequestTable.from_columns(np.zeros(1), np.array([capacity - 5]), np.array([5])))
    with pytest.raises(ValueError, match=f"request 0 needs {capacity + 1} tokens of KV cache but a replica of llama"):
        state(requests=RequestTable.from_columns(np.zeros(1), np.array([capacity - 5]), np.array([6])))
