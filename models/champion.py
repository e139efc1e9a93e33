"""Which model serves: the champion of a store, the last one that was seen when the store is down, else the baseline."""

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from forecaster.errors import ArtifactMismatchError
from models.demand_forecaster import DemandForecaster, load_default, load_forecaster
from models.store import (
    CHAMPION,
    ModelStore,
    ModelStoreError,
    ModelVersion,
    StoreUnavailableError,
    artifact_digest,
    version_of,
)

PROMOTED_AT, ROLLED_BACK_AT = "promoted_at", "rolled_back_at"
"""Tags of a version, POSIX seconds: when it last became champion, and when it was last sent back."""

_POINTER = "champion.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """What serves and why.

    Attributes
    ----------
    forecaster : DemandForecaster
        Works whatever happened; its `model_problem` says why it has no model.
    version : int or None
        None: it is no version of the store, but the model that ships or the baseline.
    reason : str
        Why it is not the store's champion, or not fetched just now; empty if all is as it should be.
    """

    forecaster: DemandForecaster
    version: int | None
    reason: str = ""


def load_champion(store: ModelStore | None, cache: Path, *, store_problem: str = "") -> Champion:
    """Return the champion of a store, loaded.

    A store without a champion gives the model that ships. A store that is down gives the champion that was fetched
    last. A champion that is damaged, or of another format or feature schema, gives the baseline: an older model that
    was set aside for a reason must not come back by itself.

    Parameters
    ----------
    store : ModelStore or None
        None: it could not even be opened, and `store_problem` says why.
    cache : Path
        Folder that keeps what was fetched; made if need be.
    store_problem : str
    """
    if store is None:
        return _from_cache(cache, problem=store_problem)
    try:
        number = store.alias(CHAMPION)
        if number is None:
            return Champion(
                forecaster=load_default(), version=None, reason=f"{store.uri} has no champion yet: the shipped model"
            )
        folder = _fetched(store, version_of(store, number), cache)
    except StoreUnavailableError as exc:
        return _from_cache(cache, problem=str(exc))
    except (ArtifactMismatchError, ModelStoreError) as exc:
        return Champion(forecaster=DemandForecaster(None, model_problem=str(exc)), version=None, reason=str(exc))
    return _loaded(folder, number, reason="")


def promote(store: ModelStore, version: int, *, now: float) -> ModelVersion:
    """Return the version that is champion from now on; the alias moves in one step, so there is one at any time.

    Raises
    ------
    ModelStoreError
        If there is no such version.
    """
    version_of(store, version)
    # the tag first: a crash between the two leaves the old champion in place
    store.tag(version, {PROMOTED_AT: f"{now:.3f}"})
    store.set_alias(CHAMPION, version)
    return version_of(store, version)


def rollback(store: ModelStore, *, now: float) -> ModelVersion:
    """Return the version that is champion again: the one promoted last before this that was not sent back since.

    Raises
    ------
    ModelStoreError
        If there is no champion, or none before it; nothing changes then.
    """
    current = store.alias(CHAMPION)
    if current is None:
        raise ModelStoreError(f"{store.uri} has no champion to roll back; `foreshock models promote VERSION` sets one")
    earlier = [
        (_at(one, PROMOTED_AT), one.version)
        for one in store.versions()
        if one.version != current and _at(one, PROMOTED_AT) > max(_at(one, ROLLED_BACK_AT), 0.0)
    ]
    if not earlier:
        raise ModelStoreError(
            f"no champion before version {current} in {store.uri}; `foreshock models promote VERSION` names another"
        )
    store.set_alias(CHAMPION, max(earlier)[1])
    store.tag(current, {ROLLED_BACK_AT: f"{now:.3f}"})
    return version_of(store, max(earlier)[1])


def last_success_at(store: ModelStore) -> float | None:
    """Return when a retrain last got as far as a published candidate, in POSIX seconds; None if never.

    Every candidate that was trained and judged is published, so the newest version is the heartbeat, whether or not
    it became champion.
    """
    versions = store.versions()
    return max(one.created_at for one in versions) if versions else None


def _at(version: ModelVersion, tag: str) -> float:
    """Return a tag's POSIX seconds, 0 without it or where somebody wrote something else."""
    try:
        return float(version.tags.get(tag, "0"))
    except ValueError:
        return 0.0


def _fetched(store: ModelStore, version: ModelVersion, cache: Path) -> Path:
    """Return the cached artefact of a version, fetched if it is not there or damaged, and remember it as the last."""
    folder = cache / f"{version.version}-{version.digest[:12]}"
    if not _is_whole(folder, version.digest):
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="fetching-") as scratch:
            fresh = store.fetch(version.version, Path(scratch) / "model")
            shutil.rmtree(folder, ignore_errors=True)
            fresh.rename(folder)
    pointer = cache / f"{_POINTER}.part"
    pointer.write_text(json.dumps({"version": version.version, "digest": version.digest}), encoding="utf-8")
    pointer.replace(cache / _POINTER)
    return folder


def _is_whole(folder: Path, digest: str) -> bool:
    try:
        return artifact_digest(folder) == digest
    except (ModelStoreError, OSError):
        return False


def _from_cache(cache: Path, *, problem: str) -> Champion:
    """Return the champion that was fetched last, else the baseline; the reason names the problem in either case."""
    try:
        known = json.loads((cache / _POINTER).read_text(encoding="utf-8"))
        number, digest = int(known["version"]), str(known["digest"])
    except (OSError, ValueError, TypeError, KeyError):
        reason = f"{problem}; no champion was ever fetched to {cache}"
        return Champion(forecaster=DemandForecaster(None, model_problem=reason), version=None, reason=reason)
    folder = cache / f"{number}-{digest[:12]}"
    if not _is_whole(folder, digest):
        reason = f"{problem}; the champion cached in {folder} is damaged"
        return Champion(forecaster=DemandForecaster(None, model_problem=reason), version=None, reason=reason)
    return _loaded(folder, number, reason=f"{problem}; version {number} serves from {cache}")


def _loaded(folder: Path, version: int, *, reason: str) -> Champion:
    forecaster = load_forecaster(folder)
    if forecaster.model is None:
        both = "; ".join(part for part in (reason, forecaster.model_problem) if part)
        return Champion(forecaster=forecaster, version=None, reason=both)
    return Champion(forecaster=forecaster, version=version, reason=reason)
