"""The requests that a simulated or recorded fleet is asked to serve: one columnar table."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecaster.plan import NUM_PRIORITIES

NORMAL_PRIORITY = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTable:
    """Requests in order of arrival.

    Attributes
    ----------
    arrival_seconds : ndarray of float64, shape (n,)
        Non-decreasing, >= 0, from the start of the run.
    prompt_tokens, output_tokens : ndarray of int64, shape (n,)
        >= 1.
    priority : ndarray of int8, shape (n,)
        0 batch, 1 normal, 2 core.
    """

    arrival_seconds: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    priority: NDArray[np.int8]

    def __post_init__(self) -> None:
        n = self.arrival_seconds.size
        columns = (self.prompt_tokens, self.output_tokens, self.priority)
        if any(column.shape != (n,) for column in columns):
            raise ValueError(f"request columns differ in length: {n}, {[c.size for c in columns]}")
        if n == 0:
            return
        if not np.isfinite(self.arrival_seconds).all() or self.arrival_seconds[0] < 0:
            raise ValueError("arrival_seconds must be finite and >= 0")
        if (np.diff(self.arrival_seconds) < 0).any():
            raise ValueError("arrival_seconds must not decrease; sort the requests by arrival")
        if min(self.prompt_tokens.min(), self.output_tokens.min()) < 1:
            raise ValueError("prompt_tokens and output_tokens must be >= 1")
        if self.priority.min() < 0 or self.priority.max() >= NUM_PRIORITIES:
            raise ValueError(
                f"priority must be 0 to {NUM_PRIORITIES - 1}, got {self.priority.min()} to {self.priority.max()}"
            )

    @classmethod
    def from_columns(
        cls,
        arrival_seconds: NDArray[np.float64],
        prompt_tokens: NDArray[np.int64],
        output_tokens: NDArray[np.int64],
        *,
        priority: NDArray[np.int8] | None = None,
    ) -> "RequestTable":
        """Return a table sorted by arrival, every request of normal priority unless told."""
        arrival = np.asarray(arrival_seconds, dtype=np.float64)
        order = np.argsort(arrival, kind="stable")
        given = np.full(arrival.size, NORMAL_PRIORITY) if priority is None else np.asarray(priority)
        return cls(
            arrival_seconds=arrival[order],
            prompt_tokens=np.asarray(prompt_tokens, dtype=np.int64)[order],
            output_tokens=np.asarray(output_tokens, dtype=np.int64)[order],
            priority=given.astype(np.int8)[order],
        )

    @property
    def num_requests(self) -> int:
        """Number of requests."""
        return int(self.arrival_seconds.size)

    @property
    def span_seconds(self) -> float:
        """Time from the first to the last arrival."""
        return float(self.arrival_seconds[-1] - self.arrival_seconds[0]) if self.num_requests else 0.0
