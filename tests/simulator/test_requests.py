"""Request tables: sorted, whole, and refused when they cannot be."""

import numpy as np
import pytest

from simulator.requests import NORMAL_PRIORITY, RequestTable


def table(arrival=(0.0, 1.0), prompt=(3, 4), output=(5, 6), priority=(1, 1)):
    return RequestTable(
        arrival_seconds=np.array(arrival, dtype=np.float64),
        prompt_tokens=np.array(prompt, dtype=np.int64),
        output_tokens=np.array(output, dtype=np.int64),
        priority=np.array(priority, dtype=np.int8),
    )


def test_columns_are_sorted_together_and_equal_arrivals_keep_their_order():
    requests = RequestTable.from_columns(
        np.array([2.0, 1.0, 2.0, 0.5]), np.array([1, 2, 3, 4]), np.array([5, 6, 7, 8]), priority=np.array([0, 1, 2, 0])
    )
    assert requests.arrival_seconds.tolist() == [0.5, 1.0, 2.0, 2.0]
    assert requests.prompt_tokens.tolist() == [4, 2, 1, 3]
    assert requests.output_tokens.tolist() == [8, 6, 5, 7]
    assert requests.priority.tolist() == [0, 1, 0, 2]


def test_priority_is_normal_unless_told():
    assert RequestTable.from_columns(np.zeros(2), np.ones(2), np.ones(2)).priority.tolist() == [NORMAL_PRIORITY] * 2


def test_size_and_span():
    assert (table().num_requests, table(arrival=(2.0, 5.5)).span_seconds) == (2, 3.5)
    nobody = table((), (), (), ())
    assert (nobody.num_requests, nobody.span_seconds) == (0, 0.0)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        pytest.param({"prompt": (3,)}, "request columns differ in length: 2", id="lengths"),
        pytest.param({"arrival": (1.0, 0.5)}, "arrival_seconds must not decrease", id="order"),
        pytest.param({"arrival": (-1.0, 0.5)}, "arrival_seconds must be finite and >= 0", id="before the start"),
        pytest.param({"arrival": (0.0, np.nan)}, "arrival_seconds must be finite and >= 0", id="unknown arrival"),
        pytest.param({"prompt": (3, 0)}, "prompt_tokens and output_tokens must be >= 1", id="no prompt"),
        pytest.param({"output": (0, 3)}, "prompt_tokens and output_tokens must be >= 1", id="no answer"),
        pytest.param({"priority": (0, 3)}, "priority must be 0 to 2, got 0 to 3", id="priority above core"),
        pytest.param({"priority": (-1, 1)}, "priority must be 0 to 2, got -1 to 1", id="priority below batch"),
    ],
)
def test_tables_that_cannot_be_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        table(**columns)
