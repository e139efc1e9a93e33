"""From the options of `run` and `simulate` to a closed loop that can be played."""

from dataclasses import dataclass, replace

import click
from rich.console import Console

from cli.traffic import Traffic, without_unservable
from forecaster.errors import ConfigError
from simulator.fleet import RunSettings
from simulator.gateway import ROUTERS
from simulator.lifecycle import FleetLimits
from simulator.profiles import DEFAULT_PROFILE
from simulator.static_fleet import simulate_static
from training.closed_loop import ClosedLoopRun, closed_loop_run, selected
from training.policies import policy_named
from training.profile_files import profile_from


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """What the user said of the fleet; None takes the default of `FleetLimits`, `RunSettings` or the planner."""

    profile: str | None = None
    initial: int | None = None
    max_replicas: int | None = None
    cold_start_seconds: float | None = None
    warm_cost_ratio: float | None = None
    duration_seconds: float | None = None
    router: str | None = None


def prepare_run(traffic: Traffic, options: FleetOptions, *, policies: tuple[str, ...], seed: int) -> ClosedLoopRun:
    """Return the run that the options describe.

    Raises
    ------
    click.UsageError
        If an option names something that there is not, or options contradict each other.
    """
    try:
        profile = profile_from(options.profile or DEFAULT_PROFILE)
    except (ConfigError, ValueError) as error:
        raise click.BadParameter(str(error), param_hint="--profile") from error
    try:
        run = closed_loop_run(
            traffic.name,
            without_unservable(traffic, profile),
            profile=profile,
            policies=policies,
            duration_seconds=options.duration_seconds or traffic.duration_seconds,
            initial=options.initial,
            limits=_limits(options),
            settings=RunSettings(router=options.router or ROUTERS[0]),
            warm_cost_ratio=options.warm_cost_ratio,
            seed=seed,
        )
    except (ConfigError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    _refuse_unknown_policies(run)
    return run


def _limits(options: FleetOptions) -> FleetLimits:
    # the initial number is checked against the others together, once it is known
    limits = FleetLimits(initial_replicas=1)
    if options.max_replicas is not None:
        limits = replace(limits, max_replicas=options.max_replicas)
    if options.cold_start_seconds is not None:
        limits = replace(limits, cold_start_seconds=options.cold_start_seconds)
    return limits


def _refuse_unknown_policies(run: ClosedLoopRun) -> None:
    if len(set(run.policies)) < len(run.policies):
        raise click.UsageError(f"a policy is named twice: {', '.join(run.policies)}; name each once")
    for name in run.policies:
        try:
            policy_named(name, run.config)
        except ValueError as error:
            raise click.UsageError(str(error)) from error


def prepare_simulator(run: ClosedLoopRun, messages: Console) -> None:
    """Have the engine compiled before anything is shown; only the first run on a machine takes time for it."""
    with messages.status("preparing the simulator (the first run compiles it: some 20 s)"):
        few = selected(run.requests, run.requests.arrival_seconds <= run.requests.arrival_seconds[0])
        simulate_static(few, run.profile, num_replicas=1, duration_seconds=1.0, router=run.settings.router)
