from math import isnan, nan

import numpy as np
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from sweep_cases import a_failure, a_run, card

from training.sweep_summary import SUMMARISED, summaries, write_runs

ratios = st.floats(0, 1) | st.just(nan)


@given(st.lists(ratios, min_size=1, max_size=9))
def test_median_and_range_are_those_of_what_is_known(values):
    (summary,) = summaries([a_run(str(i), seed=i, attainment_ratio=value) for i, value in enumerate(values)])
    spread = summary.spread(lambda one: one.attainment_ratio)
    known = [value for value in values if not isnan(value)]
    if not known:
        assert isnan(spread.median)
        return
    assert (spread.low, spread.high) == (min(known), max(known))
    assert np.isclose(spread.median, np.median(known))


def test_a_summary_for_every_scenario_and_policy_in_their_order():
    runs = [
        a_run("a", scenario="steady", policy="hpa"),
        a_run("b", scenario="surge", policy="static:2"),
        a_failure("c", scenario="steady", policy="hpa", seed=1),
        a_run("d", scenario="surge", policy="hpa"),
    ]
    found = summaries(runs)
    assert [(one.scenario, one.policy) for one in found] == [("steady", "hpa"), ("surge", "static:2"), ("surge", "hpa")]
    assert (len(found[0].cards), found[0].num_failed) == (1, 1)


def test_json_has_every_single_figure_and_null_for_what_is_not_known():
    (summary,) = summaries([a_run("a", gpu_hours=1.0), a_run("b", seed=1, gpu_hours=2.0)])
    found = summary.to_json()
    assert list(found["figures"]) == list(SUMMARISED)
    assert found["figures"]["gpu_hours"] == {"median": 1.5, "low": 1.0, "high": 2.0}
    assert found["figures"]["tpot_p95_seconds"] == {"median": None, "low": None, "high": None}
    assert {"attainment_ratio", "num_requests", "scaling_actions"} <= set(SUMMARISED)


def test_the_file_has_a_row_a_run_with_every_field_of_the_scorecard(tmp_path):
    path = write_runs(tmp_path / "runs.parquet", [a_run("a", gpu_hours=1.25), a_failure("b", seed=1)])
    rows = pq.read_table(path).to_pylist()
    assert [(row["key"], row["seed"], row["error"]) for row in rows] == [("a", 0, ""), ("b", 1, "ValueError: no")]
    assert rows[0]["gpu_hours"] == 1.25
    assert rows[0]["attainment_ratio_by_priority"] == [0.97, None, 1.0]
    assert rows[1]["gpu_hours"] is None
    assert set(card().__dataclass_fields__) <= set(rows[0])
