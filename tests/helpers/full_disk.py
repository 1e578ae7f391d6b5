"""A disk that is full, for tests of what is written."""

from __future__ import annotations

import contextlib
import resource


@contextlib.contextmanager
def full_disk():
    """No file can grow beyond a few bytes: writing fails as on a full disk, in the system and not in Python."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
