"""Systems of any scale: an answer that is called right is right, in numbers of a wider range than the solver's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import stepwell
from stepwell.krylov import LinearStatus as Status

WIDE = np.longdouble
pytestmark = pytest.mark.skipif(np.finfo(WIDE).maxexp < 4 * 1024, reason="long double has the range of double here")
METHODS = ["cgls", "pseudo-block", "prcg", "aprcg", "block", "direct", "auto"]
LARGEST = {"float32": 37, "float64": 300}  # powers of ten
TOLS = {"float32": (1e-3, 1e-4), "float64": (1e-4, 1e-8)}


def system(seed):
    """A small least-squares or positive definite system, its scales drawn from the whole range of its dtype."""
    random = np.random.default_rng(seed)
    dtype = str(random.choice(["float32", "float64"]))
    m, n, k = int(random.integers(2, 25)), int(random.integers(1, 8)), int(random.integers(1, 4))

    def scale():
        return 10.0 ** float(random.uniform(-1, 1) * LARGEST[dtype]) if random.random() < 0.6 else 1.0

    sizes = scale(), scale(), scale()
    A = random.normal(size=(m, n)) * np.geomspace(1, 10.0 ** -random.uniform(0, 2), n)
    B = random.normal(size=(m, k)) * 10.0 ** random.uniform(-3, 3, k)
    L, lam = None, 0.0
    square = random.random() < 0.25
    with np.errstate(all="ignore"):
        if square:
            H = A.T @ A
            A, B = H + 0.1 * np.eye(n) * np.trace(H) / n, random.normal(size=(n, k))
        else:
            lam = sizes[2] if random.random() < 0.5 else sizes[0] * 10.0 ** random.uniform(-2, 2)
            if random.random() < 0.3:
                L = (np.eye(n) - 0.5 * np.eye(n, k=1)).astype(dtype)
        A, B = (sizes[0] * A).astype(dtype), (sizes[1] * B).astype(dtype)
    numbers = np.isfinite(A).all() and np.isfinite(B).all() and np.isfinite(lam)
    tiny = np.finfo(dtype).tiny
    if not numbers or np.abs(A).max() < tiny or np.abs(B).max(axis=0).min() < tiny:
        return None
    options = dict(method=METHODS[seed % len(METHODS)], tol=float(random.choice(TOLS[dtype])))
    if random.random() < 0.2:
        options["x0"] = np.zeros((n, k), dtype) if random.random() < 0.5 else None
    return A, B, lam, L, square, options


def solved(A, B, lam, L, square, options):
    return stepwell.cg(A, B, **options) if square else stepwell.tikhonov(A, B, lam, L, **options)


def assert_no_lie(found, A, B, lam, L, square, options):
    """A column that has converged has a small residual; one that has not has a reason."""
    dtype, tol = A.dtype, options["tol"]
    wide = A.astype(WIDE)
    P = np.eye(A.shape[1]) if L is None else L.astype(WIDE)
    H = wide if square else wide.T @ wide + WIDE(lam) * WIDE(lam) * (P.T @ P)
    limits = np.finfo(dtype)
    for j, status in enumerate(found.status):
        rhs = B[:, j].astype(WIDE) if square else wide.T @ B[:, j].astype(WIDE)
        x = np.asarray(found.x)[:, j].astype(WIDE)
        size = np.sqrt((rhs**2).sum())
        if status is Status.CONVERGED:
            residual = np.sqrt(((rhs - H @ x) ** 2).sum())
            # What rounding x to the dtype, and the solver's own products, can leave.
            rounding = 30 * float(limits.eps) * (size + A.shape[1] * np.abs(H).max() * np.sqrt((x**2).sum()))
            assert residual <= 3 * tol * size + rounding, (j, float(residual / size))
            continue
        unit, right = np.abs(H).max(), np.abs(rhs).max()
        if 100 * float(limits.eps) * np.linalg.cond((H / unit).astype(float)) > tol:
            continue  # too hard for the dtype
        y = np.linalg.solve((H / unit).astype(float), (rhs / right).astype(float))
        decimal = float(np.log10(np.abs(y).max()) + np.log10(right) - np.log10(unit))
        within = abs(decimal) < LARGEST[str(dtype)] - 2
        assert not within, (j, status.name, decimal)


@pytest.mark.parametrize("first", range(0, 600, 50))
def test_random_scales(first):
    for seed in range(first, first + 50):
        drawn = system(seed)
        if drawn is not None:
            assert_no_lie(solved(*drawn), *drawn)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", ["dense", "csr", "functions", "torch", "jax"])
def test_a_tiny_operator_beside_its_penalty(method, form):
    """Single precision, A of 1e-29 and λ of 1e-6: x is Aᵀb/λ² to rounding, and squares of Aᵀb are no numbers."""
    random = np.random.default_rng(0)
    A, B = (1e-29 * random.normal(size=(20, 2))).astype(np.float32), random.normal(size=(20, 3)).astype(np.float32)
    given, right = A, B
    if form == "csr":
        given = sp.csr_matrix(A)
    elif form == "functions":
        if method == "direct":
            given = stepwell.operators.from_functions(lambda x: A @ x, lambda y: A.T @ y, A.shape)
        else:
            given = (lambda x: A @ x, lambda y: A.T @ y)
    elif form == "torch":
        torch = pytest.importorskip("torch")
        given, right = torch.from_numpy(A), torch.from_numpy(B)
    elif form == "jax":
        numpy = pytest.importorskip("jax.numpy")
        given, right = numpy.asarray(A), numpy.asarray(B)
    result = stepwell.tikhonov(given, right, 1e-6, method=method, tol=1e-4)
    exact = A.T.astype(float) @ B / 1e-12
    assert result.success
    assert np.all(result.residual <= 1e-4)
    np.testing.assert_allclose(np.asarray(result.x), exact, atol=2e-4 * np.abs(exact).max())


@pytest.mark.parametrize("augmented", [False, True])
def test_right_hand_sides_of_any_size_one_by_one(augmented):
    random = np.random.default_rng(1)
    A = (1e-25 * random.normal(size=(20, 6))).astype(np.float32)
    b = random.normal(size=20).astype(np.float32)
    solver = stepwell.ProjectedCG(A, 1e-3, augmented=augmented)
    for size in (1.0, 1e-6, 1e20, 1e30):
        result = solver.solve((size * b).astype(np.float32), tol=1e-4)
        exact = A.T.astype(float) @ (size * b) / 1e-6
        assert result.success
        np.testing.assert_allclose(result.x, exact, atol=1e-3 * np.abs(exact).max())


def test_bounds_are_met_exactly_at_any_size():
    random = np.random.default_rng(2)
    A, B = (1e-20 * random.normal(size=(30, 5))).astype(np.float32), random.normal(size=(30, 4)).astype(np.float32)
    result = stepwell.tikhonov(A, B, 1e-2, bounds=(0, None), tol=1e-4)
    exact = np.maximum(A.T.astype(float) @ B / 1e-4, 0)
    assert result.success
    assert result.x.min() == 0
    np.testing.assert_allclose(result.x, exact, atol=1e-3 * exact.max())
    upper = np.float32(1e-16)
    bounded = stepwell.tikhonov(A, B, 1e-2, bounds=(0, upper), tol=1e-4)
    assert bounded.x.max() == upper


def test_what_a_dtype_cannot_hold_is_told():
    """x of 1e-60 rounds to zero in single precision, one of 1e60 to infinity: neither is called right."""
    random = np.random.default_rng(3)
    A, B = random.normal(size=(12, 3)).astype(np.float32), random.normal(size=(12, 2)).astype(np.float32)
    for method in METHODS:
        for a, b, lam in ((1.0, 1e-30, 1e15), (1e-30, 1e30, 1e-31), (1.0, 1.0, 1e25)):
            result = stepwell.tikhonov(np.float32(a) * A, np.float32(b) * B, lam, method=method, tol=1e-3)
            assert set(result.status) == {Status.OUT_OF_RANGE}, (method, a, b, lam)
            assert "range of the dtype" in result.message
        result = stepwell.cg(np.float32(1e30) * np.eye(3, dtype=np.float32), np.float32(1e-30) * B[:3], method=method)
        assert set(result.status) == {Status.OUT_OF_RANGE}
