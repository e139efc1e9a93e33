"""Engine profiles as YAML files: what `foreshock calibrate` writes and `--profile` reads."""

from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationError

from forecaster.errors import ConfigError
from simulator.profiles import PROFILES, EngineProfile, profile_named
from simulator.step_time import StepTime

SUFFIXES = (".yaml", ".yml")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class StepTimeFile(_Strict):
    """The fields of `StepTime`."""

    token_knots: tuple[PositiveInt, ...]
    knot_seconds: tuple[PositiveFloat, ...]
    seconds_per_decode_context_token: NonNegativeFloat
    seconds_per_prefill_attention: NonNegativeFloat
    seconds_per_sequence: NonNegativeFloat = 0.0
    decode_knots: tuple[PositiveInt, ...] = ()
    decode_knot_seconds: tuple[PositiveFloat, ...] = ()
    decode_knot_context_seconds: tuple[NonNegativeFloat, ...] = ()


class ProfileFile(_Strict):
    """The fields of `EngineProfile`."""

    name: Annotated[str, Field(min_length=1)]
    gpus_per_replica: PositiveInt
    kv_blocks: PositiveInt
    block_size_tokens: PositiveInt = 16
    max_num_seqs: PositiveInt = 256
    max_num_batched_tokens: PositiveInt = 2048
    fit_error_ratio: tuple[NonNegativeFloat, NonNegativeFloat]
    calibrated_batch_size: PositiveInt | None = None
    calibrated_step_tokens: PositiveInt | None = None
    calibrated_context_tokens: PositiveInt | None = None
    step_time: StepTimeFile


def write_profile(path: Path, profile: EngineProfile) -> None:
    """Write a profile; what is there is replaced, and folders are made.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    contents = ProfileFile.model_validate(profile, from_attributes=True).model_dump(mode="json")
    path.parent.mkdir(parents=True, exist_ok=True)
    # floats as Python writes them: what is read back is the same to the last digit
    path.write_text(yaml.safe_dump(contents, sort_keys=False, width=120, default_flow_style=None), encoding="utf-8")


def read_profile(path: Path) -> EngineProfile:
    """Return the profile of a file.

    Raises
    ------
    ConfigError
        If the file cannot be read or is no profile; in one line that lists every problem.
    """
    try:
        contents = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"profile {path}: cannot be read: {error}; make one with `foreshock calibrate`") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"profile {path}: is no YAML: {' '.join(str(error).split())}") from error
    try:
        fields = ProfileFile.model_validate(contents).model_dump()
        return EngineProfile(**{**fields, "step_time": StepTime(**fields["step_time"])})
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc'])) or 'the file'}: {problem['msg']}, got {problem['input']!r:.60}"
            for problem in error.errors()
        ]
        raise ConfigError.from_problems(f"profile {path}", problems) from error
    except ConfigError as error:
        raise ConfigError(f"profile {path}: {error}") from error


def profile_from(name_or_path: str) -> EngineProfile:
    """Return a shipped profile, or that of a file if the name ends in .yaml or .yml.

    Raises
    ------
    ValueError
        If no profile is called so.
    ConfigError
        If the file is no profile.
    """
    if name_or_path not in PROFILES and Path(name_or_path).suffix.lower() in SUFFIXES:
        return read_profile(Path(name_or_path))
    return profile_named(name_or_path)
