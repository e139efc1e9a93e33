"""Every model store keeps one contract: MLflow in a file, MLflow as a server, and the fake that other tests use."""

import logging
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from folder_store import FolderStore

from forecaster.errors import ArtifactMismatchError
from models.store import CHALLENGER, CHAMPION, ModelStoreError, StoreUnavailableError, artifact_digest, open_store

SERVER_STARTS_WITHIN_SECONDS = 120
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


@pytest.fixture(scope="module")
def empty_sqlite(tmp_path_factory):
    """An MLflow file with its tables and nothing in it: making the tables takes seconds, copying it none."""
    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    open_store(f"sqlite:///{file}", create=True).versions()
    return file


@pytest.fixture(scope="module")
def server(empty_sqlite, tmp_path_factory):
    """The address of a real `mlflow server`."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copy(empty_sqlite, folder / "mlflow.db")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", f"{folder}/files"]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **QUIET})
    uri = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{uri}/health", process)
        yield uri
    finally:
        process.terminate()
        process.wait(30)
        log.close()


def _wait_for(url, process):
    deadline = time.monotonic() + SERVER_STARTS_WITHIN_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, "mlflow server ended by itself"
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
    pytest.fail(f"mlflow server did not answer within {SERVER_STARTS_WITHIN_SECONDS} s")


@pytest.fixture(params=["folder", "sqlite"])
def store(request, tmp_path):
    if request.param == "folder":
        return FolderStore(tmp_path / "store")
    file = tmp_path / "store" / "mlflow.db"
    file.parent.mkdir()
    shutil.copy(request.getfixturevalue("empty_sqlite"), file)
    return open_store(f"sqlite:///{file}")


@pytest.fixture
def model(tmp_path):
    return artefact(tmp_path / "model", "one")


def artefact(folder, text):
    folder.mkdir()
    (folder / "manifest.json").write_text(f'{{"what": "{text}"}}')
    (folder / "boosters.txt.gz").write_bytes(bytes(range(256)))
    return folder


def publish(store, folder, **changes):
    return store.publish(folder, **({"params": {}, "metrics": {}, "tags": {}} | changes))


def holds_the_contract(store, tmp_path, first, second):
    """What a user does in a week, on whatever store."""
    assert store.versions() == ()
    assert store.alias(CHAMPION) is None
    plot = tmp_path / "coverage.html"
    plot.write_text("<p>")
    assert publish(store, first, params={"seed": "3"}, metrics={"pinball": 0.25}, plots=(plot,)) == 1
    assert publish(store, second, tags={"gate": "refused"}) == 2
    store.set_alias(CHAMPION, 1)
    store.set_alias(CHALLENGER, 2)
    store.tag(2, {"note": "second", "gate": "passed"})
    one, two = store.versions()
    assert (one.version, one.aliases, one.params, one.metrics) == (1, (CHAMPION,), {"seed": "3"}, {"pinball": 0.25})
    assert (two.version, two.aliases, two.tags) == (2, (CHALLENGER,), {"gate": "passed", "note": "second"})
    assert one.digest == artifact_digest(first)
    fetched = store.fetch(2, tmp_path / "deep" / "fetched")
    assert {path.name: path.read_bytes() for path in fetched.iterdir()} == {
        path.name: path.read_bytes() for path in second.iterdir()
    }


def test_versions_aliases_and_files_survive(store, model, tmp_path):
    holds_the_contract(store, tmp_path, model, artefact(tmp_path / "second", "two"))


def test_a_tracking_server_holds_the_same_contract(server, model, tmp_path):
    holds_the_contract(open_store(server), tmp_path, model, artefact(tmp_path / "second", "two"))


def test_versions_are_numbered_in_the_order_of_publication_and_never_older_than_the_last(store, model):
    assert [publish(store, model) for _ in range(3)] == [1, 2, 3]
    times = [one.created_at for one in store.versions()]
    assert times == sorted(times)


def test_an_alias_moves_and_leaves_nothing_behind(store, model):
    publish(store, model)
    publish(store, model)
    store.set_alias(CHAMPION, 1)
    store.set_alias(CHAMPION, 2)
    assert store.alias(CHAMPION) == 2
    assert [one.aliases for one in store.versions()] == [(), (CHAMPION,)]


@pytest.mark.parametrize(
    "use",
    [
        lambda store, tmp: store.set_alias(CHAMPION, 7),
        lambda store, tmp: store.tag(7, {"a": "b"}),
        lambda store, tmp: store.fetch(7, tmp / "x"),
    ],
    ids=["set_alias", "tag", "fetch"],
)
def test_an_unknown_version_is_refused_and_the_known_are_named(store, model, tmp_path, use):
    publish(store, model)
    with pytest.raises(ModelStoreError, match=r"no version 7 in .*the newest are: 1"):
        use(store, tmp_path)
    assert store.alias(CHAMPION) is None


def test_a_folder_without_a_model_is_not_published(store, tmp_path):
    with pytest.raises(ModelStoreError, match="no files"):
        publish(store, tmp_path / "nowhere")
    assert store.versions() == ()


def test_unknown_metrics_are_left_out(store, model):
    publish(store, model, metrics={"known": 0.0, "unknown": float("nan")})
    assert store.versions()[0].metrics == {"known": 0.0}


def _kept_files(store, tmp_path):
    return sorted(path for path in (tmp_path / "store").rglob("boosters.txt.gz") if path.is_file())


def test_a_damaged_file_is_refused(store, model, tmp_path):
    publish(store, model)
    (kept,) = _kept_files(store, tmp_path)
    kept.write_bytes(b"other")
    with pytest.raises(ArtifactMismatchError, match=r"version 1 in .*digest is"):
        store.fetch(1, tmp_path / "fetched")
    assert not (tmp_path / "fetched").exists()


def test_files_that_are_gone_are_refused(store, model, tmp_path):
    publish(store, model)
    (kept,) = _kept_files(store, tmp_path)
    shutil.rmtree(kept.parent)
    with pytest.raises(ArtifactMismatchError, match="version 1 in"):
        store.fetch(1, tmp_path / "fetched")


def test_another_process_sees_what_was_published(empty_sqlite, model, tmp_path):
    file = shutil.copy(empty_sqlite, tmp_path / "mlflow.db")
    publish(open_store(f"sqlite:///{file}"), model)
    assert open_store(f"sqlite:///{file}").versions()[0].digest == artifact_digest(model)
    assert (Path(file).parent / "artifacts").is_dir()


def test_a_server_that_is_down_says_so():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        store = open_store(f"http://127.0.0.1:{probe.getsockname()[1]}")
        with pytest.raises(StoreUnavailableError, match=r"cannot read alias champion in http://.*check that the store"):
            store.alias(CHAMPION)


@pytest.mark.parametrize("uri", ["", "mlruns", "sqlite:/x", "ftp://host"])
def test_other_uris_are_refused_with_those_that_are_known(uri):
    with pytest.raises(ModelStoreError, match=r"store must be sqlite:///FILE or the http"):
        open_store(uri)


def test_a_local_store_is_made_only_where_asked(tmp_path):
    with pytest.raises(ModelStoreError, match=r"no model store at .*foreshock retrain"):
        open_store(f"sqlite:///{tmp_path}/mlflow.db")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_hold_a_store_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "file" / "mlflow.db"):
        with pytest.raises(StoreUnavailableError, match="name another place"):
            open_store(f"sqlite:///{place}", create=True)


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "mlflow.db").write_text("this is no SQLite file" * 100)
    with pytest.raises(StoreUnavailableError, match="cannot open the store"):
        open_store(f"sqlite:///{tmp_path}/mlflow.db").versions()


def test_without_mlflow_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "models.mlflow_store", None)
    with pytest.raises(ModelStoreError, match=r"needs MLflow.*pip install 'foreshock\[jobs\]'"):
        open_store("http://127.0.0.1:1")


def test_mlflow_stays_quiet(empty_sqlite, model, tmp_path, capfd):
    file = shutil.copy(empty_sqlite, tmp_path / "mlflow.db")
    publish(open_store(f"sqlite:///{file}"), model)
    assert logging.getLogger("mlflow").getEffectiveLevel() >= logging.ERROR
    assert capfd.readouterr() == ("", "")


def test_importing_the_models_does_not_import_mlflow():
    code = "import sys, models.store, models.champion, cli.main; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, env=os.environ).returncode == 0
