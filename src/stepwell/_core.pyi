"""Compiled module; see src/host."""

from typing import Any

def __getattr__(name: str) -> Any: ...
