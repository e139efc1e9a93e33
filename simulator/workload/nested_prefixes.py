"""Prefix groups of prompts that hold what came before them: a system prompt, then the history of their own kind."""

import numpy as np
from numpy.typing import NDArray

from simulator.requests import Prefixes

Integers = NDArray[np.int64]


def sums_within(values: NDArray[np.float64] | Integers, first: Integers) -> NDArray[np.float64]:
    """Return running sums that begin anew in each run of rows.

    Parameters
    ----------
    values : ndarray of shape (n,)
    first : ndarray of int64, shape (n,)
        Row at which the run of each row begins.

    Examples
    --------
    >>> sums_within(np.array([1, 2, 3, 4]), np.array([0, 0, 2, 2])).tolist()
    [1, 3, 3, 7]
    """
    total = np.cumsum(values)
    return np.asarray(total - (total - values)[first])


def nested_prefixes(
    prompt_tokens: Integers, *, shared_tokens: int, common_tokens: Integers, family: Integers, group_tokens: int
) -> Prefixes:
    """Return the full groups of prompts that begin with a part that all share, then a part that their family shares.

    Parameters
    ----------
    prompt_tokens : ndarray of int64, shape (n,)
    shared_tokens : int
        Of the beginning of every prompt.
    common_tokens : ndarray of int64, shape (n,)
        Of the beginning that a prompt has in common with longer ones of its family, `shared_tokens` included.
    family : ndarray of int64, shape (n,)
        Numbered from 0: the session or the agent.
    group_tokens : int
    """
    num_groups = prompt_tokens // group_tokens
    num_shared = np.minimum(shared_tokens // group_tokens, num_groups)
    num_common = np.clip(common_tokens // group_tokens, num_shared, num_groups)
    # ids: those of all, then those of each family, then those that one prompt has alone
    longest = np.zeros(int(family.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(longest, family, num_common - num_shared)
    begin_families = shared_tokens // group_tokens
    family_base = begin_families + np.cumsum(longest) - longest
    alone = num_groups - num_common
    alone_base = begin_families + int(longest.sum()) + np.cumsum(alone) - alone

    starts = np.concatenate([[0], np.cumsum(num_groups)]).astype(np.int64)
    group = np.arange(starts[-1]) - np.repeat(starts[:-1], num_groups)

    def spread(values: Integers) -> Integers:
        return np.repeat(values, num_groups)

    ids = np.where(
        group < spread(num_shared),
        group,
        np.where(
            group < spread(num_common),
            spread(family_base[family] - num_shared) + group,
            spread(alone_base - num_common) + group,
        ),
    )
    return Prefixes(starts=starts, ids=ids.astype(np.int64), group_tokens=group_tokens)
