"""The schema: unique names, a hash over everything that matters, and a refusal that says what to do."""

import pytest

from forecaster.errors import ArtifactMismatchError
from forecaster.features.schema import FeatureColumn, FeatureSchema


def schema(*columns):
    return FeatureSchema(columns=tuple(FeatureColumn(name=name, unit=unit) for name, unit in columns))


def test_index_follows_the_order():
    assert schema(("b", "1"), ("a", "s")).index == {"b": 0, "a": 1}


def test_digest_is_the_same_for_the_same_columns():
    assert schema(("a", "1"), ("b", "s")).digest == schema(("a", "1"), ("b", "s")).digest


@pytest.mark.parametrize(
    "other",
    [
        schema(("b", "s"), ("a", "1")),
        schema(("a", "1"), ("b", "ms")),
        schema(("a", "1"), ("c", "s")),
        schema(("a", "1")),
    ],
    ids=["order", "unit", "name", "length"],
)
def test_digest_changes_with(other):
    assert other.digest != schema(("a", "1"), ("b", "s")).digest


def test_refuses_a_name_twice():
    with pytest.raises(ValueError, match="twice: a"):
        schema(("a", "1"), ("a", "s"))


def test_refuses_another_digest_and_says_where_and_what_to_do():
    with pytest.raises(ArtifactMismatchError, match=r"model x is 0000.*foreshock train"):
        schema(("a", "1")).require_digest("0000", where="model x")
