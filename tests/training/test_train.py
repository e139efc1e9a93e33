"""Training: the same seed gives the same bytes, runs are split whole, and what it makes forecasts."""

import numpy as np
import pytest

from models.artifact import MANIFEST, load_artifact, save_artifact
from training.datasets import HORIZONS_SECONDS
from training.train import TrainingSettings, generated_dataset, train

TINY = {"num_fleets": 5, "stride_seconds": 25, "num_trees": 2, "num_leaves": 4, "min_rows_in_leaf": 10}


@pytest.fixture(scope="module")
def result():
    return train(TrainingSettings(**TINY, num_workers=1, calibration_ratio=0.6, test_ratio=0.2))


def test_same_seed_gives_the_same_bytes_whatever_the_number_of_workers(result, tmp_path):
    again = train(TrainingSettings(**TINY, num_workers=2, calibration_ratio=0.6, test_ratio=0.2))
    for name, one in (("first", result), ("again", again)):
        save_artifact(one.artifact, tmp_path / name)
    for file in (tmp_path / "first").iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes(), file.name


def test_the_artefact_loads_and_says_where_it_came_from(result, tmp_path):
    save_artifact(result.artifact, tmp_path)
    loaded = load_artifact(tmp_path)
    assert loaded.horizons_seconds == tuple(float(horizon) for horizon in HORIZONS_SECONDS)
    assert loaded.provenance["num_fleets"] == {"fit": 1, "calibration": 3, "test": 1}
    assert loaded.provenance["seed"] == 0
    assert set(loaded.provenance["versions"]) == {"python", "lightgbm", "numpy", "scikit-learn"}
    assert "skill_ratio" in loaded.metrics
    assert str(tmp_path) not in (tmp_path / MANIFEST).read_text()


def test_scores_cover_the_test_runs_alone(result):
    assert result.scores.num_runs == 1
    assert np.isfinite(result.scores.coverage_ratio).all()


def test_tells_its_progress():
    told = []
    generated_dataset(
        TrainingSettings(**{**TINY, "num_fleets": 3}, num_workers=1),
        progress=lambda what, done, total: told.append((what, done, total)),
    )
    assert told == [("simulating fleets", done, 3) for done in range(4)]


def test_every_fleet_is_on_exactly_one_side_of_the_split():
    settings = TrainingSettings(num_fleets=17)
    fit, calibration, test = settings.split
    assert sorted([*fit, *calibration, *test]) == list(range(17))
    assert min(len(fit), len(calibration), len(test)) >= 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_fleets": 2}, "num_fleets must be >= 3"),
        ({"calibration_ratio": 0.0}, "leave something to fit"),
        ({"calibration_ratio": 0.6, "test_ratio": 0.5}, "leave something to fit"),
    ],
)
def test_refuses_settings_that_leave_nothing(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainingSettings(**changes)
