"""What ProjectedCG keeps, in a file: a solver that is taken up goes on bit for bit, also after SIGKILL."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest
from full_disk import full_disk
from scipy.optimize import OptimizeWarning

import stepwell
from stepwell.common import checkpoints
from stepwell.common.files import Unreadable

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "helpers/killed_runs.py"
RNG = np.random.default_rng(5)
A = RNG.standard_normal((200, 160))
B = RNG.standard_normal((200, 12)) + 2 * RNG.standard_normal((200, 1))


@pytest.mark.parametrize("augmented", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("memory", [2**28, 150 * 8 * 520], ids=["all kept", "some dropped"])
@pytest.mark.parametrize("size", [1.0, 1e-200])
@pytest.mark.parametrize("loaded", [(7, 11), pytest.param((0, 1), marks=pytest.mark.slow)], ids=["late", "early"])
def test_a_loaded_solver_goes_on_with_the_same_bits(loaded, augmented, dtype, memory, size, tmp_path):
    if dtype == "f4" and size != 1:
        pytest.skip("no float32 is that small")
    a, b = (size * A).astype(dtype), B.astype(dtype)
    tol = 1e-9 if dtype == "f8" else 1e-4
    solver = stepwell.ProjectedCG(a, 0.2 * size, memory=memory, augmented=augmented)
    for k in range(12):
        solver.save(tmp_path / str(k))
        solver.solve(b[:, k], tol=tol)
    want = solver.solve(b[:, 0] + b[:, 1], tol=tol)
    for k in loaded:
        again = stepwell.ProjectedCG.load(tmp_path / str(k), a)
        assert again.solved == k
        for rest in range(k, 12):
            again.solve(b[:, rest], tol=tol)
        got = again.solve(b[:, 0] + b[:, 1], tol=tol)
        assert np.array_equal(got.x, want.x)
        assert got.iterations == want.iterations
        assert again.directions == solver.directions


def test_a_checkpoint_is_written_before_the_next_solve(tmp_path):
    path = tmp_path / "kept.ckpt"
    given = {"augmented": True, "checkpoint": path, "checkpoint_every": 2}
    solver = stepwell.ProjectedCG(A, 0.2, **given)
    solver.solve(B[:, 0])
    solver.solve(B[:, 1])
    assert not path.exists()
    solver.solve(B[:, 2])
    assert stepwell.ProjectedCG.load(path, A).solved == 2
    again = stepwell.ProjectedCG(A, 0.2, **given)
    assert again.solved == 2
    for k in range(2, 5):
        got = again.solve(B[:, k])
    for k in range(3, 5):
        want = solver.solve(B[:, k])
    assert np.array_equal(got.x, want.x)
    for other, words in (({"augmented": False}, "augmented is True; allowed: False"), ({"memory": 1e8}, "memory is")):
        with pytest.raises(ValueError, match=words):
            stepwell.ProjectedCG(A, 0.2, **given | other)
    with pytest.raises(ValueError, match=r"lam is 0\.2; allowed: 0\.3"):
        stepwell.ProjectedCG(A, 0.3, **given)
    with pytest.raises(ValueError, match="not the operators"):
        stepwell.ProjectedCG(A[::-1] * 2, 0.2, **given)
    with pytest.raises(ValueError, match="checkpoint_every is 0; allowed: a whole number of right-hand sides"):
        stepwell.ProjectedCG(A, 0.2, checkpoint=path, checkpoint_every=0)
    before = path.read_bytes()
    again.solve(B[:, 5])
    with full_disk(), pytest.warns(OptimizeWarning, match="the solver goes on"):
        again.solve(B[:, 6])
    assert path.read_bytes() == before


def test_files_whose_parts_do_not_fit_are_refused(tmp_path):
    solver = stepwell.ProjectedCG(A, 0.2)
    solver.solve(B[:, 0])
    solver.save(tmp_path / "whole")
    held = checkpoints.read(tmp_path / "whole", "ProjectedCG")
    rows = held["directions"].shape[0]
    for change in (
        {"version": 99},
        {"solved": -1},
        {"unit": 0.0},
        {"products": held["products"][:-1]},
        {"products": held["products"][:, :-1]},
        {"directions": np.full_like(held["directions"], np.nan)},
        {"panels": np.array([[rows + 1, rows + 1]])},
        {"panels": np.array([[rows, 10**9]])},
        {"panels": np.array([rows, rows])},
        {"scores": np.array(1.0)},
    ):
        checkpoints.write(tmp_path / "changed", "ProjectedCG", held | change)
        with pytest.raises(Unreadable, match="changed: "):
            stepwell.ProjectedCG.load(tmp_path / "changed", A)


def test_a_second_thread_is_refused():
    solver = stepwell.ProjectedCG(A, 0.2)
    inside, go_on = threading.Event(), threading.Event()

    def wait(_):
        inside.set()
        go_on.wait(60)

    first = threading.Thread(target=solver.solve, args=(B[:, 0],), kwargs={"callback": wait})
    first.start()
    inside.wait(60)
    with pytest.raises(RuntimeError, match="this ProjectedCG is in use"):
        solver.solve(B[:, 1])
    go_on.set()
    first.join()
    assert solver.solve(B[:, 1]).success


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path):
    command = [sys.executable, PROGRAM, "projected", tmp_path, "--kills", "20", "--seed", "3"]
    out = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stdout + out.stderr
    assert out.stdout.startswith("20 kills")
