"""A model store in a folder, for tests: the contract of `ModelStore` without MLflow, and it can be taken down."""

import shutil
from dataclasses import replace
from math import isfinite

from forecaster.errors import ArtifactMismatchError
from models.store import ModelVersion, StoreUnavailableError, artifact_digest, unknown_version


class FolderStore:
    """Versions as numbered folders; what is known of them is in memory."""

    def __init__(self, folder, *, now=1_000_000.0):
        self.uri = f"folder:{folder}"
        self.folder = folder
        self.is_down = False
        self.now = now
        self._versions = {}
        self._aliases = {}

    def publish(self, folder, *, params, metrics, tags, plots=()):
        self._answer()
        digest = artifact_digest(folder)
        number = len(self._versions) + 1
        shutil.copytree(folder, self.model_folder(number))
        for plot in plots:
            (self.folder / "plots" / str(number)).mkdir(parents=True, exist_ok=True)
            shutil.copy(plot, self.folder / "plots" / str(number))
        self.now += 1
        self._versions[number] = ModelVersion(
            version=number,
            created_at=self.now,
            digest=digest,
            params=dict(params),
            metrics={name: value for name, value in metrics.items() if isfinite(value)},
            tags=dict(tags),
        )
        return number

    def versions(self):
        self._answer()
        return tuple(
            replace(one, aliases=tuple(sorted(name for name, at in self._aliases.items() if at == number)))
            for number, one in self._versions.items()
        )

    def alias(self, alias):
        self._answer()
        return self._aliases.get(alias)

    def set_alias(self, alias, version):
        self._require(version)
        self._aliases[alias] = version

    def tag(self, version, tags):
        found = self._require(version)
        self._versions[version] = replace(found, tags={**found.tags, **tags})

    def fetch(self, version, folder):
        found = self._require(version)
        kept = self.model_folder(version)
        if not kept.is_dir() or artifact_digest(kept) != found.digest:
            raise ArtifactMismatchError(f"version {version} in {self.uri}: digest is another")
        return shutil.copytree(kept, folder, dirs_exist_ok=True)

    def model_folder(self, version):
        return self.folder / str(version)

    def _require(self, version):
        self._answer()
        if version not in self._versions:
            raise unknown_version(self.uri, version, known=tuple(self._versions))
        return self._versions[version]

    def _answer(self):
        if self.is_down:
            raise StoreUnavailableError(f"cannot reach {self.uri}: connection refused; check that the store is up")
