"""`foreshock train` writes an artefact and prints its scores, as a table or as JSON."""

import json

import pytest
from click.testing import CliRunner

from cli.train import train
from models.artifact import load_artifact


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("model")
    arguments = ["--out", str(out), "--fleets", "6", "--workers", "1", "--json"]
    return out, CliRunner().invoke(train, arguments, catch_exceptions=False)


def test_json_is_one_line_with_the_scores(run):
    out, result = run
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["out"] == str(out)
    assert found["num_runs"] == 1


def test_writes_an_artefact_that_loads(run):
    out, _ = run
    assert load_artifact(out).provenance["seed"] == 0


def test_refuses_too_few_fleets():
    result = CliRunner().invoke(train, ["--fleets", "2"])
    assert result.exit_code == 2
    assert "2 is not in the range x>=3" in result.stderr
