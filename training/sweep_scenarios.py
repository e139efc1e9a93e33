"""The scenarios of a sweep: the one place where a scenario's name and a seed become traffic."""

from dataclasses import dataclass

from simulator.requests import RequestTable
from simulator.workload.scenarios import scenario_named


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepScenario:
    """One scenario, before any traffic is drawn from it.

    Attributes
    ----------
    name : str
    content : str
        Whatever determines its traffic besides the code and the seed: two scenarios of equal content are the same.
    duration_seconds : float
    """

    name: str
    content: str
    duration_seconds: float

    def build(self, seed: int) -> RequestTable:
        """Return its traffic."""
        return scenario_named(self.name).build(seed)


def sweep_scenario(name: str) -> SweepScenario:
    """Return a scenario.

    Raises
    ------
    ValueError
        If there is none of that name; the message lists those there are.
    """
    scenario = scenario_named(name)
    # what is generated follows from the name and the code, and the code has a digest of its own
    return SweepScenario(name=scenario.name, content=scenario.name, duration_seconds=float(scenario.duration_seconds))
