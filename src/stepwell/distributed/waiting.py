"""How long a rank waits for the others: as long as it takes, or up to a limit that was set."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from stepwell.common.checks import read_real

#: The environment variable that sets the limit, in seconds, where no argument does.
TIMEOUT_VARIABLE = "STEPWELL_RANK_TIMEOUT"

#: Seconds for which requests of MPI are asked without a pause; later pauses are a tenth of what was waited, at most
#: this long.
_WITHOUT_PAUSE, _LONGEST_PAUSE = 0.002, 0.002


def read_timeout(timeout: Any) -> float | None:
    """Return the limit in seconds: as given, else that of the environment, else None.

    Examples
    --------
    >>> read_timeout(2)
    2.0
    """
    if timeout is not None:
        return read_real("timeout", timeout, above=0, other="None: as long as it takes")
    text = os.environ.get(TIMEOUT_VARIABLE, "").strip()
    if not text:
        return None
    try:
        return read_real(TIMEOUT_VARIABLE, float(text), above=0)
    except ValueError:
        raise ValueError(f"{TIMEOUT_VARIABLE} is {text!r}; allowed: a finite number of seconds above 0") from None


def wait_for(
    requests: Sequence[Any],
    timeout: float | None,
    meanwhile: tuple[float, Callable[[], None]] | None = None,
    missing: Callable[[], str] | None = None,
) -> None:
    """Wait for requests of MPI; TimeoutError where they have not ended after so many seconds.

    Parameters
    ----------
    requests : sequence
    timeout : float or None
        None: no limit, and the processor is left to MPI's own way of waiting.
    meanwhile : pair, optional
        After how many seconds to call what.
    missing : callable, optional
        Returns who has not come, in words.
    """
    if timeout is None:
        for request in requests:
            request.Wait()
        return
    began = time.monotonic()
    while not all(request.Test() for request in requests):
        waited = time.monotonic() - began
        if meanwhile is not None and waited > meanwhile[0]:
            meanwhile[1]()
            meanwhile = None
        if waited > timeout:
            who = "other ranks have" if missing is None else missing()
            raise TimeoutError(f"{who} not come within {timeout:g} s")
        if waited > _WITHOUT_PAUSE:
            time.sleep(min(_LONGEST_PAUSE, 0.1 * waited))


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Say who has not come.

    Examples
    --------
    >>> ranks_in_words([1]), ranks_in_words([0, 2])
    ('rank 1 has', 'ranks 0, 2 have')
    """
    return f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} have"
