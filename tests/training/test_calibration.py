from dataclasses import replace

import numpy as np
import pytest

from simulator.profiles import EngineProfile
from simulator.requests import RequestTable
from simulator.step_time import StepTime
from training.calibration import calibrate
from training.engine_logs import EngineLog, read_engine_log
from training.log_replay import replayed

CLOSED = StepTime.closed_form(
    step_seconds=0.012,
    seconds_per_token=6e-5,
    seconds_per_context_token=1e-7,
    seconds_per_attention_pair=4e-9,
    seconds_per_sequence=5e-5,
)
POINTS = StepTime(
    token_knots=(1, 256, 1024, 2048),
    knot_seconds=(0.022, 0.03, 0.06, 0.09),
    seconds_per_decode_context_token=8e-8,
    seconds_per_prefill_attention=5e-9,
    decode_knots=(1, 32, 128),
    decode_knot_seconds=(0.011, 0.016, 0.022),
    decode_knot_context_seconds=(6e-8, 6e-8, 6e-8),
)
OVERHEAD_SECONDS = 0.01


def profile_of(step_time):
    return EngineProfile(
        name="true", gpus_per_replica=1, kv_blocks=20_000, max_num_seqs=128, step_time=step_time, fit_error_ratio=(0, 0)
    )


def log_of(step_time, *, num_requests=160):
    """Return the log that a replica of a known step time would write."""
    rng = np.random.default_rng(5)
    requests = RequestTable.from_columns(
        np.cumsum(rng.exponential(0.2, num_requests)) - 0.01,
        rng.integers(100, 2500, num_requests),
        rng.integers(50, 400, num_requests),
    )
    blank = np.full(num_requests, 500.0)
    log = EngineLog(name="simulated", requests=requests, first_token_at=blank, finished_at=blank)
    replay = replayed(log, profile_of(step_time), overhead_seconds=OVERHEAD_SECONDS)
    arrival = requests.arrival_seconds
    return replace(log, first_token_at=arrival + replay.ttft_seconds, finished_at=arrival + replay.e2e_seconds)


def fitted(log, form):
    return calibrate(log, name="fitted", form=form, kv_blocks=20_000, max_num_seqs=128)


@pytest.mark.parametrize(
    ("form", "truth"), [pytest.param("closed", CLOSED, id="closed"), pytest.param("points", POINTS, id="points")]
)
def test_recovers_the_step_time_that_wrote_the_log(form, truth):
    found = fitted(log_of(truth), form)
    assert max(abs(error.error_ratio) for error in found.score) < 0.05
    steps = (
        {"num_decodes": 8, "mean_context_tokens": 1500},
        {"num_decodes": 24, "mean_context_tokens": 1500},
        {"prefill_tokens": 1500, "num_decodes": 16, "mean_context_tokens": 1500},
    )
    ours, theirs = ([step.seconds(**batch) for batch in steps] for step in (found.profile.step_time, truth))
    assert ours == pytest.approx(theirs, rel=0.05)


def test_a_fit_is_the_same_each_time_and_tells_its_progress():
    log, seen = log_of(CLOSED, num_requests=40), []
    first = calibrate(log, name="a", form="closed", kv_blocks=20_000, max_replays=60, on_replay=seen.append)
    second = calibrate(log, name="a", form="closed", kv_blocks=20_000, max_replays=60)
    assert first == second
    assert seen == list(range(1, first.num_replays + 1))


def test_states_what_it_was_calibrated_on():
    log = log_of(CLOSED, num_requests=40)
    profile = calibrate(log, name="a", form="closed", kv_blocks=20_000, max_replays=60).profile
    longest = (log.requests.prompt_tokens + log.requests.output_tokens).max()
    assert profile.calibrated_context_tokens == longest
    assert 1 <= profile.calibrated_batch_size <= 40
    assert profile.calibrated_step_tokens == profile.max_num_batched_tokens


def test_the_second_half_does_not_touch_the_fit():
    log = log_of(CLOSED, num_requests=60)
    late = np.arange(60) >= 30
    slower = replace(log, finished_at=log.finished_at + np.where(late, 5.0, 0.0))
    fits = [
        calibrate(each, name="a", form="closed", kv_blocks=20_000, max_replays=100).profile for each in (log, slower)
    ]
    assert fits[0] == fits[1]


def test_unknown_form_and_requests_beyond_the_cache_are_refused():
    log = log_of(CLOSED, num_requests=40)
    with pytest.raises(ValueError, match="no form is called 'cubic'; known: points, closed"):
        fitted(log, "cubic")
    with pytest.raises(ValueError, match="tokens of KV cache but a replica of small holds 160"):
        calibrate(log, name="small", form="closed", kv_blocks=10)


def test_replays_a_vllm_log_within_nine_percent(shared):
    log = read_engine_log(shared / "calibration" / "llmservingsim_vllm_RTXPRO6000_Llama-3.1-8B_requests.jsonl.gz")
    found = calibrate(log, name="rtx", form="points", kv_blocks=40_000, max_num_seqs=128, max_num_batched_tokens=8192)
    assert max(abs(error.error_ratio) for error in found.score) < 0.09


def test_may_be_fitted_to_all_requests_to_see_whether_the_form_can_come_close():
    log = log_of(CLOSED, num_requests=60)
    slower = replace(log, finished_at=log.finished_at + np.where(np.arange(60) >= 30, 1.0, 0.0))
    options = {"name": "a", "form": "closed", "kv_blocks": 20_000, "max_replays": 600}
    half, whole = (calibrate(slower, rows=rows, **options) for rows in (None, np.arange(60)))
    e2e = [[abs(error.error_ratio) for error in found.score if error.measure == "e2e"] for found in (half, whole)]
    assert max(e2e[1]) < min(max(e2e[0]), 0.1)
