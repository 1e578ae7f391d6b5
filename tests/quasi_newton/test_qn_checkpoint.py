"""Runs in files: written in one step, checked when read, taken up bit for bit, also after SIGKILL at any moment."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from full_disk import full_disk
from qn_oracles import Quadratic, random_box, run
from scipy.optimize import OptimizeWarning

import stepwell
from stepwell import LBFGSB, Status
from stepwell.common import checkpoints
from stepwell.common.files import Unreadable
from stepwell.quasi_newton import saved_state

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "helpers/killed_runs.py"


class Stop(Exception):
    """Ends a run from within its objective, as a crash would."""


def problem(n=40):
    fun = Quadratic(n, np.random.default_rng(3), condition=1e3, quartic=0.5, shift=3.0)
    lower, upper, x0 = random_box(n, np.random.default_rng(4))
    return fun, x0, (lower, upper)


def stopping(fun, after):
    """The same function, which fails after so many evaluations."""
    calls = [0]

    def failing(x):
        calls[0] += 1
        if calls[0] > after:
            raise Stop
        return fun(x)

    return failing


def same_end(one, two):
    return (
        np.array_equal(one.x, two.x)
        and np.array_equal(one.jac, two.jac, equal_nan=True)  # fixed variables are not differenced
        and (one.fun, one.nit, one.nfev, one.njev, one.reason) == (two.fun, two.nit, two.nfev, two.njev, two.reason)
        and np.array_equal(one.hess_inv.todense(), two.hess_inv.todense())
    )


@pytest.mark.parametrize("kind", ["plain", "bounded", "h0", "callable h0", "float32", "va15", "differences", "shape"])
def test_a_run_that_breaks_off_is_taken_up_bit_for_bit(kind, tmp_path):
    fun, x0, bounds = problem()
    options = {"gtol": 1e-9, "ftol": 0.0, "maxiter": 60}
    given = {"jac": True, "bounds": None if kind == "plain" else bounds}
    objective = fun
    if kind == "h0":
        options["h0"] = np.linspace(0.1, 1, 40)
    elif kind == "callable h0":
        options["h0"] = lambda x: 1 / (5 + x * x)
    elif kind == "float32":
        x0 = x0.astype(np.float32)
        given["bounds"] = (-2.0, 2.0)
        options["gtol"] = 1e-3
    elif kind == "va15":
        options["line_search"] = "va15"
    elif kind == "differences":
        given["jac"] = "3-point"
        objective = lambda x: float(fun(x)[0])  # noqa: E731
        options["maxiter"] = 12
    elif kind == "shape":
        x0 = x0.reshape(5, 8)
        given["bounds"] = (-2.0, 2.0)
        objective = lambda x: (fun(x.ravel())[0], fun(x.ravel())[1].reshape(5, 8))  # noqa: E731
    whole = stepwell.minimize(objective, x0, options=options, **given)
    assert whole.nit > 10
    path = tmp_path / "run.ckpt"
    often = 3 * 81 if kind == "differences" else 7
    for _ in range(100):
        with contextlib.suppress(Stop):
            r = stepwell.minimize(
                stopping(objective, often), x0, options=options, checkpoint=path, checkpoint_every=1, **given
            )
            break
    assert same_end(r, whole)
    assert sorted(os.listdir(tmp_path)) == ["run.ckpt"]


def test_what_ends_a_run_that_could_go_on_leaves_it_in_the_file(tmp_path):
    """A callback, Ctrl-C, a time limit and a limit on iterations: the next call goes on as if nothing had been."""
    fun, x0, bounds = problem()
    rest = {"jac": True, "bounds": bounds, "checkpoint": tmp_path / "run.ckpt", "checkpoint_every": "1 h"}
    whole = stepwell.minimize(fun, x0, jac=True, bounds=bounds, options={"gtol": 1e-9, "ftol": 0})

    def stop(intermediate_result):
        if intermediate_result.nit == 5:
            raise StopIteration

    assert stepwell.minimize(fun, x0, callback=stop, **rest).reason is Status.CALLBACK
    assert LBFGSB.load(tmp_path / "run.ckpt").nit == 5

    def interrupted(x):
        interrupted.calls += 1
        if interrupted.calls == 5:
            raise KeyboardInterrupt
        return fun(x)

    interrupted.calls = 0
    with pytest.raises(stepwell.Interrupted) as caught:
        stepwell.minimize(interrupted, x0, **rest)
    assert caught.value.result.nit > 5
    assert LBFGSB.load(tmp_path / "run.ckpt").nit == caught.value.result.nit
    assert stepwell.minimize(fun, x0, options={"time_limit": 1e-9}, **rest).reason is Status.TIME_LIMIT
    limited = stepwell.minimize(fun, x0, options={"maxiter": 15}, **rest | {"checkpoint_every": 1})
    assert limited.reason is Status.MAX_ITERATIONS
    for _ in range(2):  # a run that has ended ends the same way again
        assert same_end(stepwell.minimize(fun, x0, options={"gtol": 1e-9, "ftol": 0}, **rest), whole)


def test_a_file_of_another_run_is_refused(tmp_path):
    fun, x0, bounds = problem()
    path = tmp_path / "run.ckpt"
    given = {"jac": True, "bounds": bounds, "checkpoint": path, "checkpoint_every": 1}
    with pytest.raises(Stop):
        stepwell.minimize(stopping(fun, 8), x0, **given)
    before = path.read_bytes()
    lower, upper = bounds
    for words, other in (
        ("another x0", {"x0": np.clip(x0 + 0.01, lower, upper)}),
        ("another shape of x0", {"x0": x0[:-1], "bounds": None}),
        ("another dtype", {"x0": x0.astype(np.float32), "bounds": None}),
        ("another lower bound", {"bounds": (lower - 1, upper)}),
        ("another upper bound", {"bounds": (lower, upper + 1)}),
        ("another upper bound|another lower bound", {"bounds": None}),
        ("another m", {"options": {"maxcor": 5}}),
        ("another cauchy", {"options": {"cauchy": "none"}}),
        ("another line_search", {"options": {"line_search": "va15"}}),
        ("another h0", {"options": {"h0": np.ones(40)}}),
        ("another h0", {"options": {"h0": lambda x: np.ones(40)}}),
        ("f is .* where fun gives", {"fun": lambda x: (fun(x)[0] * 1.001, fun(x)[1] * 1.001)}),
    ):
        arguments = {"fun": fun, "x0": x0, **given} | other
        with pytest.raises(ValueError, match=words):
            stepwell.minimize(**arguments)
    assert path.read_bytes() == before
    for wrong in (0, -1, 1.5, True, "30", "s", "-3 s", None):
        with pytest.raises(ValueError, match="checkpoint_every is"):
            stepwell.minimize(fun, x0, **given | {"checkpoint_every": wrong})
    for wrong in (3, tmp_path, tmp_path / "none" / "run.ckpt"):
        with pytest.raises(ValueError, match="checkpoint is"):
            stepwell.minimize(fun, x0, **given | {"checkpoint": wrong})


def test_a_full_disk_is_a_warning_and_the_old_file_stays(tmp_path):
    fun, x0, bounds = problem()
    path = tmp_path / "run.ckpt"
    given = {"jac": True, "bounds": bounds, "checkpoint": path, "checkpoint_every": 1, "options": {"gtol": 1e-9}}
    whole = stepwell.minimize(fun, x0, jac=True, bounds=bounds, options={"gtol": 1e-9})
    with pytest.raises(Stop):
        stepwell.minimize(stopping(fun, 8), x0, **given)
    before = path.read_bytes()
    with full_disk(), pytest.warns(OptimizeWarning, match="the run goes on") as told:
        assert same_end(stepwell.minimize(fun, x0, **given), whole)
    assert len(told) == 1
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.ckpt"]


@pytest.mark.parametrize("h0", [None, lambda x: 1 / (5 + x * x)], ids=["plain", "callable"])
def test_optimizers_in_files(h0, tmp_path):
    fun, x0, bounds = problem()
    opt = LBFGSB(x0, bounds, h0=h0, gtol=1e-9)
    opt.save(tmp_path / "start")
    run(opt, fun, 9)
    opt.save(tmp_path / "nine")
    run(opt, fun)
    opt.save(tmp_path / "end")
    for name in ("start", "nine", "end"):
        again = LBFGSB.load(tmp_path / name, h0=h0)
        run(again, fun)
        assert np.array_equal(again.x, opt.x)
        assert (again.nit, again.nfev, again.status, again.fun) == (opt.nit, opt.nfev, opt.status, opt.fun)
    assert "checkpoint" in np.load(tmp_path / "nine")  # an npz file, without pickle
    if h0 is not None:
        with pytest.raises(ValueError, match="h0 is None; allowed: a callable, as in the saved run"):
            LBFGSB.load(tmp_path / "nine")


def rewritten(path, **fields):
    """Another file with some fields changed, and the checksum that belongs to them."""
    held = checkpoints.read(path, "quasi-Newton run") | fields
    other = path.with_suffix(".other")
    checkpoints.write(other, "quasi-Newton run", held)
    return other


@pytest.mark.parametrize("step", [23, pytest.param(7, marks=pytest.mark.slow)])
def test_every_byte_counts(tmp_path, step):
    """Bytes changed, and other lengths: an error, or, where a byte of the archive says nothing, the same run.

    The fuzzer (tests/fuzz.py) goes through all of them.
    """
    opt = run(LBFGSB(np.ones(2), (0.0, 2.0), m=1), Quadratic(2, np.random.default_rng(0)), 1)
    path = tmp_path / "run.ckpt"
    opt.save(path)
    whole = path.read_bytes()
    damaged = tmp_path / "damaged"
    taken = 0
    rng = np.random.default_rng(0)
    for place in range(0, len(whole), step):
        bits = (1 << int(rng.integers(8)), 0xFF)
        contents = [whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :] for bit in bits]
        for content in (*contents, whole[:place]):
            damaged.write_bytes(content)
            try:
                again = LBFGSB.load(damaged)
            except Unreadable:
                continue
            taken += 1
            assert np.array_equal(again.state_dict()["states"], opt.state_dict()["states"])
            assert np.array_equal(again.x, opt.x)
    assert taken < len(whole) // (2 * step)  # times, flags and sizes that zipfile does not look at


def test_files_that_are_no_runs(tmp_path):
    fun, x0, bounds = problem()
    opt = run(LBFGSB(x0, bounds), fun, 4)
    path = tmp_path / "run.ckpt"
    opt.save(path)
    with pytest.raises(Unreadable, match="version 99"):
        LBFGSB.load(rewritten(path, version=99))
    with pytest.raises(Unreadable, match="outside the bounds"):
        LBFGSB.load(rewritten(path, trial=np.full((1, 40), 1e9)))
    with pytest.raises(Unreadable, match=r"state\['g'\] is"):
        LBFGSB.load(rewritten(path, g=np.ones((1, 3))))
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(Unreadable, match="is not a checkpoint"):
        LBFGSB.load(tmp_path / "other.npz")
    stepwell.ProjectedCG(np.eye(3), 0.1).save(tmp_path / "solver")
    with pytest.raises(Unreadable, match="is a checkpoint of 'ProjectedCG'; allowed: 'quasi-Newton run'"):
        LBFGSB.load(tmp_path / "solver")
    with pytest.raises(FileNotFoundError):
        LBFGSB.load(tmp_path / "none")
    with np.load(path) as held:
        parts = dict(held)
    head = json.loads(str(parts["checkpoint"]))
    for change in ({"version": 2}, {"arrays": []}, {"plain": 3}, {"sha256": "0"}, {"kind": None}, {"arrays": [1]}):
        np.savez(tmp_path / "changed.npz", **parts | {"checkpoint": np.array(json.dumps(head | change))})
        with pytest.raises(Unreadable):
            LBFGSB.load(tmp_path / "changed.npz")


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 100_000, "", "null", "[]", "1" * 10_000, '{"kind": {}}'])
def test_hostile_heads_are_told_with_the_file(text, tmp_path):
    path = tmp_path / "run.ckpt"
    LBFGSB(np.ones(3)).save(path)
    with np.load(path) as held:
        parts = dict(held)
    with path.open("wb") as file:
        np.savez(file, **parts | {"checkpoint": np.array(text)})
    for read in (LBFGSB.load, lambda name: stepwell.ProjectedCG.load(name, np.eye(3))):
        with pytest.raises(Unreadable, match=r"run\.ckpt: "):
            read(path)


@pytest.mark.parametrize("settings", ["[" * 200_000, "null", "[]", '{"line_search": 3}', '{"m": 1e999}'])
def test_hostile_settings_are_told(settings, tmp_path):
    """With a checksum that is right: of a file with its name, of a dict as `state`."""
    path = tmp_path / "run.ckpt"
    opt = LBFGSB(np.ones(3))
    opt.save(path)
    fields = checkpoints.read(path, "quasi-Newton run")
    checkpoints.write(path, "quasi-Newton run", fields | {"settings": settings})
    with pytest.raises(Unreadable, match=r"run\.ckpt: "):
        LBFGSB.load(path)
    state = opt.state_dict() | {"settings": settings}
    state["checksum"] = saved_state._checksum(state)
    with pytest.raises(ValueError, match="state"):
        LBFGSB.from_state_dict(state)


def test_a_bomb_is_refused_by_what_it_tells(tmp_path):
    """An eighth of a megabyte that unpacks to an eighth of a gigabyte, with the fields of a checkpoint."""
    path = tmp_path / "run.ckpt"
    LBFGSB(np.ones(3)).save(path)
    with np.load(path) as held:
        parts = dict(held)
    with path.open("wb") as file:
        np.savez_compressed(file, **parts | {"x": np.zeros((1, 2**24))})
    tracemalloc.start()
    with pytest.raises(Unreadable, match=r"run\.ckpt: unpacks to \d+ bytes, and has \d+ itself"):
        LBFGSB.load(path)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_two_processes_do_not_write_one_file(tmp_path):
    path = tmp_path / "run.ckpt"
    opt = LBFGSB(np.ones(3))
    opt.save(path)
    before = path.read_bytes()
    with stepwell.common.files.replacing(path, again=True) as file:
        file.write(b"half")
        file.flush()
        with pytest.raises(BlockingIOError, match="another process is writing to it"):
            opt.save(path)
        assert path.read_bytes() == before
        file.truncate(0)
        file.seek(0)
        file.write(before)
    assert os.listdir(tmp_path) == ["run.ckpt"]
    LBFGSB.load(path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["minimize", "differences"])
def test_killed_at_random_moments(kind, tmp_path):
    """SIGKILL; `python tests/helpers/killed_runs.py ... --kills 200` does it as often as one likes."""
    command = [sys.executable, PROGRAM, kind, tmp_path, "--kills", "25", "--seed", "7"]
    out = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stdout + out.stderr
    assert out.stdout.startswith("25 kills")
