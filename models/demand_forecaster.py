"""The forecaster that runs live: the model where it works, the baseline where it does not, and always says which."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from forecaster.errors import ArtifactMismatchError
from forecaster.forecast import Forecaster, QuantileForecast
from forecaster.telemetry import Floats
from models.artifact import load_artifact
from models.baseline import TrailingQuantileForecaster
from models.model_forecaster import ModelForecaster

DEFAULT_FOLDER = Path(__file__).parent / "default"
"""The artefact that ships, made by `make model`."""


class DemandForecaster:
    """A forecaster that degrades on purpose.

    Parameters
    ----------
    model : Forecaster or None
        None: there is no model, and `model_problem` says why.
    baseline : Forecaster or None
        What stands in; None takes `TrailingQuantileForecaster`.
    model_problem : str
        Why there is no model.

    Attributes
    ----------
    num_fallbacks : int
        Forecasts that were not the model's own.
    """

    def __init__(
        self, model: Forecaster | None, *, baseline: Forecaster | None = None, model_problem: str = ""
    ) -> None:
        if model is None and not model_problem:
            raise ValueError("model_problem must say why there is no model")
        self.model = model
        self.baseline = TrailingQuantileForecaster() if baseline is None else baseline
        self.model_problem = model_problem
        self.num_fallbacks = 0

    def forecast(self, features: Floats, *, made_at: float, horizons_seconds: tuple[float, ...]) -> QuantileForecast:
        """Return the model's forecast, or the baseline's with its `fallback_reason`.

        Raises
        ------
        InsufficientHistoryError
            If the baseline knows nothing either.
        """
        reason = self.model_problem
        if self.model is not None:
            try:
                return self.model.forecast(features, made_at=made_at, horizons_seconds=horizons_seconds)
            except Exception as exc:  # whatever a model does wrong, the fleet must still be planned for
                reason = f"{type(exc).__name__}: {exc}"
        self.num_fallbacks += 1
        fallback = self.baseline.forecast(features, made_at=made_at, horizons_seconds=horizons_seconds)
        return replace(fallback, fallback_reason=reason)


def load_forecaster(folder: Path) -> DemandForecaster:
    """Return the forecaster of the artefact in `folder`; one that does not load gives the baseline, with the reason."""
    try:
        return DemandForecaster(ModelForecaster(load_artifact(folder)))
    except (ArtifactMismatchError, ValueError) as exc:
        return DemandForecaster(None, model_problem=f"{type(exc).__name__}: {exc}")


def load_default() -> DemandForecaster:
    """Return a forecaster of the artefact that ships, which is read and unpacked once a process."""
    shipped = _shipped()
    return DemandForecaster(shipped.model, model_problem=shipped.model_problem)


@cache
def _shipped() -> DemandForecaster:
    return load_forecaster(DEFAULT_FOLDER)
