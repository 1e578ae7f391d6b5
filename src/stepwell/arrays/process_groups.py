"""Process groups of torch.distributed as communicators."""

from __future__ import annotations

import datetime
import os
import socket
import sys
import zlib
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

    def __init__(self, group: Any, timeout: float | None = None) -> None:
        import torch.distributed as distributed

        self._group, self._given, self._timeout = _gloo_group(group), group, timeout
        self.rank, self.size = int(distributed.get_rank(group)), int(distributed.get_world_size(group))

    def within(self, timeout: float) -> GroupCommunicator:
        """Return the same ranks with a limit of so many seconds for every exchange."""
        return GroupCommunicator(self._given, timeout)

    def allgather(self, row: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        """Return the rows of all ranks, one after the other; TimeoutError where a limit was set and is reached."""
        import torch
        import torch.distributed as distributed

        longest = max(counts)
        mine = torch.zeros(longest, dtype=torch.float64)  # gloo takes rows of one length
        mine[: row.size] = torch.from_numpy(row)
        rows = [torch.empty(longest, dtype=torch.float64) for _ in counts]
        self._finish(distributed.all_gather(rows, mine, group=self._group, async_op=True))
        return np.concatenate([one.numpy()[:count] for one, count in zip(rows, counts)])

    def swap(self, partner: int, row: np.ndarray | None, count: int) -> np.ndarray | None:
        """Send a row to another rank, if there is one, and return the `count` numbers that come from it, if any."""
        import torch
        import torch.distributed as distributed

        other = distributed.get_global_rank(self._group, partner)
        works = []
        if row is not None:
            sent = torch.from_numpy(row.copy())
            works.append(distributed.isend(sent, other, group=self._group))
        received = torch.empty(count, dtype=torch.float64)
        if count:
            works.append(distributed.irecv(received, other, group=self._group))
        for work in works:
            self._finish(work)
        return received.numpy() if count else None

    def home(self) -> int:
        """Return the first rank of this node, as far as the launcher tells the rank within the node."""
        local = os.environ.get("LOCAL_RANK", "")
        if local.isdigit() and os.environ.get("RANK", "") == str(self.rank):
            return self.rank - int(local)
        return zlib.crc32(socket.gethostname().encode())

    def _finish(self, work: Any) -> None:
        """Wait for an exchange, as long as the limit allows; without one, as long as the group does."""
        if self._timeout is None:
            work.wait()
            return
        try:
            work.wait(datetime.timedelta(seconds=self._timeout))
        except RuntimeError as error:
            if work.is_completed():  # another trouble
                raise
            raise TimeoutError(f"other ranks have not come within {self._timeout:g} s") from error


#: The gloo groups made beside others, by the group they stand beside; they live as long as the process.
_beside: dict[Any, Any] = {}


def _gloo_group(group: Any) -> Any:
    """Return a gloo group of the same ranks, made once, which nobody else uses."""
    import torch.distributed as distributed

    if group not in _beside:
        ranks = distributed.get_process_group_ranks(group)
        _beside[group] = distributed.new_group(ranks, backend="gloo", use_local_synchronization=True)
    return _beside[group]
