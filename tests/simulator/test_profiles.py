"""Shipped profiles against the public calibration points that they were fitted to, and against common sense."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simulator.profiles import DEFAULT_PROFILE, PROFILES, TPOT_TARGET_SECONDS, profile_named

CALIBRATION = Path(os.environ.get("FORESHOCK_SHARED", "../shared")) / "reference" / "calibration.csv"
needs_calibration = pytest.mark.skipif(not CALIBRATION.is_file(), reason="no calibration points: set FORESHOCK_SHARED")

each_profile = pytest.mark.parametrize("profile", [pytest.param(p, id=name) for name, p in PROFILES.items()])


@pytest.fixture(scope="module")
def fitting():
    """The script that makes the profiles; benchmarks are no package."""
    path = Path(__file__).parents[2] / "benchmarks" / "fit_profiles.py"
    spec = importlib.util.spec_from_file_location("fit_profiles", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def points_of(profile):
    """Return the calibration points of a profile called llama-3.1-<size>-<gpu>-tp<n>."""
    _, _, size, gpu, tp = profile.name.split("-")
    table = pd.read_csv(CALIBRATION)
    chosen = (
        table["model"].str.lower().str.endswith(f"-{size}")
        & table["gpu"].str.startswith(gpu)
        & (table["tp"] == int(tp.removeprefix("tp")))
    )
    return table[chosen]


@needs_calibration
@each_profile
def test_stated_limits_are_those_of_the_points(profile):
    points = points_of(profile)
    decode, prefill = (points[points["kind"] == kind] for kind in ("decode", "prefill"))
    assert profile.calibrated_batch_size == decode["batch_size"].max()
    assert profile.calibrated_context_tokens == decode["tokens_or_context"].max()
    assert profile.calibrated_step_tokens == prefill["tokens_or_context"].max()


@needs_calibration
@each_profile
def test_stated_error_is_that_of_the_shipped_step_time(profile, fitting):
    points = points_of(profile)
    assert len(points) == 96
    step, errors = profile.step_time, []
    for point in points.itertuples():
        tokens, context, pairs, sequences = fitting.batch_of(point)
        seconds = (
            step.token_seconds(tokens)[tokens]
            + step.seconds_per_decode_context_token * context
            + step.seconds_per_prefill_attention * pairs
            + step.seconds_per_sequence * sequences
        )
        errors.append(abs(seconds / (point.latency_ms / 1e3) - 1))
    # stated to a thousandth; the shipped figures have four digits
    assert profile.fit_error_ratio == pytest.approx((np.mean(errors), np.max(errors)), abs=0.001)


@needs_calibration
@each_profile
def test_fitting_again_gives_the_shipped_figures(profile, fitting):
    knots, *coefficients, _, _ = fitting.fit(points_of(profile))
    step = profile.step_time
    assert step.knot_seconds == pytest.approx(knots, rel=1e-3)
    shipped = (
        step.seconds_per_decode_context_token,
        step.seconds_per_prefill_attention,
        step.seconds_per_sequence,
    )
    assert shipped == pytest.approx(coefficients, rel=1e-3, abs=1e-12)


@each_profile
class TestFigures:
    def test_fit_is_within_three_percent_on_average(self, profile):
        mean, largest = profile.fit_error_ratio
        assert 0 < mean < 0.03
        assert mean < largest < 0.15

    def test_more_context_takes_longer(self, profile):
        decode = [profile.step_time.seconds(num_decodes=32, mean_context_tokens=n) for n in (100, 1000, 8000)]
        prefill = [profile.step_time.seconds(prefill_tokens=2048, prefix_tokens=n) for n in (0, 4096, 65536)]
        assert decode == sorted(set(decode))
        assert prefill == sorted(set(prefill))

    def test_capacity_keeps_the_tpot_target(self, profile):
        capacity = profile.capacity
        assert capacity.kv_blocks == profile.kv_blocks
        assert capacity.block_size_tokens == profile.block_size_tokens
        # no faster than a whole chunk can be prefilled, no slower than half of that
        best = profile.max_num_batched_tokens / profile.step_time.seconds(prefill_tokens=profile.max_num_batched_tokens)
        assert 0.5 * best < capacity.prefill_tokens_per_second < best
        assert capacity.decode_tokens_per_second > 1 / TPOT_TARGET_SECONDS

    def test_cache_holds_a_long_request(self, profile):
        assert profile.kv_blocks * profile.block_size_tokens > 131_072


class TestComparison:
    def test_newer_gpu_is_faster(self):
        for name, profile in PROFILES.items():
            if "a100" in name:
                newer = profile_named(name.replace("a100", "h100"))
                assert newer.capacity.prefill_tokens_per_second > profile.capacity.prefill_tokens_per_second
                assert newer.capacity.decode_tokens_per_second > profile.capacity.decode_tokens_per_second

    def test_more_gpus_are_faster_but_not_in_proportion(self):
        four, eight = (profile_named(f"llama-3.1-70b-h100-tp{n}").capacity for n in (4, 8))
        assert 1 < eight.prefill_tokens_per_second / four.prefill_tokens_per_second < 2


def test_profiles_are_found_by_their_own_name():
    assert all(profile_named(name).name == name for name in PROFILES)
    assert DEFAULT_PROFILE in PROFILES


def test_unknown_profile_lists_the_known():
    with pytest.raises(ValueError, match=r"no engine profile is called 'gpt-5'; known: llama-3.1-70b-a100-tp4, "):
        profile_named("gpt-5")
