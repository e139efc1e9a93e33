import os
import signal

import pytest
from sweep_cases import tasks

from training.closed_loop import compare
from training.fleet_options import FleetOptions
from training.sweep import play_tasks
from training.sweep_log import sweep_run_json

TASKS = tasks()


def by_key(runs):
    runs = list(runs)
    found = {run.key: sweep_run_json(run) for run in runs}
    assert len(found) == len(runs)
    return found


@pytest.fixture(scope="module")
def played():
    return by_key(play_tasks(TASKS, num_jobs=2))


def test_gives_each_run_what_playing_it_alone_gives(played):
    assert set(played) == {task.key for task in TASKS}
    for task in TASKS:
        (alone,) = compare(task.closed_loop()[0])
        run = played[task.key]
        assert (run["scenario"], run["policy"], run["seed"]) == (task.scenario.name, task.policy, task.seed)
        assert run["scorecard"]["num_requests"] > 100
        for name in ("attainment_ratio", "ttft_p99_seconds", "gpu_hours", "num_requests", "scaling_actions"):
            assert run["scorecard"][name] == getattr(alone.scorecard, name)


def test_neither_order_nor_the_number_of_processes_matters(played):
    assert by_key(play_tasks(TASKS[::-1], num_jobs=1)) == played


def test_a_failing_run_is_told_in_a_line_and_stops_no_other():
    some = tasks(("steady",), ("static:2",), range(12), seconds=0.05)
    idle = {task.key for task in some if task.scenario.build(task.seed).requests.arrival_seconds[0] > 0.05}
    assert 0 < len(idle) < len(some)
    runs = by_key(play_tasks(some, num_jobs=2))
    assert {key for key, run in runs.items() if run["error"]} == idle
    for key in idle:
        assert runs[key]["error"].startswith("ValueError: steady: no request arrives")
        assert "\n" not in runs[key]["error"]


def test_a_wish_to_stop_keeps_what_is_finished_and_gives_up_the_rest(played):
    longer = tasks(("surge",), ("foreshock",), range(100), seconds=300.0)
    finished = []
    # the longest come first, so a run of ten seconds is never reached
    runs = play_tasks((*TASKS, *longer), num_jobs=2, is_stopped=lambda: len(finished) > 0)
    finished.extend(run for _, run in zip(range(1), runs, strict=False))
    finished.extend(runs)
    assert 1 <= len(finished) < len(longer)
    assert all(run.scorecard is not None and run.key not in played for run in finished)


def test_tells_of_simulated_seconds_up_to_all_of_them():
    some = tasks(("steady", "surge"), ("static:2",), (0,), seconds=0.05)
    told = []
    runs = list(play_tasks(some, num_jobs=1, on_played=told.append))
    assert len(runs) == 2
    assert told == sorted(told)
    assert told[-1] == pytest.approx(0.1)


def test_no_tasks_are_no_runs():
    assert list(play_tasks((), num_jobs=4)) == []


def test_ctrl_c_and_thread_settings_are_as_before(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    list(play_tasks(tasks(("steady",), ("static:2",), (0,), seconds=1.0), num_jobs=1))
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_options_of_the_fleet_reach_the_run():
    (task,) = tasks(("surge",), ("hpa",), (3,), max_replicas=5, initial=4, router="round_robin", warm_cost_ratio=1.0)
    run, _ = task.closed_loop()
    assert task.fleet == FleetOptions(
        duration_seconds=10.0, max_replicas=5, initial=4, router="round_robin", warm_cost_ratio=1.0
    )
    assert (run.limits.max_replicas, run.limits.initial_replicas) == (5, 4)
    assert (run.settings.router, run.config.warm_cost_ratio, run.seed) == ("round_robin", 1.0, 3)
