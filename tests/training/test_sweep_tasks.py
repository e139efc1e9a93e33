from dataclasses import replace

import pytest
from sweep_cases import tasks

from training import sweep_tasks
from training.fleet_options import FleetOptions

(TASK,) = tasks(("surge",), ("hpa",), (0,))

CHANGES = {
    "policy": {"policy": "static:2"},
    "seed": {"seed": 1},
    "scenario": {"scenario": replace(TASK.scenario, content="another")},
    "name": {"scenario": replace(TASK.scenario, name="another")},
    **{
        name: {"fleet": replace(TASK.fleet, **{name: value})}
        for name, value in {
            "profile": "llama-3.1-8b-h100-tp1",
            "initial": 3,
            "max_replicas": 9,
            "cold_start_seconds": 0.0,
            "warm_cost_ratio": 1.0,
            "duration_seconds": 11.0,
            "router": "round_robin",
        }.items()
    },
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_key_changes_with_whatever_determines_the_run(change):
    assert replace(TASK, **change).key != TASK.key


def test_a_key_is_the_same_for_the_same_task():
    assert replace(TASK, fleet=FleetOptions(duration_seconds=10.0)).key == TASK.key


def test_a_key_changes_with_the_code(monkeypatch):
    before = TASK.key
    monkeypatch.setattr(sweep_tasks, "code_digest", lambda: "edited")
    assert TASK.key != before


def test_every_option_of_the_fleet_is_in_these_tests():
    assert set(FleetOptions.__dataclass_fields__) <= set(CHANGES)


def test_tasks_are_every_scenario_under_every_policy_with_every_seed():
    found = [(task.scenario.name, task.policy, task.seed) for task in tasks(seeds=(4, 2))]
    assert found == [(s, p, n) for s in ("surge", "steady") for p in ("hpa", "static:2") for n in (4, 2)]


def test_what_no_replica_can_hold_is_left_out_and_counted():
    requests = TASK.scenario.build(0).requests
    run, num_left_out = TASK.closed_loop()
    assert num_left_out == 0
    assert run.requests.num_requests == (requests.arrival_seconds <= 10.0).sum()
