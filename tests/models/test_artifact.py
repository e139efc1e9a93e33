"""An artefact survives the disk, and one that is damaged or foreign does not load."""

import gzip
import hashlib
import json

import numpy as np
import pytest
from tiny_artifact import TINY_ARTIFACT

from forecaster.errors import ArtifactMismatchError
from forecaster.features import FEATURE_SCHEMA
from models.artifact import BOOSTERS, MANIFEST, ModelArtifact, load_artifact, save_artifact


@pytest.fixture
def folder(tmp_path):
    save_artifact(TINY_ARTIFACT, tmp_path / "model")
    return tmp_path / "model"


def edit_manifest(folder, **changes):
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest |= changes
    (folder / MANIFEST).write_text(json.dumps(manifest))


def test_round_trip_keeps_everything(folder):
    loaded = load_artifact(folder)
    assert loaded.booster_texts == TINY_ARTIFACT.booster_texts
    np.testing.assert_array_equal(loaded.offsets, TINY_ARTIFACT.offsets)
    for name in ("targets", "horizons_seconds", "levels", "schema_digest", "provenance", "metrics"):
        assert getattr(loaded, name) == getattr(TINY_ARTIFACT, name)


def test_saving_again_gives_the_same_bytes(folder, tmp_path):
    save_artifact(load_artifact(folder), tmp_path / "again")
    for name in (MANIFEST, BOOSTERS):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_manifest_names_the_features_and_the_hash_of_each_file(folder):
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["feature_names"] == list(FEATURE_SCHEMA.names)
    assert manifest["files"] == {BOOSTERS: hashlib.sha256((folder / BOOSTERS).read_bytes()).hexdigest()}


def test_boosters_are_plain_text(folder):
    assert gzip.decompress((folder / BOOSTERS).read_bytes()).startswith(b"tree\nversion=")


def test_absent_folder_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(ArtifactMismatchError, match=r"no model in .*nowhere.*foreshock train"):
        load_artifact(tmp_path / "nowhere")


@pytest.mark.parametrize("position", [0, 100, -1])
def test_a_flipped_byte_is_refused(folder, position):
    raw = bytearray((folder / BOOSTERS).read_bytes())
    raw[position] ^= 1
    (folder / BOOSTERS).write_bytes(raw)
    with pytest.raises(ArtifactMismatchError, match=r"boosters\.txt\.gz: SHA-256 is"):
        load_artifact(folder)


def test_a_missing_file_is_refused(folder):
    (folder / BOOSTERS).unlink()
    with pytest.raises(ArtifactMismatchError, match=r"cannot read .*boosters\.txt\.gz"):
        load_artifact(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format_version": 1}'], ids=["empty", "cut", "list", "incomplete"])
def test_a_damaged_manifest_is_refused(folder, text):
    (folder / MANIFEST).write_text(text)
    with pytest.raises(ArtifactMismatchError, match=r"manifest\.json"):
        load_artifact(folder)


def test_another_format_version_is_refused(folder):
    edit_manifest(folder, format_version=99)
    with pytest.raises(ArtifactMismatchError, match="format_version is 99, this code reads 1"):
        load_artifact(folder)


def test_another_feature_schema_is_refused(folder):
    edit_manifest(folder, schema_digest="f" * 64)
    with pytest.raises(
        ArtifactMismatchError, match=f"ffffffffffff, this version of the code computes {FEATURE_SCHEMA.digest[:12]}"
    ):
        load_artifact(folder)


@pytest.mark.parametrize(
    "changes",
    [{"levels": [0.5]}, {"offsets": [[["x"]]]}, {"offsets": None}, {"horizons_seconds": [6.0]}],
    ids=["levels", "text offsets", "no offsets", "horizons"],
)
def test_contents_that_do_not_fit_each_other_are_refused(folder, changes):
    edit_manifest(folder, **changes)
    with pytest.raises(ArtifactMismatchError, match="do not fit each other"):
        load_artifact(folder)


def test_an_interrupted_save_does_not_load(folder):
    (folder / MANIFEST).unlink()
    with pytest.raises(ArtifactMismatchError, match=r"manifest\.json is missing"):
        load_artifact(folder)


def test_refuses_to_be_made_of_parts_that_do_not_fit():
    with pytest.raises(ValueError, match="as many offsets and boosters"):
        ModelArtifact(
            booster_texts=TINY_ARTIFACT.booster_texts[:-1],
            targets=TINY_ARTIFACT.targets,
            horizons_seconds=TINY_ARTIFACT.horizons_seconds,
            levels=TINY_ARTIFACT.levels,
            offsets=TINY_ARTIFACT.offsets,
        )


def test_refuses_offsets_that_are_not_finite():
    with pytest.raises(ValueError, match="must be finite"):
        ModelArtifact(
            booster_texts=TINY_ARTIFACT.booster_texts,
            targets=TINY_ARTIFACT.targets,
            horizons_seconds=TINY_ARTIFACT.horizons_seconds,
            levels=TINY_ARTIFACT.levels,
            offsets=TINY_ARTIFACT.offsets * np.inf,
        )
