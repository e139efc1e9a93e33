"""What one replica can carry, and from it the demand D in replicas (DESIGN section 5)."""

from dataclasses import dataclass

import numpy as np

from forecaster.errors import ConfigError
from forecaster.telemetry import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCapacity:
    """Capacity of one replica at the point where TTFT *and* TPOT hold, not at top throughput.

    Attributes
    ----------
    kv_blocks : float
        KV-cache blocks of a replica (K).
    block_size_tokens : int
        Tokens of key/value cache in a block.
    prefill_tokens_per_second : float
        Prefill rate while TPOT holds (P).
    decode_tokens_per_second : float
        Decode rate at the TPOT target (G).
    usable_kv_ratio : float
        Share of the blocks usable before preemption starts (eta).
    prefill_utilisation_ratio : float
        Prefill utilisation at which TTFT holds (rho).
    """

    kv_blocks: float
    block_size_tokens: int
    prefill_tokens_per_second: float
    decode_tokens_per_second: float
    usable_kv_ratio: float = 0.9
    prefill_utilisation_ratio: float = 0.75

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be > 0, got {getattr(self, name)}" for name in self.__slots__ if not getattr(self, name) > 0
        ]
        problems += [
            f"{name} must be <= 1, got {getattr(self, name)}"
            for name in ("usable_kv_ratio", "prefill_utilisation_ratio")
            if getattr(self, name) > 1
        ]
        if problems:
            raise ConfigError.from_problems("replica capacity", problems)

    @property
    def usable_kv_blocks(self) -> float:
        """Blocks usable before preemption starts."""
        return self.kv_blocks * self.usable_kv_ratio

    @property
    def usable_prefill_tokens_per_second(self) -> float:
        """Prefill rate at which TTFT holds."""
        return self.prefill_tokens_per_second * self.prefill_utilisation_ratio

    def demand_replicas(
        self, *, kv_blocks: Floats, prefill_tokens_per_second: Floats, decode_tokens_per_second: Floats
    ) -> Floats:
        """Return D = max(B/(eta K), a/(rho P), g/G), elementwise; unknown parts are left out, all unknown is NaN.

        Examples
        --------
        >>> replica = ReplicaCapacity(kv_blocks=1000, block_size_tokens=16, prefill_tokens_per_second=8000,
        ...                           decode_tokens_per_second=2000)
        >>> float(replica.demand_replicas(kv_blocks=np.array(1800.0), prefill_tokens_per_second=np.array(3000.0),
        ...                               decode_tokens_per_second=np.array(np.nan)))
        2.0
        """
        by_kv = np.asarray(kv_blocks) / self.usable_kv_blocks
        by_prefill = np.asarray(prefill_tokens_per_second) / self.usable_prefill_tokens_per_second
        by_decode = np.asarray(decode_tokens_per_second) / self.decode_tokens_per_second
        return np.asarray(np.fmax(np.fmax(by_kv, by_prefill), by_decode), dtype=np.float64)
