"""The errors a caller of Foreshock can handle; bad arguments raise plain `ValueError` or `TypeError`."""


class ForecasterError(Exception):
    """Anything Foreshock refuses to do for a reason that the caller can act on."""


class ConfigError(ForecasterError):
    """A configuration that contradicts itself; the message lists every problem, one a line."""

    @classmethod
    def from_problems(cls, what: str, problems: list[str]) -> "ConfigError":
        """Return one error that lists all `problems` found in `what`."""
        return cls(f"{what}: " + "; ".join(problems))


class InvalidTelemetryError(ForecasterError, ValueError):
    """Telemetry whose shape, order or values cannot be true."""


class InsufficientHistoryError(ForecasterError):
    """Fewer rows than a computation needs."""


class ArtifactMismatchError(ForecasterError):
    """A model artefact that does not fit this code: format, schema or checksum."""


class TraceFormatError(ForecasterError):
    """A trace file that cannot be read: unknown format, missing columns, no usable rows."""
