"""Structures of the compiled core as ctypes: the module says where each field lies, nobody mirrors it by hand."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from stepwell import _core

_KINDS: dict[str, Any] = {
    "double": ctypes.c_double,
    "bool": ctypes.c_bool,
    "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "address": ctypes.c_void_p,
}


@functools.cache
def structure(name: str) -> Any:
    """Return the ctypes structure that has the layout of a structure of the core.

    Raises
    ------
    AssertionError
        Where the fields that the core names do not fill its structure as ctypes lays them out.

    Examples
    --------
    >>> structure("NnlsOptions")(damping=0.5).damping
    0.5
    """
    size, declared = _core.LAYOUTS[name]
    fields = [(field, _KINDS.get(kind) or structure(kind)) for field, kind, _ in declared]
    made = type(name, (ctypes.Structure,), {"_fields_": fields, "__doc__": f"The core's struct {name}."})
    assert ctypes.sizeof(made) == size, (name, ctypes.sizeof(made), size)
    for field, _, offset in declared:
        assert getattr(made, field).offset == offset, (name, field)
    return made
