"""Process groups of torch.distributed as communicators."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np


def is_process_group(value: Any) -> bool:
    """Whether something is a process group of PyTorch's."""
    distributed = sys.modules.get("torch.distributed")
    kind = getattr(distributed, "ProcessGroup", None)
    return kind is not None and isinstance(value, kind)


class GroupCommunicator:
    """Ranks of a process group. Numbers travel on the host, by gloo: an nccl group gets a gloo group beside it."""

    def __init__(self, group: Any) -> None:
        import torch.distributed as distributed

        self._group = _gloo_group(group)
        self.rank, self.size = int(distributed.get_rank(group)), int(distributed.get_world_size(group))

    def allgather(self, row: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        """Return the rows of all ranks, one after the other."""
        import torch
        import torch.distributed as distributed

        longest = max(counts)
        mine = torch.zeros(longest, dtype=torch.float64)  # gloo takes rows of one length
        mine[: row.size] = torch.from_numpy(row)
        rows = [torch.empty(longest, dtype=torch.float64) for _ in counts]
        distributed.all_gather(rows, mine, group=self._group)
        return np.concatenate([one.numpy()[:count] for one, count in zip(rows, counts)])


#: The gloo groups made beside others, by the group they stand beside; they live as long as the process.
_beside: dict[Any, Any] = {}


def _gloo_group(group: Any) -> Any:
    """Return a gloo group of the same ranks, made once, which nobody else uses."""
    import torch.distributed as distributed

    if group not in _beside:
        ranks = distributed.get_process_group_ranks(group)
        _beside[group] = distributed.new_group(ranks, backend="gloo", use_local_synchronization=True)
    return _beside[group]
