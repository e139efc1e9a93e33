"""Scenario files: traffic, fleet and clients in YAML, the shipped ones by name and any other by path."""

import json
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from forecaster.errors import ConfigError
from simulator.fleet_limits import FleetLimits
from simulator.profiles import profile_named
from training.closed_loop import sensible_initial_replicas
from training.playable_scenario import AnnouncedEvent, PlayableScenario
from training.scenario_problems import problems_in_words
from training.scenario_schema import EventPart, ScenarioContent
from training.scenario_traffic import past_requests, scenario_requests, trace_paths
from training.scenario_yaml import ScenarioFileError, read_document

SHIPPED = Path(__file__).parent / "scenarios"
SUFFIXES = (".yaml", ".yml")


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
    document = read_document(path)
    try:
        # by way of JSON: there a list is the only tuple that there is, and numbers stay apart from text and truth
        content = ScenarioContent.model_validate_json(json.dumps(document, default=str))
    except ValidationError as error:
        raise ScenarioFileError(f"{path}: {'; '.join(problems_in_words(error))}") from error
    except ConfigError as error:
        raise ScenarioFileError(f"{path}: {error}") from error
    return ScenarioFile(name=path.stem, path=path, content=content)
