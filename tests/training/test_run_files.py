import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scripted_policy import ScriptedPolicy

from forecaster.telemetry import SIGNALS
from simulator.engine_state import OUTCOMES
from simulator.fleet import simulate
from simulator.fleet_limits import FleetLimits
from simulator.profiles import profile_named
from simulator.requests import RequestTable
from simulator.static_fleet import simulate_static
from training import parquet_columns, run_files
from training.decisions import decision_log
from training.parquet_columns import Column, write_table
from training.run_files import write_run
from training.scorecard import latencies

PROFILE = profile_named("llama-3.1-8b-h100-tp1")


@pytest.fixture(scope="module")
def result():
    arrivals = np.arange(0, 30, 0.05)
    requests = RequestTable.from_columns(
        arrivals,
        np.full(arrivals.size, 900),
        np.where(np.arange(arrivals.size) % 7, 60, 1),
        follows=np.where(np.arange(arrivals.size) % 5 == 4, np.arange(arrivals.size) - 3, -1),
    )
    return simulate(requests, PROFILE, policy=ScriptedPolicy(), limits=FleetLimits(initial_replicas=2))


@pytest.fixture(scope="module")
def folder(result, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "deep" / "run"
    write_run(result, folder)
    return folder


def test_requests_are_those_of_the_result(result, folder):
    table = pd.read_parquet(folder / "requests.parquet")
    ttft, tpot = latencies(result)
    assert table["outcome"].tolist() == [OUTCOMES[code] for code in result.outcome]
    assert {"finished", "shed"} <= set(table["outcome"])
    for name, expected in (
        ("arrival_seconds", result.requests.arrival_seconds),
        ("arrival_at", result.arrival_at),
        ("num_attempts", result.num_attempts),
        ("prompt_tokens", result.requests.prompt_tokens),
        ("ttft_seconds", ttft),
        ("tpot_seconds", tpot),
        ("e2e_seconds", result.finished_at - result.arrival_at),
        ("num_preemptions", result.num_preemptions),
    ):
        np.testing.assert_array_equal(table[name], expected, err_msg=name)


def test_what_is_not_known_is_null(result, folder):
    table = pq.read_table(folder / "requests.parquet")
    assert table["tpot_seconds"].null_count == np.isnan(latencies(result)[1]).sum() > 0
    assert table["follows"].null_count == (result.requests.follows == -1).sum()
    assert table["served_by"].null_count == (result.served_by == -1).sum()


def test_telemetry_has_every_signal_at_its_time(result, folder):
    table = pd.read_parquet(folder / "telemetry.parquet")
    np.testing.assert_array_equal(table["row_at"], result.telemetry.row_at)
    np.testing.assert_array_equal(table[[signal.name for signal in SIGNALS]], result.telemetry.values)


def test_plans_and_decisions_are_told_in_order(result, folder):
    plans = pd.read_parquet(folder / "plans.parquet")
    assert plans["serving_replicas"].tolist() == [plan.serving_replicas for plan in result.plans]
    assert plans["admitted_ratio_by_priority"].map(min).min() == 0.2
    decisions = pd.read_parquet(folder / "decisions.parquet")
    assert decisions["message"].tolist() == [one.message for one in decision_log(result.plans).decisions]


def test_every_column_says_its_unit_and_meaning(folder):
    for path in folder.iterdir():
        for field in pq.read_schema(path):
            assert field.metadata[b"meaning"], f"{path.name}: {field.name}"
            assert b"unit" in field.metadata, f"{path.name}: {field.name}"


def test_a_run_without_plans_or_requests_gives_empty_tables(tmp_path):
    nothing = RequestTable.from_columns(np.zeros(0), np.zeros(0), np.zeros(0))
    written = write_run(simulate_static(nothing, PROFILE, num_replicas=1, duration_seconds=1.0), tmp_path)
    assert {path.name: pq.read_metadata(path).num_rows for path in written}["requests.parquet"] == 0


def test_rows_are_asked_for_a_group_at_a_time_and_none_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_columns, "ROW_GROUP_ROWS", 10)
    asked = []

    def values(numbers, rows):
        asked.append(rows.stop - rows.start)
        return numbers[rows]

    path = tmp_path / "numbers.parquet"
    column = Column("number", run_files.REQUEST_COLUMNS[1].type, "1", "a number", values)
    write_table(path, (column,), np.arange(25), num_rows=25)
    assert asked == [10, 10, 5]
    assert pq.ParquetFile(path).num_row_groups == 3
    assert pq.read_table(path)["number"].to_pylist() == list(range(25))


def test_a_file_that_fails_half_way_leaves_the_old_one_whole(tmp_path):
    path = tmp_path / "numbers.parquet"
    kind = run_files.REQUEST_COLUMNS[1].type
    write_table(path, (Column("number", kind, "1", "a number", lambda n, rows: n[rows]),), np.arange(3), num_rows=3)
    with pytest.raises(ZeroDivisionError):
        write_table(path, (Column("number", kind, "1", "a number", lambda n, rows: 1 // 0),), np.arange(9), num_rows=9)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert pq.read_table(path)["number"].to_pylist() == [0, 1, 2]
