"""The champion is never lost: store down, files damaged, schema foreign, rolled back; and what serves says why."""

import json

import numpy as np
import pytest
from folder_store import FolderStore
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_artifact import HORIZONS, TINY_ARTIFACT, feature_rows

from models.artifact import MANIFEST, save_artifact
from models.champion import last_success_at, load_champion, promote, rollback
from models.store import CHAMPION, ModelStoreError


@pytest.fixture
def model(tmp_path):
    save_artifact(TINY_ARTIFACT, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def publish(store, folder):
    return store.publish(folder, params={}, metrics={}, tags={})


def source_of(champion):
    forecast = champion.forecaster.forecast(feature_rows()[0], made_at=0.0, horizons_seconds=HORIZONS)
    return forecast.source, forecast.fallback_reason


def test_the_champion_is_fetched_and_forecasts(store, model, cache):
    promote(store, publish(store, model), now=10.0)
    champion = load_champion(store, cache)
    assert (champion.version, champion.reason) == (1, "")
    assert source_of(champion) == ("model", "")


def test_a_champion_in_the_cache_is_not_fetched_again(store, model, cache):
    promote(store, publish(store, model), now=10.0)
    load_champion(store, cache)
    store.fetch = None
    assert load_champion(store, cache).version == 1


def test_without_a_champion_the_shipped_model_serves_and_says_so(store, cache):
    champion = load_champion(store, cache)
    assert champion.version is None
    assert "has no champion yet" in champion.reason


def test_a_store_that_is_down_serves_the_last_champion_and_says_so(store, model, cache):
    promote(store, publish(store, model), now=10.0)
    load_champion(store, cache)
    store.is_down = True
    champion = load_champion(store, cache)
    assert champion.version == 1
    assert "cannot reach" in champion.reason
    assert "version 1 serves from" in champion.reason
    assert source_of(champion) == ("model", "")


def test_a_store_that_does_not_open_serves_the_last_champion(store, model, cache):
    promote(store, publish(store, model), now=10.0)
    load_champion(store, cache)
    champion = load_champion(None, cache, store_problem="no MLflow here")
    assert champion.version == 1
    assert champion.reason.startswith("no MLflow here")


def test_a_store_that_is_down_from_the_start_gives_the_baseline_and_says_so(store, cache):
    store.is_down = True
    champion = load_champion(store, cache)
    source, reason = source_of(champion)
    assert source == "baseline"
    assert "no champion was ever fetched" in reason


def test_a_damaged_cache_is_fetched_again_and_is_no_model_while_the_store_is_down(store, model, cache):
    promote(store, publish(store, model), now=10.0)
    load_champion(store, cache)
    (kept,) = cache.glob("*/boosters.txt.gz")
    kept.write_bytes(b"")
    store.is_down = True
    champion = load_champion(store, cache)
    assert source_of(champion)[0] == "baseline"
    assert "is damaged" in champion.reason
    store.is_down = False
    assert load_champion(store, cache).version == 1


@pytest.mark.parametrize("pointer", ["", "[]", '{"version": "x", "digest": ""}', '{"version": 1}'])
def test_a_damaged_pointer_counts_as_nothing_fetched(store, cache, pointer):
    cache.mkdir()
    (cache / "champion.json").write_text(pointer)
    store.is_down = True
    assert "no champion was ever fetched" in load_champion(store, cache).reason


def test_a_damaged_champion_gives_the_baseline_not_an_older_model(store, model, cache):
    promote(store, publish(store, model), now=10.0)
    load_champion(store, cache)
    promote(store, publish(store, model), now=20.0)
    (store.model_folder(2) / "boosters.txt.gz").write_bytes(b"other")
    champion = load_champion(store, cache)
    assert source_of(champion)[0] == "baseline"
    assert "version 2" in champion.reason


@pytest.mark.parametrize(("name", "value"), [("format_version", 99), ("schema_digest", "f" * 64)])
def test_a_champion_of_another_format_or_schema_is_refused(store, model, cache, name, value):
    manifest = json.loads((model / MANIFEST).read_text())
    (model / MANIFEST).write_text(json.dumps(manifest | {name: value}))
    promote(store, publish(store, model), now=10.0)
    champion = load_champion(store, cache)
    assert champion.version is None
    assert "ArtifactMismatchError" in champion.reason
    assert source_of(champion)[0] == "baseline"


def test_rollback_goes_back_step_by_step_and_skips_what_was_sent_back(store, model):
    for now in (10.0, 20.0, 30.0):
        promote(store, publish(store, model), now=now)
    assert rollback(store, now=40.0).version == 2
    assert rollback(store, now=50.0).version == 1
    promote(store, 3, now=60.0)
    assert rollback(store, now=70.0).version == 1


def test_a_version_that_never_was_champion_is_not_rolled_back_to(store, model):
    promote(store, publish(store, model), now=10.0)
    publish(store, model)
    promote(store, publish(store, model), now=20.0)
    assert rollback(store, now=30.0).version == 1


def test_rollback_without_a_champion_or_an_earlier_one_changes_nothing(store, model):
    with pytest.raises(ModelStoreError, match="no champion to roll back"):
        rollback(store, now=10.0)
    promote(store, publish(store, model), now=20.0)
    with pytest.raises(ModelStoreError, match="no champion before version 1"):
        rollback(store, now=30.0)
    assert store.alias(CHAMPION) == 1


def test_an_unknown_version_is_not_promoted(store, model):
    promote(store, publish(store, model), now=10.0)
    with pytest.raises(ModelStoreError, match="no version 9"):
        promote(store, 9, now=20.0)
    assert store.alias(CHAMPION) == 1


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.sampled_from(["publish", "promote newest", "rollback"]), max_size=12))
def test_once_there_is_a_champion_there_always_is_one(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("steps")
    (folder / "model").mkdir()
    (folder / "model" / "manifest.json").write_text("{}")
    store = FolderStore(folder / "store")
    had_one = False
    for now, step in enumerate(steps, start=1):
        try:
            if step == "publish":
                publish(store, folder / "model")
            elif step == "promote newest":
                promote(store, len(store.versions()), now=now)
            else:
                before = store.alias(CHAMPION)
                assert rollback(store, now=now).version != before
        except ModelStoreError:
            pass
        had_one = had_one or store.alias(CHAMPION) is not None
        assert (store.alias(CHAMPION) is not None) == had_one


def test_the_heartbeat_is_the_newest_candidate_promoted_or_not(store, model):
    assert last_success_at(store) is None
    promote(store, publish(store, model), now=10.0)
    publish(store, model)
    assert last_success_at(store) == store.versions()[1].created_at > store.versions()[0].created_at
    assert np.isfinite(last_success_at(store))
