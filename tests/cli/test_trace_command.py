import json
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
