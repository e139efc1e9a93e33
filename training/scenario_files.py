"""Scenario files: traffic, fleet and clients in YAML, the shipped ones by name and any other by path."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from forecaster.errors import ConfigError
from simulator.clients import Clients
from simulator.engine_options import EngineOptions
from simulator.faults import Faults
from simulator.lifecycle import FleetLimits
from simulator.profiles import EngineProfile, profile_named
from simulator.requests import RequestTable
from training.closed_loop import sensible_initial_replicas
from training.scenario_schema import EventPart, ScenarioContent
from training.scenario_traffic import past_requests, scenario_requests, trace_paths

SHIPPED = Path(__file__).parent / "scenarios"
SUFFIXES = (".yaml", ".yml")
MAX_FILE_BYTES = 256 * 1024
MAX_DEPTH = 32
_OPENING = (
    yaml.BlockMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.FlowSequenceStartToken,
)
_CLOSING = (yaml.BlockEndToken, yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)
_MAX_VALUE_LETTERS = 60
# an element of these is of one of several kinds, which pydantic puts into the place of a problem: no key of the file
_OF_SEVERAL_KINDS = ("traffic", "process", "changes")


class ScenarioFileError(ConfigError):
    """A scenario file that is missing or says something that cannot be played."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedEvent:
    """Something that the operator's calendar names.

    Attributes
    ----------
    name : str
    start_seconds : float
    length_seconds : float or None
    height : float or None
        Times the usual traffic that are expected.
    note : str
    """

    name: str
    start_seconds: float
    length_seconds: float | None = None
    height: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayableScenario:
    """A scenario with its requests drawn: all that a closed loop needs.

    Attributes
    ----------
    name : str
    requests : RequestTable
    duration_seconds : float
    profile : EngineProfile
    limits : FleetLimits
    engine : EngineOptions
    clients : Clients
    faults : Faults
    events : tuple of AnnouncedEvent
        What the controller may know of before.
    past_seconds : float
        How much of the same service's past a primed controller has seen, 0: none.
    past_requests : RequestTable or None
        That past, counted from its own begin.
    """

    name: str
    requests: RequestTable
    duration_seconds: float
    profile: EngineProfile
    limits: FleetLimits
    engine: EngineOptions
    clients: Clients
    faults: Faults
    events: tuple[AnnouncedEvent, ...]
    past_seconds: float = 0.0
    past_requests: RequestTable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFile:
    """A scenario file that was read and holds together.

    Attributes
    ----------
    name : str
    path : Path
    content : ScenarioContent
    """

    name: str
    path: Path
    content: ScenarioContent

    @property
    def description(self) -> str:
        """What it plays, in a sentence."""
        return self.content.description

    @property
    def duration_seconds(self) -> int:
        """Length of the costed run."""
        return self.content.duration_seconds

    def trace_paths(self, shared: Path) -> tuple[Path, ...]:
        """Return the files that its traffic is drawn from, whether they are there or not."""
        return trace_paths(self.content, folder=self.path.parent, shared=shared)

    def build(self, seed: int, *, shared: Path, primed: bool | None = None) -> PlayableScenario:
        """Return the scenario with its requests; the same seed gives the same bytes.

        Parameters
        ----------
        shared : Path
            The folder of public data.
        primed : bool, optional
            In place of what the file says.

        Raises
        ------
        TraceFormatError
            If a trace is missing, with the place where it can be downloaded, or cannot be read.
        ScenarioFileError
            If the parts of the scenario contradict each other.
        """
        content = self.content if primed is None else self.content.model_copy(update={"primed": primed})
        places = {"folder": self.path.parent, "shared": shared}
        try:
            requests = scenario_requests(content, seed=seed, **places)
            past = past_requests(content, seed=seed, **places)
        except ValueError as error:
            raise ScenarioFileError(f"{self.path}: {error}") from error
        fleet = content.fleet
        profile = profile_named(fleet.profile)
        initial = fleet.initial_replicas or min(sensible_initial_replicas(requests, profile), fleet.max_replicas)
        return PlayableScenario(
            name=self.name,
            requests=requests,
            duration_seconds=float(content.duration_seconds),
            profile=profile,
            limits=FleetLimits(
                initial_replicas=initial,
                max_replicas=fleet.max_replicas,
                cold_start_seconds=fleet.cold_start_seconds,
                promotion_seconds=fleet.promotion_seconds,
                gpu_stock_replicas=fleet.gpu_stock_replicas,
                drain_grace_seconds=inf if fleet.drain_grace_seconds is None else fleet.drain_grace_seconds,
                warm_replicas_sleep=fleet.warm_replicas_sleep,
            ),
            faults=content.faults,
            engine=content.engine,
            clients=content.clients,
            events=tuple(_event(part) for part in content.events),
            past_seconds=content.past_seconds,
            past_requests=past,
        )


def _event(part: EventPart) -> AnnouncedEvent:
    return AnnouncedEvent(**part.model_dump())


def scenario_names() -> tuple[str, ...]:
    """Return the names of the shipped scenarios, sorted."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.yaml")))


def load_scenario(name_or_path: str | Path) -> ScenarioFile:
    """Return a shipped scenario by its name, or the scenario of a file; a path has a folder or ends in .yaml.

    Raises
    ------
    ScenarioFileError
        If there is none, or the file does not hold together; in one line.
    """
    text = str(name_or_path)
    if text in scenario_names():
        return _read(SHIPPED / f"{text}.yaml")
    if isinstance(name_or_path, Path) or Path(text).suffix in SUFFIXES or "/" in text:
        return _read(Path(text))
    raise ScenarioFileError(
        f"no scenario is called {text!r}; known: {', '.join(scenario_names())}; or name a file that ends in .yaml"
    )


def scenario_schema() -> dict[str, Any]:
    """Return the JSON schema of scenario files; a default that is infinite, which JSON lacks, is left out."""
    return dict(_without_infinity(ScenarioContent.model_json_schema()))


def _without_infinity(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_infinity(item) for key, item in value.items() if item != inf}
    return [_without_infinity(item) for item in value] if isinstance(value, list) else value


def _read(path: Path) -> ScenarioFile:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ScenarioFileError(f"{path}: larger than {MAX_FILE_BYTES // 1024} kB, which no scenario file needs")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ScenarioFileError(f"{path}: no such scenario file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioFileError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    document = _parsed(path, text)
    try:
        # by way of JSON: there a list is the only tuple that there is, and numbers stay apart from text and truth
        content = ScenarioContent.model_validate_json(json.dumps(document, default=str))
    except ValidationError as error:
        raise ScenarioFileError(f"{path}: {'; '.join(_problems(error))}") from error
    except ConfigError as error:
        raise ScenarioFileError(f"{path}: {error}") from error
    return ScenarioFile(name=path.stem, path=path, content=content)


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        _refuse_aliases_and_depth(path, text)
        _refuse_repeated_keys(path, yaml.compose(text))
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScenarioFileError(f"{path}: is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise ScenarioFileError(f"{path}: expected keys such as description, duration_seconds and traffic at the top")
    return document


def _refuse_aliases_and_depth(path: Path, text: str) -> None:
    """Refuse what makes a small text a large or a slow document: values that repeat others, and deep nesting."""
    depth = 0
    for token in yaml.scan(text):
        if isinstance(token, yaml.AliasToken):
            raise ScenarioFileError(f"{path}: aliases (*name) are not supported; write the value out")
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > MAX_DEPTH:
            raise ScenarioFileError(
                f"{path}: is nested more than {MAX_DEPTH} levels deep, which no scenario file needs"
            )


def _refuse_repeated_keys(path: Path, node: yaml.Node | None) -> None:
    """Refuse a key that is given twice: YAML itself would keep the last one without a word."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(path, item)
    if not isinstance(node, yaml.MappingNode):
        return
    seen = set()
    for key, value in node.value:
        if key.value in seen:
            raise ScenarioFileError(f"{path}: line {key.start_mark.line + 1}: {key.value} is given twice; keep one")
        seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        _refuse_repeated_keys(path, value)


def _problems(error: ValidationError) -> Iterator[str]:
    """Yield each problem: the field, what is wrong, the value seen, and the fix where it is not plain."""
    for problem in error.errors(include_url=False):
        field = _field(problem["loc"])
        kind, message = problem["type"], problem["msg"]
        message = message.removeprefix("Value error, ").removeprefix("Input ")
        if kind in ("extra_forbidden", "unexpected_keyword_argument"):
            yield f"{field}: unknown key; remove it or see foreshock scenarios schema"
        elif kind in ("missing", "missing_keyword_only_argument", "missing_argument"):
            yield f"{field}: missing; add it"
        elif kind == "value_error":
            yield f"{field}: {message}"
        else:
            yield f"{field}: {message[:1].lower()}{message[1:]}, got {_shown(problem['input'])}"


def _field(place: tuple[int | str, ...]) -> str:
    """Return the field as it stands in the file, such as changes.0.height."""
    if place[:1] == ("primed",):  # a truth value or a number: the rest says which of them
        return "primed"
    parts: list[str] = []
    of_kind = ""
    for part in place:
        if of_kind and not isinstance(part, int):
            of_kind = ""
            continue
        parts.append(str(part))
        of_kind = str(part) if part in _OF_SEVERAL_KINDS else of_kind
    return ".".join(parts) or "the file"


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _MAX_VALUE_LETTERS else f"{text[:_MAX_VALUE_LETTERS]}..."
