"""A warning, once a profile, where a run may leave what the profile was calibrated on."""

import warnings

from simulator.profiles import EngineProfile
from simulator.requests import RequestTable

_warned: set[str] = set()  # names of profiles; what is said of one holds for every run of the process


class ExtrapolationWarning(UserWarning):
    """Step times are read beyond the points that they were fitted to."""


def warn_of_extrapolation(requests: RequestTable, profile: EngineProfile) -> None:
    """Warn, once for each profile name in a process, if steps may exceed its calibrated batch, tokens or context."""
    if profile.name in _warned or not requests.num_requests:
        return
    context = int((requests.prompt_tokens + requests.output_tokens).max())
    # the cache bounds the batch too: as many prompts of mean length as it holds
    held = int(profile.kv_blocks * profile.block_size_tokens / requests.prompt_tokens.mean())
    batch = max(min(profile.max_num_seqs, requests.num_requests, held), 1)
    tokens = min(profile.max_num_batched_tokens, int(requests.prompt_tokens.sum()) + batch)
    checks = (
        ("batch", batch, profile.calibrated_batch_size, "sequences", "lower max_num_seqs"),
        ("step", tokens, profile.calibrated_step_tokens, "tokens", "lower max_num_batched_tokens"),
        ("context", context, profile.calibrated_context_tokens, "tokens", "leave longer requests out"),
    )
    beyond = [check for check in checks if check[2] is not None and check[1] > check[2]]
    if not beyond:
        return
    _warned.add(profile.name)
    found = "; ".join(
        f"{what} of up to {value:,} {unit} (calibrated up to {limit:,}: {fix})"
        for what, value, limit, unit, fix in beyond
    )
    warnings.warn(
        f"profile {profile.name}: step times are extrapolated for a {found}, or calibrate a profile on such a log",
        ExtrapolationWarning,
        stacklevel=3,
    )
