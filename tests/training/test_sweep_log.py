import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweep_cases import a_failure, a_run

from forecaster.errors import ForecasterError
from training.sweep_log import FILE_NAME, SweepLog, sweep_run_json

RUNS = [a_run("a"), a_run("b", seed=1, attainment_ratio=0.5), a_failure("c", seed=2)]


def texts(runs):
    return [json.dumps(sweep_run_json(run)) for run in runs]


def written(folder, runs=RUNS):
    with SweepLog(folder) as log:
        for run in runs:
            log.add(run)
    return folder / FILE_NAME


def test_remembers_what_was_added(tmp_path):
    written(tmp_path / "deep" / "folder")
    with SweepLog(tmp_path / "deep" / "folder") as log:
        assert texts(log.runs.values()) == texts(RUNS)
        assert log.num_unreadable_lines == 0


def test_a_run_is_in_the_file_as_soon_as_it_is_added(tmp_path):
    with SweepLog(tmp_path) as log:
        log.add(RUNS[0])
        assert (tmp_path / FILE_NAME).read_text().splitlines() == texts(RUNS[:1])


def test_only_what_did_not_fail_is_finished(tmp_path):
    written(tmp_path)
    with SweepLog(tmp_path) as log:
        assert [log.finished(key) for key in "abcd"] == [True, True, False, False]


def test_the_last_run_of_a_key_holds(tmp_path):
    written(tmp_path, [a_failure("a"), a_run("a", gpu_hours=1.0)])
    with SweepLog(tmp_path) as log:
        assert log.finished("a")
        assert len(log.runs) == 1


@given(st.data())
def test_a_file_that_is_cut_anywhere_keeps_all_lines_before_and_takes_new_ones(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("cut")
    path = written(folder)
    whole = path.read_bytes()
    length = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:length])
    # a line that lacks nothing but its end counts
    num_whole = sum(length >= end for end in (i for i, byte in enumerate(whole) if byte == ord("\n")))
    with SweepLog(folder) as log:
        assert texts(log.runs.values()) == texts(RUNS[:num_whole])
        assert log.num_unreadable_lines <= 1
        log.add(a_run("new"))
    with SweepLog(folder) as log:
        assert texts(log.runs.values()) == texts([*RUNS[:num_whole], a_run("new")])


@pytest.mark.parametrize(
    "line",
    [
        "",
        "5",
        "[]",
        "null",
        "{}",
        "\x00\xff",
        '{"key": "x"}',
        json.dumps({**sweep_run_json(RUNS[0]), "key": []}),
        json.dumps({**sweep_run_json(RUNS[0]), "scorecard": {"policy": "hpa"}}),
        json.dumps({**sweep_run_json(RUNS[0]), "scorecard": 3}),
        json.dumps({**sweep_run_json(RUNS[0]), "scorecard": None}),
        json.dumps({**sweep_run_json(RUNS[0]), "more": 1}),
    ],
)
def test_lines_that_are_no_runs_are_passed_over_and_counted(tmp_path, line):
    path = written(tmp_path, RUNS[1:2])
    path.write_bytes(line.encode("latin-1") + b"\n" + path.read_bytes())
    with SweepLog(tmp_path) as log:
        assert texts(log.runs.values()) == texts(RUNS[1:2])
        assert log.num_unreadable_lines == 1


def test_fresh_forgets_what_there_is(tmp_path):
    written(tmp_path)
    with SweepLog(tmp_path, fresh=True) as log:
        assert not log.runs
    assert not (tmp_path / FILE_NAME).read_bytes()


def test_a_folder_is_written_to_by_one_sweep_at_a_time(tmp_path):
    path = written(tmp_path)
    with SweepLog(tmp_path), pytest.raises(ForecasterError, match="another sweep is writing"):
        SweepLog(tmp_path, fresh=True).__enter__()
    assert path.read_text().splitlines() == texts(RUNS)
    with SweepLog(tmp_path) as log:
        assert len(log.runs) == 3
