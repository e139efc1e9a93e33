import signal
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from cli.main import foreshock

SECONDS = 40


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    at = np.arange(SECONDS * 10) / 10
    path.write_text("arrival_seconds,prompt_tokens,output_tokens\n" + "".join(f"{t},800,40\n" for t in at))
    return path


class TestWithoutATerminal:
    def test_prints_plain_lines_the_comparison_and_where_the_report_is(self, trace, tmp_path):
        out = tmp_path / "out"
        result = CliRunner().invoke(foreshock, ["run", "--trace", str(trace), "--out", str(out)])
        assert result.exit_code == 0, result.output
        assert "\x1b" not in result.stdout
        lines = result.stdout.splitlines()
        assert lines[0] == "trace.csv: columns trace (400 requests)"
        assert any(line.split()[:2] == ["0:30", "foreshock"] for line in lines)
        assert any(line.startswith("hpa ") for line in lines)
        assert any(line.startswith("foreshock served ") for line in lines)
        assert lines[-1] == f"report: {out / 'report.html'}"
        assert (out / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")

    def test_plays_beside_what_is_asked_for(self, trace, tmp_path):
        arguments = ["run", "--trace", str(trace), "--out", str(tmp_path / "out"), "--against", "static:3"]
        result = CliRunner().invoke(foreshock, arguments)
        assert result.exit_code == 0, result.output
        assert "static:3 " in result.stdout


class TestWrongUsage:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--scenario", "nope"], "known: code2, conv8"),
            (["--against", "nope"], "known: foreshock, hpa, static:N"),
            (["--against", "foreshock"], "named twice"),
            (["--speed", "0"], "--speed"),
            (["--trace", "no-such-file.csv"], "does not exist"),
        ],
        ids=lambda value: "-".join(value) if isinstance(value, list) else None,
    )
    def test_is_told_in_a_line_that_names_the_fix(self, arguments, words):
        result = CliRunner().invoke(foreshock, ["run", *arguments])
        assert result.exit_code == 2
        assert words in result.output

    def test_a_trace_and_a_scenario_exclude_each_other(self, trace):
        result = CliRunner().invoke(foreshock, ["run", "--trace", str(trace), "--scenario", "surge"])
        assert result.exit_code == 2
        assert "give one of them" in result.output


class TestCtrlC:
    CODE = "from cli.main import main; import sys; sys.argv = ['foreshock', 'run', '--scenario', 'diurnal']; main()"

    def interrupted_after(self, is_the_line) -> tuple[int, str, str]:
        """Return exit code, stdout and stderr of a run of 4 simulated hours, interrupted after a line of its output."""
        process = subprocess.Popen(
            [sys.executable, "-c", self.CODE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        seen = ""
        for line in process.stdout:
            seen += line
            if is_the_line(line):
                process.send_signal(signal.SIGINT)
                break
        try:
            rest, errors = process.communicate(timeout=60)
        finally:
            process.kill()
        return process.returncode, seen + rest, errors

    def test_while_it_plays_ends_with_the_comparison_so_far(self):
        code, output, errors = self.interrupted_after(lambda line: "over SLO" in line)
        assert code == 130
        assert "Traceback" not in output + errors
        assert "of 4:00:00; up to there:" in output
        assert "foreshock served" in output
        assert "report:" not in output

    def test_before_it_plays_ends_without_a_word_too_many(self):
        code, output, errors = self.interrupted_after(lambda line: line.startswith("diurnal"))
        assert code == 130
        assert "Traceback" not in output + errors
