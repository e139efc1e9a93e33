import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from cli.main import SUBCOMMANDS, foreshock

TRACE = "arrival_seconds,prompt_tokens,output_tokens\n0,10,2\n1.5,20,3\nx,1,1\n12.5,20,3\n"
ROOT = "import sys; from cli.main import main; sys.argv = ['foreshock', *{arguments!r}]; main()"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def call(*arguments):
    code = ROOT.format(arguments=[str(argument) for argument in arguments])
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_prints_figures_the_verdict_and_skipped_rows(trace):
    result = CliRunner().invoke(foreshock, ["trace", "stats", str(trace)])
    assert result.exit_code == 0
    assert "0.240 requests/s" in result.stdout
    assert "smooth" in result.stdout
    assert "line 4: arrival_seconds is missing or no time" in result.stderr


def test_json_has_the_same_names_and_the_skipped_rows(trace):
    result = CliRunner().invoke(foreshock, ["trace", "stats", str(trace), "--json"])
    found = json.loads(result.stdout)
    assert found["num_requests"] == 3
    assert found["span_seconds"] == 12.5
    assert found["num_skipped"] == 1
    assert found["skipped"] == [{"line_number": 4, "problem": "arrival_seconds is missing or no time"}]


def test_json_is_strict_where_a_figure_is_unknown(tmp_path):
    path = tmp_path / "short.csv"
    path.write_text("arrival_seconds,prompt_tokens,output_tokens\n0,10,2\n0.5,20,3\n")
    result = CliRunner().invoke(foreshock, ["trace", "stats", str(path), "--json"])
    assert "NaN" not in result.stdout
    found = json.loads(result.stdout)
    assert found["peak_to_mean_1s"] is None
    assert found["unknown"]["peak_to_mean_1s"] == "needs a whole 1-s window, the trace has none"


def test_the_table_uses_the_words_of_the_json(trace):
    table = CliRunner().invoke(foreshock, ["trace", "stats", str(trace)]).stdout
    found = json.loads(CliRunner().invoke(foreshock, ["trace", "stats", str(trace), "--json"]).stdout)
    figures = {name for name, value in found.items() if value is None or type(value) in (int, float)} - {"num_skipped"}
    assert {name for name in figures if name.replace("_", " ") not in table} == set()
    assert "hurst dfa 1s is unknown: needs 256 whole 1-s windows, the trace has 12" in table


def test_tells_how_many_requests_failed(tmp_path):
    path = tmp_path / "burst.csv"
    path.write_text("Timestamp,Request tokens,Response tokens\n0,10,2\n1,10,0\n9,10,2\n")
    result = CliRunner().invoke(foreshock, ["trace", "stats", str(path), "--json"])
    assert json.loads(result.stdout)["num_failed"] == 1
    assert result.stderr == ""


def test_skipped_rows_are_told_even_if_too_few_are_left(tmp_path):
    path = tmp_path / "a[b].csv"
    path.write_text("arrival_seconds,prompt_tokens,output_tokens\n0,10,2\n0.5,20,0\n")
    result = call("trace", "stats", path)
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        f"warning: {path}: skipped 1 row that is no request",
        "  line 3: output_tokens is 0: a failed request",
        f"error: {path}: statistics need two requests at different times, got 1 request(s)",
    ]


def test_the_bare_command_shows_its_help_as_it_is_laid_out():
    result = call()
    assert result.returncode == 2
    assert result.stderr.startswith("Usage: foreshock [OPTIONS] COMMAND [ARGS]...\n\n")
    assert "\nCommands:\n" in result.stderr


def test_a_reader_that_has_seen_enough_is_no_error_to_print(trace):
    code = ROOT.format(arguments=["trace", "stats", str(trace), "--json"])
    read_end, write_end = os.pipe()
    os.close(read_end)
    result = subprocess.run(
        [sys.executable, "-c", code], stdout=write_end, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write_end)
    assert result.returncode == 1
    assert "Broken pipe" not in result.stderr


def test_help_imports_no_command():
    code = (
        "import sys; from click.testing import CliRunner; from cli.main import foreshock; "
        "CliRunner().invoke(foreshock, ['--help']); "
        "print([m for m in ('numpy', 'pandas', 'numba', 'plotly', 'rich', 'cli.trace') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_plot_is_one_page_that_loads_nothing(trace, tmp_path):
    page = tmp_path / "out" / "trace.html"
    result = CliRunner().invoke(foreshock, ["trace", "stats", str(trace), "--plot", str(page)])
    assert result.exit_code == 0
    text = page.read_text()
    assert "<script src=" not in text
    assert '<link rel="stylesheet"' not in text


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["trace", "stats", "none.csv"], 1, "error: none.csv: no such file"),
        (["trace", "stats"], 2, "error: Missing argument 'FILE'."),
        (["nonsense"], 2, "error: No such command 'nonsense'"),
        (["trace", "stats", "x", "--seed", "y"], 2, "error: Invalid value for '--seed'"),
        (["trace", "stats", "x", "--seed", "-1"], 2, "error: Invalid value for '--seed'"),
    ],
)
def test_failures_are_one_line_and_their_exit_code(arguments, code, says):
    result = call(*arguments)
    assert result.returncode == code
    assert result.stderr.startswith(says)
    assert result.stderr.count("\n") == 1


def test_debug_shows_the_traceback():
    result = call("--debug", "trace", "stats", "none.csv")
    assert result.returncode == 1
    assert "Traceback" in result.stderr


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_command_has_help_with_examples(name):
    result = CliRunner().invoke(foreshock, [name, "--help"])
    assert result.exit_code == 0
    if name == "trace":
        result = CliRunner().invoke(foreshock, ["trace", "stats", "--help"])
    assert "Examples:" in result.stdout
