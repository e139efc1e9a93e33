"""The real clock: the one file that reads the machine's time."""

import time


class SystemClock:
    """A `forecaster.clock.Clock` on the machine's own time."""

    def now(self) -> float:
        """Return POSIX seconds, UTC."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds that never run backwards."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`; at once if that is not positive."""
        if seconds > 0:
            time.sleep(seconds)
