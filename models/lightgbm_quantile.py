"""Direct quantile boosting: one LightGBM booster for each output and level.

LightGBM refuses `monotone_constraints` together with its quantile objective, and elsewhere the pair breaks silently
(DESIGN section 4); no constraint is used, crossings are removed after predicting.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lightgbm as lgb
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from forecaster.forecast import LEVELS
from forecaster.telemetry import Floats
from models.base import checked_levels, checked_rows, uncrossed
from models.forest import Forest


class LightGBMQuantileForecaster(BaseEstimator):  # type: ignore[misc]
    """Quantile forecasts of several outputs by gradient boosting on the pinball loss.

    The same data, parameters and `random_state` give the same boosters, byte for byte, whatever `n_jobs` is.

    Parameters
    ----------
    levels : sequence of float
        Increasing, in (0, 1).
    num_trees, num_leaves, max_depth : int
        Size of a booster. Shallow trees bound the time of a prediction.
    learning_rate : float
    min_rows_in_leaf : int
        Rows of one run are alike, so a leaf needs many before its 0.99 quantile means anything.
    feature_ratio, row_ratio : float
        Share of the features tried for a tree and of the rows it is grown on, in (0, 1].
    l2_regularisation : float
    n_jobs : int
        Outputs fitted at a time. Each booster has one thread: LightGBM's own threads wait for each other by spinning,
        which costs ten times the time on a machine that has other work.
    random_state : int

    Attributes
    ----------
    booster_texts_ : tuple of str
        LightGBM's text form, outputs outermost, then levels.
    forest_ : Forest
        The same boosters, compiled.
    n_features_in_, n_outputs_ : int
    levels_ : tuple of float

    References
    ----------
    R. Koenker and G. Bassett, "Regression Quantiles", Econometrica 46(1), 1978; G. Ke et al., "LightGBM", NeurIPS 2017.
    """

    def __init__(
        self,
        *,
        levels: Sequence[float] = LEVELS,
        num_trees: int = 60,
        num_leaves: int = 15,
        max_depth: int = 5,
        learning_rate: float = 0.1,
        min_rows_in_leaf: int = 100,
        feature_ratio: float = 0.7,
        row_ratio: float = 0.7,
        l2_regularisation: float = 1.0,
        n_jobs: int = 1,
        random_state: int = 0,
    ) -> None:
        self.levels = levels
        self.num_trees = num_trees
        self.num_leaves = num_leaves
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.min_rows_in_leaf = min_rows_in_leaf
        self.feature_ratio = feature_ratio
        self.row_ratio = row_ratio
        self.l2_regularisation = l2_regularisation
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self,
        X: Floats,
        y: Floats,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> "LightGBMQuantileForecaster":
        """Return self, fitted.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_features)
            NaN where unknown.
        y : ndarray of shape (n_rows, n_outputs) or (n_rows,)
            Rows with an unknown output are left out for that output.
        progress : callable, optional
            Called after each output with the number of outputs fitted, and of all.

        Raises
        ------
        ValueError
            If shapes or levels do not fit, or an output has no known value.
        """
        levels = checked_levels(self.levels)
        rows = checked_rows(X)
        outputs = np.asarray(y, dtype=np.float64)
        if outputs.ndim == 1:
            outputs = outputs[:, None]
        if outputs.ndim != 2 or len(outputs) != len(rows) or not outputs.size:
            raise ValueError(f"y must have shape ({len(rows)},) or ({len(rows)}, n_outputs), got {np.shape(y)}")
        _refuse_unknown_outputs(outputs)
        texts: list[str] = []
        with ThreadPoolExecutor(max(self.n_jobs, 1)) as pool:
            fitted = pool.map(lambda output: self._fitted_output(rows, output, levels), outputs.T)
            for done, output_texts in enumerate(fitted, start=1):
                texts += output_texts
                if progress:
                    progress(done, outputs.shape[1])
        self.booster_texts_ = tuple(texts)
        self.forest_ = Forest.from_texts(texts)
        self.levels_ = levels
        self.n_features_in_ = rows.shape[1]
        self.n_outputs_ = outputs.shape[1]
        return self

    def predict_quantiles(self, X: Floats) -> Floats:
        """Return non-crossing quantiles, shape (n_rows, n_outputs, n_levels).

        Raises
        ------
        NotFittedError
            If `fit` has not run.
        """
        check_is_fitted(self)
        rows = checked_rows(X, num_features=self.n_features_in_)
        return uncrossed(self.forest_.predict(rows).reshape(len(rows), self.n_outputs_, len(self.levels_)))

    def _fitted_output(self, rows: Floats, target: Floats, levels: tuple[float, ...]) -> list[str]:
        """Return the boosters of one output, one a level."""
        known = np.isfinite(target)
        data = lgb.Dataset(
            rows if known.all() else rows[known],
            label=target[known],
            params=self._dataset_params(),
            free_raw_data=False,
        )
        return [
            str(lgb.train(self._params(level), data, num_boost_round=self.num_trees).model_to_string())
            for level in levels
        ]

    def _dataset_params(self) -> dict[str, Any]:
        return {"verbose": -1, "num_threads": 1, "seed": self.random_state, "deterministic": True}

    def _params(self, level: float) -> dict[str, Any]:
        return self._dataset_params() | {
            "objective": "quantile",
            "alpha": level,
            "force_row_wise": True,  # LightGBM would choose by timing, which is not deterministic
            "num_leaves": self.num_leaves,
            "max_depth": self.max_depth,
            "learning_rate": self.learning_rate,
            "min_data_in_leaf": self.min_rows_in_leaf,
            "feature_fraction": self.feature_ratio,
            "bagging_fraction": self.row_ratio,
            "bagging_freq": 1 if self.row_ratio < 1 else 0,
            "lambda_l2": self.l2_regularisation,
        }


def _refuse_unknown_outputs(outputs: Floats) -> None:
    unknown = np.flatnonzero(~np.isfinite(outputs).any(axis=0))
    if unknown.size:
        raise ValueError(f"y holds no known value in output {unknown[0]} of {outputs.shape[1]}")
