"""Recorded telemetry: everything wrong with it is found, named and counted, and nothing false is learned from."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.errors import InvalidTelemetryError
from forecaster.telemetry import SIGNAL_INDEX, SIGNALS
from simulator.profiles import DEFAULT_PROFILE, profile_named
from simulator.requests import RequestTable
from simulator.static_fleet import simulate_static
from training.data_checks import MAX_GAP_ROWS, QUIET_ROWS, STUCK_ROWS, check_telemetry, in_long_runs
from training.recorded_telemetry import RecordedRows, read_telemetry
from training.run_files import write_run

LOADS = ("request_rate_per_second", "prompt_tokens_per_second", "kv_blocks_used")
START = 1_700_000_000.0


def recorded(rows=600, **columns):
    """Rows of a fleet that is well: noisy loads, two replicas that all report."""
    rng = np.random.default_rng(0)
    values = np.full((rows, len(SIGNALS)), np.nan)
    known = {
        "request_rate_per_second": rng.uniform(5, 10, rows),
        "prompt_tokens_per_second": rng.uniform(5000, 9000, rows),
        "kv_blocks_used": rng.uniform(100, 200, rows),
        "kv_blocks_total": 1000.0,
        "running_requests": 10.0,
        "waiting_requests": 0.0,
        "waiting_prompt_tokens": 0.0,
        "serving_replicas": 2.0,
        "warm_replicas": 1.0,
    } | columns
    for name, column in known.items():
        values[:, SIGNAL_INDEX[name]] = column
    at = START + np.arange(rows)
    return RecordedRows(row_at=at, seen_at=at + 0.5, values=values)


def chosen(rows, picked):
    return RecordedRows(row_at=rows.row_at[picked], seen_at=rows.seen_at[picked], values=rows.values[picked])


def found(checked):
    return {one.name: one.num_rows for one in checked.findings}


def stepped(rows, before, after, *, at):
    return np.where(np.arange(rows) < at, before, after)


def test_a_fleet_that_is_well_keeps_every_row_and_nothing_is_found():
    checked = check_telemetry(recorded())
    assert checked.findings == ()
    assert checked.num_kept == checked.num_rows_read == 600
    assert checked.last_at == START + 599


def test_nothing_recorded_is_a_finding_and_gives_nothing():
    checked = check_telemetry(chosen(recorded(), np.zeros(0, dtype=int)))
    assert found(checked) == {"empty": 1}
    assert checked.stretches == ()
    assert np.isnan(checked.last_at)


def test_missing_seconds_are_unknown_rows():
    checked = check_telemetry(chosen(recorded(), np.r_[0:100, 130:600]))
    assert found(checked) == {"gap": 30}
    (stretch,) = checked.stretches
    assert stretch.window.num_rows == 600
    assert np.isnan(stretch.window.values[100:130]).all()
    assert checked.num_kept == 570


def test_a_long_gap_parts_two_stretches():
    rows = recorded(3000)
    checked = check_telemetry(chosen(rows, np.r_[0:1000, 1001 + MAX_GAP_ROWS : 3000]))
    assert found(checked) == {"long gap": MAX_GAP_ROWS + 1}
    assert [one.window.num_rows for one in checked.stretches] == [1000, 3000 - 1001 - MAX_GAP_ROWS]


def test_negative_rates_are_counter_resets_and_unknown():
    rows = recorded()
    rows.values[50, SIGNAL_INDEX["decode_tokens_per_second"]] = -1e6
    rows.values[60, SIGNAL_INDEX["request_rate_per_second"]] = -3.0
    checked = check_telemetry(rows)
    assert found(checked)["counter reset"] == 2
    assert np.isnan(checked.stretches[0].window.column("decode_tokens_per_second")[50])
    assert not checked.stretches[0].kept[60]


@pytest.mark.parametrize(("name", "value"), [("prefix_cache_hit_ratio", 72.0), ("ttft_mean_seconds", np.inf)])
def test_values_that_cannot_be_true_are_unknown_and_named(name, value):
    checked = check_telemetry(recorded(**{name: value}))
    assert found(checked) == {"impossible value": 600}
    assert name in checked.findings[0].consequence
    assert checked.num_kept == 600


def test_a_new_pods_first_minute_is_not_learned_from():
    checked = check_telemetry(recorded(serving_replicas=stepped(600, 2.0, 3.0, at=200)))
    assert found(checked) == {"a pod's first minute": 60}
    np.testing.assert_array_equal(np.flatnonzero(~checked.stretches[0].kept), np.arange(200, 260))


def test_one_new_pod_of_many_bends_nothing():
    assert check_telemetry(recorded(serving_replicas=stepped(600, 20.0, 21.0, at=200))).findings == ()


def test_a_promotion_and_a_drain_are_no_new_pods():
    columns = {
        "serving_replicas": stepped(600, 2.0, 3.0, at=200),
        "warm_replicas": stepped(600, 1.0, 0.0, at=200),
    }
    assert check_telemetry(recorded(**columns)).findings == ()
    assert check_telemetry(recorded(serving_replicas=stepped(600, 3.0, 1.0, at=200))).findings == ()


def test_a_full_fleet_is_flagged_and_learned_from_where_its_queue_is_known():
    full = stepped(600, 100.0, 999.0, at=500) + np.linspace(0, 0.5, 600)
    checked = check_telemetry(recorded(kv_blocks_used=full, waiting_prompt_tokens=90_000.0))
    assert found(checked) == {"saturated": 100}
    assert checked.stretches[0].saturated[500:].all()
    assert checked.num_kept == 600


def test_a_full_fleet_whose_queue_is_unknown_is_not_learned_from():
    full = stepped(600, 100.0, 999.0, at=500) + np.linspace(0, 0.5, 600)
    checked = check_telemetry(recorded(kv_blocks_used=full, waiting_requests=np.nan, waiting_prompt_tokens=np.nan))
    assert found(checked) == {"saturated, queue unknown": 100}
    assert checked.num_kept == 500


def test_refusals_of_unknown_length_are_not_learned_from():
    refused = stepped(600, 0.0, 2.0, at=590)
    checked = check_telemetry(recorded(rejected_rate_per_second=refused))
    assert found(checked) == {"saturated, queue unknown": 10}


@pytest.mark.parametrize("name", LOADS)
def test_a_constant_load_is_an_exporter_that_hangs(name):
    checked = check_telemetry(recorded(**{name: 7.0}))
    assert found(checked) == {"constant": 600}
    assert checked.num_kept == 0
    assert np.isnan(checked.stretches[0].window.column(name)).all()


def test_a_night_without_load_is_known_to_be_quiet_and_kept():
    checked = check_telemetry(recorded(QUIET_ROWS, **dict.fromkeys(LOADS, 0.0)))
    assert found(checked) == {"quiet hour": QUIET_ROWS}
    assert checked.num_kept == QUIET_ROWS


def test_rows_out_of_order_or_twice_are_put_right():
    rows = recorded()
    shuffled = chosen(rows, np.r_[np.random.default_rng(1).permutation(600), 17])
    checked = check_telemetry(shuffled)
    assert found(checked)["duplicate"] == 1
    assert found(checked)["out of order"] > 100
    np.testing.assert_array_equal(checked.stretches[0].window.values, rows.values)


def test_rows_from_the_future_or_without_a_time_are_left_out():
    rows = recorded()
    rows.seen_at[100:110] -= 60
    rows.row_at[5] = np.nan
    checked = check_telemetry(rows)
    assert found(checked) == {"no time": 1, "from the future": 10, "gap": 11}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_was_recorded_what_is_kept_is_known_and_can_be_true(data):
    rows = recorded(data.draw(st.integers(1, 80)))
    size = rows.row_at.size
    for _ in range(data.draw(st.integers(0, 6))):
        where = data.draw(st.integers(0, size - 1))
        signal = data.draw(st.integers(0, len(SIGNALS) - 1))
        rows.values[where:, signal] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf, -1.0, 0.0, 1e300]))
        rows.row_at[where] = data.draw(st.sampled_from([np.nan, np.inf, 0.0, START, START + 3.4, START + 1e4]))
        rows.seen_at[data.draw(st.integers(0, size - 1))] = data.draw(st.sampled_from([np.nan, START - 1e6]))
    checked = check_telemetry(rows)
    for stretch in checked.stretches:
        assert np.isfinite(np.column_stack([stretch.window.column(name) for name in LOADS])[stretch.kept]).all()
        assert (np.diff(stretch.window.row_at) == 1).all()
    assert checked.num_kept <= checked.num_rows_read


@given(st.lists(st.sampled_from([0.0, 1.0, np.nan]), max_size=40), st.integers(1, 6))
def test_runs_are_those_that_a_loop_finds(values, rows):
    expected = []
    for i, value in enumerate(values):
        first = last = i
        while first > 0 and values[first - 1] == value:
            first -= 1
        while last + 1 < len(values) and values[last + 1] == value:
            last += 1
        expected.append(not np.isnan(value) and last - first + 1 >= rows)
    assert in_long_runs(np.array(values), rows).tolist() == expected


def test_four_minutes_of_one_value_are_no_finding():
    load = np.random.default_rng(2).uniform(5, 10, 600)
    load[: STUCK_ROWS - 1] = 7.0
    assert check_telemetry(recorded(request_rate_per_second=load)).findings == ()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    requests = RequestTable.from_columns(np.arange(0, 120, 0.4), np.full(300, 900), np.full(300, 40))
    result = simulate_static(requests, profile_named(DEFAULT_PROFILE), num_replicas=2, duration_seconds=120.0)
    folder = tmp_path_factory.mktemp("run")
    write_run(result, folder)
    return result, folder


def test_a_simulated_run_is_read_as_it_was_written(run):
    result, folder = run
    for place in (folder, folder / "telemetry.parquet"):
        rows = read_telemetry(place)
        np.testing.assert_array_equal(rows.values, result.telemetry.values)
        assert rows.missing == ()
    (stretch,) = check_telemetry(rows).stretches
    np.testing.assert_array_equal(stretch.window.row_at, result.telemetry.row_at)


def test_a_half_written_file_is_passed_over_and_told_of(run, tmp_path):
    _, folder = run
    whole = (folder / "telemetry.parquet").read_bytes()
    (tmp_path / "telemetry-1.parquet").write_bytes(whole)
    (tmp_path / "telemetry-2.parquet").write_bytes(whole[: len(whole) // 2])
    checked = check_telemetry(read_telemetry(tmp_path))
    assert found(checked)["unreadable file"] == 1
    assert "telemetry-2.parquet" in checked.findings[0].consequence
    with pytest.raises(InvalidTelemetryError, match=r"cannot read .*telemetry-2"):
        read_telemetry(tmp_path / "telemetry-2.parquet")


def test_columns_that_were_not_recorded_are_unknown_and_told_of(tmp_path):
    path = tmp_path / "telemetry.parquet"
    pq.write_table(pa.table({"row_at": [1.0, 2.0], "request_rate_per_second": [3, None], "colour": ["a", "b"]}), path)
    rows = read_telemetry(path)
    assert rows.values[0, SIGNAL_INDEX["request_rate_per_second"]] == 3.0
    assert np.isnan(rows.values[1]).all()
    assert "kv_blocks_used" in rows.missing
    assert found(check_telemetry(rows))["signal not recorded"] == 2


@pytest.mark.parametrize(
    ("columns", "message"),
    [({"time": [1.0]}, "no column row_at"), ({"row_at": ["noon"]}, "row_at must be numbers, got string")],
)
def test_other_parquet_files_are_refused(tmp_path, columns, message):
    pq.write_table(pa.table(columns), tmp_path / "telemetry.parquet")
    with pytest.raises(InvalidTelemetryError, match=message):
        read_telemetry(tmp_path)


def test_a_folder_without_telemetry_is_refused(tmp_path):
    with pytest.raises(InvalidTelemetryError, match=r"no telemetry\*\.parquet in"):
        read_telemetry(tmp_path)
