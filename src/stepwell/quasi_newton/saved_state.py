"""A run as plain arrays: what `LBFGSB.state_dict` returns, and the checks before an engine goes on from it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.common.checks import require_kind
from stepwell.quasi_newton.settings import LineSearch, Settings
from stepwell.quasi_newton.state import ARRAYS, STATE_DTYPE, history_array_dtype

VERSION = 6
_NEEDED = {"shape", "settings", "weights_vary", "checksum", *ARRAYS}
_OPTIONAL = ("lower", "upper", "weights")


def as_text(settings: Settings) -> str:
    """Return settings as JSON."""
    return json.dumps(dataclasses.asdict(settings), default=lambda number: number.item())


def with_checksum(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `Run.state` put together as copies, with a checksum."""
    copies = {name: np.array(part) if isinstance(part, np.ndarray) else part for name, part in state.items()}
    return copies | {"checksum": _checksum(copies)}


def _checksum(state: Mapping[str, Any]) -> str:
    digest = hashlib.sha256()
    plain = (
        int(state["version"]),
        tuple(map(int, state["shape"])),
        str(state["settings"]),
        bool(state["weights_vary"]),
    )
    digest.update(repr(plain).encode())
    for name in (*_OPTIONAL, *ARRAYS):
        if name in state:
            array = np.ascontiguousarray(state[name])
            digest.update(repr((name, str(array.dtype), array.shape)).encode())
            digest.update(array.data if array.size else b"")
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Saved:
    """A state that has been checked, every field against every other."""

    shape: tuple[int, ...]
    settings: Settings
    weights_vary: bool
    lower: np.ndarray | None
    upper: np.ndarray | None
    weights: np.ndarray | None
    arrays: dict[str, np.ndarray]

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the variables."""
        return self.arrays["x"].dtype


def unpack(state: Mapping[str, Any], *, from_file: bool = False) -> Saved:
    """Check a state and return copies of what it holds; `from_file`: its own arrays, their checksum checked already."""
    require_kind(hasattr(state, "keys"), "state", state, "what state_dict() returned")
    state = {name: state[name] for name in state}  # a file of arrays reads one each time it is asked
    version = state.get("version")
    if _whole(version) != VERSION:
        raise ValueError(f"state has version {version!r}; allowed: {VERSION}")
    missing = sorted(_NEEDED - ({"checksum"} if from_file else set()) - set(state))
    if missing:
        raise ValueError(f"state lacks {missing}; allowed: what state_dict() returned")
    try:
        saved = _read(state, from_file)
    except (TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"state holds values of other kinds: {error!r}; allowed: what state_dict() returned, unchanged"
        ) from error
    _require_shapes(saved)
    _require_sound(saved)
    return saved


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _read(state: Mapping[str, Any], from_file: bool) -> Saved:
    """Make of a state that has all its names what they stand for."""
    if not from_file and _checksum(state) != str(state["checksum"]):
        raise ValueError("state has another checksum than its contents; allowed: what state_dict() returned, unchanged")
    kept = json.loads(str(state["settings"]))
    settings = Settings(**kept | {"line_search": LineSearch(**kept["line_search"])})
    own = np.ascontiguousarray if from_file else functools.partial(np.array, order="C")
    arrays = {name: own(state[name]) for name in ARRAYS}
    optional = {name: own(state[name]) if name in state else None for name in _OPTIONAL}
    return Saved(tuple(map(int, state["shape"])), settings, bool(state["weights_vary"]), **optional, arrays=arrays)


def _require_shapes(saved: Saved) -> None:
    n, m = math.prod(saved.shape), int(saved.settings.m)
    if saved.dtype not in (np.float64, np.float32):
        raise ValueError(f"state['x'] has dtype {saved.dtype}; allowed: float64, float32")
    vectors = dict.fromkeys(("trial", "x", "g", "d"), (1, n)) | dict.fromkeys(("s", "y"), (1, m, n))
    wanted: dict[str, tuple[tuple[int, ...], Any]] = {name: (shape, saved.dtype) for name, shape in vectors.items()}
    history = history_array_dtype(saved.settings.history_dtype(saved.dtype == np.float32))
    wanted |= {name: (wanted[name][0], history) for name in "sy"}
    wanted["states"] = ((1, int(_core.STATE_SIZE)), np.dtype(np.uint8))
    wanted["small"] = ((1, int(_core.small_length(m))), np.dtype(np.float64))
    found = dict(saved.arrays)
    for name in _OPTIONAL:
        array = getattr(saved, name)
        if array is not None:
            found[name] = array
            number = name != "weights" and array.shape == (1,)
            own = name == "weights" and saved.weights_vary
            wanted[name] = ((1,) if number else (1, n) if own else (n,), saved.dtype)
    for name, array in found.items():
        shape, dtype = wanted[name]
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(f"state[{name!r}] is {array.shape}, {array.dtype}; allowed: {shape}, {dtype}")
    if (saved.lower is None) != (saved.upper is None):
        raise ValueError("state has one of lower and upper; allowed: both or neither")
    if saved.weights_vary and saved.weights is None:
        raise ValueError("state has no weights, but weights_vary; allowed: what state_dict() returned")


def _require_sound(saved: Saved) -> None:
    record = saved.arrays["states"].reshape(-1).view(STATE_DTYPE)[0]
    m = int(saved.settings.m)
    good = (
        0 <= record["pairs"] <= m
        and 0 <= record["head"] < m
        and record["started"] in (0, 1)
        and record["own_bounds"] == 0
    )
    good = good and record["status"] in _core.STATUSES.values() and record["evaluations"] >= record["iterations"] >= 0
    if not good:
        raise ValueError("state['states'] holds no state of the engine; allowed: what state_dict() returned")
    if saved.weights is not None and not bool((np.isfinite(saved.weights) & (saved.weights > 0)).all()):
        raise ValueError("state['weights'] are not all positive, finite numbers")
    if saved.lower is None or saved.upper is None:
        return
    trial = saved.arrays["trial"][0]
    if not bool(((saved.lower <= trial) & (trial <= saved.upper)).all()):
        raise ValueError("state['trial'] lies outside the bounds of the state; allowed: points inside")
