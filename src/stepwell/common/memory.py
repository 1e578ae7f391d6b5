"""How much memory of the host is free."""

from __future__ import annotations


def available_memory() -> int | None:
    """Return the bytes that the system can still hand out, or None where it does not tell."""
    try:
        with open("/proc/meminfo") as lines:
            fields = dict(line.split(":", 1) for line in lines)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
