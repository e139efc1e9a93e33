"""Scorecards as JSON values and back: under their fields' own names, null for what is not known."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from math import isnan, nan
from typing import Any

from training.scorecard import Scorecard


def scorecard_json(card: Scorecard) -> dict[str, Any]:
    """Return a scorecard as JSON values; what is not known is null."""
    return {name: _to_json(value) for name, value in asdict(card).items()}


def scorecard_from_json(values: Mapping[str, Any]) -> Scorecard:
    """Return the scorecard that `scorecard_json` wrote.

    Raises
    ------
    ValueError
        If a field is missing or unknown.
    """
    names = [field.name for field in fields(Scorecard)]
    if sorted(values) != sorted(names):
        raise ValueError(f"a scorecard has the fields {', '.join(names)}; got {', '.join(values) or 'none'}")
    return Scorecard(**{name: _from_json(value) for name, value in values.items()})


def _to_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_to_json(part) for part in value]
    return None if isinstance(value, float) and isnan(value) else value


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_from_json(part) for part in value)
    return nan if value is None else value
