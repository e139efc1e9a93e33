"""The runs that a sweep consists of, and what identifies one: everything that determines how it goes."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from simulator.profiles import EngineProfile
from training.closed_loop import ClosedLoopRun, servable_requests
from training.fleet_options import FleetOptions
from training.profile_files import profile_from
from training.scorecard import Scorecard
from training.sweep_scenarios import SweepScenario

DETERMINING_PACKAGES = ("forecaster", "models", "simulator", "training")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTask:
    """One run of a sweep: a scenario drawn with a seed, under one policy."""

    scenario: SweepScenario
    policy: str
    seed: int
    fleet: FleetOptions

    @property
    def profile(self) -> EngineProfile:
        """The replica type."""
        return profile_from(self.fleet.profile or self.scenario.profile)

    @property
    def duration_seconds(self) -> float:
        """Length of the run."""
        return self.fleet.duration_seconds or self.scenario.duration_seconds

    @property
    def key(self) -> str:
        """The same for two tasks if they are called the same and are bound to go the same way, under this code, too."""
        determined_by = {
            "scenario": [self.scenario.name, self.scenario.content],
            "policy": self.policy,
            "seed": self.seed,
            "fleet": asdict(self.fleet),
            "profile": asdict(self.profile),
            "code": code_digest(),
        }
        return sha256(json.dumps(determined_by, sort_keys=True).encode()).hexdigest()[:24]

    def closed_loop(self) -> tuple[ClosedLoopRun, int]:
        """Return what is to be played, and how many requests no replica can hold, which are left out.

        Raises
        ------
        ValueError, ConfigError
            If it cannot be played.
        """
        traffic = self.scenario.build(self.seed)
        requests, num_left_out = servable_requests(traffic.requests, self.fleet.engine_profile(traffic))
        run = self.fleet.closed_loop(traffic, requests, policies=(self.policy,), seed=self.seed)
        return run, num_left_out


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRun:
    """A task that was played, or that failed.

    Attributes
    ----------
    key : str
        Of its task.
    scenario, policy : str
    seed : int
    num_left_out : int
        Requests that no replica can hold.
    scorecard : Scorecard or None
        None if it failed.
    error : str
        One line; empty if it did not fail.
    """

    key: str
    scenario: str
    policy: str
    seed: int
    num_left_out: int = 0
    scorecard: Scorecard | None = None
    error: str = ""


def sweep_tasks(
    scenarios: Iterable[SweepScenario], policies: Iterable[str], seeds: Iterable[int], fleet: FleetOptions
) -> tuple[SweepTask, ...]:
    """Return every scenario under every policy with every seed, in that order."""
    policies, seeds = tuple(policies), tuple(seeds)
    return tuple(
        SweepTask(scenario=scenario, policy=policy, seed=seed, fleet=fleet)
        for scenario in scenarios
        for policy in policies
        for seed in seeds
    )


@cache
def code_digest() -> str:
    """Return a digest of the code and the model that runs depend on.

    The version of the package alone would take an edit between two releases for the same code.
    """
    root = Path(__file__).resolve().parents[1]
    digest = sha256()
    for package in DETERMINING_PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()
