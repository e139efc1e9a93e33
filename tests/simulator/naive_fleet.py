"""Naive replicas behind a gateway, with clients that give up, come back, and follow one another; a list of events."""

from dataclasses import dataclass, field
from math import inf, isnan

from naive_engine import NaiveReplica, Sequence

from simulator.clients import Clients
from simulator.engine_options import EngineOptions

NO_SECONDS = 1e-9
"""Two things this close together may fall on either side of each other by rounding alone."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What becomes of a replica at a time, all before it played."""

    at: float
    replica: int
    is_routable: bool
    dies: bool = False


@dataclass
class NaiveFleet:
    requests: object
    profile: object
    num_replicas: int = 1
    router: str = "round_robin"
    options: EngineOptions = field(default_factory=EngineOptions)
    clients: Clients = field(default_factory=Clients)
    changes: tuple = ()
    events: list = field(default_factory=list)  # (at, order, kind, sequence, number of the attempt)
    pending: list = field(default_factory=list)
    num_events: int = 0
    num_aborts: int = 0
    next_in_turn: int = 0
    has_a_tie: bool = False

    def __post_init__(self):
        prefixes = self.requests.prefixes
        self.replicas = [
            NaiveReplica(self.profile, self.options, prefixes.group_tokens, on_end=self._attempt_is_over)
            for _ in range(self.num_replicas)
        ]
        r = self.requests
        columns = zip(r.arrival_seconds.tolist(), r.prompt_tokens.tolist(), r.output_tokens.tolist(), strict=True)
        self.sequences = []
        for i, (arrival, prompt, output) in enumerate(columns):
            groups = prefixes.ids[prefixes.starts[i] : prefixes.starts[i + 1]][: prompt // prefixes.group_tokens]
            longest = self.options.max_model_len or inf
            self.sequences.append(
                Sequence(
                    number=i,
                    arrival_at=arrival,
                    prompt_tokens=prompt,
                    output_tokens=int(min(output, max(longest - prompt, 1))),
                    priority=int(r.priority[i]),
                    groups=tuple(groups.tolist()),
                )
            )
        self.arrivals = [s for s in self.sequences if r.follows[s.number] < 0]

    def play(self, until=inf):
        """Play to `until`, or to where nothing is left to come."""
        changes = list(self.changes)
        while True:
            step_end = min(r.step_end_at for r in self.replicas)
            arrival = self.arrivals[0].arrival_at if self.arrivals else inf
            self.events.sort()
            event = self.events[0][0] if self.events else inf
            change = changes[0].at if changes else inf
            now = min(step_end, arrival, event, change)
            if now > until or now == inf:
                return self
            if step_end == now:
                for replica in self.replicas:
                    if replica.step_end_at == now:
                        replica.finish_step_and_go_on()
                continue
            self._look_for_ties(now)
            if arrival == now:
                self._arrive(self.arrivals.pop(0), now)
            elif event == now:
                self._happen(*self.events.pop(0)[2:], now)
            else:
                self._change(changes.pop(0))

    def _look_for_ties(self, now):
        for replica in self.replicas:
            distances = (abs(now - replica.last_end_at), abs(now - replica.step_end_at))
            self.has_a_tie |= any(0 < d <= NO_SECONDS for d in distances)

    def _change(self, change):
        replica = self.replicas[change.replica]
        replica.is_routable = change.is_routable
        if change.dies:
            replica.die(change.at)
        while self.pending:  # they come together: a replica that is idle starts when all are routed
            r = self._route(self.pending[0])
            if r is None:
                break
            self._enqueue(r, self.pending.pop(0))
        for replica in self.replicas:
            replica.wake(change.at)

    def _announce(self, at, kind, sequence):
        self.events.append((at, self.num_events, kind, sequence, sequence.num_attempts))
        self.num_events += 1

    def _arrive(self, sequence, now):
        if sequence.outcome != "unfinished":
            return
        if sequence.num_attempts == 0:
            sequence.arrival_at = now
            if self.clients.deadline_seconds < inf:
                self._announce(now + self.clients.deadline_seconds, "give up", sequence)
        sequence.num_attempts += 1
        sequence.attempt_at = now
        if self.clients.timeout_seconds < inf:
            self._announce(now + self.clients.timeout_seconds, "time out", sequence)
        if self.options.max_model_len is not None and sequence.prompt_tokens >= self.options.max_model_len:
            self._settle(sequence, "refused", now)
            return
        r = self._route(sequence)
        if r is None:
            self.pending.append(sequence)
        else:
            self._enqueue(r, sequence)
            self.replicas[r].wake(now)

    def _enqueue(self, r, sequence):
        sequence.served_by = r
        self.replicas[r].enqueue(sequence)

    def _happen(self, kind, sequence, attempt, now):
        if kind == "arrive":
            self._arrive(sequence, now)
        elif sequence.outcome != "unfinished":
            return
        elif kind == "give up":
            if self._is_held(sequence):
                self._hang_up(sequence, now)
            else:
                self._settle(sequence, "timed_out", now)
        elif sequence.num_attempts == attempt and isnan(sequence.first_token_at) and self._is_held(sequence):
            self._hang_up(sequence, now)

    def _is_held(self, sequence):
        return sequence in self.pending or any(sequence in r.running + r.waiting for r in self.replicas)

    def _hang_up(self, sequence, now):
        if sequence in self.pending:
            self.pending.remove(sequence)
            self._attempt_is_over(sequence, "timed_out", now)
        elif not sequence.is_aborted:
            self.num_aborts += 1
            sequence.aborted_order = self.num_aborts
            self.replicas[sequence.served_by].cancel(sequence, now)

    def _attempt_is_over(self, sequence, outcome, now):
        if outcome == "finished":
            self._settle(sequence, outcome, now)
            return
        sequence.is_aborted = False
        sequence.computed = sequence.generated = 0
        sequence.first_token_at = float("nan")
        if sequence.num_attempts < self.clients.max_attempts:
            wait = self.clients.backoff_seconds * 2.0 ** (sequence.num_attempts - 1)
            draw = fraction_of(sequence.number, sequence.num_attempts)
            at = now + wait * (1 + self.clients.jitter_ratio * (2 * draw - 1))
            if at < sequence.arrival_at + self.clients.deadline_seconds:
                self._announce(at, "arrive", sequence)
                return
        self._settle(sequence, outcome, now)

    def _settle(self, sequence, outcome, now):
        sequence.outcome = outcome
        followers = [i for i, leader in enumerate(self.requests.follows) if leader == sequence.number]
        for i in followers:
            self._announce(now + float(self.requests.think_seconds[i]), "arrive", self.sequences[i])

    def _route(self, sequence):
        routable = [r for r, replica in enumerate(self.replicas) if replica.is_routable]
        if not routable:
            return None
        if self.router == "round_robin":
            turns = [(self.next_in_turn + i) % self.num_replicas for i in range(self.num_replicas)]
            r = next(r for r in turns if r in routable)
            self.next_in_turn = r + 1
            return r
        if self.router == "power_of_two":
            draws = [fraction_of(sequence.number, 2 * sequence.num_attempts + k) for k in (101, 102)]
            first, second = (routable[int(draw * len(routable))] for draw in draws)
            return second if self._outstanding(second) < self._outstanding(first) else first
        return min(routable, key=lambda r: (self._cost(r, sequence), r))

    def _outstanding(self, r):
        return self.replicas[r].outstanding_tokens

    def _cost(self, r, sequence):
        replica = self.replicas[r]
        if self.router == "least_kv":
            return replica.used_blocks + replica.unprefilled_tokens // self.profile.block_size_tokens
        if self.router == "prefix_aware":
            return replica.outstanding_tokens - replica.hits(sequence) * replica.group_tokens
        return replica.outstanding_tokens


def fraction_of(request, attempt):
    """Return splitmix64 of an attempt as a number in [0, 1)."""
    mask = (1 << 64) - 1
    z = (request + attempt * 0xD1B54A32D192ED03) & mask
    z = (z * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return ((z ^ (z >> 31)) >> 11) / 2.0**53
