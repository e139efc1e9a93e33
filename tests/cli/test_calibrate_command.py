import json
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from cli.main import foreshock
from training.profile_files import read_profile

ROOT = "import sys; from cli.main import main; sys.argv = ['foreshock', *{arguments!r}]; main()"


@pytest.fixture
def log(tmp_path):
    """Forty answers, each alone in the engine: 0.2 s to the first token and 20 ms a token."""
    path = tmp_path / "log.csv"
    rows = [f"{t},{t + 0.2},{t + 0.2 + 0.02 * 49},{800 + t % 7},50\n" for t in np.arange(40) * 3]
    path.write_text("arrival,first_token_at,finished_at,prompt_tokens,output_tokens\n" + "".join(rows))
    return path


def call(*arguments):
    return CliRunner().invoke(foreshock, [str(argument) for argument in arguments])


def test_prints_both_halves_and_writes_a_profile_that_simulate_reads(log, tmp_path):
    out = tmp_path / "deep" / "profile.yaml"
    result = call("calibrate", log, "--kv-blocks", 2000, "--form", "closed", "--gpus", 2, "--out", out)
    assert result.exit_code == 0, result.output
    for text in ("first half", "second", "TTFT p50", "e2e p99", f"profile: {out}"):
        assert text in result.stdout
    profile = read_profile(out)
    assert (profile.name, profile.kv_blocks, profile.gpus_per_replica) == ("log", 2000, 2)
    assert profile.step_time.seconds(num_decodes=1, mean_context_tokens=800) == pytest.approx(0.02, rel=0.05)
    played = call("simulate", "--scenario", "steady", "--duration", 3, "--profile", out, "--policy", "static:2",
                  "--no-report")  # fmt: skip
    assert played.exit_code == 0, played.output


def test_json_has_the_errors_of_each_half(log, tmp_path):
    out = tmp_path / "profile.yaml"
    result = call("calibrate", log, "--kv-blocks", 2000, "--form", "closed", "--out", out, "--json")
    found = json.loads(result.stdout)
    assert found["num_requests"] == 40
    for part in ("fit", "score"):
        assert [(e["measure"], e["level"]) for e in found[part]] == [
            (measure, level) for measure in ("ttft", "e2e") for level in (0.5, 0.9, 0.99)
        ]
        assert all(abs(error["error_ratio"]) < 0.05 for error in found[part])


def test_a_bad_log_is_one_line_and_exit_code_1(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("a,b\n1,2\n")
    code = ROOT.format(arguments=["calibrate", str(path), "--kv-blocks", "100"])
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "no column queued_at" in result.stderr


def test_without_the_size_of_the_cache_it_is_wrong_usage(log):
    assert call("calibrate", log).exit_code == 2
