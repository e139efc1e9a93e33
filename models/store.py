"""Where trained models are kept: numbered versions, and aliases that say which of them serves.

A version is an artefact folder with its digest, never code or a pickle. `open_store` finds the implementation of a
URI; MLflow, the only one that ships, is imported when a store is opened and not before.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

from forecaster.errors import ForecasterError

CHAMPION, CHALLENGER = "champion", "challenger"
"""Aliases: the version that serves, and the newest that was trained."""

DEFAULT_STORE = "sqlite:///out/models/mlflow.db"
MODEL_NAME = "foreshock-demand"
"""Name of the registered model."""

# read by MLflow; a job that cannot reach its store should say so within seconds, MLflow's own default is minutes
_MLFLOW_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


class ModelStoreError(ForecasterError):
    """A store that refuses: an unknown version or alias, a URI that cannot be one."""


class StoreUnavailableError(ModelStoreError):
    """A store that does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """One published model.

    Attributes
    ----------
    version : int
        From 1, in the order of publication.
    created_at : float, POSIX seconds
    digest : str
        `artifact_digest` of the folder that was published.
    params, tags : mapping of str to str
    metrics : mapping of str to float
    aliases : tuple of str
        Sorted.
    """

    version: int
    created_at: float
    digest: str
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    aliases: tuple[str, ...] = ()


class ModelStore(Protocol):
    """Versions of one registered model. Every method raises `StoreUnavailableError` if the store does not answer."""

    uri: str

    def publish(
        self,
        folder: Path,
        *,
        params: Mapping[str, str],
        metrics: Mapping[str, float],
        tags: Mapping[str, str],
        plots: tuple[Path, ...] = (),
    ) -> int:
        """Return the number of the new version, which is the artefact in `folder`; metrics that are NaN are left out.

        Raises
        ------
        ModelStoreError
            If the folder holds no file.
        """
        ...

    def versions(self) -> tuple[ModelVersion, ...]:
        """Return all versions, oldest first; empty if nothing was ever published."""
        ...

    def alias(self, alias: str) -> int | None:
        """Return the version an alias points to, None if to none."""
        ...

    def set_alias(self, alias: str, version: int) -> None:
        """Point an alias to a version, away from where it pointed, in one step.

        Raises
        ------
        ModelStoreError
            If there is no such version.
        """
        ...

    def tag(self, version: int, tags: Mapping[str, str]) -> None:
        """Add tags to a version; those of the same name are replaced.

        Raises
        ------
        ModelStoreError
            If there is no such version.
        """
        ...

    def fetch(self, version: int, folder: Path) -> Path:
        """Return `folder`, which is made and then holds the artefact, its digest checked.

        Raises
        ------
        ModelStoreError
            If there is no such version.
        ArtifactMismatchError
            If the stored files are missing or not those that were published.
        """
        ...


def version_of(store: ModelStore, version: int) -> ModelVersion:
    """Return one version.

    Raises
    ------
    ModelStoreError
        If there is no such version; the message lists the newest there are.
    """
    known = {one.version: one for one in store.versions()}
    if version not in known:
        raise unknown_version(store.uri, version, known=tuple(known))
    return known[version]


def unknown_version(uri: str, version: int, *, known: tuple[int, ...]) -> ModelStoreError:
    """Return the error for a version that is not there."""
    newest = ", ".join(str(one) for one in sorted(known)[-5:]) or "none"
    return ModelStoreError(f"no version {version} in {uri}; the newest are: {newest} (see `foreshock models list`)")


def artifact_digest(folder: Path) -> str:
    """Return the SHA-256 over names and contents of the files right in a folder, in hexadecimal.

    Raises
    ------
    ModelStoreError
        If there is no file.
    OSError
        If one cannot be read.
    """
    files = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    if not files:
        raise ModelStoreError(f"no model in {folder}: no files; run `foreshock train --out {folder}`")
    lines = [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def open_store(uri: str, *, create: bool = False) -> ModelStore:
    """Return the store at a URI.

    Parameters
    ----------
    uri : str
        `sqlite:///FILE` keeps versions in that file and artefacts in a folder beside it; `http://HOST:PORT` and
        `https://...` are MLflow tracking servers.
    create : bool
        Make a local store that is not there.

    Raises
    ------
    ModelStoreError
        If MLflow is not installed, the URI is none of these, or there is no local store.
    StoreUnavailableError
        If a local store cannot be opened.
    """
    if not uri.startswith(("sqlite:///", "http://", "https://")):
        raise ModelStoreError(
            f"store must be sqlite:///FILE or the http(s)://HOST:PORT of an MLflow tracking server, got {uri!r}"
        )
    for name, value in _MLFLOW_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        module = import_module("models.mlflow_store")
    except ModuleNotFoundError as exc:
        raise ModelStoreError(
            f"a model store needs MLflow, and {exc.name} is not installed: pip install 'foreshock[jobs]'"
        ) from exc
    store: ModelStore = module.MlflowStore.open(uri, create=create)
    return store
