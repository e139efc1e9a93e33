"""What a feature row holds: ordered names, units and dtypes, and the hash by which a model recognises it."""

import hashlib
import json
from dataclasses import dataclass, field

from forecaster.errors import ArtifactMismatchError


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureColumn:
    """One feature: its name, its unit ("1" for a ratio or a logarithm of one) and its dtype."""

    name: str
    unit: str
    dtype: str = "float64"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSchema:
    """The columns of a feature row, in order.

    Attributes
    ----------
    columns : tuple of FeatureColumn
        Names are unique.
    index : dict of name to position
        Derived.
    digest : str
        SHA-256 over names, units and dtypes in order, in hexadecimal. Derived.

    Raises
    ------
    ValueError
        If a name occurs twice.
    """

    columns: tuple[FeatureColumn, ...]
    index: dict[str, int] = field(init=False, compare=False)
    digest: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"feature names must be unique, got twice: {', '.join(twice)}")
        text = json.dumps([[column.name, column.unit, column.dtype] for column in self.columns])
        object.__setattr__(self, "index", {name: i for i, name in enumerate(names)})
        object.__setattr__(self, "digest", hashlib.sha256(text.encode()).hexdigest())

    @property
    def names(self) -> tuple[str, ...]:
        """Names in order."""
        return tuple(column.name for column in self.columns)

    @property
    def num_features(self) -> int:
        """Length of a feature row."""
        return len(self.columns)

    def require_digest(self, digest: str, *, where: str) -> None:
        """Do nothing if `digest` is this schema's.

        Raises
        ------
        ArtifactMismatchError
            If it is not: a model must not read columns that mean something else.
        """
        if digest != self.digest:
            raise ArtifactMismatchError(
                f"feature schema of {where} is {digest[:12]}, this version of the code computes {self.digest[:12]}; "
                f"train again with `foreshock train` or install the version that wrote it"
            )
