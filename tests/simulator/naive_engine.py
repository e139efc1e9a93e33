"""One replica a step at a time, with lists and no shortcut: what vLLM's V1 scheduler does, first come first served.

Each step goes through the running sequences in order of admission. Every one is given the tokens that it still has to
compute, as many as the budget allows, and the blocks for them; when none is free the last running sequence is
preempted, loses all it had computed and goes to the head of the queue. Then, unless something was preempted, waiting
sequences are admitted. A request that arrives while a step is computed is looked at when the step ends; a request
that finds the replica idle starts a step at once, by itself.

Reference: vLLM, vllm/v1/core/sched/scheduler.py, `Scheduler.schedule` with the FCFS policy and prefix caching off.
"""

from dataclasses import dataclass, field
from math import inf, nan

EXPECTED_OUTPUT_TOKENS = 256


@dataclass(eq=False)
class Sequence:
    number: int
    arrival_at: float
    prompt_tokens: int
    output_tokens: int
    computed: int = 0
    generated: int = 0
    is_decoding: bool = False
    first_token_at: float = nan
    finished_at: float = nan
    num_preemptions: int = 0

    @property
    def to_compute(self):
        return self.prompt_tokens + self.generated - self.computed


@dataclass
class NaiveReplica:
    profile: object
    running: list = field(default_factory=list)
    waiting: list = field(default_factory=list)
    batch: list = field(default_factory=list)  # (sequence, tokens) of the step being computed
    blocks: dict = field(default_factory=dict)  # sequence number -> blocks held
    step_end_at: float = inf
    last_end_at: float = -inf
    num_steps: int = 0
    prefilled_tokens: int = 0
    decoded_tokens: int = 0
    closest_call_seconds: float = inf  # least distance of an arrival from the end of a step

    @property
    def free_blocks(self):
        return self.profile.kv_blocks - sum(self.blocks.values())

    @property
    def outstanding_tokens(self):
        prompts = sum(s.to_compute for s in self.running if not s.is_decoding) + sum(s.to_compute for s in self.waiting)
        return prompts + EXPECTED_OUTPUT_TOKENS * (len(self.running) + len(self.waiting))

    def advance(self, until):
        while self.step_end_at <= until:
            now = self.step_end_at
            self._finish_step(now)
            self._start_step(now)
        self.closest_call_seconds = min(
            self.closest_call_seconds, abs(until - self.last_end_at), abs(until - self.step_end_at)
        )

    def play_out(self):
        while self.step_end_at < inf:
            now = self.step_end_at
            self._finish_step(now)
            self._start_step(now)

    def enqueue(self, sequence, now):
        self.waiting.append(sequence)
        if self.step_end_at == inf:
            self._start_step(now)

    def _start_step(self, now):
        self.batch = []
        budget = self.profile.max_num_batched_tokens
        preempted = False
        i = 0
        while i < len(self.running) and budget > 0:
            sequence = self.running[i]
            tokens = min(sequence.to_compute, budget)
            while not self._allocate(sequence, tokens):
                preempted = True
                last = self.running.pop()
                self._preempt(last)
                if last is sequence:
                    break
            if i >= len(self.running):  # it preempted itself
                break
            self.batch.append((sequence, tokens))
            budget -= tokens
            i += 1
        while not preempted and self.waiting and budget > 0 and len(self.running) < self.profile.max_num_seqs:
            sequence = self.waiting[0]
            tokens = min(sequence.to_compute, budget)
            if not self._allocate(sequence, tokens):
                break
            self.running.append(self.waiting.pop(0))
            self.batch.append((sequence, tokens))
            budget -= tokens
        self.step_end_at = now + self._step_seconds() if self.batch else inf

    def _allocate(self, sequence, tokens):
        needed = -(-(sequence.computed + tokens) // self.profile.block_size_tokens)
        held = self.blocks.get(sequence.number, 0)
        if needed - held > self.free_blocks:
            return False
        self.blocks[sequence.number] = needed
        return True

    def _preempt(self, sequence):
        self.blocks.pop(sequence.number, None)
        sequence.computed = 0
        sequence.is_decoding = False
        sequence.num_preemptions += 1
        self.waiting.insert(0, sequence)

    def _step_seconds(self):
        step = self.profile.step_time
        tokens = sum(tokens for _, tokens in self.batch)
        context = sum(s.computed for s, _ in self.batch if s.is_decoding)
        pairs = sum(chunk * (s.computed + chunk / 2) for s, chunk in self.batch if not s.is_decoding)
        return (
            _between_knots(step.token_knots, step.knot_seconds, tokens)
            + step.seconds_per_decode_context_token * context
            + step.seconds_per_prefill_attention * pairs
            + step.seconds_per_sequence * len(self.batch)
        )

    def _finish_step(self, now):
        self.num_steps += 1
        self.last_end_at = now
        for sequence, tokens in self.batch:
            if sequence.is_decoding:
                self.decoded_tokens += tokens
            else:
                self.prefilled_tokens += tokens
            sequence.computed += tokens
            if sequence.to_compute > 0:
                continue
            sequence.is_decoding = True
            sequence.generated += 1
            if sequence.generated == 1:
                sequence.first_token_at = now
            if sequence.generated == sequence.output_tokens:
                sequence.finished_at = now
                self.running.remove(sequence)
                del self.blocks[sequence.number]


def _between_knots(knots, seconds, tokens):
    """Return g(tokens): constant below the first knot, linear between knots and beyond the last."""
    if tokens <= knots[0]:
        return seconds[0]
    i = 1
    while i < len(knots) - 1 and tokens > knots[i]:
        i += 1
    slope = (seconds[i] - seconds[i - 1]) / (knots[i] - knots[i - 1])
    return seconds[i - 1] + slope * (tokens - knots[i - 1])


def play(requests, profile, *, num_replicas=1, router="round_robin"):
    """Return (sequences, replicas, replica of each request) after everything has finished."""
    replicas = [NaiveReplica(profile) for _ in range(num_replicas)]
    sequences, served_by = [], []
    columns = (requests.arrival_seconds, requests.prompt_tokens, requests.output_tokens)
    for number, (arrival, prompt, output) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        for replica in replicas:
            replica.advance(arrival)
        outstanding = [replica.outstanding_tokens for replica in replicas]
        r = number % num_replicas if router == "round_robin" else outstanding.index(min(outstanding))
        sequence = Sequence(number, arrival, prompt, output)
        replicas[r].enqueue(sequence, arrival)
        sequences.append(sequence)
        served_by.append(r)
    for replica in replicas:
        replica.play_out()
    return sequences, replicas, served_by
