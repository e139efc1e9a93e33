"""One retrain at a time in a work folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forecaster.errors import ForecasterError

FILE = "retrain.lock"


class RetrainLockedError(ForecasterError):
    """Another retrain is running."""


@contextmanager
def retrain_lock(work: Path) -> Iterator[None]:
    """Own a work folder, which is made if need be; the lock goes with the process, however it ends.

    Raises
    ------
    RetrainLockedError
        If another process owns it.
    OSError
        If the folder cannot be written to.
    """
    work.mkdir(parents=True, exist_ok=True)
    with (work / FILE).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            file.seek(0)
            raise RetrainLockedError(
                f"another retrain is running in {work} (process {file.read().strip() or 'unknown'}); wait for it to end"
            ) from exc
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
