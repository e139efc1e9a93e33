import gzip
import json

import numpy as np
import pandas as pd
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from forecaster.errors import TraceFormatError
from training.traces import KEPT_PROBLEMS, read_trace, spread_over_grid

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:05.9799600,110,27
"""
MOONCAKE = """{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}
{"timestamp": 3000, "input_length": 7322, "output_length": 490, "hash_ids": [0, 2]}
"""
COLUMNS = "arrival_seconds,prompt_tokens,output_tokens,priority\n7.5,10,2,0\n5,20,3,2\n"


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


class TestFormats:
    def test_reads_azure_with_arrivals_from_the_first_request(self, tmp_path):
        trace = read_trace(written(tmp_path, "a.csv", AZURE))
        assert trace.format == "azure"
        np.testing.assert_allclose(trace.requests.arrival_seconds, [0, 0.052, 2.0], atol=1e-9)
        assert trace.requests.prompt_tokens.tolist() == [4808, 3180, 110]
        assert trace.requests.output_tokens.tolist() == [10, 8, 27]

    def test_reads_time_zones_as_azure_2024_writes_them(self, tmp_path):
        content = (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n"
            "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01+00:00,2399,6\n"
        )
        trace = read_trace(written(tmp_path, "a.csv", content))
        np.testing.assert_allclose(trace.requests.arrival_seconds, [0, 0.99007], atol=1e-9)

    def test_reads_mooncake_in_milliseconds_spread_over_its_grid(self, tmp_path):
        trace = read_trace(written(tmp_path, "m.jsonl", MOONCAKE))
        first, second = trace.requests.arrival_seconds
        assert trace.format == "mooncake"
        assert first == 0
        assert 0 < second < 6

    def test_reads_named_columns_sorted_by_arrival_with_priorities(self, tmp_path):
        trace = read_trace(written(tmp_path, "c.csv", COLUMNS))
        assert trace.requests.arrival_seconds.tolist() == [0, 2.5]
        assert trace.requests.prompt_tokens.tolist() == [20, 10]
        assert trace.requests.priority.tolist() == [2, 0]

    def test_reads_parquet_like_csv(self, tmp_path):
        table = pd.DataFrame({"arrival_seconds": [5.0, 7.5], "prompt_tokens": [20, 10], "output_tokens": [3, 2]})
        table.to_parquet(tmp_path / "c.parquet")
        assert read_trace(tmp_path / "c.parquet").requests.arrival_seconds.tolist() == [0, 2.5]

    @pytest.mark.parametrize(
        ("suffix", "compress"), [(".gz", gzip.compress), (".zst", zstandard.ZstdCompressor().compress)]
    )
    def test_reads_compressed_files(self, tmp_path, suffix, compress):
        path = written(tmp_path, f"a.csv{suffix}", compress(AZURE.encode()))
        assert read_trace(path).requests.num_requests == 3

    def test_reads_all_frames_of_a_zstd_file(self, tmp_path):
        compress = zstandard.ZstdCompressor().compress
        content = b"".join(compress(line.encode()) for line in AZURE.splitlines(keepends=True))
        assert read_trace(written(tmp_path, "a.csv.zst", content)).requests.num_requests == 3

    @pytest.mark.parametrize(
        "content",
        ["\ufeff" + COLUMNS, COLUMNS.replace(",", ", "), COLUMNS.replace("\n", "\r\n"), COLUMNS.replace("\n", ",\n")],
        ids=["byte order mark", "spaces", "CRLF", "comma at the end of each line"],
    )
    def test_reads_csv_as_other_programs_write_it(self, tmp_path, content):
        requests = read_trace(written(tmp_path, "c.csv", content)).requests
        assert requests.arrival_seconds.tolist() == [0, 2.5]
        assert requests.prompt_tokens.tolist() == [20, 10]
        assert requests.priority.tolist() == [2, 0]

    def test_same_seed_places_a_coarse_grid_the_same(self, tmp_path):
        path = written(tmp_path, "m.jsonl", MOONCAKE * 30)
        times = [read_trace(path, seed=seed).requests.arrival_seconds for seed in (1, 1, 2)]
        assert (times[0] == times[1]).all()
        assert (times[0] != times[2]).any()

    def test_mooncake_hash_ids_become_prefixes_numbered_from_0(self, tmp_path):
        lines = [
            {"timestamp": 9000, "input_length": 600, "output_length": 1, "hash_ids": [2**63 + 1, 2**63 + 2]},
            {"timestamp": 0, "input_length": 512, "output_length": 2, "hash_ids": [2**63 + 1]},
            {"timestamp": 3000, "input_length": 5, "output_length": 3},
        ]
        requests = read_trace(written(tmp_path, "m.jsonl", "\n".join(map(json.dumps, lines)))).requests
        assert requests.output_tokens.tolist() == [2, 3, 1]
        assert requests.prefixes.starts.tolist() == [0, 1, 1, 3]
        assert requests.prefixes.ids.tolist() == [0, 0, 1]
        assert requests.prefixes.group_tokens == 512

    def test_every_prompt_of_mooncake_has_an_id_for_each_group(self, shared):
        requests = read_trace(shared / "traces" / "mooncake_conversation.jsonl.gz").requests
        counts = np.diff(requests.prefixes.starts)
        assert (counts == -(-requests.prompt_tokens // 512)).all()
        assert np.unique(requests.prefixes.ids).tolist() == list(range(182_790))

    @pytest.mark.parametrize(
        ("header", "rows"),
        [
            (
                "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
                ["5,ChatGPT,472,18,490,Conversation log", "45,ChatGPT,1087,0,1087,API log", "118,GPT-4,417,276,693,x"],
            ),
            (
                "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
                ["5,,,GPT-4,472,18,490,API log", "45,1,2,GPT-4,1087,0,1087,x", "118,7,3.5,GPT-4,417,276,693,x"],
            ),
        ],
        ids=["first files", "newer files"],
    )
    def test_reads_burstgpt_without_its_failed_requests(self, tmp_path, header, rows):
        trace = read_trace(written(tmp_path, "b.csv", "\n".join([header, *rows])))
        assert trace.format == "burstgpt"
        assert trace.requests.arrival_seconds.tolist() == [0, 113]
        assert trace.requests.prompt_tokens.tolist() == [472, 417]
        assert trace.requests.output_tokens.tolist() == [18, 276]
        assert (trace.num_failed, trace.num_skipped) == (1, 0)


class TestBadRows:
    @pytest.mark.parametrize("ids", ["7", "[1.5]", "[[1]]", "[true]", "[1, 2, 3]"])
    def test_wrong_hash_ids_are_one(self, tmp_path, ids):
        bad = f'{{"timestamp": 1, "input_length": 1024, "output_length": 1, "hash_ids": {ids}}}\n'
        trace = read_trace(written(tmp_path, "m.jsonl", MOONCAKE + bad))
        assert [row.line_number for row in trace.skipped] == [3]
        assert "hash_ids must be a list of ids" in trace.skipped[0].problem

    @pytest.mark.parametrize(
        ("row", "problem"),
        [
            ("yesterday,10,5", "TIMESTAMP is missing or no time"),
            (",10,5", "TIMESTAMP is missing or no time"),
            ("2023-11-16 18:17:04,ten,5", "ContextTokens is missing or no number"),
            ("2023-11-16 18:17:04,nan,5", "ContextTokens is missing or no number"),
            ("2023-11-16 18:17:04,inf,5", "ContextTokens is missing or no number"),
            ("2023-11-16 18:17:04,10", "GeneratedTokens is missing or no number"),
            ("2023-11-16 18:17:04,0,5", "ContextTokens must be >= 1"),
            ("2023-11-16 18:17:04,-3,5", "ContextTokens must be >= 1"),
            ("2023-11-16 18:17:04,10,0", "GeneratedTokens is 0: a failed request"),
            ("2023-11-16 18:17:04,10,-1", "GeneratedTokens must be >= 1"),
            ("2023-11-16 18:17:04,10.5,5", "ContextTokens is no whole number"),
            ("2023-11-16 18:17:04,10,0.5", "GeneratedTokens is no whole number"),
            ("2023-11-16 18:17:04,10,5,7", "more fields than the header names"),
            ("2023-11-16 18:17:04,10,5,7,8,9", "more fields than the header names"),
            ("1970-01-01 00:00:00,10,5", "TIMESTAMP is over 366 days from the median"),
            ("2023-11-16 18:17:04,1e30,5", "more than 10000000 tokens"),
        ],
    )
    def test_are_counted_and_named_by_line(self, tmp_path, row, problem):
        lines = AZURE.splitlines()
        lines.insert(2, row)
        trace = read_trace(written(tmp_path, "a.csv", "\n".join(lines)))
        assert trace.requests.num_requests == 3
        assert trace.num_skipped == 1
        assert (trace.skipped[0].line_number, trace.skipped[0].problem) == (3, problem)

    def test_blank_lines_keep_line_numbers_true(self, tmp_path):
        lines = AZURE.splitlines()
        lines[2:2] = ["", "x,1,1"]
        trace = read_trace(written(tmp_path, "a.csv", "\n".join(lines)))
        assert [row.line_number for row in trace.skipped] == [3, 4]

    def test_a_negative_arrival_is_one(self, tmp_path):
        trace = read_trace(written(tmp_path, "c.csv", COLUMNS + "-1,10,2,1\n"))
        assert [(row.line_number, row.problem) for row in trace.skipped] == [(4, "arrival_seconds must be >= 0")]
        assert trace.requests.arrival_seconds.tolist() == [0, 2.5]

    def test_a_line_of_another_encoding_is_one(self, tmp_path):
        lines = AZURE.encode().splitlines()
        lines.insert(2, b"\xff\xfe,1,1")
        trace = read_trace(written(tmp_path, "a.csv", b"\n".join(lines)))
        assert [row.line_number for row in trace.skipped] == [3]

    @pytest.mark.parametrize(
        "line",
        [
            b"\xff\xff",
            b"7",
            b"",
            b'{"timestamp": 1' + b"0" * 400 + b', "input_length": 1, "output_length": 1}',
            b'{"timestamp": 1' + b"0" * 5000 + b', "input_length": 1, "output_length": 1}',
            b'{"timestamp": ' + b"[" * 100_000,
        ],
        ids=["no text", "no object", "blank", "infinite", "too long to print", "too deep"],
    )
    @pytest.mark.parametrize("place", [0, 1])
    def test_a_strange_json_line_is_one(self, tmp_path, line, place):
        lines = MOONCAKE.encode().splitlines()
        lines.insert(place, line)
        trace = read_trace(written(tmp_path, "m.jsonl", b"\n".join(lines)))
        assert trace.requests.num_requests == 2
        assert [row.line_number for row in trace.skipped] == [place + 1]

    def test_a_broken_json_line_is_one_bad_row(self, tmp_path):
        trace = read_trace(written(tmp_path, "m.jsonl", MOONCAKE + "{broken\n[1]\n" + MOONCAKE))
        assert trace.requests.num_requests == 4
        assert [row.line_number for row in trace.skipped] == [3, 4]

    def test_all_are_counted_and_the_first_named(self, tmp_path):
        trace = read_trace(written(tmp_path, "a.csv", AZURE + "x,1,1\n" * 50))
        assert trace.num_skipped == 50
        assert len(trace.skipped) == KEPT_PROBLEMS


class TestErrors:
    @pytest.mark.parametrize(
        ("name", "content", "says"),
        [
            ("a.csv", "", "the file is empty"),
            ("a.csv", "TIMESTAMP,ContextTokens\n1,2\n", "missing GeneratedTokens of format azure"),
            ("a.csv", "a,b,c\n1,2,3\n", "no known format; columns found: a, b, c"),
            ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nx,1,1\n", "no usable request in 1 rows; line 2"),
            ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "no usable request in 0 rows"),
            ("a.csv.gz", "no gzip", "cannot be read"),
            ("a.csv.gz", gzip.compress(AZURE.encode())[:-9], "cannot be read"),
            ("a.csv.zst", "no zstd", "cannot be read"),
            ("a.csv.zst", zstandard.ZstdCompressor().compress(AZURE.encode() * 5000)[:-3], "ended before"),
            ("a.csv", COLUMNS.replace("\n", ",9\n").replace("priority,9", "priority"), "more fields than the header"),
            (
                "b.csv",
                "Timestamp,Request tokens,Response tokens\n1,2,0\n",
                "in 1 rows; all of them failed when they were",
            ),
            ("a.parquet", "", "the file is empty"),
            ("a.parquet", "no parquet", "cannot be"),
            ("a.csv", 'a,b\n1,"2\n', "cannot be parsed"),
        ],
    )
    def test_are_one_line_with_the_file(self, tmp_path, name, content, says):
        path = written(tmp_path, name, content)
        with pytest.raises(TraceFormatError) as caught:
            read_trace(path)
        message = str(caught.value)
        assert message.startswith(f"{path}: ")
        assert "\n" not in message
        assert says in message

    def test_a_missing_file_says_so(self, tmp_path):
        with pytest.raises(TraceFormatError, match="no such file"):
            read_trace(tmp_path / "none.csv")


FIELDS = st.one_of(
    st.integers(-2, 50).map(str), st.floats().map(str), st.text("0123456789.-e, x\xff", max_size=6), st.just("")
)


@given(st.lists(st.lists(FIELDS, min_size=1, max_size=5).map(",".join), max_size=20))
def test_whatever_a_csv_holds_every_line_is_a_request_or_reported(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("any") / "c.csv"
    path.write_text("\n".join(["arrival_seconds,prompt_tokens,output_tokens", "0,1,1", *lines]) + "\n")
    failure = ""
    try:
        trace = read_trace(path)
        num_seen = trace.requests.num_requests + trace.num_skipped
    except TraceFormatError as error:
        failure, num_seen = str(error), len(lines) + 1
    assert num_seen == len(lines) + 1
    assert not failure or f"no usable request in {len(lines) + 1} rows" in failure


@given(
    st.lists(st.integers(0, 100).map(lambda step: 3.0 * step), min_size=1, max_size=60).map(sorted),
    st.integers(0, 2**32),
)
def test_spreading_keeps_every_request_within_its_grid_step(times, seed):
    arrival = np.array(times)
    spread = spread_over_grid(arrival, np.random.default_rng(seed))
    assert (np.diff(spread) >= 0).all()
    assert (spread >= arrival).all()
    gaps = np.diff(np.unique(arrival))
    step = np.median(gaps) if gaps.size else 0.0
    assert (spread <= arrival + step).all()
