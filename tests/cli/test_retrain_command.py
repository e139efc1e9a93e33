"""`foreshock retrain` and `foreshock models`: exit codes, JSON, and what a user reads, on an MLflow file."""

import json
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

import cli.errors
from cli.main import foreshock
from forecaster.telemetry import SIGNALS, TelemetryWindow
from models.champion import promote
from models.demand_forecaster import DEFAULT_FOLDER
from models.store import CHAMPION, open_store
from training.parquet_columns import write_table
from training.retrain_lock import retrain_lock
from training.run_files import TELEMETRY_COLUMNS


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A store whose versions 1 and 2 were champions, and 3 was not."""
    folder = tmp_path_factory.mktemp("filled")
    store = open_store(f"sqlite:///{folder}/mlflow.db", create=True)
    for number in (1, 2, 3):
        metrics = {"loss": 0.1 * number, "champion_loss": 0.2}
        store.publish(DEFAULT_FOLDER, params={"seed": "0"}, metrics=metrics, tags={"gate": "passed"})
    promote(store, 1, now=10.0)
    promote(store, 2, now=20.0)
    return folder


@pytest.fixture
def store(filled, tmp_path):
    """A copy of its own for each test; the artefacts are those of the first."""
    shutil.copy(filled / "mlflow.db", tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture
def empty(tmp_path):
    window = TelemetryWindow(
        deployment="x", row_at=np.zeros(0), seen_at=np.zeros(0), values=np.zeros((0, len(SIGNALS)))
    )
    write_table(tmp_path / "telemetry.parquet", TELEMETRY_COLUMNS, window, num_rows=0)
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(foreshock, arguments, standalone_mode=False)


def champion_of(uri):
    return open_store(uri).alias(CHAMPION)


def test_list_shows_every_version_and_who_serves(store):
    result = call("models", "list", "--store", store)
    assert result.exception is None
    lines = [line.split() for line in result.stdout.splitlines() if "passed" in line]
    assert [line[0] for line in lines] == ["3", "2", "1"]
    assert [line[-1] for line in lines] == ["passed", "champion", "passed"]
    assert "0.3000" in lines[0]


def test_list_and_show_are_json_for_machines(store):
    listed = json.loads(call("models", "list", "--store", store, "--json").stdout)
    assert [one["version"] for one in listed] == [3, 2, 1]
    shown = json.loads(call("models", "show", "2", "--store", store, "--json").stdout)
    assert shown == listed[1]
    assert shown["aliases"] == ["champion"]
    assert shown["params"] == {"seed": "0"}


def test_show_tells_of_one_version(store):
    text = call("models", "show", "2", "--store", store).stdout
    for part in ("version 2, trained", "champion", "digest", "gate  ", "loss  "):
        assert part in text


def test_promote_and_rollback_move_the_champion(store):
    assert json.loads(call("models", "promote", "3", "--store", store, "--json").stdout) == {
        "champion": 3,
        "champion_before": 2,
    }
    result = call("models", "rollback", "--store", store)
    assert result.stdout == "version 2 is champion (before: 3)\n"
    assert call("models", "rollback", "--store", store).stdout == "version 1 is champion (before: 2)\n"
    assert "no champion before version 1" in str(call("models", "rollback", "--store", store).exception)
    assert champion_of(store) == 1


def test_an_unknown_version_and_one_that_does_not_load_are_not_promoted(store, tmp_path):
    assert "no version 9" in str(call("models", "promote", "9", "--store", store).exception)
    damaged = shutil.copytree(DEFAULT_FOLDER, tmp_path / "damaged")
    manifest = json.loads((damaged / "manifest.json").read_text())
    (damaged / "manifest.json").write_text(json.dumps(manifest | {"format_version": 99}))
    number = open_store(store).publish(damaged, params={}, metrics={}, tags={})
    assert "format_version is 99" in str(call("models", "promote", str(number), "--store", store).exception)
    assert champion_of(store) == 2


def test_a_store_that_is_not_there_is_a_failure_in_one_line(tmp_path, capsys):
    code = cli.errors.run_command(foreshock, ["models", "list", "--store", f"sqlite:///{tmp_path}/no.db"], debug=False)
    assert code == cli.errors.FAILED
    assert capsys.readouterr().err.startswith("error: no model store at ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("as_json", [False, True])
def test_telemetry_that_proves_nothing_exits_with_3_and_the_champion_stays(store, empty, as_json):
    arguments = ["--telemetry", str(empty), "--store", store, "--work", str(empty / "work")]
    result = call("retrain", *arguments, *(["--json"] if as_json else []))
    assert result.return_value == 3
    assert "nothing was recorded" in result.stderr
    assert "the champion stays" in result.stderr
    assert bool(result.stdout) == as_json
    if as_json:
        assert json.loads(result.stdout)["exit_code"] == 3
    assert champion_of(store) == 2


def test_a_second_retrain_exits_with_4(store, empty):
    with retrain_lock(empty / "work"):
        result = call("retrain", "--telemetry", str(empty), "--store", store, "--work", str(empty / "work"))
    assert result.return_value == 4
    assert "another retrain is running" in result.stderr


def test_a_store_that_does_not_answer_exits_with_5(empty):
    uri = "http://127.0.0.1:9"
    result = call("retrain", "--telemetry", str(empty), "--store", uri, "--work", str(empty / "work"))
    assert result.return_value == 5
    assert "check that the store is up" in result.stderr


def test_the_store_can_come_from_the_environment(store, monkeypatch):
    monkeypatch.setenv("FORESHOCK_STORE", store)
    assert len(json.loads(call("models", "list", "--json").stdout)) == 3
