"""What a policy is shown of a fleet: a row of telemetry a second, and when each is seen."""

from math import ceil

import numpy as np

from forecaster.telemetry import SIGNAL_INDEX, SIGNALS, TelemetryWindow
from simulator.engine_state import ROW_COLUMNS, EngineState
from simulator.faults import ScrapeFault
from simulator.lifecycle import Pods
from simulator.pod_states import DRAINING, PodState
from simulator.scrapes import Scrapes

_ENGINE_COLUMNS = np.array([SIGNAL_INDEX[name] for name in ROW_COLUMNS])
_FLEET_COLUMNS = np.array(
    [
        SIGNAL_INDEX[name]
        for name in (
            "serving_replicas",
            "warm_replicas",
            "starting_replicas",
            "draining_replicas",
            "desired_replicas",
            "reporting_replicas",
            "unschedulable_replicas",
        )
    ]
)


class Observer:
    """The telemetry of one run, as far as it has been played."""

    def __init__(self, scrapes: tuple[ScrapeFault, ...], *, duration_seconds: float, lag_seconds: float) -> None:
        num_rows = ceil(duration_seconds)
        self._row_at = np.arange(1, num_rows + 1, dtype=np.float64)
        self._values = np.full((num_rows, len(SIGNALS)), np.nan)
        self._scrapes = Scrapes(scrapes, row_at=self._row_at, lag_seconds=lag_seconds)
        self._num_rows = 0

    def copy_rows(self, state: EngineState, pods: Pods) -> None:
        """Copy the rows that the engine has written since the last call, and add the pods, which it does not know."""
        written = min(int(state.fleet[0]["next_row"]), self._row_at.size)
        if written == self._num_rows:
            return
        rows = slice(self._num_rows, written)
        serving = pods.count(PodState.SERVING)
        self._values[rows, _ENGINE_COLUMNS] = self._scrapes.seen(
            rows, state.rows[rows], num_serving=serving, num_silent=_num_silent(state)
        )
        self._values[rows, _FLEET_COLUMNS] = (
            serving,
            pods.count(PodState.WARM),
            pods.count(PodState.STARTING),
            pods.count(*DRAINING) + pods.count(PodState.PROMOTING),
            pods.wanted_serving,
            np.nan,
            pods.count(PodState.PENDING),
        )
        self._values[rows, SIGNAL_INDEX["reporting_replicas"]] = self._scrapes.num_reporting(
            rows, serving, _num_silent(state)
        )
        self._num_rows = written

    def num_reporting(self, state: EngineState, num_serving: int) -> int:
        """Return how many of the serving replicas the newest row is of; before the first row, all."""
        if not self._num_rows:
            return num_serving
        newest = slice(self._num_rows - 1, self._num_rows)
        return int(self._scrapes.num_reporting(newest, num_serving, _num_silent(state))[0])

    def seen_by(self, now: float, *, window_seconds: float) -> TelemetryWindow:
        """Return the rows that have been seen by `now`, the newest `window_seconds` of them."""
        last = int(np.searchsorted(self._scrapes.seen_at[: self._num_rows], now, side="right"))
        return self._window(max(last - int(window_seconds), 0), last)

    def everything(self) -> TelemetryWindow:
        """Return all rows there are, seen or not."""
        return self._window(0, self._num_rows)

    def _window(self, first: int, last: int) -> TelemetryWindow:
        return TelemetryWindow(
            deployment="simulated",
            row_at=self._row_at[first:last],
            values=self._values[first:last],
            seen_at=self._scrapes.seen_at[first:last],
        )


def _num_silent(state: EngineState) -> int:
    return int(np.count_nonzero(state.replica["is_silent"] * state.replica["routable"]))
