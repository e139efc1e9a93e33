"""What an operator chooses of an engine, apart from what the hardware gives."""

from dataclasses import dataclass

from forecaster.errors import ConfigError

SCHEDULING_POLICIES = ("fcfs", "priority")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of every engine of a fleet, by vLLM's names.

    Attributes
    ----------
    scheduling_policy : str
        "fcfs", or "priority": the more important request is admitted first and preempted last.
    enable_prefix_caching : bool
        Prompts reuse the blocks of groups that they share with earlier ones (`RequestTable.prefixes`).
    watermark_ratio : float
        Share of the blocks that admission leaves free, unless nothing runs. vLLM V0 had 0.01, V1 has none.
    max_model_len : int or None
        Longest prompt plus answer in tokens; a prompt that leaves no room for an answer is refused, an answer that
        would go beyond is cut. None: as much as the KV cache holds.
    """

    scheduling_policy: str = "fcfs"
    enable_prefix_caching: bool = False
    watermark_ratio: float = 0.0
    max_model_len: int | None = None

    def __post_init__(self) -> None:
        problems = []
        if self.scheduling_policy not in SCHEDULING_POLICIES:
            problems.append(f"scheduling_policy must be one of {SCHEDULING_POLICIES}, got {self.scheduling_policy!r}")
        if not 0 <= self.watermark_ratio < 1:
            problems.append(f"watermark_ratio must be in [0, 1), got {self.watermark_ratio}")
        if self.max_model_len is not None and self.max_model_len < 2:
            problems.append(f"max_model_len must be >= 2, got {self.max_model_len}")
        if problems:
            raise ConfigError.from_problems("engine options", problems)
