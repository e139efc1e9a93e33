import pytest
import yaml

from forecaster.errors import ConfigError
from simulator.profiles import DEFAULT_PROFILE, PROFILES
from training.profile_files import profile_from, read_profile, write_profile


@pytest.mark.parametrize("profile", [pytest.param(p, id=name) for name, p in PROFILES.items()])
def test_a_profile_comes_back_as_it_was_written(profile, tmp_path):
    path = tmp_path / "deep" / "profile.yaml"
    write_profile(path, profile)
    assert read_profile(path) == profile
    assert profile_from(str(path)) == profile


def test_a_name_is_a_shipped_profile():
    assert profile_from(DEFAULT_PROFILE) is PROFILES[DEFAULT_PROFILE]
    with pytest.raises(ValueError, match="no engine profile is called 'x'"):
        profile_from("x")


def changed(path, **changes):
    write_profile(path, PROFILES[DEFAULT_PROFILE])
    contents = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**contents, **changes}))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"kv_blocks": -3}, "kv_blocks: .*, got -3"),
        ({"kv_block": 3}, "kv_block: Extra inputs are not permitted"),
        ({"step_time": {}}, "step_time.token_knots: Field required.*step_time.knot_seconds: Field required"),
        (
            {
                "step_time": {
                    "token_knots": [2, 1],
                    "knot_seconds": [1, 2],
                    "seconds_per_decode_context_token": 0,
                    "seconds_per_prefill_attention": 0,
                }
            },
            "token_knots must increase",
        ),
    ],
)
def test_every_problem_of_a_file_is_named_in_one_line(tmp_path, changes, problem):
    path = tmp_path / "profile.yaml"
    changed(path, **changes)
    with pytest.raises(ConfigError, match=problem) as caught:
        read_profile(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [("a: [", "is no YAML"), ("", "the file: "), ("- 1\n", "the file: ")],
    ids=["broken", "empty", "list"],
)
def test_what_is_no_profile_is_refused(tmp_path, text, problem):
    path = tmp_path / "profile.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        read_profile(path)


def test_a_missing_file_names_the_command_that_makes_one(tmp_path):
    with pytest.raises(ConfigError, match="foreshock calibrate"):
        read_profile(tmp_path / "none.yaml")
