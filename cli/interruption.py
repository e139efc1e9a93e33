"""Ctrl-C as a wish to stop at the next good moment, so that nothing is left half done and the terminal is restored."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class Interruption:
    """While it is entered, the first Ctrl-C sets `requested`; a second one interrupts at once as usual."""

    def __init__(self) -> None:
        self.requested = False
        self._previous: object = None

    def __enter__(self) -> Self:
        # signals can be handled in the main thread alone; elsewhere Ctrl-C is somebody else's matter
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)  # type: ignore[arg-type]
            self._previous = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
