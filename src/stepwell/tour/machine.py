"""What the tour ran on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import stepwell
from stepwell.quasi_newton.settings import Settings
from stepwell.tour.place import Place


def machine_facts(place: Place) -> list[tuple[str, str]]:
    """Return names and values: processor, threads, versions, device.

    Examples
    --------
    >>> [name for name, _ in machine_facts(Place())][:3]
    ['Stepwell', 'processor', 'threads']
    """
    from stepwell import _core

    facts = [
        ("Stepwell", f"{stepwell.__version__}, compiler {_core.compiler()}, {_core.isa()}"),
        ("processor", _processor()),
        (
            "threads",
            f"{Settings().thread_count()} by default, {os.cpu_count()} processors; the BLAS of NumPy and SciPy: 1",
        ),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("Python", platform.python_version()),
        *((name, metadata.version(name.lower())) for name in ("NumPy", "SciPy")),
        ("arrays", "NumPy on the CPU" if place.library == "numpy" else f"{place.library} on {place.name}"),
    ]
    if place.library != "numpy":
        facts.append((place.library, str(place.xp.__version__)))
    return facts


def _processor() -> str:
    """Name the processor as far as the system tells."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine() or "unknown"
