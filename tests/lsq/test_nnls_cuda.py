"""NNLS on a CUDA device against the CPU: same status, same residual, answers within conditioning."""

from __future__ import annotations

import numpy as np
import pytest
from device_arrays import on_device, on_host
from nnls_cases import certified, decays, gaussians, gedi, lidar, solved, uniform, violation

import stepwell
from stepwell import NNLSStatus

pytestmark = pytest.mark.cuda


def check_parity(A, b, library="torch", **options):
    """Solve on both targets; hold the device's answer against the CPU's and against A itself."""
    matrix = A
    if isinstance(A, stepwell.Convolution):
        device_matrix = stepwell.Convolution(on_device(library, A.pulse), A.n, m=A.m, origin=A.origin)
        matrix = A.dense()
    else:
        device_matrix = on_device(library, A)
    device = solved(device_matrix, on_device(library, b), **options)
    host = certified(A, b, **options)
    np.testing.assert_array_equal(on_host(device.status), host.status)
    norms = np.linalg.norm(b, axis=-1)
    np.testing.assert_allclose(on_host(device.residual), host.residual, rtol=1e-9, atol=1e-12 * norms.max())
    x = on_host(device.x)
    for s in range(len(b)):
        own = matrix[s] if matrix.ndim == 3 else matrix
        size = 1 + (np.linalg.norm(own, axis=0) * x[s]).sum() / max(norms[s], 1e-300)
        assert violation(own, b[s], x[s], options.get("lam", 0.0)) <= 1e-12 * size
    return device, host


def test_every_library(library):
    A, b = uniform(5, 60)
    device, host = check_parity(A, b, library)
    assert type(device.x).__module__.split(".")[0] in (library, "jaxlib")
    x, residual = stepwell.nnls(on_device(library, A[0]), on_device(library, b[0]))
    np.testing.assert_allclose(on_host(x), host.x[0], atol=1e-12)
    assert residual == pytest.approx(host.residual[0], rel=1e-12)


@pytest.mark.parametrize("make", [lidar, gaussians, uniform, gedi, decays], ids=lambda f: f.__name__)
@pytest.mark.parametrize("method", ["auto", "qr"])
def test_the_papers_systems_and_real_shots(torch, make, method):
    A, b = make(400 if make is decays else 8)
    device, host = check_parity(A, b, method=method)
    assert np.all(on_host(device.status) == NNLSStatus.CONVERGED)
    assert on_host(device.insertions).mean() == pytest.approx(host.insertions.mean(), rel=0.25)


@pytest.mark.parametrize("update", ["mgs", "rotations", "csne"])
def test_every_update(torch, update):
    A, b = uniform(4, 70)
    check_parity(A, b, method="qr", update=update)


@pytest.mark.parametrize("shape", [(200, 8), (8, 30), (30, 8), (31, 33), (1, 1), (300, 40), (40, 300), (2500, 20)])
@pytest.mark.parametrize("shared", [True, False])
def test_shapes(torch, shape, shared):
    rng = np.random.default_rng(sum(shape))
    A = rng.normal(size=shape if shared else (9, *shape))
    check_parity(A, rng.normal(size=(9, shape[0])))


def test_dependent_columns_and_scales(torch):
    rng = np.random.default_rng(0)
    A = rng.integers(-3, 4, (200, 6, 5)).astype(float)
    A[:, :, 1] = A[:, :, 3]
    A[50:100] *= 1e-150
    A[100:150] *= 1e150
    b = rng.integers(-3, 4, (200, 6)).astype(float)
    device = stepwell.nnls(on_device("torch", A), on_device("torch", b))
    host = stepwell.nnls(A, b)
    np.testing.assert_allclose(on_host(device.residual), host.residual, atol=1e-9)


def test_damping_warm_start_and_convolution(torch):
    A, b = uniform(6, 50)
    check_parity(A, b, lam=0.4)
    check_parity(A[0], b, lam=0.4)
    cold = stepwell.nnls(on_device("torch", A), on_device("torch", b))
    for start in (cold.x, cold.positive, cold.x[0], "chain"):
        warm = stepwell.nnls(on_device("torch", A), on_device("torch", b), warm_start=start)
        np.testing.assert_allclose(on_host(warm.x), on_host(cold.x), atol=1e-10)
    pulses = np.exp(-0.5 * ((np.arange(30) - 10) / np.linspace(2, 4, 6)[:, None]) ** 2)
    check_parity(stepwell.Convolution(pulses, 50, origin=10), b)
    check_parity(stepwell.Convolution(pulses[0], 50, origin=10), b)


def test_float32(torch):
    A, b = uniform(4, 40)
    single = stepwell.nnls(on_device("torch", A.astype(np.float32)), on_device("torch", b.astype(np.float32)))
    assert single.x.dtype == torch.float32
    host = stepwell.nnls(A.astype(np.float32), b.astype(np.float32))
    np.testing.assert_allclose(on_host(single.x), host.x, atol=1e-6)


def test_trouble_is_a_status(torch):
    A, b = uniform(4, 60)
    A[1, 0, 0], b[2, 3] = np.nan, np.inf
    result = stepwell.nnls(on_device("torch", A), on_device("torch", b))
    assert on_host(result.status).tolist() == [0, 4, 4, 0]
    assert np.all(np.isnan(on_host(result.x)[1:3]))
    limited = stepwell.nnls(on_device("torch", A[[0, 3]]), on_device("torch", b[[0, 3]]), maxiter=2)
    assert on_host(limited.status).tolist() == [1, 1]
    with pytest.raises(ValueError, match="b is inf at index 3; allowed: finite numbers"):
        stepwell.nnls(on_device("torch", A[0]), on_device("torch", b[2]))
    with pytest.raises(
        ValueError, match="A is a torch array on cuda:0, b a torch array on cpu; allowed: one library and one device"
    ):
        stepwell.nnls(on_device("torch", A[0]), torch.ones(60, dtype=torch.float64))


def test_memory_order_and_streams(torch):
    A, b = uniform(5, 60)
    expected = on_host(stepwell.nnls(on_device("torch", A), on_device("torch", b)).x)
    turned = on_device("torch", A.transpose(0, 2, 1).copy()).transpose(1, 2)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        x = stepwell.nnls(turned, on_device("torch", b)).x
    stream.synchronize()
    np.testing.assert_array_equal(on_host(x), expected)


def test_answers_do_not_depend_on_the_batch(torch):
    A, b = uniform(40, 100)
    device_A, device_b = on_device("torch", A), on_device("torch", b)
    together = on_host(stepwell.nnls(device_A, device_b).x)
    np.testing.assert_array_equal(on_host(stepwell.nnls(device_A, device_b).x), together)
    for s in (0, 17, 39):
        np.testing.assert_array_equal(
            on_host(stepwell.nnls(device_A[s : s + 1], device_b[s : s + 1]).x[0]), together[s]
        )


def test_what_threads_leave(torch):
    """Decays without noise, which the normal equations alone cannot solve, among noisy ones: as good as the CPU's."""
    A, b = decays(300)
    x = np.zeros((300, A.shape[1]))
    x[np.arange(300)[:, None], np.random.default_rng(0).integers(3, 37, (300, 3))] = (0.2, 0.5, 0.3)
    exact = np.arange(300) % 3 == 0
    b[exact] = x[exact] @ A.T
    device, host = check_parity(A, b)
    size = np.linalg.norm(b, axis=1) + x @ np.linalg.norm(A, axis=0)
    rounding = 2 * np.finfo(float).eps * size  # of b itself, and of b - A x
    assert np.all(on_host(device.residual) <= 1.01 * host.residual + rounding)
    alone = stepwell.nnls(on_device("torch", A), on_device("torch", b[:2]))
    np.testing.assert_array_equal(on_host(alone.x), on_host(device.x)[:2])


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("lam", [0.0, 0.3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_threads_do_not_see_the_batch(torch, own, lam, dtype):
    rng = np.random.default_rng(4)
    A = rng.random((300, 90, 12) if own else (90, 12)).astype(dtype)
    b = (rng.random((300, 90)) - 0.2).astype(dtype)
    device_A, device_b = on_device("torch", A), on_device("torch", b)
    together = stepwell.nnls(device_A, device_b, lam=lam)
    for s in (0, 17, 298):
        part = device_A[s : s + 2] if own else device_A
        alone = stepwell.nnls(part, device_b[s : s + 2], lam=lam)
        for name in ("x", "dual", "residual", "violation", "status", "insertions"):
            np.testing.assert_array_equal(
                on_host(getattr(alone, name)), on_host(getattr(together, name))[s : s + 2], err_msg=name
            )
    host = stepwell.nnls(A, b, lam=lam)
    np.testing.assert_allclose(on_host(together.x), host.x, atol=1e-10 if dtype == "float64" else 1e-5)
    np.testing.assert_allclose(on_host(together.residual), host.residual, rtol=1e-12 if dtype == "float64" else 1e-6)


@pytest.mark.parametrize(("systems", "rows", "columns"), [(0, 3, 2), (2, 0, 3), (2, 3, 0)])
def test_nothing_to_do(library, systems, rows, columns):
    A, b = np.ones((systems, rows, columns)), np.ones((systems, rows))
    device, host = stepwell.nnls(on_device(library, A), on_device(library, b)), stepwell.nnls(A, b)
    for name in ("x", "dual", "state", "residual", "violation", "status", "insertions"):
        np.testing.assert_allclose(on_host(getattr(device, name)), getattr(host, name))


@pytest.mark.parametrize(("dtype", "tiny", "large"), [("float32", 1e-30, 1e20), ("float64", 1e-200, 1e200)])
def test_a_solution_beyond_the_largest_number(torch, dtype, tiny, large):
    A, b = np.array([[tiny, 0], [0, 1]], dtype), np.array([[large, 1], [1e-3, 1]], dtype)
    result = stepwell.nnls(on_device("torch", A), on_device("torch", b))
    assert on_host(result.status).tolist() == [NNLSStatus.NON_FINITE, NNLSStatus.CONVERGED]
    assert on_host(result.x)[0, 0] == np.inf
    assert on_host(result.x)[1] == pytest.approx([1e-3 / tiny, 1], rel=1e-6)


def test_systems_as_columns(library):
    A, b = uniform(5, 60)
    rows = stepwell.nnls(on_device(library, A), on_device(library, b))
    columns = stepwell.nnls(on_device(library, A), on_device(library, np.ascontiguousarray(b.T)), axis=1)
    np.testing.assert_array_equal(on_host(columns.x).T, on_host(rows.x))
    np.testing.assert_array_equal(on_host(columns.positive).T, on_host(rows.positive))
    again = stepwell.nnls(on_device(library, A), on_device(library, b.T), axis=1, warm_start=columns.x)
    np.testing.assert_allclose(on_host(again.x), on_host(columns.x), atol=1e-10)


@pytest.mark.parametrize("length", [20, 100])
def test_a_convolution_is_an_operator(library, length):
    random = np.random.default_rng(0)
    pulse, x, y = random.normal(size=length), random.normal(size=(50, 3)), random.normal(size=(60, 3))
    host = stepwell.Convolution(pulse, 50, m=60, origin=4)
    device = stepwell.Convolution(on_device(library, pulse), 50, m=60, origin=4)
    np.testing.assert_allclose(on_host(device @ on_device(library, x)), host.dense() @ x, atol=1e-12)
    np.testing.assert_allclose(on_host(device.T @ on_device(library, y[:, 0])), host.dense().T @ y[:, 0], atol=1e-12)
    assert stepwell.adjoint_error(device) < 1e-14
    result = stepwell.tikhonov(device, on_device(library, y), 0.5, tol=1e-10)
    assert result.success
    np.testing.assert_allclose(on_host(result.x), stepwell.tikhonov(host, y, 0.5, tol=1e-10).x, atol=1e-8)
    assert repr(stepwell.nnls(device, on_device(library, y.T))).splitlines()[1].endswith("NNLSStatus.CONVERGED")
