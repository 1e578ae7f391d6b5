"""What Stepwell runs on: the processor, the threads, the versions of it and of what it stands on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import stepwell
from stepwell.common.threads import available_cores


def processor_name() -> str:
    """Name the processor as far as the system tells.

    Examples
    --------
    >>> processor_name() != ""
    True
    """
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine() or "unknown"


def version_of(*distributions: str) -> str | None:
    """Return the version of the first of some distributions that is installed, without importing it.

    Examples
    --------
    >>> version_of("no-such-distribution") is None
    True
    """
    for distribution in distributions:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def machine_facts() -> dict[str, str | int]:
    """Describe the machine and the versions, in the order in which people ask.

    Examples
    --------
    >>> list(machine_facts())
    ['stepwell', 'compiler', 'instructions', 'cpu', 'cores', 'processors', 'system', 'python', 'numpy', 'scipy']
    """
    from stepwell import _core

    return {
        "stepwell": stepwell.__version__,
        "compiler": str(_core.compiler()),
        "instructions": str(_core.isa()),
        "cpu": processor_name(),
        "cores": available_cores(),  # those that this process may run on
        "processors": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
        "scipy": metadata.version("scipy"),
    }
