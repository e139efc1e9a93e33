"""The model store on MLflow: a local SQLite file with a folder of artefacts beside it, or a tracking server.

A published version is a run (parameters, metrics, tags, plots, and the artefact's files under `model/`) and a version
of one registered model that points to it. Only this file imports MLflow.
"""

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from sqlalchemy.exc import SQLAlchemyError

from forecaster.errors import ArtifactMismatchError
from models.store import (
    MODEL_NAME,
    ModelStoreError,
    ModelVersion,
    StoreUnavailableError,
    artifact_digest,
    unknown_version,
)

EXPERIMENT = "foreshock"
_DIGEST = "artifact_sha256"
_MODEL_FOLDER = "model"
_SQLITE = "sqlite:///"
_NOT_FOUND = "RESOURCE_DOES_NOT_EXIST"

for _name in ("mlflow", "alembic"):  # they tell of every table they make
    logging.getLogger(_name).setLevel(logging.ERROR)


class MlflowStore:
    """A `ModelStore` on MLflow; see `models.store.open_store`."""

    def __init__(self, client: MlflowClient, *, uri: str, artifact_folder: Path | None) -> None:
        self.uri = uri
        self._client = client
        self._artifact_folder = artifact_folder

    @classmethod
    def open(cls, uri: str, *, create: bool) -> "MlflowStore":
        """Return the store at a URI.

        Raises
        ------
        ModelStoreError
            If it is a file that is not there and `create` is false.
        StoreUnavailableError
            If it is a file that cannot be opened.
        """
        if not uri.startswith(_SQLITE):
            return cls(MlflowClient(tracking_uri=uri, registry_uri=uri), uri=uri, artifact_folder=None)
        file = Path(uri.removeprefix(_SQLITE)).absolute()
        _require_file(file, create=create)
        local = f"{_SQLITE}{file}"
        with _answering(uri, "open the store"):
            client = MlflowClient(tracking_uri=local, registry_uri=local)
        return cls(client, uri=uri, artifact_folder=file.parent / "artifacts")

    def publish(
        self,
        folder: Path,
        *,
        params: Mapping[str, str],
        metrics: Mapping[str, float],
        tags: Mapping[str, str],
        plots: tuple[Path, ...] = (),
    ) -> int:
        """Return the number of the new version; see `ModelStore.publish`."""
        digest = artifact_digest(folder)
        with _answering(self.uri, f"publish {folder}"):
            run = self._client.create_run(self._experiment_id())
            run_id = run.info.run_id
            try:
                self._client.log_batch(
                    run_id,
                    metrics=[Metric(key, value, 0, 0) for key, value in metrics.items() if isfinite(value)],
                    params=[Param(key, value) for key, value in params.items()],
                    tags=[RunTag(key, value) for key, value in tags.items()],
                )
                self._client.log_artifacts(run_id, str(folder), _MODEL_FOLDER)
                for plot in plots:
                    self._client.log_artifact(run_id, str(plot), "plots")
                self._ensure_registered()
                made = self._client.create_model_version(
                    MODEL_NAME,
                    source=f"{run.info.artifact_uri}/{_MODEL_FOLDER}",
                    run_id=run_id,
                    tags={**tags, _DIGEST: digest},
                )
            except BaseException:
                self._client.set_terminated(run_id, "FAILED")
                raise
            self._client.set_terminated(run_id, "FINISHED")
            return int(made.version)

    def versions(self) -> tuple[ModelVersion, ...]:
        """Return all versions, oldest first; see `ModelStore.versions`."""
        with _answering(self.uri, "list versions"):
            aliases = self._aliases()
            if aliases is None:
                return ()
            found = _all_pages(
                lambda token: self._client.search_model_versions(f"name = '{MODEL_NAME}'", page_token=token)
            )
            runs = self._runs()
        return tuple(
            _version(one, runs.get(one.run_id), aliases) for one in sorted(found, key=lambda one: int(one.version))
        )

    def alias(self, alias: str) -> int | None:
        """Return the version an alias points to; see `ModelStore.alias`."""
        with _answering(self.uri, f"read alias {alias}"):
            aliases = self._aliases() or {}
        return aliases.get(alias)

    def set_alias(self, alias: str, version: int) -> None:
        """Point an alias to a version; see `ModelStore.set_alias`."""
        self._require(version)
        with _answering(self.uri, f"set alias {alias} to version {version}"):
            self._client.set_registered_model_alias(MODEL_NAME, alias, str(version))

    def tag(self, version: int, tags: Mapping[str, str]) -> None:
        """Add tags to a version; see `ModelStore.tag`."""
        self._require(version)
        with _answering(self.uri, f"tag version {version}"):
            for key, value in tags.items():
                self._client.set_model_version_tag(MODEL_NAME, str(version), key, value)

    def fetch(self, version: int, folder: Path) -> Path:
        """Return `folder`, which holds the artefact; see `ModelStore.fetch`."""
        found = self._require(version)
        with _answering(self.uri, f"fetch version {version}"), tempfile.TemporaryDirectory() as scratch:
            if not self._client.list_artifacts(found.run_id, _MODEL_FOLDER):
                raise ArtifactMismatchError(
                    f"version {version} in {self.uri}: its files are gone from {found.source}; promote another version"
                )
            fetched = Path(self._client.download_artifacts(found.run_id, _MODEL_FOLDER, scratch))
            wanted, got = found.tags.get(_DIGEST, ""), artifact_digest(fetched)
            if got != wanted:
                raise ArtifactMismatchError(
                    f"version {version} in {self.uri}: digest is {got[:12]}, published was {wanted[:12] or 'none'}; "
                    f"restore {found.source} or promote another version"
                )
            folder.mkdir(parents=True, exist_ok=True)
            for path in fetched.iterdir():
                (folder / path.name).write_bytes(path.read_bytes())
        return folder

    def _experiment_id(self) -> str:
        found = self._client.get_experiment_by_name(EXPERIMENT)
        if found is not None:
            return str(found.experiment_id)
        location = None if self._artifact_folder is None else str(self._artifact_folder)
        return str(self._client.create_experiment(EXPERIMENT, artifact_location=location))

    def _ensure_registered(self) -> None:
        if self._aliases() is None:
            self._client.create_registered_model(MODEL_NAME, description="Demand forecaster of Foreshock")

    def _aliases(self) -> dict[str, int] | None:
        """Return alias to version, None if nothing was ever published."""
        try:
            found = self._client.get_registered_model(MODEL_NAME)
        except MlflowException as exc:
            if exc.error_code == _NOT_FOUND:
                return None
            raise
        return {alias: int(version) for alias, version in found.aliases.items()}

    def _runs(self) -> dict[str, Any]:
        experiment = self._client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            return {}
        ids = [experiment.experiment_id]
        found = _all_pages(lambda token: self._client.search_runs(ids, page_token=token))
        return {run.info.run_id: run for run in found}

    def _require(self, version: int) -> Any:
        with _answering(self.uri, f"read version {version}"):
            try:
                return self._client.get_model_version(MODEL_NAME, str(version))
            except MlflowException as exc:
                if exc.error_code != _NOT_FOUND:
                    raise
        raise unknown_version(self.uri, version, known=tuple(one.version for one in self.versions()))


def _version(found: Any, run: Any, aliases: dict[str, int]) -> ModelVersion:
    tags = dict(found.tags)
    return ModelVersion(
        version=int(found.version),
        created_at=found.creation_timestamp / 1000,
        digest=tags.pop(_DIGEST, ""),
        params={} if run is None else dict(run.data.params),
        metrics={} if run is None else dict(run.data.metrics),
        tags=tags,
        aliases=tuple(sorted(alias for alias, version in aliases.items() if version == int(found.version))),
    )


def _all_pages(page: Callable[[str | None], Any]) -> list[Any]:
    """Return what all pages of a search hold."""
    found: list[Any] = []
    token = None
    while True:
        answer = page(token)
        found += answer
        token = answer.token
        if not token:
            return found


def _require_file(file: Path, *, create: bool) -> None:
    """Raise where SQLite could not open its file: MLflow would try for minutes."""
    if file.is_file():
        return
    if file.exists():
        raise StoreUnavailableError(f"cannot open the store sqlite:///{file}: it is no file; name another place")
    if not create:
        raise ModelStoreError(f"no model store at sqlite:///{file}; `foreshock retrain` makes it, or give --store URI")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    except OSError as exc:
        raise StoreUnavailableError(
            f"cannot make the store sqlite:///{file}: {exc.strerror or exc}; name another place"
        ) from exc


@contextmanager
def _answering(uri: str, what: str) -> Iterator[None]:
    """Turn MLflow's errors, and those of what it stands on, into the store's."""
    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as exc:
        first = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
        raise StoreUnavailableError(f"cannot {what} in {uri}: {first}; check that the store is up") from exc
