"""The requests that a simulated or recorded fleet is asked to serve: one columnar table."""

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forecaster.plan import NUM_PRIORITIES

NORMAL_PRIORITY = 1
NO_REQUEST = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefixes:
    """The hash groups of each prompt, as a cache of prefixes sees them.

    Two prompts that begin with the same ids begin with the same tokens. An id names a group of `group_tokens` tokens
    together with all that comes before it.

    Attributes
    ----------
    starts : ndarray of int64, shape (n + 1,)
        Request i's ids are `ids[starts[i] : starts[i + 1]]`.
    ids : ndarray of int64
        Numbered from 0; at most one per started group of the prompt.
    group_tokens : int
        Mooncake: 512.
    """

    starts: NDArray[np.int64]
    ids: NDArray[np.int64]
    group_tokens: int

    def __post_init__(self) -> None:
        if self.group_tokens < 1:
            raise ValueError(f"group_tokens must be >= 1, got {self.group_tokens}")
        if self.starts.size == 0 or self.starts[0] != 0 or self.starts[-1] != self.ids.size:
            raise ValueError(f"prefix starts must run from 0 to the number of ids, {self.ids.size}")
        if (np.diff(self.starts) < 0).any():
            raise ValueError("prefix starts must not decrease")
        if self.ids.size and self.ids.min() < 0:
            raise ValueError(f"prefix ids must be >= 0, got {self.ids.min()}")

    @classmethod
    def none(cls, num_requests: int) -> "Prefixes":
        """Return prompts that share nothing."""
        return cls(starts=np.zeros(num_requests + 1, dtype=np.int64), ids=np.zeros(0, dtype=np.int64), group_tokens=512)

    @classmethod
    def from_lists(cls, ids_by_request: list[list[int]], *, group_tokens: int) -> "Prefixes":
        """Return the prefixes of requests whose ids are given as lists."""
        starts = np.concatenate([[0], np.cumsum([len(ids) for ids in ids_by_request])]).astype(np.int64)
        flat = np.array([i for ids in ids_by_request for i in ids], dtype=np.int64)
        return cls(starts=starts, ids=flat, group_tokens=group_tokens)

    def take(self, rows: NDArray[np.int64]) -> "Prefixes":
        """Return the prefixes of the requests at `rows`, in that order."""
        counts = np.diff(self.starts)[rows]
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
        return Prefixes(
            starts=starts, ids=self.ids[np.repeat(self.starts[rows], counts) + within], group_tokens=self.group_tokens
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTable:
    """Requests in order of arrival.

    Attributes
    ----------
    arrival_seconds : ndarray of float64, shape (n,)
        Non-decreasing, >= 0, from the start of the run. Of a request that follows another: when it arrives if that one
        ends at once, so that the order of the table holds; the run decides.
    prompt_tokens, output_tokens : ndarray of int64, shape (n,)
        >= 1.
    priority : ndarray of int8, shape (n,)
        0 batch, 1 normal, 2 core.
    follows : ndarray of int64, shape (n,)
        The earlier request of the same session or agent whose end this one waits for, -1 for none. It arrives
        `think_seconds` after that end, however it ended.
    think_seconds : ndarray of float64, shape (n,)
        >= 0.
    prefixes : Prefixes
        What prompts have in common.
    """

    arrival_seconds: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    priority: NDArray[np.int8]
    follows: NDArray[np.int64] = field(default=None)  # type: ignore[assignment]  # none follows: see __post_init__
    think_seconds: NDArray[np.float64] = field(default=None)  # type: ignore[assignment]  # 0
    prefixes: Prefixes = field(default=None)  # type: ignore[assignment]  # nothing in common

    def __post_init__(self) -> None:
        n = self.arrival_seconds.size
        if self.follows is None:
            object.__setattr__(self, "follows", np.full(n, NO_REQUEST, dtype=np.int64))
        if self.think_seconds is None:
            object.__setattr__(self, "think_seconds", np.zeros(n))
        if self.prefixes is None:
            object.__setattr__(self, "prefixes", Prefixes.none(n))
        columns = (self.prompt_tokens, self.output_tokens, self.priority, self.follows, self.think_seconds)
        if any(column.shape != (n,) for column in columns) or self.prefixes.starts.size != n + 1:
            sizes = [c.size for c in columns]
            raise ValueError(
                f"request columns differ in length: {n}, {sizes}, prefixes of {self.prefixes.starts.size - 1}"
            )
        if n:
            self._refuse_bad_values()

    def _refuse_bad_values(self) -> None:
        if not np.isfinite(self.arrival_seconds).all() or self.arrival_seconds[0] < 0:
            raise ValueError("arrival_seconds must be finite and >= 0")
        if (np.diff(self.arrival_seconds) < 0).any():
            raise ValueError("arrival_seconds must not decrease; sort the requests by arrival")
        if min(self.prompt_tokens.min(), self.output_tokens.min()) < 1:
            lengths = np.minimum(self.prompt_tokens, self.output_tokens)
            at = int(np.argmin(lengths))
            raise ValueError(
                f"prompt_tokens and output_tokens must be >= 1, got {self.prompt_tokens[at]} and "
                f"{self.output_tokens[at]} of request {at}"
            )
        if self.priority.min() < 0 or self.priority.max() >= NUM_PRIORITIES:
            raise ValueError(
                f"priority must be 0 to {NUM_PRIORITIES - 1}, got {self.priority.min()} to {self.priority.max()}"
            )
        if (self.follows >= np.arange(self.num_requests)).any() or self.follows.min() < NO_REQUEST:
            raise ValueError("follows must name an earlier request, or -1")
        if not np.isfinite(self.think_seconds).all() or self.think_seconds.min() < 0:
            raise ValueError("think_seconds must be finite and >= 0")

    @classmethod
    def from_columns(
        cls,
        arrival_seconds: NDArray[np.float64],
        prompt_tokens: NDArray[np.int64],
        output_tokens: NDArray[np.int64],
        *,
        priority: NDArray[np.int8] | None = None,
        follows: NDArray[np.int64] | None = None,
        think_seconds: NDArray[np.float64] | None = None,
        prefixes: Prefixes | None = None,
    ) -> "RequestTable":
        """Return a table sorted by arrival, every request of normal priority unless told."""
        arrival = np.asarray(arrival_seconds, dtype=np.float64)
        n = arrival.size
        given = np.full(n, NORMAL_PRIORITY) if priority is None else np.asarray(priority)
        unsorted = {
            "arrival_seconds": arrival,
            "prompt_tokens": np.asarray(prompt_tokens, dtype=np.int64),
            "output_tokens": np.asarray(output_tokens, dtype=np.int64),
            "priority": given.astype(np.int8),
            "follows": np.full(n, NO_REQUEST) if follows is None else np.asarray(follows, dtype=np.int64),
            "think_seconds": np.zeros(n) if think_seconds is None else np.asarray(think_seconds, dtype=np.float64),
        }
        return _taken(unsorted, prefixes or Prefixes.none(n), np.argsort(arrival, kind="stable"))

    def take(self, rows: NDArray[np.int64]) -> "RequestTable":
        """Return the requests at `rows`, which must increase; one whose predecessor is left out follows none."""
        columns = {c.name: getattr(self, c.name) for c in fields(self) if c.name != "prefixes"}
        return _taken(columns, self.prefixes, rows)

    @property
    def num_requests(self) -> int:
        """Number of requests."""
        return int(self.arrival_seconds.size)

    @property
    def span_seconds(self) -> float:
        """Time from the first to the last arrival."""
        return float(self.arrival_seconds[-1] - self.arrival_seconds[0]) if self.num_requests else 0.0


def _taken(columns: dict[str, NDArray[Any]], prefixes: Prefixes, rows: NDArray[np.int64]) -> RequestTable:
    """Return the rows of unsorted columns in the order given, `follows` renumbered."""
    new_number = np.full(columns["follows"].size + 1, NO_REQUEST, dtype=np.int64)  # the last is for "none"
    new_number[rows] = np.arange(rows.size)
    taken = {name: column[rows] for name, column in columns.items()}
    taken["follows"] = new_number[taken["follows"]]
    return RequestTable(**taken, prefixes=prefixes.take(rows))
