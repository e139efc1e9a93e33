"""A retrain checks, trains, judges and publishes; whatever happens on the way, the champion is never lost."""

import json
from dataclasses import replace

import numpy as np
import pytest
from folder_store import FolderStore

import training.retrain as retrain_module
from forecaster.drift import FeatureReference, Word, feature_drift
from forecaster.errors import InsufficientHistoryError, InvalidTelemetryError
from forecaster.forecast import LEVELS
from forecaster.telemetry import SIGNAL_INDEX, SIGNALS, TelemetryWindow
from models.artifact import load_artifact
from models.champion import load_champion, promote
from models.model_forecaster import MODEL_COLUMNS, MODEL_FEATURES
from models.store import CHALLENGER, CHAMPION, StoreUnavailableError, version_of
from simulator.profiles import DEFAULT_PROFILE, profile_named
from simulator.requests import RequestTable
from simulator.static_fleet import simulate_static
from training.data_checks import check_telemetry
from training.parquet_columns import write_table
from training.recorded_split import PURGE_SECONDS, split_recorded
from training.recorded_telemetry import RecordedRows, read_telemetry
from training.retrain import DRIFT_REFERENCE, RetrainSettings, retrain
from training.retrain_lock import RetrainLockedError, retrain_lock
from training.run_files import TELEMETRY_COLUMNS
from training.train import TrainingSettings

CAPACITY = profile_named(DEFAULT_PROFILE).capacity
SECONDS = 6000
TINY = RetrainSettings(
    training=TrainingSettings(
        num_fleets=5,
        stride_seconds=25,
        num_trees=2,
        num_leaves=4,
        min_rows_in_leaf=10,
        num_workers=1,
        calibration_ratio=0.6,
        test_ratio=0.2,
    )
)


def write_telemetry(window, folder):
    folder.mkdir(parents=True, exist_ok=True)
    return write_table(folder / "telemetry.parquet", TELEMETRY_COLUMNS, window, num_rows=window.num_rows)


@pytest.fixture(scope="module")
def window():
    rng = np.random.default_rng(5)
    rate = 6 + 3 * np.sin(np.arange(SECONDS) / 300)
    arrivals = np.sort(np.repeat(np.arange(SECONDS), rng.poisson(rate)) + 0.5)
    prompts = rng.lognormal(6.8, 0.5, arrivals.size).astype(int) + 1
    requests = RequestTable.from_columns(arrivals, prompts, rng.integers(20, 200, arrivals.size))
    return simulate_static(
        requests, profile_named(DEFAULT_PROFILE), num_replicas=4, duration_seconds=float(SECONDS)
    ).telemetry


@pytest.fixture(scope="module")
def telemetry(window, tmp_path_factory):
    return write_telemetry(window, tmp_path_factory.mktemp("recorded")).parent


@pytest.fixture(scope="module")
def first(telemetry, tmp_path_factory):
    """One retrain with nothing left out, into an empty store."""
    folder = tmp_path_factory.mktemp("first")
    store = FolderStore(folder / "store")
    told = []
    outcome = retrain(
        telemetry,
        store,
        CAPACITY,
        work=folder / "work",
        now=50.0,
        settings=TINY,
        progress=lambda what, done, total: told.append((what, done, total)),
    )
    return store, outcome, told


@pytest.fixture
def quick(monkeypatch, first):
    """Retrains that do not train or score: the candidate of the first one, and losses as told."""
    store, outcome, _ = first
    artifact = load_artifact(store.model_folder(1))

    def use(loss):
        scores = outcome.scores
        lower = np.full(scores.champion.size, loss)
        canned = replace(
            scores,
            candidate=lower,
            champion=np.ones_like(lower),
            trivial=np.full_like(lower, 1.1),
            candidate_alone=lower,
            champion_alone=np.ones_like(lower),
            coverage_ratio=np.array(LEVELS),
        )

        def scored(*args, progress, **others):
            progress(1, 1)
            return canned

        monkeypatch.setattr(retrain_module, "_candidate", lambda *args: artifact)
        monkeypatch.setattr(retrain_module, "held_out_scores", scored)

    return use


@pytest.fixture
def crowned(first, tmp_path):
    """A store with a champion whose data are old, and a work folder."""
    store = FolderStore(tmp_path / "store")
    kept = first[0].model_folder(1)
    promote(store, store.publish(kept, params={}, metrics={}, tags={"data_end_at": "5.0"}), now=1.0)
    return store, tmp_path / "work"


def checked_window(window):
    return check_telemetry(RecordedRows(row_at=window.row_at, seen_at=window.seen_at, values=window.values))


def run(telemetry, store, work, **changes):
    return retrain(telemetry, store, CAPACITY, work=work, now=99.0, settings=TINY, **changes)


def test_a_first_retrain_publishes_a_model_that_serves_if_the_gate_says_so(first, tmp_path):
    store, outcome, _ = first
    assert outcome.version == store.alias(CHALLENGER) == 1
    assert outcome.champion_before is None
    assert store.alias(CHAMPION) == (1 if outcome.decision.promote else None)
    assert load_artifact(store.fetch(1, tmp_path / "model")).provenance["recorded"]["num_rows_read"] == SECONDS


def test_what_is_published_says_how_it_was_made_and_judged(first):
    store, outcome, _ = first
    version = version_of(store, 1)
    assert version.metrics["loss"] == pytest.approx(outcome.decision.candidate_loss)
    assert version.params["seed"] == "0"
    assert version.tags["gate"] == ("passed" if outcome.decision.promote else "refused")
    assert version.tags["data_end_at"] == str(SECONDS)
    (plot,) = (store.folder / "plots" / "1").iterdir()
    assert "best trivial" in plot.read_text()


def test_the_outcome_is_json(first):
    found = json.loads(json.dumps(first[1].to_json(), allow_nan=False))
    assert found["version"] == 1
    assert found["metrics"]["num_scored_rows"] == first[1].scores.candidate.size > 600


def test_both_are_scored_on_the_same_rows_and_the_trivial_too(first):
    scores = first[1].scores
    sizes = {getattr(scores, name).size for name in ("candidate", "champion", "trivial", "candidate_alone")}
    assert len(sizes) == 1
    assert all(np.isfinite(getattr(scores, name)).all() for name in ("candidate", "champion", "trivial"))


def test_progress_tells_of_every_step(first):
    assert list(dict.fromkeys(what for what, _, _ in first[2])) == ["simulating fleets", "fitting boosters", "scoring"]


def test_drift_is_told_from_the_manifest(first, window):
    provenance = load_artifact(first[0].model_folder(1)).provenance
    reference = FeatureReference.from_json(provenance[DRIFT_REFERENCE])
    rows = split_recorded(checked_window(window), CAPACITY, first_run=0).fit.features[:, MODEL_COLUMNS]
    rows = np.concatenate([rows, rows])
    assert feature_drift(reference, rows, MODEL_FEATURES).word == Word.OK
    assert feature_drift(reference, rows + 3.0, MODEL_FEATURES).word == Word.ALERT


def test_nothing_that_is_held_out_is_within_sight_of_what_is_learned_from(window):
    split = split_recorded(checked_window(window), CAPACITY, first_run=7)
    assert split.fit.run.tolist() == [7] * split.fit.num_rows
    assert split.fit.cutoff_at.max() + PURGE_SECONDS <= split.calibration.cutoff_at.min()
    assert split.calibration.cutoff_at.max() + PURGE_SECONDS <= split.scored_at.min()
    assert split.scored_at.max() == window.row_at[-1]


def test_altering_what_is_held_out_does_not_alter_what_is_learned_from(window):
    values = window.values.copy()
    one = split_recorded(checked_window(window), CAPACITY, first_run=0)
    values[window.row_at >= one.scored_at.min()] *= 0.5
    two = split_recorded(checked_window(replace(window, values=values)), CAPACITY, first_run=0)
    for part in ("fit", "calibration"):
        for name in ("features", "log_ratios"):
            np.testing.assert_array_equal(getattr(getattr(one, part), name), getattr(getattr(two, part), name))


def test_a_better_candidate_becomes_champion(crowned, telemetry, quick):
    store, work = crowned
    quick(0.9)
    outcome = run(telemetry, store, work)
    assert outcome.promoted
    assert (outcome.champion_before, outcome.champion_after) == (1, 2)
    assert load_champion(store, work / "cache").version == 2


def test_a_worse_candidate_is_published_and_the_champion_stays(crowned, telemetry, quick):
    store, work = crowned
    quick(1.05)
    outcome = run(telemetry, store, work)
    assert not outcome.promoted
    assert (store.alias(CHAMPION), store.alias(CHALLENGER)) == (1, 2)
    assert "worse than the champion" in version_of(store, 2).tags["gate_reasons"]


def test_fresher_data_count_only_where_they_are_fresher(crowned, telemetry, quick):
    store, work = crowned
    quick(1.0)
    assert run(telemetry, store, work).promoted
    again = run(telemetry, store, work)
    assert not again.promoted
    assert "not on fresher data" in again.decision.reasons[0]


def test_a_champion_that_came_meanwhile_stays(crowned, telemetry, quick):
    store, work = crowned
    quick(0.5)
    other = store.publish(store.model_folder(1), params={}, metrics={}, tags={})
    outcome = run(telemetry, store, work, progress=lambda *step: store.set_alias(CHAMPION, other))
    assert store.alias(CHAMPION) == outcome.champion_after == other
    assert "changed from 1 to 2" in version_of(store, outcome.version).tags["gate_reasons"]


def test_a_store_that_is_down_is_told_of_before_any_work(crowned, telemetry, monkeypatch):
    store, work = crowned
    monkeypatch.setattr(retrain_module, "read_telemetry", None)
    store.is_down = True
    with pytest.raises(StoreUnavailableError):
        run(telemetry, store, work)
    store.is_down = False
    assert store.alias(CHAMPION) == 1


def test_a_store_that_goes_down_while_training_keeps_its_champion(crowned, telemetry, quick):
    store, work = crowned
    quick(0.5)
    with pytest.raises(StoreUnavailableError):
        run(telemetry, store, work, progress=lambda *step: setattr(store, "is_down", True))
    store.is_down = False
    assert store.alias(CHAMPION) == 1
    assert run(telemetry, store, work).promoted


def test_a_corrupt_champion_is_told_of_and_can_be_replaced(crowned, telemetry, quick):
    store, work = crowned
    (store.model_folder(1) / "boosters.txt.gz").write_bytes(b"")
    quick(0.9)
    outcome = run(telemetry, store, work)
    assert "version 1" in outcome.champion_problem
    assert outcome.champion_after == 2


def test_two_retrains_do_not_race(crowned, telemetry):
    store, work = crowned
    with retrain_lock(work), pytest.raises(RetrainLockedError, match=r"another retrain is running in .*process \d+"):
        run(telemetry, store, work)
    with retrain_lock(work):
        pass


def zero(values):
    values[:] = np.where(np.isnan(values), np.nan, 0.0)


def constant(values):
    for name in ("prompt_tokens_per_second", "kv_blocks_used", "request_rate_per_second"):
        values[:, SIGNAL_INDEX[name]] = 12.0


def unknown(values):
    values[:] = np.nan


@pytest.mark.parametrize("spoil", [zero, constant, unknown])
def test_a_recording_that_proves_nothing_is_refused(crowned, window, tmp_path, spoil):
    store, work = crowned
    values = window.values.copy()
    spoil(values)
    place = write_telemetry(replace(window, values=values), tmp_path / "recorded")
    with pytest.raises(InsufficientHistoryError, match="hold no load that is known and not constant"):
        run(place, store, work)
    assert store.alias(CHAMPION) == 1
    assert len(store.versions()) == 1


def test_a_night_without_load_at_the_end_is_refused_and_in_the_middle_is_learned_from(window):
    def checked(quiet):
        values = window.values.copy()
        values[quiet] = np.where(np.isnan(values[quiet]), np.nan, 0.0)
        return checked_window(replace(window, values=values))

    with pytest.raises(InsufficientHistoryError, match="record until there is traffic again"):
        split_recorded(checked(slice(4000, 6000)), CAPACITY, first_run=0)
    split = split_recorded(checked(slice(500, 2000)), CAPACITY, first_run=0)
    assert ((split.fit.cutoff_at > 600) & (split.fit.cutoff_at < 1800)).any()
    assert np.isfinite(split.fit.log_ratios).all()


def test_an_empty_recording_is_refused(crowned, tmp_path):
    store, work = crowned
    nothing = TelemetryWindow(
        deployment="x", row_at=np.zeros(0), seen_at=np.zeros(0), values=np.zeros((0, len(SIGNALS)))
    )
    with pytest.raises(InsufficientHistoryError, match="nothing was recorded"):
        run(write_telemetry(nothing, tmp_path / "recorded"), store, work)
    with pytest.raises(InvalidTelemetryError, match="no telemetry"):
        run(tmp_path, store, work)
    assert store.alias(CHAMPION) == 1


def test_a_short_recording_is_refused_with_what_is_needed(crowned, window, tmp_path):
    store, work = crowned
    place = write_telemetry(window.since(SECONDS - 1500.0), tmp_path / "recorded")
    with pytest.raises(InsufficientHistoryError, match=r"has 25\.0 minutes, at least 40 are needed"):
        run(place, store, work)


def test_forty_minutes_are_enough_to_be_judged_and_the_model_is_of_generated_fleets(window, tmp_path):
    place = write_telemetry(window.since(SECONDS - 2400.0), tmp_path / "recorded")
    split = split_recorded(check_telemetry(read_telemetry(place)), CAPACITY, first_run=0)
    assert split.fit is None
    assert split.calibration.cutoff_at.max() + PURGE_SECONDS <= split.scored_at.min()
    assert split.scored_at.size == 1200
