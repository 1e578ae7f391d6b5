"""What the tour ran on, in words."""

from __future__ import annotations

from stepwell.arrays.places import Place
from stepwell.common.machine import machine_facts


def told_facts(place: Place) -> list[tuple[str, str]]:
    """Return names and values: processor, threads, versions, device.

    Examples
    --------
    >>> [name for name, _ in told_facts(Place())][:3]
    ['Stepwell', 'processor', 'threads']
    """
    facts = machine_facts()
    return [
        ("Stepwell", f"{facts['stepwell']}, compiler {facts['compiler']}, {facts['instructions']}"),
        ("processor", str(facts["cpu"])),
        (
            "threads",
            f"{facts['cores']} by default, {facts['processors']} processors; the BLAS of NumPy and SciPy: 1",
        ),
        ("system", str(facts["system"])),
        ("Python", str(facts["python"])),
        ("NumPy", str(facts["numpy"])),
        ("SciPy", str(facts["scipy"])),
        *place.facts,
    ]
