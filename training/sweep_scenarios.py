"""The scenarios of a sweep: the one place where a scenario's name and a seed become traffic."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from training.scenario_files import ScenarioFile, load_scenario
from training.traffic import Traffic, scenario_traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepScenario:
    """One scenario, before any traffic is drawn from it.

    Attributes
    ----------
    name : str
        As the user gave it: of a shipped scenario, or a path.
    content : str
        Whatever determines its traffic besides the code and the seed: two scenarios of equal content are the same.
    duration_seconds : float
    profile : str
        Replica type, unless another is chosen.
    shared : Path
        The folder of public data.
    """

    name: str
    content: str
    duration_seconds: float
    profile: str
    shared: Path

    def build(self, seed: int) -> Traffic:
        """Return its traffic."""
        return scenario_traffic(load_scenario(self.name), seed, shared=self.shared)


def sweep_scenario(name: str, *, shared: Path) -> SweepScenario:
    """Return a scenario.

    Raises
    ------
    ScenarioFileError
        If there is none of that name, or its file does not hold together.
    """
    scenario = load_scenario(name)
    return SweepScenario(
        name=name,
        content=scenario.content.model_dump_json() + _digest_of_traces(scenario, shared),
        duration_seconds=float(scenario.duration_seconds),
        profile=scenario.content.fleet.profile,
        shared=shared,
    )


def _digest_of_traces(scenario: ScenarioFile, shared: Path) -> str:
    """Return a digest of the traces that the scenario plays; one that is missing is found out when it is played."""
    digest = sha256()
    for path in scenario.trace_paths(shared):
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()
