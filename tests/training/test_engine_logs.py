import json

import pytest

from forecaster.errors import TraceFormatError
from training.engine_logs import MIN_REQUESTS, read_engine_log

HEADER = "queued_at,first_token_at,finished_at,prompt_tokens,output_tokens\n"


def row(i):
    return [1000.0 + i, 1000.5 + i, 1002.0 + i, 100 + i, 20]


def write(path, rows, header=HEADER):
    path.write_text(header + "".join(",".join(map(str, values)) + "\n" for values in rows))
    return path


def test_times_count_from_the_first_queued_and_rows_are_sorted(tmp_path):
    log = read_engine_log(write(tmp_path / "log.csv", [row(i) for i in reversed(range(MIN_REQUESTS))]))
    assert log.requests.arrival_seconds.tolist() == list(range(MIN_REQUESTS))
    assert log.requests.prompt_tokens.tolist() == [100 + i for i in range(MIN_REQUESTS)]
    assert log.ttft_seconds == pytest.approx(0.5)
    assert log.e2e_seconds == pytest.approx(2.0)


@pytest.mark.parametrize(
    "names",
    [
        ("queued_ts", "first_token_ts", "last_token_ts", "input_toks", "output_toks"),
        ("arrival", "first_token_at", "finished_at", "prompt_tokens", "output_tokens"),
    ],
)
def test_json_lines_of_other_names_read_the_same(tmp_path, names):
    path = tmp_path / "log.jsonl"
    rows = [row(i) for i in range(MIN_REQUESTS)]
    path.write_text("".join(json.dumps(dict(zip(names, values, strict=True))) + "\n" for values in rows))
    theirs = read_engine_log(write(tmp_path / "log.csv", rows))
    ours = read_engine_log(path)
    assert ours.first_token_at.tolist() == theirs.first_token_at.tolist()
    assert ours.requests.prompt_tokens.tolist() == theirs.requests.prompt_tokens.tolist()


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        (1, 900.0, "line 5: first_token_at must be after queued_at"),
        (2, 1003.1, "line 5: finished_at must not be before first_token_at"),
        (3, 0, "line 5: prompt_tokens and output_tokens must be >= 1"),
        (4, "", "line 5: a value is missing"),
        (0, "x", "line 5: a value is missing"),
    ],
)
def test_bad_values_are_named_in_one_line(tmp_path, column, value, problem):
    rows = [row(i) for i in range(MIN_REQUESTS)]
    rows[3][column] = value
    with pytest.raises(TraceFormatError, match=problem) as caught:
        read_engine_log(write(tmp_path / "log.csv", rows))
    assert "\n" not in str(caught.value)


def test_a_missing_column_is_named_beside_those_there_are(tmp_path):
    path = write(tmp_path / "log.csv", [row(0)], header=HEADER.replace("finished_at", "done"))
    with pytest.raises(TraceFormatError, match="no column finished_at among queued_at, first_token_at, done"):
        read_engine_log(path)


def test_too_few_requests_are_refused(tmp_path):
    with pytest.raises(TraceFormatError, match="1 requests, but a fit needs at least"):
        read_engine_log(write(tmp_path / "log.csv", [row(0)]))
