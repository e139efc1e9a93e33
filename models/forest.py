"""Many LightGBM boosters evaluated together by one compiled loop, bit for bit as LightGBM itself would.

A `Booster.predict` of one row costs tens of microseconds of set-up each; a forecast needs one row through some fifty
boosters. The text form of the boosters is parsed here, so predicting needs no LightGBM.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from forecaster.telemetry import Floats

N = TypeVar("N", int, float)

_CATEGORICAL = 1  # bits of LightGBM's decision_type (include/LightGBM/tree.h)
_DEFAULT_LEFT = 2
_MISSING_SHIFT = 2
_MISSING_ZERO, _MISSING_NAN = 1, 2
_BLOCK_ROWS = 32  # rows that walk one tree together while its nodes are in the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """Trees of several boosters in flat arrays.

    Both children of a node are neighbours. A leaf is its own left child and tests the constant column that
    `predict` appends, which sends nothing right; so every tree is walked for its full depth without a branch.

    Attributes
    ----------
    num_features : int
        Columns of the rows to predict.
    booster_starts : ndarray of shape (n_boosters + 1,)
        First tree of each booster.
    roots, depths : ndarray of shape (n_trees,)
        First node of each tree, and the steps from it to the deepest leaf.
    codes : ndarray of shape (n_nodes,)
        2 x tested feature, plus 1 if an unknown value goes right.
    thresholds : ndarray of shape (n_nodes,)
        Larger values go right; in a leaf, its value.
    left : ndarray of shape (n_nodes,)
        Left child; the right one is the next node.
    """

    num_features: int
    booster_starts: NDArray[np.int32]
    roots: NDArray[np.int32]
    depths: NDArray[np.int32]
    codes: NDArray[np.int32]
    thresholds: Floats
    left: NDArray[np.int32]

    @classmethod
    def from_texts(cls, texts: Sequence[str]) -> "Forest":
        """Return the forest of boosters in LightGBM's text format, in order.

        Raises
        ------
        ValueError
            If a text is no LightGBM model, uses what this evaluator does not know (categorical splits, linear leaves,
            zero_as_missing, averaging), or the boosters differ in their number of features.
        """
        builder = _Builder()
        for i, text in enumerate(texts):
            builder.add_booster(text, where=f"booster {i}")
        return builder.built()

    @property
    def num_boosters(self) -> int:
        """Number of boosters."""
        return int(self.booster_starts.size) - 1

    def predict(self, rows: Floats) -> Floats:
        """Return every booster's raw prediction, shape (n_rows, n_boosters).

        Parameters
        ----------
        rows : ndarray of shape (n_rows, num_features)
            NaN where unknown.

        Raises
        ------
        ValueError
            If the number of columns is not `num_features`.
        """
        if rows.ndim != 2 or rows.shape[1] != self.num_features:
            raise ValueError(f"rows must have shape (n, {self.num_features}), got {rows.shape}")
        padded = np.empty((rows.shape[0], self.num_features + 1))
        padded[:, :-1] = rows
        padded[:, -1] = -np.inf
        out = np.zeros((rows.shape[0], self.num_boosters))
        _predict(padded, self.booster_starts, self.roots, self.depths, self.codes, self.thresholds, self.left, out)
        return out


@njit(cache=True)
def _predict(
    rows: Floats,
    booster_starts: NDArray[np.int32],
    roots: NDArray[np.int32],
    depths: NDArray[np.int32],
    codes: NDArray[np.int32],
    thresholds: Floats,
    left: NDArray[np.int32],
    out: Floats,
) -> None:
    """Add every tree's leaf to its booster's column of `out`, in the order of the trees."""
    for first in range(0, rows.shape[0], _BLOCK_ROWS):
        last = min(first + _BLOCK_ROWS, rows.shape[0])
        for booster in range(booster_starts.size - 1):
            for tree in range(booster_starts[booster], booster_starts[booster + 1]):
                for row in range(first, last):
                    node = roots[tree]
                    for _ in range(depths[tree]):
                        value = rows[row, codes[node] >> 1]
                        unknown_right = np.isnan(value) & (codes[node] & 1)
                        node = left[node] + ((value > thresholds[node]) | unknown_right)
                    out[row, booster] += thresholds[node]


class _Builder:
    """Collects the flat arrays booster by booster."""

    def __init__(self) -> None:
        self.num_features = -1
        self.booster_starts = [0]
        self.roots: list[int] = []
        self.depths: list[int] = []
        self.codes: list[int] = []
        self.thresholds: list[float] = []
        self.left: list[int] = []

    def add_booster(self, text: str, where: str) -> None:
        header, *trees = text.split("\nTree=")
        fields = _fields(header)
        if not header.startswith("tree\n") or "max_feature_idx" not in fields:
            raise ValueError(f"{where}: not a LightGBM model text, it starts with {text[:40]!r}")
        if "average_output" in fields:
            raise ValueError(f"{where}: averaged (random forest) boosters are not supported; use boosting_type='gbdt'")
        num_features = int(fields["max_feature_idx"]) + 1
        if self.num_features not in (-1, num_features):
            raise ValueError(f"{where}: has {num_features} features, the boosters before it {self.num_features}")
        self.num_features = num_features
        for i, tree in enumerate(trees):
            self._add_tree(_fields(tree.split("\n\n", 1)[0]), where=f"{where}, tree {i}")
        self.booster_starts.append(len(self.roots))

    def _add_tree(self, fields: Mapping[str, str], where: str) -> None:
        tree = _Tree.from_fields(fields, where)
        root = len(self.codes)
        self.roots.append(root)
        self._append_nodes(1)
        depth = 0
        level = [(root, 0 if tree.features else -1)]  # (place in the arrays, LightGBM's number; negative: a leaf)
        while any(number >= 0 for _, number in level):
            depth += 1
            below: list[tuple[int, int]] = []
            for place, number in level:
                if number < 0:
                    self._set_leaf(place, tree.leaf_values[~number])
                    continue
                first = len(self.codes)
                self._append_nodes(2)
                self.codes[place] = 2 * tree.features[number] + tree.unknown_goes_right(number)
                self.thresholds[place] = tree.thresholds[number]
                self.left[place] = first
                below += [(first, tree.left[number]), (first + 1, tree.right[number])]
            level = below
        for place, number in level:
            self._set_leaf(place, tree.leaf_values[~number])
        self.depths.append(depth)

    def _append_nodes(self, count: int) -> None:
        self.codes += [0] * count
        self.thresholds += [0.0] * count
        self.left += [0] * count

    def _set_leaf(self, place: int, value: float) -> None:
        self.codes[place] = 2 * self.num_features
        self.thresholds[place] = value
        self.left[place] = place

    def built(self) -> Forest:
        return Forest(
            num_features=max(self.num_features, 0),
            booster_starts=np.array(self.booster_starts, dtype=np.int32),
            roots=np.array(self.roots, dtype=np.int32),
            depths=np.array(self.depths, dtype=np.int32),
            codes=np.array(self.codes, dtype=np.int32),
            thresholds=np.array(self.thresholds, dtype=np.float64),
            left=np.array(self.left, dtype=np.int32),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tree:
    """One tree as LightGBM writes it: inner nodes by number, leaves as the complement of theirs."""

    features: tuple[int, ...]
    thresholds: tuple[float, ...]
    decision_types: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    leaf_values: tuple[float, ...]

    @classmethod
    def from_fields(cls, fields: Mapping[str, str], where: str) -> "_Tree":
        if fields.get("is_linear", "0") != "0":
            raise ValueError(f"{where}: linear leaves are not supported; train with linear_tree=False")
        kinds = _numbers(fields.get("decision_type", ""), int)
        if any(kind & _CATEGORICAL for kind in kinds):
            raise ValueError(f"{where}: categorical splits are not supported; encode the feature as a number")
        if any(kind >> _MISSING_SHIFT & 3 == _MISSING_ZERO for kind in kinds):
            raise ValueError(f"{where}: zero_as_missing is not supported; unknown values are NaN here")
        return cls(
            features=_numbers(fields.get("split_feature", ""), int),
            thresholds=_numbers(fields.get("threshold", ""), float),
            decision_types=kinds,
            left=_numbers(fields.get("left_child", ""), int),
            right=_numbers(fields.get("right_child", ""), int),
            leaf_values=_numbers(fields["leaf_value"], float),
        )

    def unknown_goes_right(self, number: int) -> bool:
        """Return where NaN goes: the default side if training saw NaN in this split, else where 0 goes."""
        kind = self.decision_types[number]
        if kind >> _MISSING_SHIFT & 3 == _MISSING_NAN:
            return not kind & _DEFAULT_LEFT
        return self.thresholds[number] < 0.0


def _fields(text: str) -> dict[str, str]:
    """Return the name=value lines of a block; a line without a value maps to an empty string."""
    return {name: value for name, _, value in (line.partition("=") for line in text.splitlines())}


def _numbers(text: str, kind: type[N]) -> tuple[N, ...]:
    return tuple(kind(word) for word in text.split())
