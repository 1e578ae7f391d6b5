"""Values that only some functions meet, or only some libraries make: each is read, or refused by its name."""

from __future__ import annotations

import math

import numpy as np
import pytest

import stepwell
from stepwell import distributed
from stepwell.apps import tomography, unmixing, waveform

A = np.random.default_rng(0).random((6, 3))


@pytest.mark.parametrize("path", [-1, 0, 2**70, np.zeros(2), memoryview(b"ab"), b"ab", None])
def test_what_names_no_file_is_told(path):
    """Numbers are files that are open to Python: 0 is standard input."""
    solver = stepwell.ProjectedCG(A, 0.1)
    solver.solve(np.ones(6))
    optimizer = stepwell.LBFGSB(np.zeros(3))
    for call in (
        optimizer.save, stepwell.LBFGSB.load, solver.save, lambda path: stepwell.ProjectedCG.load(path, A),
        waveform.load_shots,
    ):  # fmt: skip
        with pytest.raises(TypeError, match=r"^path is .*; allowed: a path$"):
            call(path)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_short_numbers_of_torch_are_read(dtype):
    """NumPy has none of these; all of their numbers are doubles."""
    torch = pytest.importorskip("torch")

    def short(values):
        return torch.as_tensor(values).to(getattr(torch, dtype))

    def curve(t, a, k):
        return a * np.exp(-k * t)

    b, t = np.ones(6), np.arange(6.0)
    for call in (
        lambda read: stepwell.tikhonov(A, b, read(0.5)).x,
        lambda read: stepwell.lasso(A, b, read(0.5)).x,
        lambda read: stepwell.tv(np.eye(9), np.ones(9), read(0.5), shape=(3, 3), mask=read(np.ones((3, 3)))).x,
        lambda read: stepwell.tv(np.eye(9), np.ones(9), 0.5, shape=(3, 3), weights=read(np.full((3, 3), 0.5))).x,
        lambda read: stepwell.curve_fit(curve, t, b, p0=[1.0, 1.0], sigma=read(np.full(6, 0.5))).x,
        lambda read: stepwell.curve_fit(curve, t, b, p0=[1.0, 1.0], starts=read(np.full((3, 2), 0.5))).x,
        lambda read: stepwell.minimize(lambda x: (x @ x, 2 * x), read(np.ones(3)), jac=True, options={"maxiter": 1}).x,
    ):
        found, expected = np.asarray(call(short), float), np.asarray(call(np.asarray), float)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_tensors_with_a_graph_are_read_where_applications_take_arrays():
    torch = pytest.importorskip("torch")

    def recorded(values):
        return torch.tensor(np.asarray(values), dtype=torch.float64, requires_grad=True)

    random = np.random.default_rng(1)
    tx, rx, noise, B = random.random((2, 30)), random.random((2, 80)), np.zeros(2), random.random((5, 2))
    count, shots = np.array([70, 80]), waveform.synthetic_shots(2, samples=60, returns=1)
    projections = random.random((3, 2, 9))
    for call in (
        lambda read: waveform.gedi_shots(read(tx), read(rx), count, read(noise), samples=40).waveforms,
        lambda read: tomography.add_noise(read(B), 0.1),
        lambda read: tomography.sinograms(read(projections)),
        lambda read: waveform.convolve(shots, read(shots.truth)),
        lambda read: (
            waveform.deconvolve(
                waveform.Shots(read(shots.waveforms), read(shots.pulses), shots.origin, shots.background)
            ).amplitudes
        ),
    ):
        np.testing.assert_array_equal(call(recorded), call(np.asarray))


@pytest.mark.parametrize("matrix", [np.zeros((3, 3)), [[1.0, -1], [2, -2]], [[3.0], [4]], np.full((3, 3), 1e307)])
def test_the_largest_singular_value_of_unusual_matrices(matrix):
    size = np.abs(matrix).max() or 1.0
    expected = np.linalg.svd(np.asarray(matrix) / size)[1][0] * size
    assert tomography.largest_singular_value(np.asarray(matrix)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_largest_singular_value_of_what_is_not_finite(value):
    with pytest.raises(ValueError, match=r"^A times ones has entries of (nan|inf); allowed: finite numbers"):
        tomography.largest_singular_value(np.full((3, 3), value))


@pytest.mark.parametrize("method", ["nfindr", "vca"])
def test_endmembers_do_not_depend_on_the_unit(method):
    pixels = np.random.default_rng(2).random((40, 4))
    expected = unmixing.extract_endmembers(pixels, 3, method=method)
    for power in (2.0**1023, 2.0**-1000):
        assert unmixing.extract_endmembers(pixels * power, 3, method=method).tolist() == expected.tolist()


def test_a_shape_that_is_not_the_operators():
    same = (lambda x: x, lambda y: y)
    for given, shape in ((same, (1, 0)), (A, (1, 0)), (A, (3, 3))):
        with pytest.raises(ValueError, match=r"^shape is "):
            stepwell.adjoint_error(given, shape=shape)


def test_options_of_argmin():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"^options is 'x'; allowed: None or a dict"):
        stepwell.argmin(lambda x: (x**2).sum(), torch.zeros(2), options="x")


@pytest.mark.parametrize("solve", [stepwell.tikhonov, stepwell.lasso])
@pytest.mark.parametrize("axis", [0, 1])
def test_crossed_bounds_are_told_as_such(solve, axis):
    B = np.ones((6, 2)) if axis == 1 else np.ones((2, 6))
    lower, upper = np.array([0.0, -1, 0]), np.array([1.0, -2, 1])
    with pytest.raises(ValueError, match=r"^bounds: lower > upper at index 1 \(-1 > -2\); allowed: lower <= upper"):
        solve(A, B, 0.1, bounds=(lower, upper), axis=axis)
    both = np.stack([upper, upper + 1.5])
    place = r"\(0, 1\)" if axis == 0 else r"\(1, 0\)"
    with pytest.raises(ValueError, match=rf"^bounds: lower > upper at index {place} "):
        solve(A, B, 0.1, bounds=(lower, both if axis == 0 else both.T), axis=axis)


def test_layouts_that_differ_are_told_by_the_arguments_of_split():
    def program(comm):
        layout = distributed.split(30_000, comm, chunk=None if comm.rank == 0 else 512)
        return stepwell.minimize(lambda x: (layout.chunk_sums(x), x), np.ones(layout.end - layout.begin), jac=True,
                                 comm=layout)  # fmt: skip

    with pytest.raises(ValueError, match=r"^chunk of the layout is 0 on rank 0 and 512 on rank 1; allowed: the same"):
        distributed.run_threads(2, program)


def test_limits_of_a_rank_alone_are_read(monkeypatch):
    monkeypatch.setenv("STEPWELL_RANK_TIMEOUT", "foo")
    with pytest.raises(ValueError, match=r"^STEPWELL_RANK_TIMEOUT is 'foo'"):
        distributed.split(300, "self")
