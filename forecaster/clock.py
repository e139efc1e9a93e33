"""Where a long-running object gets the time from; pure functions are given `now` instead."""

from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Tells the time and lets it pass."""

    def now(self) -> float:
        """Return POSIX seconds, UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an unknown origin that never run backwards."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`; at once if that is not positive."""
        ...


@dataclass(slots=True, kw_only=True)
class ManualClock:
    """A clock that stands still until it is told otherwise: sleeping moves it, nothing else waits.

    Attributes
    ----------
    now_seconds : float, POSIX seconds

    Examples
    --------
    >>> clock = ManualClock(now_seconds=100.0)
    >>> clock.sleep(2.5)
    >>> clock.now(), clock.monotonic()
    (102.5, 102.5)
    """

    now_seconds: float = 0.0

    def now(self) -> float:
        """Return the time that was set."""
        return self.now_seconds

    def monotonic(self) -> float:
        """Return the same: this clock is never set back."""
        return self.now_seconds

    def sleep(self, seconds: float) -> None:
        """Move the clock on."""
        self.now_seconds += max(seconds, 0.0)
