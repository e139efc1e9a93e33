"""How clients take a late answer, a refusal or a broken connection."""

from dataclasses import dataclass
from math import inf

from forecaster.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """What every client of a run does. A user's request counts once, from its first attempt.

    Attributes
    ----------
    timeout_seconds : float
        An attempt without its first token after so long is given up.
    deadline_seconds : float
        After so long from the first attempt the user is gone, whatever has come.
    max_attempts : int
        1: no retries. A refused, timed-out or failed attempt is followed by another as long as there are any left.
    backoff_seconds : float
        Wait before the second attempt; it doubles with each further one.
    jitter_ratio : float
        The wait is drawn uniformly within this share of itself to either side; 0: all come back together.
    """

    timeout_seconds: float = inf
    deadline_seconds: float = inf
    max_attempts: int = 1
    backoff_seconds: float = 1.0
    jitter_ratio: float = 0.5

    def __post_init__(self) -> None:
        problems = []
        if not (self.timeout_seconds > 0 and self.deadline_seconds > 0):
            problems.append(
                f"timeout_seconds and deadline_seconds must be > 0, got {self.timeout_seconds}, {self.deadline_seconds}"
            )
        if not 1 <= self.max_attempts <= MAX_ATTEMPTS:
            problems.append(f"max_attempts must be in [1, {MAX_ATTEMPTS}], got {self.max_attempts}")
        if not 0 < self.backoff_seconds < inf:
            problems.append(f"backoff_seconds must be > 0 and finite, got {self.backoff_seconds}")
        if not 0 <= self.jitter_ratio <= 1:
            problems.append(f"jitter_ratio must be in [0, 1], got {self.jitter_ratio}")
        if problems:
            raise ConfigError.from_problems("clients", problems)


MAX_ATTEMPTS = 20
