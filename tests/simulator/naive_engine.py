"""One replica a step at a time, with lists and no shortcut: what vLLM's V1 scheduler does.

Each step goes through the running sequences in order of admission. Every one is given the tokens that it still has to
compute, as many as the budget allows, and the blocks for them; when none is free a running sequence gives way: it
loses all it had computed and goes to the head of its queue. Then, unless something was preempted, waiting sequences
are admitted. A request that arrives while a step is computed is looked at when the step ends; a request that finds the
replica idle starts a step at once, by itself.

The prefix cache holds whole groups of blocks. What nobody uses stays in blocks that count as free and goes, the least
recently used first, as soon as those are needed.

Reference: vLLM, vllm/v1/core/sched/scheduler.py, `Scheduler.schedule`; vllm/v1/core/kv_cache_manager.py.
"""

from dataclasses import dataclass, field
from math import inf, nan

from simulator.engine_options import EngineOptions

EXPECTED_OUTPUT_TOKENS = 256


@dataclass(eq=False)
class Sequence:
    number: int
    arrival_at: float
    prompt_tokens: int
    output_tokens: int
    priority: int = 1
    groups: tuple = ()  # ids of the whole groups of its prompt
    attempt_at: float = nan
    num_attempts: int = 0
    computed: int = 0
    generated: int = 0
    own_blocks: int = 0  # apart from the cache's groups that it uses
    held_groups: list = field(default_factory=list)
    num_groups_seen: int = 0
    is_decoding: bool = False
    is_aborted: bool = False
    first_token_at: float = nan
    finished_at: float = nan
    num_preemptions: int = 0
    served_by: int = -1
    outcome: str = "unfinished"

    @property
    def to_compute(self):
        return self.prompt_tokens + self.generated - self.computed


@dataclass
class NaiveReplica:
    profile: object
    options: EngineOptions = field(default_factory=EngineOptions)
    group_tokens: int = 512
    on_end: object = None  # called with (sequence, outcome, now) when an attempt is over
    running: list = field(default_factory=list)
    waiting: list = field(default_factory=list)
    batch: list = field(default_factory=list)  # (sequence, tokens) of the step being computed
    users: dict = field(default_factory=dict)  # cached group -> sequences that use it
    idle: list = field(default_factory=list)  # cached groups that none uses, the least recently used first
    step_end_at: float = inf
    last_end_at: float = -inf
    is_routable: bool = True
    prefilled_tokens: int = 0
    decoded_tokens: int = 0
    hit_tokens: int = 0

    @property
    def group_blocks(self):
        return self.group_tokens // self.profile.block_size_tokens

    @property
    def used_blocks(self):
        used_groups = sum(1 for n in self.users.values() if n > 0)
        return sum(s.own_blocks for s in self.running) + used_groups * self.group_blocks

    @property
    def free_blocks(self):
        return self.profile.kv_blocks - self.used_blocks

    @property
    def unprefilled_tokens(self):
        return sum(s.to_compute for s in self.running if not s.is_decoding) + sum(s.to_compute for s in self.waiting)

    @property
    def outstanding_tokens(self):
        return self.unprefilled_tokens + EXPECTED_OUTPUT_TOKENS * (len(self.running) + len(self.waiting))

    def finish_step_and_go_on(self):
        now = self.step_end_at
        self._finish_step(now)
        self._start_step(now)

    def enqueue(self, sequence, now):
        self._wait(sequence, at_head=False)
        if self.step_end_at == inf:
            self._start_step(now)

    def cancel(self, sequence, now):
        if sequence in self.waiting:
            self.waiting.remove(sequence)
            self.on_end(sequence, "timed_out", now)
        else:
            sequence.is_aborted = True

    def die(self, now):
        for sequence in self.running + self.waiting:
            self._forget(sequence)
            self.on_end(sequence, "failed", now)
        self.running, self.waiting, self.batch, self.users, self.idle = [], [], [], {}, []
        self.step_end_at = inf

    def hits(self, sequence):
        """Return how many leading groups of a prompt are cached, but never the whole of what is to compute."""
        most = (sequence.prompt_tokens + sequence.generated - 1) // self.group_tokens
        num = 0
        while num < min(most, len(sequence.groups)) and sequence.groups[num] in self.users:
            num += 1
        return num if self.options.enable_prefix_caching else 0

    def _class_of(self, sequence):
        return sequence.priority if self.options.scheduling_policy == "priority" else 0

    def _wait(self, sequence, *, at_head):
        """Keep the queue in order of class, the most important first."""
        level = self._class_of(sequence)
        before = sum(
            1 for s in self.waiting if self._class_of(s) > level or (self._class_of(s) == level and not at_head)
        )
        self.waiting.insert(before, sequence)

    def _start_step(self, now):
        self.batch = []
        budget = self.profile.max_num_batched_tokens
        preempted = False
        for sequence in list(self.running):
            if sequence not in self.running or budget == 0:
                continue
            tokens = min(sequence.to_compute, budget)
            while sequence in self.running and not self._allocate(sequence, sequence.computed + tokens):
                preempted = True
                victim = self._gives_way()
                budget += sum(n for s, n in self.batch if s is victim)
                self.batch = [(s, n) for s, n in self.batch if s is not victim]
                self._preempt(victim)
            if sequence in self.running:
                self.batch.append((sequence, tokens))
                budget -= tokens
        while not preempted and self.waiting and budget > 0 and len(self.running) < self.profile.max_num_seqs:
            tokens = self._admit(self.waiting[0], budget)
            if tokens == 0:
                break
            budget -= tokens
        self.step_end_at = now + self._step_seconds() if self.batch else inf
        if preempted and not self.batch:
            self._start_step(now)

    def _allocate(self, sequence, tokens):
        needed = -(-tokens // self.profile.block_size_tokens) - len(sequence.held_groups) * self.group_blocks
        if needed - sequence.own_blocks > self.free_blocks:
            return False
        sequence.own_blocks = needed
        self._evict()
        return True

    def _admit(self, sequence, budget):
        """Return the tokens that a waiting sequence is given, 0 if it has to wait on."""
        num_hits = self.hits(sequence)
        found = num_hits * self.group_tokens
        tokens = min(sequence.to_compute - found, budget)
        needed = -(-(found + tokens) // self.profile.block_size_tokens) - num_hits * self.group_blocks
        idle = sum(1 for group in sequence.groups[:num_hits] if group in self.idle)
        kept = int(self.options.watermark_ratio * self.profile.kv_blocks) if self.running else 0
        if needed + idle * self.group_blocks > self.free_blocks - kept:
            return 0
        for group in sequence.groups[:num_hits]:
            self.users[group] += 1
            if group in self.idle:
                self.idle.remove(group)
        sequence.held_groups = list(sequence.groups[:num_hits])
        sequence.num_groups_seen = num_hits
        sequence.computed = found
        sequence.own_blocks = needed
        self.hit_tokens += found
        self.running.append(self.waiting.pop(0))
        self.batch.append((sequence, tokens))
        self._evict()
        return tokens

    def _evict(self):
        while len(self.idle) * self.group_blocks > self.free_blocks:
            del self.users[self.idle.pop(0)]

    def _gives_way(self):
        if self.options.scheduling_policy == "fcfs":
            return self.running[-1]
        worst = min(s.priority for s in self.running)
        last = max(s.attempt_at for s in self.running if s.priority == worst)
        return [s for s in self.running if (s.priority, s.attempt_at) == (worst, last)][-1]

    def _preempt(self, sequence):
        self.running.remove(sequence)
        self._forget(sequence)
        sequence.num_preemptions += 1
        self._wait(sequence, at_head=True)

    def _forget(self, sequence):
        """Drop all that a sequence has computed; its groups stay cached, the first of them the longest."""
        for group in reversed(sequence.held_groups):
            self.users[group] -= 1
            if self.users[group] == 0:
                self.idle.append(group)
        sequence.held_groups = []
        sequence.num_groups_seen = 0
        sequence.own_blocks = 0
        sequence.computed = 0
        sequence.is_decoding = False

    def _step_seconds(self):
        step = self.profile.step_time
        num_tokens = sum(n for _, n in self.batch)
        context = sum(s.computed for s, _ in self.batch if s.is_decoding)
        if all(s.is_decoding for s, _ in self.batch):
            base, slope = step.decode_seconds(num_tokens)[num_tokens]
            return base + slope * context
        pairs = sum(chunk * (s.computed + chunk / 2) for s, chunk in self.batch if not s.is_decoding)
        return (
            _between_knots(step.token_knots, step.knot_seconds, num_tokens)
            + step.seconds_per_decode_context_token * context
            + step.seconds_per_prefill_attention * pairs
            + step.seconds_per_sequence * len(self.batch)
        )

    def _finish_step(self, now):
        self.last_end_at = now
        decoding = [(s, n) for s, n in self.batch if s.is_decoding]
        chunks = [(s, n) for s, n in self.batch if not s.is_decoding]
        self.decoded_tokens += len(decoding)
        for sequence, _ in decoding:
            sequence.computed += 1
            sequence.generated += 1
        for sequence in [s for s, _ in reversed(self._in_order_of_abort(decoding + chunks))]:
            self._leave(sequence)
            self.on_end(sequence, "timed_out", now)
        for sequence, _ in sorted(decoding, key=lambda pair: pair[0].number):
            if sequence in self.running and sequence.generated == sequence.output_tokens:
                self._leave(sequence)
                self._finish(sequence, now)
        for sequence, tokens in chunks:
            if sequence in self.running:
                self._finish_chunk(sequence, tokens, now)

    def _in_order_of_abort(self, batch):
        return sorted((pair for pair in batch if pair[0].is_aborted), key=lambda pair: pair[0].aborted_order)

    def _finish_chunk(self, sequence, tokens, now):
        self.prefilled_tokens += tokens
        sequence.computed += tokens
        self._cache_computed(sequence)
        if sequence.to_compute > 0:
            return
        sequence.is_decoding = True
        sequence.generated += 1
        if sequence.generated == 1:
            sequence.first_token_at = now
        if sequence.generated == sequence.output_tokens:
            self._leave(sequence)
            self._finish(sequence, now)

    def _cache_computed(self, sequence):
        if not self.options.enable_prefix_caching:
            return
        done = min(sequence.computed // self.group_tokens, len(sequence.groups))
        for group in sequence.groups[sequence.num_groups_seen : done]:
            if group not in self.users:
                self.users[group] = 1
                sequence.held_groups.append(group)
                sequence.own_blocks -= self.group_blocks
        sequence.num_groups_seen = max(sequence.num_groups_seen, done)

    def _leave(self, sequence):
        self.running.remove(sequence)
        self._forget(sequence)

    def _finish(self, sequence, now):
        sequence.finished_at = now
        self.on_end(sequence, "finished", now)


def _between_knots(knots, seconds, tokens):
    """Return g(tokens): constant below the first knot, linear between knots and beyond the last."""
    if tokens <= knots[0]:
        return seconds[0]
    i = 1
    while i < len(knots) - 1 and tokens > knots[i]:
        i += 1
    slope = (seconds[i] - seconds[i - 1]) / (knots[i] - knots[i - 1])
    return seconds[i - 1] + slope * (tokens - knots[i - 1])
