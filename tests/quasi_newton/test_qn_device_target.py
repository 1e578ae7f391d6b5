"""The CUDA target's own part of a turn, on a device that is this process and launches nothing."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from emulated_device import EmulatedDevice

from stepwell.quasi_newton.cuda import layout as cuda_layout
from stepwell.quasi_newton.cuda import target as cuda_target
from stepwell.quasi_newton.settings import Settings
from stepwell.quasi_newton.state import STATE_DTYPE, WHOLE
from stepwell.quasi_newton.target import Box

RESIDENT = 264


@pytest.fixture
def launches(monkeypatch, tmp_path):
    """Stand-ins for the device; returns what was launched: grid, threads, stream, arguments and how."""
    EmulatedDevice(tmp_path, {}, monkeypatch)
    made = []
    stand_ins = {
        "BLOCK": cuda_layout.BLOCK,
        "resident_kernel": lambda *what: (SimpleNamespace(handle=1), 128, RESIDENT),
        "launch": lambda kernel, *what, **how: made.append((*what, how)),
        "Event": lambda stream: SimpleNamespace(sync=lambda: None, is_done=True),
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(cuda_target, name, stand_in)
    return made


def make(batch, n, dtype="float64"):
    box = Box(np.full(1, -1.0, dtype), np.full(1, 2.0, dtype), True)
    return cuda_target.CudaTarget(np.full((batch, n), 0.5, dtype), box, None, Settings(m=5))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("batch", "n", "blocks"), [(1, 300_000, False), (600, 20, True)])
def test_a_turn_is_one_launch(launches, dtype, batch, n, blocks):
    target = make(batch, n, dtype)
    assert target.running == batch
    assert (target.trial == 0.5).all()
    f, g = np.arange(float(batch)), np.ones((batch, n), dtype)
    for _ in range(20):
        target.turn(f, g, WHOLE)
    assert len(launches) == 20
    grid, threads, stream, engine, states, are_blocks, gradient, values, single, part, how = launches[-1]
    assert (grid, threads, stream) == (RESIDENT, 32 if blocks else 256, 0)
    assert (engine, states) == (target._at["engine"], target._at["states"])
    assert [int(number) for number in (are_blocks, single, part)] == [int(blocks), 0, WHOLE]
    assert gradient == g.ctypes.data
    assert target._f_ring.handle <= values
    assert how == {"shared_bytes": 128, "cooperative": not blocks}


def test_states_come_to_the_host(launches):
    target = make(600, 20)
    states = target.states()
    assert (states.dtype, states.shape) == (STATE_DTYPE, (600,))
    target.stop(3)
    assert target.running == 0
    assert (target.states()["status"] == 3).all()
    assert not launches
