"""What of each row of telemetry reaches the planner, and when: scrapes may be late, lost or partial."""

import numpy as np
from numpy.typing import NDArray

from forecaster.telemetry import Floats
from simulator.engine_state import ROW_COLUMNS
from simulator.faults import ScrapeFault

# counters of the engines; those of the gateway are its own
_ENGINE_COUNTERS = [
    ROW_COLUMNS.index(name)
    for name in (
        "finished_rate_per_second",
        "finished_output_tokens_per_second",
        "prefill_tokens_per_second",
        "decode_tokens_per_second",
        "preemptions_per_second",
    )
]


class Scrapes:
    """The scrapes of one run.

    Attributes
    ----------
    seen_at : ndarray of float64, shape (num_rows,)
        When each row is seen.
    """

    def __init__(self, faults: tuple[ScrapeFault, ...], *, row_at: Floats, lag_seconds: float) -> None:
        delay = np.zeros(row_at.size)
        self._is_lost = np.zeros(row_at.size, dtype=bool)
        for fault in faults:
            rows = (row_at > fault.at_seconds) & (row_at <= fault.at_seconds + fault.lasts_seconds)
            if fault.kind == "delay":
                delay[rows] = np.maximum(delay[rows], fault.delay_seconds)
            elif fault.kind == "loss":
                self._is_lost |= rows
        # what is late holds up what comes after it
        self.seen_at = np.maximum.accumulate(row_at + lag_seconds + delay) if row_at.size else row_at

    def num_reporting(self, rows: slice, num_serving: int, num_silent: int) -> NDArray[np.int64]:
        """Return how many of the serving replicas are in each of some rows."""
        return np.where(self._is_lost[rows], 0, num_serving - num_silent)

    def seen(self, rows: slice, values: Floats, *, num_serving: int, num_silent: int) -> Floats:
        """Return what is seen of rows of the engine's columns: unknown where lost, without the silent replicas' share.

        The engine leaves the silent ones out of what they hold; their share of the counters is left out here.
        """
        if num_silent:
            values = values.copy()
            values[:, _ENGINE_COUNTERS] *= 1.0 - num_silent / max(num_serving, 1)
        lost = self._is_lost[rows, None]
        return np.where(lost, np.nan, values) if lost.any() else values
