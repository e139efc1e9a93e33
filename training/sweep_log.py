"""What a sweep has finished so far, a JSON line a run in `runs.jsonl`, so that an interruption loses nothing."""

import fcntl
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from forecaster.errors import ForecasterError
from training.scorecard_json import scorecard_from_json, scorecard_json
from training.sweep_tasks import SweepRun

FILE_NAME = "runs.jsonl"


class SweepLog:
    """The runs of a folder; entered, it is this process's to write to.

    Parameters
    ----------
    folder : Path
        Made if need be.
    fresh : bool
        Forget what it holds.

    Attributes
    ----------
    runs : dict of key to SweepRun
        The last one of each key, failed ones too.
    num_unreadable_lines : int
        Lines that are passed over, for example one that was half written when its process was killed.
    """

    def __init__(self, folder: Path, *, fresh: bool = False) -> None:
        self.path = folder / FILE_NAME
        self.runs: dict[str, SweepRun] = {}
        self.num_unreadable_lines = 0
        self._fresh = fresh

    def __enter__(self) -> Self:
        """Read what there is.

        Raises
        ------
        ForecasterError
            If another sweep is writing to the folder.
        OSError
            If the file cannot be read and written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a+b")
        try:
            self._own()
            if self._fresh:
                self._file.truncate(0)
            self._file.seek(0)
            text = self._file.read()
            self._take_in(text.splitlines())
            if text and not text.endswith(b"\n"):
                self._file.write(b"\n")  # the next run must not continue a half-written line
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _own(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ForecasterError(
                f"another sweep is writing to {self.path}; wait for it to end, or name another folder with --out"
            ) from error

    def _take_in(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            try:
                run = _from_json(json.loads(line))
                self.runs[run.key] = run
            except (ValueError, TypeError, KeyError):
                self.num_unreadable_lines += 1

    def add(self, run: SweepRun) -> None:
        """Write a run down at once."""
        self.runs[run.key] = run
        self._file.write(json.dumps(sweep_run_json(run), allow_nan=False).encode() + b"\n")
        self._file.flush()

    def finished(self, key: str) -> bool:
        """Return whether the run of a task is there and did not fail."""
        return key in self.runs and not self.runs[key].error


def sweep_run_json(run: SweepRun) -> dict[str, Any]:
    """Return a run as JSON values."""
    return {**asdict(run), "scorecard": None if run.scorecard is None else scorecard_json(run.scorecard)}


def _from_json(values: dict[str, Any]) -> SweepRun:
    card = values["scorecard"]
    run = SweepRun(**{**values, "scorecard": None if card is None else scorecard_from_json(card)})
    if (run.scorecard is None) != bool(run.error):
        raise ValueError("a run has either a scorecard or an error")
    return run
