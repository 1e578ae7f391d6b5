"""Answers of nnls against SciPy, closed forms and its own independent certificate."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from nnls_cases import certified, decays, gaussians, gedi, lidar, uniform
from scipy.linalg import hilbert
from scipy.optimize import nnls as scipy_nnls

import stepwell
from stepwell import NNLSStatus

METHODS = [
    {},
    {"method": "gram"},
    {"method": "gram", "insertion": "single"},
    {"method": "qr"},
    {"method": "qr", "insertion": "single"},
    {"method": "qr", "update": "mgs"},
    {"method": "qr", "update": "rotations"},
    {"method": "qr", "update": "csne"},
]
methods = pytest.mark.parametrize("options", METHODS, ids=lambda o: "-".join(o.values()) or "auto")


@methods
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (3, 7), (40, 40), (60, 25), (25, 60), (200, 90)])
def test_agrees_with_scipy_where_the_solution_is_unique(shape, options):
    rng = np.random.default_rng(sum(shape))
    for _ in range(5):
        A, b = rng.normal(size=shape), rng.normal(size=shape[0])
        expected, rnorm = scipy_nnls(A, b)
        result = certified(A, b, **options)
        x, residual = result
        assert result.status is NNLSStatus.CONVERGED
        assert residual == pytest.approx(rnorm, rel=1e-10, abs=1e-12)
        if rnorm > 1e-6 * np.linalg.norm(b):  # else a wide system has many solutions
            np.testing.assert_allclose(x, expected, rtol=1e-7, atol=1e-9)


@methods
def test_of_a_consistent_system_the_answer_is_known(options):
    rng = np.random.default_rng(5)
    A = rng.random((50, 30))
    truth = np.maximum(rng.normal(size=30), 0)
    result = certified(A, A @ truth, **options)
    np.testing.assert_allclose(result.x, truth, atol=1e-10)
    assert result.residual < 1e-12 * np.linalg.norm(A @ truth)


@methods
@pytest.mark.parametrize("make", [lidar, gaussians, uniform, decays, gedi], ids=lambda f: f.__name__)
def test_the_papers_systems_and_real_shots_are_certified(make, options):
    if options.get("update") == "rotations" and make in (lidar, gaussians, gedi):
        pytest.skip("a square Q costs minutes at this size and is tested on small systems")
    A, b = make(3 if make in (lidar, gaussians, gedi) else 4)
    result = certified(A, b, **options)
    assert np.all(result.status == NNLSStatus.CONVERGED)


@methods
@pytest.mark.parametrize("n", [6, 12, 40])
@pytest.mark.parametrize("kind", ["hilbert", "vandermonde", "near-duplicates"])
def test_ill_conditioned_columns(kind, n, options):
    rng = np.random.default_rng(n)
    A = {
        "hilbert": hilbert(n),
        "vandermonde": np.vander(np.linspace(0, 1, n + 5), n),
        "near-duplicates": np.repeat(rng.random((n + 3, n // 2)), 2, axis=1) + 1e-9 * rng.random((n + 3, n)),
    }[kind]
    for b in (A @ (rng.random(n) * (rng.random(n) < 0.4)), rng.random(len(A))):
        result = certified(A, b, **options)
        other, rnorm = scipy_nnls(A, b, maxiter=1000)
        # A dual of at most t |a_j| |b| bounds the gap: |r|^2 <= |r*|^2 + 2 sum w_j x*_j.
        gap = 2 * result.violation * np.linalg.norm(b) * (np.linalg.norm(A, axis=0) * other).sum()
        assert result.residual <= np.sqrt(rnorm**2 + gap) + 1e-13 * np.linalg.norm(b)


@pytest.mark.parametrize("scale", [1e-150, 1e-21, 1e150])
@pytest.mark.parametrize("method", ["auto", "qr", "gram"])
def test_the_scale_of_a_and_b_does_not_matter(scale, method):
    rng = np.random.default_rng(8)
    A, b = rng.random((30, 20)), rng.random(30)
    plain = certified(A, b, method=method).x
    np.testing.assert_allclose(stepwell.nnls(A * scale, b, method=method).x * scale, plain, rtol=1e-10, atol=1e-300)
    np.testing.assert_allclose(stepwell.nnls(A, b * scale, method=method).x / scale, plain, rtol=1e-10, atol=1e-300)


def test_columns_of_very_different_scale():
    rng = np.random.default_rng(9)
    A, b = rng.random((30, 20)), rng.random(30)
    factors = 10.0 ** rng.integers(-140, 140, 20)
    scaled = stepwell.nnls(A * factors, b)
    np.testing.assert_allclose(scaled.x * factors, stepwell.nnls(A, b).x, rtol=1e-9, atol=1e-12)


@methods
def test_zero_and_equal_columns(options):
    rng = np.random.default_rng(10)
    A = rng.random((12, 8))
    A[:, 3] = 0
    A[:, 5] = A[:, 1]
    A[:, 6] = 2 * A[:, 1]
    b = rng.random(12)
    result = certified(A, b, **options)
    assert result.x[3] == 0
    assert result.residual == pytest.approx(scipy_nnls(A, b)[1], rel=1e-10)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_empty_systems(shape):
    result = stepwell.nnls(np.zeros(shape), np.ones(shape[0]))
    assert result.x.shape == (shape[1],)
    assert not result.x.any()
    assert result.residual == pytest.approx(np.sqrt(shape[0]))
    alike = stepwell.nnls(np.zeros(shape), np.ones((5, shape[0])))  # many systems with one such matrix
    assert alike.x.shape == (5, shape[1])
    assert alike.residual == pytest.approx(np.full(5, np.sqrt(shape[0])))
    many = stepwell.nnls(np.zeros((0, 4, 5)), np.zeros((0, 4)))
    assert many.x.shape == (0, 5)


def test_a_zero_right_hand_side_has_a_zero_answer():
    result = certified(np.random.default_rng(0).random((5, 4)), np.zeros(5))
    assert not result.x.any()
    assert result.violation == 0
    assert result.residual == 0


def test_a_dual_of_rounding_size_inserts_nothing_harmful():
    """A'b is zero but for rounding: x = 0 is optimal, and its residual is |b|."""
    A = np.array([[2, 1, 2], [2, -2, -2], [-1, 1, 1], [-3, 0, -1]]) / 3
    b = np.array([3.0, 2, 1, 3])
    result = certified(A, b)
    assert result.residual <= np.linalg.norm(b) * (1 + 1e-12)


@methods
@pytest.mark.parametrize("shape", [(30, 20), (20, 30)])
def test_damping_is_a_block_of_rows(shape, options):
    if options.get("update") == "rotations":
        pytest.skip("refused; see test_nnls_errors")
    rng = np.random.default_rng(11)
    A, b = rng.normal(size=shape), rng.normal(size=(6, shape[0]))
    stacked = np.vstack([A, 0.7 * np.eye(shape[1])])
    result = certified(A, b, lam=0.7, **options)
    for s in range(6):
        expected, _ = scipy_nnls(stacked, np.r_[b[s], np.zeros(shape[1])])
        np.testing.assert_allclose(result.x[s], expected, atol=1e-12)
        np.testing.assert_allclose(certified(A, b[s], lam=0.7, **options).x, expected, atol=1e-12)


@pytest.mark.parametrize("noise", [1e-1, 1e-3, 1e-5, 1e-7])
@pytest.mark.parametrize("kind", ["unlike", "alike", "smooth", "of many sizes"])
def test_damped_columns_that_enter_many_at_once(kind, noise):
    rng = np.random.default_rng(17)
    m, n = 56, 40
    spread = np.linspace(0, 1, m)[:, None] - np.linspace(0, 1, n)
    A = {
        "unlike": lambda: rng.normal(size=(m, n)),
        "alike": lambda: np.exp(-0.5 * (spread / 0.03) ** 2),
        "smooth": lambda: np.exp(-7e-3 * np.arange(1, m + 1)[:, None] / np.geomspace(0.01, 2, n)),
        "of many sizes": lambda: rng.random((m, n)) * 10.0 ** rng.integers(-3, 4, n),
    }[kind]()
    b = (rng.random((60, n)) * (rng.random((60, n)) < 0.3)) @ A.T
    b += noise * np.abs(b).mean() * rng.standard_normal(b.shape)
    lam = 0.01 * np.linalg.norm(A, 2)
    result = certified(A, b, lam=lam)
    stacked = np.vstack([A, lam * np.eye(n)])
    whole = A.astype(np.longdouble)
    for s in range(60):
        # (What rounding of b does is at most |b| / lam times it, and the square of the condition that of x.)
        expected, _ = scipy_nnls(stacked, np.r_[b[s], np.zeros(n)])
        atol = 1e4 * 16 * np.finfo(float).eps * np.linalg.norm(b[s]) / lam
        np.testing.assert_allclose(result.x[s], expected, rtol=0, atol=atol)
        exact = np.linalg.norm((b[s] - whole @ result.x[s]).astype(float))
        size = np.linalg.norm(b[s]) + np.linalg.norm(A, axis=0) @ result.x[s]
        assert abs(result.residual[s] - exact) <= 1e-11 * exact + 16 * np.finfo(float).eps * size


def test_the_residual_of_single_precision_belongs_to_the_rounded_x():
    rng = np.random.default_rng(18)
    A = (rng.random((4000, 12)) + 1).astype(np.float32)
    b = (rng.random((20, 12)).astype(np.float32) @ A.T + 1e-4 * rng.standard_normal((20, 4000))).astype(np.float32)
    result = certified(A, b, lam=0.05)
    exact = np.linalg.norm(b.astype(float) - result.x.astype(float) @ A.T.astype(float), axis=1)
    np.testing.assert_allclose(result.residual, exact, rtol=2 * np.finfo(np.float32).eps)


def test_damped_systems_with_nearly_as_many_positive_columns_as_a_small_factor_has():
    rng = np.random.default_rng(19)
    A = rng.normal(size=(80, 63))
    b = (rng.random((200, 63)) * (rng.random((200, 63)) < 0.3)) @ A.T + 0.05 * rng.standard_normal((200, 80))
    result = certified(A, b, lam=1e-3 * np.linalg.norm(A, 2))
    few = np.count_nonzero(result.x, axis=1) < 36
    assert few.any()
    assert not result.escalated[few].any()


@pytest.mark.parametrize("rows", [60, 40, 95])
@pytest.mark.parametrize("method", ["auto", "qr"])
def test_a_convolution_is_its_dense_matrix(rows, method):
    rng = np.random.default_rng(12)
    pulse = np.exp(-0.5 * ((np.arange(25) - 8) / 3) ** 2)
    A = stepwell.Convolution(pulse, 60, m=rows, origin=8)
    column = np.zeros(60)
    column[20] = 1
    np.testing.assert_allclose((A.dense() @ column)[12:37], pulse, atol=0)
    b = rng.random((4, rows))
    for right in (b, b[0]):
        ours, dense = certified(A, right, method=method), certified(A.dense(), right, method=method)
        np.testing.assert_allclose(ours.x, dense.x, atol=1e-10)
    pulses = np.stack([pulse, pulse[::-1], pulse**2, pulse + 0.1])
    many = stepwell.Convolution(pulses, 60, m=rows, origin=8)
    np.testing.assert_allclose(certified(many, b).x, certified(many.dense(), b).x, atol=1e-10)


def test_float32_input_gives_float32_answers_that_are_certified_as_rounded():
    rng = np.random.default_rng(13)
    A, b = rng.random((40, 30)).astype(np.float32), rng.random((5, 40)).astype(np.float32)
    result = certified(A, b)
    assert result.x.dtype == result.dual.dtype == result.residual.dtype == np.float32
    assert np.all(result.status == NNLSStatus.CONVERGED)
    reference = stepwell.nnls(A.astype(float), b.astype(float))
    np.testing.assert_array_equal(result.x, reference.x.astype(np.float32))


def test_one_large_system_on_several_threads():
    rng = np.random.default_rng(14)
    A, b = rng.random((2100, 2050)), rng.random(2100)
    alone, together = certified(A, b, threads=1), certified(A, b, threads=3)
    np.testing.assert_allclose(together.x, alone.x, atol=1e-12)
    assert together.insertions == alone.insertions
    pulse = np.exp(-0.5 * ((np.arange(40) - 20) / 5) ** 2)
    wave = stepwell.Convolution(pulse, 2100, origin=20)
    right = np.repeat(rng.random(70), 30)
    np.testing.assert_allclose(certified(wave, right, threads=3).x, certified(wave, right, threads=1).x, atol=1e-9)


@pytest.mark.parametrize("method", ["qr", "gram"])
@pytest.mark.parametrize("insertion", ["single", "guarded"])
def test_wide_convolutions_do_not_converge_with_columns_set_aside(method, insertion):
    # Nearly dependent columns: some fail to lower the residual and are barred, and their dual must count at the end.
    rng = np.random.default_rng(2)
    A = stepwell.Convolution(rng.normal(size=(60, 24)), 90, m=60, origin=3)
    result = certified(A, rng.normal(size=(60, 60)), method=method, insertion=insertion)
    # x of 1e11 and more has no digits that would show a small violation, or that its columns could do no better: it is
    # not called converged.
    converged = result.status == NNLSStatus.CONVERGED
    assert (result.violation[converged] <= 1e-7).all()
    assert np.sum(converged) >= 44


@pytest.mark.parametrize("n", [10_000, pytest.param(40_000, marks=pytest.mark.slow)])
def test_a_long_convolution_takes_little_memory(n):
    # Room for Q would be 0.8 or 13 GB, as would the dense matrix: NumPy's convolution shows that the conditions hold.
    from stepwell.api.lsq import nnls

    rng = np.random.default_rng(5)
    pulse = np.exp(-0.5 * (np.arange(21) - 10) ** 2 / 9.0)
    x = np.zeros(n)
    x[rng.choice(n, n // 200, replace=False)] = 1 + rng.random(n // 200)
    b = np.convolve(x, pulse)[:n]
    b[:300] += 1e-3 * rng.standard_normal(300)
    found = nnls(stepwell.Convolution(pulse, n), b)
    assert found.status == NNLSStatus.CONVERGED
    rest = b - np.convolve(found.x, pulse)[:n]
    dual = np.convolve(np.pad(rest, (0, 20)), pulse[::-1])[20 : 20 + n]
    room = 1e-13 * np.sqrt(n) * (np.linalg.norm(b) + np.linalg.norm(pulse) * found.x.sum()) * np.linalg.norm(pulse)
    assert found.x.min() >= 0
    assert dual.max() <= room
    assert np.abs(dual[found.x > 0]).max() <= room
    assert found.residual == pytest.approx(np.linalg.norm(rest), rel=1e-12)


@pytest.mark.parametrize("method", ["auto", "qr", "gram"])
@pytest.mark.parametrize(("dtype", "tiny", "large"), [("float32", 1e-30, 1e20), ("float64", 1e-200, 1e200)])
def test_a_solution_beyond_the_largest_number_is_not_called_converged(dtype, tiny, large, method):
    """x = large/tiny has no number of this kind; its neighbour in the batch, 0.001/tiny, has one."""
    A = np.array([[tiny, 0], [0, 1]], dtype)
    result = stepwell.nnls(A, np.array([[large, 1], [1e-3, 1]], dtype), method=method)
    assert result.status.tolist() == [NNLSStatus.NON_FINITE, NNLSStatus.CONVERGED]
    assert result.x[0, 0] == np.inf
    assert np.isnan(result.residual[0])
    assert result.x[1] == pytest.approx([1e-3 / tiny, 1], rel=1e-6)


@pytest.mark.parametrize("method", ["qr", "gram"])
@pytest.mark.parametrize(
    ("size", "scale"),
    [  # but for those whose solution is smaller than any number
        (size, scale)
        for size in (1e-307, 1e-300, 1e-150, 1e150, 1e300)
        for scale in (1e-307, 1e-300, 1e-150, 1.0, 1e150, 1e300)
        if size / scale > 1e-305
    ],
)
def test_numbers_of_any_size_have_an_answer_or_a_status(method, size, scale):
    """The exact solutions; where one does not fit, the status says so."""
    exact = [Fraction(size) / Fraction(scale), Fraction(2 * size) / Fraction(scale)]
    fits = exact[1] <= Fraction(float(np.finfo(float).max))
    result = stepwell.nnls(scale * np.eye(2), np.array([size, 2 * size]), method=method)
    if fits:
        np.testing.assert_allclose(result.x, [float(value) for value in exact], rtol=1e-14, atol=2.3e-308)
        assert result.success
    else:
        assert result.status == stepwell.NNLSStatus.NON_FINITE


def test_a_small_matrix_beside_a_larger_damping():
    a, lam = Fraction(1e-250), Fraction(1e-247)
    x = stepwell.nnls(1e-250 * np.eye(2), [1.0, 2.0], lam=1e-247).x
    np.testing.assert_allclose(x, [float(k * a / (a * a + lam * lam)) for k in (1, 2)], rtol=1e-13)


def test_more_rows_and_columns_than_the_core_counts():
    for n, m in ((2**31 - 1, 4), (4, 2**31 - 1), (2**40, 2**40)):
        A = stepwell.Convolution(np.ones(3), n, m=m)
        b = np.broadcast_to(np.zeros(1), (m,))
        with pytest.raises(ValueError, match="allowed: at most 2147482624 rows and columns together"):
            stepwell.nnls(A, b)


@pytest.mark.parametrize("library", ["numpy", "lists", "torch", "jax"])
def test_a_column_is_one_right_hand_side_as_in_scipy(library):
    import scipy.optimize

    A, b = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), np.array([[2.0], [1.0], [-1.0]])
    put = {"numpy": np.asarray, "lists": np.ndarray.tolist}.get(library)
    if put is None:
        module = pytest.importorskip({"torch": "torch", "jax": "jax.numpy"}[library])
        put = module.asarray
    r = stepwell.nnls(put(A), put(b))
    x, residual = scipy.optimize.nnls(A, b)
    assert r.x.shape == x.shape == (2,)
    np.testing.assert_allclose(np.asarray(r.x), x, atol=1e-6)
    assert float(r.residual) == pytest.approx(residual, abs=1e-6)
    assert r.status is stepwell.NNLSStatus.CONVERGED
    if library != "lists":
        # Columns are systems where that is said, and a matrix of one row has many systems of one number.
        assert stepwell.nnls(put(A), put(b), axis=1).x.shape == (2, 1)
        assert stepwell.nnls(put(A[:1]), put(b)).x.shape == (3, 2)
        assert stepwell.nnls(put(A[:1]), put(b[:1])).x.shape == (1, 2)
