"""What a run was worth, on results made by hand."""

from math import isnan, nan

import numpy as np
import pytest

from forecaster.config import Slo
from forecaster.telemetry import SIGNALS, TelemetryWindow
from simulator.engine_state import FINISHED, SHED, UNFINISHED
from simulator.pod_states import PodState
from simulator.profiles import profile_named
from simulator.requests import RequestTable
from simulator.result import SimulationResult
from training.scorecard import latencies, replica_hours, requests_within_slo, score

SLO = Slo(ttft_seconds=0.8, tpot_seconds=0.1)
PROFILE = profile_named("llama-3.1-70b-h100-tp4")


def result_of(*rows, arrival_at=None, replica_seconds=None, num_actions=0):
    """Return a result of requests that arrive at 0 unless told: (prompt, output, priority, outcome, TTFT, TPOT)."""
    columns = list(zip(*rows, strict=True)) or [()] * 6
    prompt, output, priority, outcome, ttft, tpot = (np.array(column, dtype=np.float64) for column in columns)
    seconds = dict.fromkeys(PodState, 0.0) | (replica_seconds or {})
    return SimulationResult(
        requests=RequestTable.from_columns(np.zeros(prompt.size), prompt, output, priority=priority.astype(np.int8)),
        profile=PROFILE,
        arrival_at=np.zeros(prompt.size) if arrival_at is None else np.array(arrival_at),
        first_token_at=ttft,
        finished_at=np.where(output > 1, ttft + tpot * (output - 1), ttft),
        outcome=outcome.astype(np.int8),
        served_by=np.zeros(prompt.size, dtype=np.int32),
        num_attempts=np.ones(prompt.size, dtype=np.int32),
        num_preemptions=np.arange(prompt.size, dtype=np.int32),
        telemetry=TelemetryWindow(
            deployment="simulated", row_at=np.zeros(0), values=np.zeros((0, len(SIGNALS))), seen_at=np.zeros(0)
        ),
        plans=(),
        replica_seconds=seconds,
        costed_seconds=3600.0,
        num_actions=num_actions,
    )


def met(prompt=1000, output=100, outcome=FINISHED, ttft=0.5, tpot=0.05):
    return bool(requests_within_slo(result_of((prompt, output, 1, outcome, ttft, tpot)), SLO)[0])


class TestWithinSlo:
    def test_both_targets_must_be_met(self):
        assert met()
        assert not met(ttft=0.81)
        assert not met(tpot=0.101)

    def test_target_itself_is_met(self):
        assert met(ttft=0.8)

    @pytest.mark.parametrize(
        ("prompt", "ttft", "is_met"),
        [
            pytest.param(1, 0.8, True, id="short prompt has the full target"),
            pytest.param(1, 0.81, False, id="short prompt has no more"),
            pytest.param(4096, 0.81, False, id="at the bound"),
            pytest.param(8192, 1.59, True, id="twice the bound"),
            pytest.param(8192, 1.61, False, id="more than twice the target"),
            pytest.param(40960, 7.9, True, id="ten times the bound"),
        ],
    )
    def test_long_prompt_has_more_time_in_proportion(self, prompt, ttft, is_met):
        assert met(prompt=prompt, ttft=ttft) == is_met

    def test_tpot_target_does_not_grow_with_the_prompt(self):
        assert not met(prompt=40960, tpot=0.11)

    def test_one_token_answer_has_no_tpot_to_miss(self):
        assert met(output=1, tpot=nan)
        assert not met(output=1, ttft=0.9, tpot=nan)

    @pytest.mark.parametrize("outcome", [SHED, UNFINISHED])
    def test_whatever_did_not_finish_is_a_miss(self, outcome):
        assert not met(outcome=outcome, ttft=nan, tpot=nan)

    def test_unfinished_with_a_timely_first_token_is_a_miss(self):
        assert not met(outcome=UNFINISHED, tpot=nan)
        assert not met(output=1, outcome=UNFINISHED, tpot=nan)


class TestLatencies:
    def test_ttft_counts_from_arrival_and_tpot_excludes_the_first_token(self):
        ttft, tpot = latencies(result_of((10, 11, 1, FINISHED, 0.5, 0.02)))
        assert ttft.tolist() == [0.5]
        assert tpot == pytest.approx([0.02])

    def test_are_unknown_where_there_are_none(self):
        ttft, tpot = latencies(result_of((10, 1, 1, FINISHED, 0.5, nan), (10, 9, 1, SHED, nan, nan)))
        assert ttft[0] == 0.5
        assert isnan(ttft[1])
        assert np.isnan(tpot).all()


class TestScore:
    rows = (
        (100, 10, 0, FINISHED, 0.2, 0.01),
        (100, 10, 0, SHED, nan, nan),
        (100, 10, 1, FINISHED, 2.0, 0.01),
        (100, 10, 1, UNFINISHED, nan, nan),
        (100, 10, 1, FINISHED, 0.4, 0.03),
    )

    def card(self, *rows, **given):
        return score(result_of(*rows, **given), policy="mine", slo=SLO, warm_cost_ratio=0.5)

    def test_attainment_is_of_all_that_arrived(self):
        card = self.card(*self.rows)
        assert card.attainment_ratio == 2 / 5
        assert card.attainment_ratio_by_priority[:2] == (1 / 2, 1 / 3)
        assert isnan(card.attainment_ratio_by_priority[2])

    def test_counts_what_happened(self):
        card = self.card(*self.rows, num_actions=9)
        assert (card.policy, card.num_requests, card.shed_requests, card.unfinished_requests) == ("mine", 5, 1, 1)
        assert (card.preemptions, card.scaling_actions) == (0 + 1 + 2 + 3 + 4, 9)

    def test_requests_that_arrive_after_the_costed_time_or_never_do_not_count(self):
        rows = [(100, 10, 1, FINISHED, 3600.4, 0.01), (100, 10, 1, FINISHED, 3600.5, 0.01), (9, 9, 1, 0, nan, nan)]
        card = self.card(*rows, arrival_at=(3600.0, 3600.1, nan))
        assert (card.num_requests, card.attainment_ratio, card.unfinished_requests) == (1, 1.0, 0)
        assert card.ttft_p99_seconds == pytest.approx(0.4)

    def test_quantiles_are_of_the_served(self):
        card = self.card(*self.rows)
        assert card.ttft_p50_seconds == pytest.approx(0.4)
        assert card.ttft_p95_seconds == pytest.approx(np.quantile([0.2, 0.4, 2.0], 0.95))
        assert card.tpot_p50_seconds == pytest.approx(0.01)

    def test_nothing_served_leaves_latencies_unknown(self):
        card = self.card((100, 10, 1, SHED, nan, nan))
        assert card.attainment_ratio == 0.0
        assert isnan(card.ttft_p50_seconds)
        assert isnan(card.tpot_p95_seconds)

    def test_run_without_requests_has_no_attainment(self):
        card = self.card()
        assert card.num_requests == 0
        assert isnan(card.attainment_ratio)


REPLICA_SECONDS = {
    PodState.GONE: 1e6,
    PodState.STARTING: 360.0,
    PodState.WARM: 7200.0,
    PodState.PROMOTING: 180.0,
    PodState.SERVING: 3600.0,
    PodState.DEMOTING: 720.0,
    PodState.REMOVING: 540.0,
}


class TestCost:
    @pytest.mark.parametrize(("ratio", "hours"), [(0.0, 1.5), (0.5, 2.5), (1.0, 3.5)])
    def test_warm_hours_count_for_their_share_and_all_others_in_full(self, ratio, hours):
        assert replica_hours(result_of(replica_seconds=REPLICA_SECONDS), ratio) == pytest.approx(hours)

    def test_gpu_hours_are_replica_hours_times_gpus(self):
        result = result_of(replica_seconds=REPLICA_SECONDS)
        card = score(result, policy="mine", slo=SLO, warm_cost_ratio=0.5)
        assert card.replica_hours == pytest.approx(2.5)
        assert card.gpu_hours == pytest.approx(2.5 * 4)
        assert card.warm_cost_ratio == 0.5
