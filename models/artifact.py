"""A trained model on disk: a folder of plain files and a manifest that says what they are; never a pickle.

    manifest.json     format, schema, targets, horizons, levels, offsets, provenance, metrics, SHA-256 of each file
    boosters.txt.gz   the boosters in LightGBM's text form, one after another

The same model gives the same bytes: no timestamps, sorted keys, gzip without a time.
"""

import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from forecaster.errors import ArtifactMismatchError
from forecaster.features import FEATURE_SCHEMA
from forecaster.telemetry import Floats

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
BOOSTERS = "boosters.txt.gz"
_SEPARATOR = "\n#### next booster ####\n"
_REQUIRED = ("format_version", "schema_digest", "targets", "horizons_seconds", "levels", "offsets", "files")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelArtifact:
    """Everything a forecast needs, and where it came from.

    Attributes
    ----------
    booster_texts : tuple of str
        LightGBM text form; targets outermost, then horizons, then levels.
    targets : tuple of str
    horizons_seconds, levels : tuple of float
    offsets : ndarray of shape (n_targets, n_horizons, n_levels)
        Conformal offsets of log(target / trailing mean).
    schema_digest : str
        Of the feature rows it was trained on.
    provenance : mapping
        Training data, seeds and library versions, as JSON values.
    metrics : mapping
        Scores on held-out runs, as JSON values.
    """

    booster_texts: tuple[str, ...]
    targets: tuple[str, ...]
    horizons_seconds: tuple[float, ...]
    levels: tuple[float, ...]
    offsets: Floats
    schema_digest: str = FEATURE_SCHEMA.digest
    provenance: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = (len(self.targets), len(self.horizons_seconds), len(self.levels))
        if self.offsets.shape != shape or len(self.booster_texts) != np.prod(shape):
            raise ValueError(
                f"{shape} targets, horizons and levels need as many offsets and boosters, got offsets of shape "
                f"{self.offsets.shape} and {len(self.booster_texts)} boosters"
            )
        if not np.isfinite(self.offsets).all():
            raise ValueError("conformal offsets must be finite")


def save_artifact(artifact: ModelArtifact, folder: Path) -> None:
    """Write an artefact; the manifest comes last, so that a folder cut short does not load."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest_path = folder / MANIFEST
    manifest_path.unlink(missing_ok=True)
    boosters = gzip.compress(_SEPARATOR.join(artifact.booster_texts).encode(), mtime=0)
    (folder / BOOSTERS).write_bytes(boosters)
    manifest = {
        "format_version": FORMAT_VERSION,
        "schema_digest": artifact.schema_digest,
        "feature_names": list(FEATURE_SCHEMA.names),
        "targets": list(artifact.targets),
        "horizons_seconds": list(artifact.horizons_seconds),
        "levels": list(artifact.levels),
        "offsets": artifact.offsets.tolist(),
        "provenance": dict(artifact.provenance),
        "metrics": dict(artifact.metrics),
        "files": {BOOSTERS: hashlib.sha256(boosters).hexdigest()},
    }
    manifest_path.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def load_artifact(folder: Path) -> ModelArtifact:
    """Return the artefact in a folder, after checking that it is whole and fits this code.

    Raises
    ------
    ArtifactMismatchError
        If a file is missing, unreadable or not the one the manifest names, or format or feature schema are others.
    """
    manifest = _manifest(folder)
    FEATURE_SCHEMA.require_digest(str(manifest["schema_digest"]), where=f"model {folder}")
    raw = _checked_file(folder, BOOSTERS, manifest["files"])
    try:
        return ModelArtifact(
            booster_texts=tuple(gzip.decompress(raw).decode().split(_SEPARATOR)),
            targets=tuple(manifest["targets"]),
            horizons_seconds=tuple(float(horizon) for horizon in manifest["horizons_seconds"]),
            levels=tuple(float(level) for level in manifest["levels"]),
            offsets=np.array(manifest["offsets"], dtype=np.float64),
            schema_digest=str(manifest["schema_digest"]),
            provenance=manifest.get("provenance", {}),
            metrics=manifest.get("metrics", {}),
        )
    except (ValueError, TypeError, OSError, EOFError) as exc:
        raise ArtifactMismatchError(f"model {folder}: contents do not fit each other: {exc}; train again") from exc


def _manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest, complete and of this format."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise ArtifactMismatchError(f"no model in {folder}: {MANIFEST} is missing; run `foreshock train`") from exc
    except (OSError, ValueError) as exc:
        raise ArtifactMismatchError(f"cannot read {path}: {exc}; train again with `foreshock train`") from exc
    if not isinstance(manifest, dict):
        raise ArtifactMismatchError(f"{path}: expected an object, got {type(manifest).__name__}; train again")
    missing = [name for name in _REQUIRED if name not in manifest]
    if missing:
        raise ArtifactMismatchError(f"{path}: {', '.join(missing)} missing; train again with `foreshock train`")
    if manifest["format_version"] != FORMAT_VERSION:
        raise ArtifactMismatchError(
            f"{path}: format_version is {manifest['format_version']!r}, this code reads {FORMAT_VERSION}; train again "
            f"or install the version that wrote it"
        )
    return manifest


def _checked_file(folder: Path, name: str, digests: Any) -> bytes:
    """Return a file's bytes after comparing them with the manifest's SHA-256."""
    wanted = digests.get(name) if isinstance(digests, dict) else None
    try:
        raw = (folder / name).read_bytes()
    except OSError as exc:
        raise ArtifactMismatchError(f"cannot read {folder / name}: {exc}; train again or copy the folder anew") from exc
    found = hashlib.sha256(raw).hexdigest()
    if found != wanted:
        raise ArtifactMismatchError(
            f"{folder / name}: SHA-256 is {found[:12]}, the manifest says {str(wanted)[:12]}; copy the folder anew or "
            f"train again"
        )
    return raw
