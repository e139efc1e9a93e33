import json
from dataclasses import fields, replace

import pytest
from sweep_cases import card

from training.scorecard import Scorecard
from training.scorecard_json import scorecard_from_json, scorecard_json


def test_has_the_names_of_the_fields_and_null_for_what_is_not_known():
    found = json.loads(json.dumps(scorecard_json(card()), allow_nan=False))
    assert list(found) == [field.name for field in fields(Scorecard)]
    assert found["tpot_p95_seconds"] is None
    assert found["attainment_ratio_by_priority"] == [0.97, None, 1.0]


def test_comes_back_as_it_was():
    written = json.dumps(scorecard_json(card()))
    back = scorecard_from_json(json.loads(written))
    assert json.dumps(scorecard_json(back)) == written
    known = {"attainment_ratio_by_priority": (0.1, 0.2, 1 / 3), "tpot_p95_seconds": 1e-17}
    assert scorecard_from_json(scorecard_json(replace(card(), **known))) == replace(card(), **known)


@pytest.mark.parametrize("values", [{}, {"policy": "hpa"}, {**scorecard_json(card()), "more": 1}])
def test_refuses_other_fields(values):
    with pytest.raises(ValueError, match="a scorecard has the fields"):
        scorecard_from_json(values)
