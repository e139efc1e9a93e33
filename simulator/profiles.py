"""Engine profiles that ship: model x GPU x tensor parallelism, with the step time and the KV cache of each.

The step times are fitted by `make profiles` (benchmarks/fit_profiles.py) to service times of NVIDIA AIConfigurator
(aiconfigurator-core 0.12.0, Apache-2.0, vLLM database: interpolated from measured kernels, without CPU or scheduler
overhead); the mean and largest relative error of each fit stand beside it. KV blocks follow from memory: 0.9 of the
GPUs' 80 GB less the bf16 weights (16 and 141 GB), over the bytes of a block (2 x layers x 8 KV heads x 128 x 2 bytes
a token).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from forecaster.capacity import ReplicaCapacity
from simulator.step_time import StepTime

TYPICAL_CONTEXT_TOKENS = 1500  # for the capacity priors: prompt and half an answer of a chat request
TYPICAL_NUM_DECODES = 32
TPOT_TARGET_SECONDS = 0.1
# Utilisation at which TTFT still holds: DESIGN section 5 measured 12k of some 15k prefill tokens/s on the 70B profile.
PREFILL_UTILISATION_RATIO = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """One replica type: how fast it steps and how much it holds.

    Attributes
    ----------
    name : str
    gpus_per_replica : int
    kv_blocks, block_size_tokens : int
        Size of the paged KV cache.
    max_num_seqs, max_num_batched_tokens : int
        The engine's limits on running sequences and on the tokens of one step (vLLM's names).
    step_time : StepTime
    fit_error_ratio : tuple of (mean, largest)
        Relative error of the step time against the points that it was fitted to.
    calibrated_batch_size, calibrated_step_tokens, calibrated_context_tokens : int or None
        Most decoding sequences, tokens in one step and tokens of one sequence among those points; beyond them the step
        time is extrapolated. None: unknown.
    """

    name: str
    gpus_per_replica: int
    kv_blocks: int
    block_size_tokens: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    step_time: StepTime
    fit_error_ratio: tuple[float, float]
    calibrated_batch_size: int | None = None
    calibrated_step_tokens: int | None = None
    calibrated_context_tokens: int | None = None

    @property
    def capacity(self) -> ReplicaCapacity:
        """Prior capacity of a replica where TTFT and TPOT hold.

        The prefill rate is the best of chunk / step time over the chunks whose mixed step stays within the TPOT target;
        the decode rate likewise over batch sizes.
        """
        chunk_rates = [
            chunk / step
            for chunk in range(64, self.max_num_batched_tokens + 1, 64)
            if (step := self._mixed_step_seconds(chunk)) <= TPOT_TARGET_SECONDS
        ]
        decode_rates = [
            batch / step
            for batch in range(1, self.max_num_seqs + 1)
            if (step := self._decode_step_seconds(batch)) <= TPOT_TARGET_SECONDS
        ]
        return ReplicaCapacity(
            kv_blocks=self.kv_blocks,
            block_size_tokens=self.block_size_tokens,
            prefill_tokens_per_second=max(chunk_rates, default=64 / self._mixed_step_seconds(64)),
            decode_tokens_per_second=max(decode_rates, default=1 / self._decode_step_seconds(1)),
            prefill_utilisation_ratio=PREFILL_UTILISATION_RATIO,
        )

    def _mixed_step_seconds(self, chunk_tokens: int) -> float:
        return self.step_time.seconds(
            prefill_tokens=chunk_tokens,
            num_decodes=TYPICAL_NUM_DECODES,
            mean_context_tokens=TYPICAL_CONTEXT_TOKENS,
        )

    def _decode_step_seconds(self, batch_size: int) -> float:
        return self.step_time.seconds(num_decodes=batch_size, mean_context_tokens=TYPICAL_CONTEXT_TOKENS)


# The largest among the points of every shipped profile: decode batch; prefill step; context of a decode step.
CALIBRATED_BATCH_SIZE = 256
CALIBRATED_STEP_TOKENS = 16384
CALIBRATED_CONTEXT_TOKENS = 8192
TOKEN_KNOTS = (1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16384)


def _profile(
    name: str,
    *,
    gpus_per_replica: int,
    kv_blocks: int,
    knot_seconds: tuple[float, ...],
    coefficients: tuple[float, float, float],
    fit_error_ratio: tuple[float, float],
) -> EngineProfile:
    return EngineProfile(
        name=name,
        gpus_per_replica=gpus_per_replica,
        kv_blocks=kv_blocks,
        fit_error_ratio=fit_error_ratio,
        calibrated_batch_size=CALIBRATED_BATCH_SIZE,
        calibrated_step_tokens=CALIBRATED_STEP_TOKENS,
        calibrated_context_tokens=CALIBRATED_CONTEXT_TOKENS,
        step_time=StepTime(
            token_knots=TOKEN_KNOTS,
            knot_seconds=knot_seconds,
            seconds_per_decode_context_token=coefficients[0],
            seconds_per_prefill_attention=coefficients[1],
            seconds_per_sequence=coefficients[2],
        ),
    )


_SHIPPED = (
    _profile(
        "llama-3.1-70b-a100-tp4",
        gpus_per_replica=4,
        kv_blocks=28_000,
        knot_seconds=(0.02757, 0.02998, 0.03098, 0.03186, 0.03817, 0.05578, 0.1038, 0.1817, 0.3303, 0.6359, 2.467),
        coefficients=(5.981e-08, 3.658e-09, 3.999e-06),
        fit_error_ratio=(0.015, 0.074),
    ),
    _profile(
        "llama-3.1-70b-a100-tp8",
        gpus_per_replica=8,
        kv_blocks=83_000,
        knot_seconds=(0.01707, 0.01876, 0.02046, 0.02094, 0.02612, 0.0359, 0.07455, 0.1264, 0.2216, 0.4063, 1.513),
        coefficients=(2.764e-08, 1.943e-09, 4.72e-07),
        fit_error_ratio=(0.023, 0.111),
    ),
    _profile(
        "llama-3.1-70b-h100-tp4",
        gpus_per_replica=4,
        kv_blocks=28_000,
        knot_seconds=(0.01501, 0.01627, 0.01661, 0.01727, 0.01935, 0.02373, 0.0378, 0.06905, 0.1331, 0.2625, 1.08),
        coefficients=(2.614e-08, 5.921e-10, 0),
        fit_error_ratio=(0.014, 0.057),
    ),
    _profile(
        "llama-3.1-70b-h100-tp8",
        gpus_per_replica=8,
        kv_blocks=83_000,
        knot_seconds=(0.009798, 0.01081, 0.01086, 0.01189, 0.01317, 0.01769, 0.02669, 0.04714, 0.08644, 0.1678, 0.6545),
        coefficients=(1.309e-08, 3.065e-10, 0),
        fit_error_ratio=(0.029, 0.098),
    ),
    _profile(
        "llama-3.1-8b-a100-tp1",
        gpus_per_replica=1,
        kv_blocks=27_000,
        knot_seconds=(0.01168, 0.01205, 0.01254, 0.01254, 0.01456, 0.02245, 0.03534, 0.06367, 0.1193, 0.2339, 0.9219),
        coefficients=(8.221e-08, 2.885e-09, 3.948e-06),
        fit_error_ratio=(0.019, 0.128),
    ),
    _profile(
        "llama-3.1-8b-h100-tp1",
        gpus_per_replica=1,
        kv_blocks=27_000,
        knot_seconds=(
            0.006234,
            0.006881,
            0.006975,
            0.007189,
            0.007462,
            0.008904,
            0.01233,
            0.02261,
            0.04261,
            0.08441,
            0.3489,
        ),
        coefficients=(4.095e-08, 7.173e-10, 1.238e-06),
        fit_error_ratio=(0.016, 0.062),
    ),
)

PROFILES: Mapping[str, EngineProfile] = MappingProxyType({profile.name: profile for profile in _SHIPPED})
DEFAULT_PROFILE = "llama-3.1-70b-h100-tp4"


def profile_named(name: str) -> EngineProfile:
    """Return a shipped profile.

    Raises
    ------
    ValueError
        If there is none of that name; the message lists those there are.
    """
    if name not in PROFILES:
        raise ValueError(f"no engine profile is called {name!r}; known: {', '.join(sorted(PROFILES))}")
    return PROFILES[name]
