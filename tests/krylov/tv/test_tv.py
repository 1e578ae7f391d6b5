"""`tv` beside closed forms and itself: units, batches, libraries, precision, unmatched adjoints, λ from the noise."""

from __future__ import annotations

import operator

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator
from tv_oracle import objective
from tv_scan import SHAPE, scan

import stepwell
from stepwell import TVStatus
from stepwell.apps import tomography

# ---- closed forms ----


@pytest.mark.parametrize("lam", [0.1, 0.4, 3.0])
def test_two_pixels(lam):
    """½(x − b)² + λ|x₁ − x₀|: each pixel moves by λ towards the other, until they meet."""
    b = np.array([0.2, 1.4])
    move = min(lam, 0.6)
    result = stepwell.tv(None, b, lam, shape=(2,), tol=1e-10, maxiter=1000)
    assert result.success
    np.testing.assert_allclose(result.x, b + np.array([move, -move]), atol=1e-4)
    assert result.objective[0] == pytest.approx(move**2 + lam * (1.2 - 2 * move), rel=1e-8)


def test_without_a_penalty_the_nearest_image_is_proved():
    noisy = np.random.default_rng(0).normal(size=(12, 10))
    result = stepwell.tv(None, noisy, 0.0, shape=noisy.shape, bounds=(0, None), tol=1e-9)
    assert result.success
    np.testing.assert_allclose(result.x, np.maximum(noisy, 0), atol=1e-4)


def test_one_dimension_is_the_taut_string():
    """The dual of a line: |cumsum(x − b)| <= λ, and where x jumps it is ±λ with the jump's sign."""
    random = np.random.default_rng(0)
    b = np.repeat(random.normal(size=6), 10) + 0.2 * random.normal(size=60)
    result = stepwell.tv(None, b, 0.5, shape=(60, 1), tol=1e-9, maxiter=2000)
    assert result.success
    string = np.cumsum(result.x - b)
    assert np.abs(string).max() <= 0.5 * (1 + 1e-3)
    assert abs(string[-1]) <= 1e-3
    jumps = np.diff(result.x)
    large = np.abs(jumps) > 0.05
    np.testing.assert_allclose(string[:-1][large], 0.5 * np.sign(jumps[large]), atol=5e-3)


def test_residual_range_holds_the_residual_of_a_closer_solution():
    A, B, _ = scan()
    rough = stepwell.tv(A, B, 1.0, shape=SHAPE, bounds=(0, None), tol=1e-2)
    close = stepwell.tv(A, B, 1.0, shape=SHAPE, bounds=(0, None), tol=1e-5, maxiter=500)
    norms = np.linalg.norm(A @ close.x - B, axis=0)
    assert np.all((rough.residual_range[:, 0] <= norms) & (norms <= rough.residual_range[:, 1]))


# ---- the same problem told in another way ----


@pytest.mark.parametrize("power", [-30, 10, 40])
@pytest.mark.parametrize("kind", ["isotropic", "huber"])
def test_units_of_data_and_operator_change_no_bit(power, kind):
    A, B, _ = scan()
    eps = 0.02 if kind == "huber" else None
    one = stepwell.tv(A, B, 1.0, shape=SHAPE, bounds=(0, None), kind=kind, eps=eps)
    unit = 2.0**power
    data = stepwell.tv(
        A, unit * B, unit, shape=SHAPE, bounds=(0, None), kind=kind, eps=None if eps is None else eps * unit
    )
    np.testing.assert_array_equal(data.x, unit * one.x)
    np.testing.assert_array_equal(data.gap, one.gap)
    scaled = stepwell.tv(
        A * unit, B, unit, shape=SHAPE, bounds=(0, None), kind=kind, eps=None if eps is None else eps / unit
    )
    np.testing.assert_array_equal(unit * scaled.x, one.x)
    np.testing.assert_array_equal(scaled.iterations, one.iterations)


@pytest.mark.parametrize(
    ("dtype", "of_A", "of_B"),
    [
        (np.float64, 1.0, 1e300), (np.float64, 1.0, 1e-300), (np.float64, 1e200, 1.0), (np.float64, 1e-200, 1.0),
        (np.float64, 1e150, 1e150), (np.float32, 1.0, 1e30), (np.float32, 1e25, 1.0), (np.float32, 1e-25, 1.0),
    ],
)  # fmt: skip
def test_extreme_sizes(dtype, of_A, of_B):
    A, B, _ = scan(slices=(8, 6), side=16)
    expected = stepwell.tv(A, B, 1.0, shape=(16, 16))
    result = stepwell.tv((A * of_A).astype(dtype), (B * of_B).astype(dtype), of_A * of_B, shape=(16, 16))
    assert result.success
    # Both are within tol of the least: ½‖A(x − x*)‖² <= tol · f for each.
    apart = np.linalg.norm(A @ (result.x * (of_A / of_B) - expected.x), axis=0)
    assert np.all(apart <= 2 * np.sqrt(2e-3 * expected.objective))


def test_a_column_alone_is_the_column_in_a_batch():
    A, B, _ = scan()
    lams = np.array([0.5, 1.0, 2.0])
    together = stepwell.tv(A, B, lams, shape=SHAPE, bounds=(0, None))
    for j in range(3):
        alone = stepwell.tv(A, B[:, j], lams[j], shape=SHAPE, bounds=(0, None))
        assert alone.iterations[0] == together.iterations[j]
        # Products of one column and of three round differently, and sweeps are in single precision.
        near = 16 * np.finfo(np.float32).eps * np.abs(together.x[:, j]).max()
        np.testing.assert_allclose(alone.x, together.x[:, j], atol=near)
        assert alone.status is TVStatus.CONVERGED
        assert alone.lam == lams[j]


def test_rows_may_be_right_hand_sides():
    A, B, _ = scan()
    one = stepwell.tv(A, B, 1.0, shape=SHAPE, bounds=(0, None))
    other = stepwell.tv(A, B.T, 1.0, shape=SHAPE, bounds=(0, None), axis=0)
    np.testing.assert_array_equal(other.x, one.x.T)


def test_a_transposed_image_has_the_transposed_solution():
    random = np.random.default_rng(5)
    image = random.normal(size=(12, 20))
    one = stepwell.tv(None, image, 0.3, shape=(12, 20), tol=1e-8, maxiter=1000)
    other = stepwell.tv(None, image.T.copy(), 0.3, shape=(20, 12), tol=1e-8, maxiter=1000)
    # Forward differences of a transposed image are transposed: the same problem. ½‖x − x*‖² <= gap · f.
    assert np.linalg.norm(one.x - other.x.T) <= 2 * np.sqrt(2 * 1e-8 * one.objective[0])


def test_permuted_axes_and_columns_have_the_permuted_solutions():
    random = np.random.default_rng(6)
    volume, spacing, axes = random.normal(size=(5, 6, 8)), (1.0, 2.0, 0.5), (2, 0, 1)
    one = stepwell.tv(None, volume, 0.3, shape=volume.shape, spacing=spacing, tol=1e-8, maxiter=1000)
    turned = volume.transpose(axes).copy()
    weights = [spacing[axis] for axis in axes]
    other = stepwell.tv(None, turned, 0.3, shape=turned.shape, spacing=weights, tol=1e-8, maxiter=1000)
    assert one.success
    assert other.success
    # The same problem: ½‖x − x*‖² <= gap · f.
    distance = np.linalg.norm(one.x.reshape(volume.shape).transpose(axes) - other.x.reshape(turned.shape))
    assert distance <= 2 * np.sqrt(2 * 1e-8 * np.max(one.objective))
    A, B, _ = scan()
    there = stepwell.tv(A, B, 1.0, shape=SHAPE, bounds=(0, None))
    order = np.arange(B.shape[1])[::-1]
    back = stepwell.tv(A, B[:, order], 1.0, shape=SHAPE, bounds=(0, None))
    np.testing.assert_array_equal(back.x, there.x[:, order])


@pytest.mark.parametrize("form", ["dense", "functions", "linear operator", "csc"])
def test_any_operator(form):
    A, B, _ = scan()
    given = {
        "dense": A.toarray(),
        "functions": (lambda x: A @ x, lambda y: A.T @ y),
        "linear operator": aslinearoperator(A),
        "csc": A.tocsc(),
    }[form]
    result = stepwell.tv(given, B, 1.0, shape=SHAPE, bounds=(0, None))
    assert result.success
    for j in range(3):
        f = objective(A, B[:, j], result.x[:, j], 1.0, SHAPE)
        assert f == pytest.approx(result.objective[j], rel=1e-10)


def test_convolution_deblurs():
    pulse = np.exp(-0.5 * np.linspace(-2, 2, 9) ** 2)
    blur = stepwell.Convolution(pulse / pulse.sum(), 80, origin=4)
    truth = np.repeat([0.0, 1.0, 0.3, 0.0], 20)
    b = blur.matvec(truth) + 0.01 * np.random.default_rng(2).normal(size=80)
    result = stepwell.tv(blur, b, 0.01, shape=(80,), bounds=(0, None))
    assert result.success
    assert np.linalg.norm(result.x - truth) < 0.5 * np.linalg.norm(b - truth)


@pytest.mark.parametrize(("bounds", "most"), [((0, None), 18), (None, 28)])
def test_deblurring_has_a_larger_weight_than_tomography(bounds, most):
    """Most of a blur's S is nothing: with ρ from its geometric mean alone these took 22.5 and 37.5 products."""
    side = 128
    reach = np.arange(-9, 10)
    weights = np.exp(-0.5 * (reach / 2.0) ** 2) / np.exp(-0.5 * (reach / 2.0) ** 2).sum()
    line = sp.diags([np.full(side - abs(k), w) for k, w in zip(reach, weights)], list(reach))
    A = sp.csr_matrix(sp.kron(line, line))
    b = A @ tomography.shepp_logan_3d(side)[side // 2].ravel()
    error = np.random.default_rng(0).standard_normal(b.shape)
    b += 0.02 * np.linalg.norm(b) / np.linalg.norm(error) * error
    result = stepwell.tv(A, b, 1e-3, shape=(side, side), bounds=bounds, tol=1e-3)
    assert result.success
    assert result.products[0] <= most
    assert result.objective[0] == pytest.approx(objective(A, b, result.x, 1e-3, (side, side)), rel=1e-10)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_libraries(library):
    module = pytest.importorskip(library)
    if library == "jax":
        module.config.update("jax_enable_x64", True)
    make = module.as_tensor if library == "torch" else module.numpy.asarray
    A, B, _ = scan(slices=(4, 3), side=8)
    expected = stepwell.tv(A.toarray(), B, 1.0, shape=(8, 8), bounds=(0, None), tol=1e-2)
    result = stepwell.tv(make(A.toarray()), make(B), 1.0, shape=(8, 8), bounds=(0, None), tol=1e-2)
    assert result.success
    assert type(result.x) is type(make(B))
    np.testing.assert_allclose(np.asarray(result.x), expected.x, atol=1e-8)
    image = make(np.random.default_rng(0).normal(size=(6, 7)))
    assert type(stepwell.tv(None, image, 0.3, shape=(6, 7), tol=1e-2).x) is type(image)


@pytest.mark.parametrize(("library", "side"), [("numpy", 40), ("torch", 31), ("jax", 40)])
def test_float32_proves_what_float64_does(side, library):
    """By kernels (40) and by array operations (31): products round, everything else is in double precision."""
    module = pytest.importorskip(library)
    place = {"numpy": "asarray", "torch": "as_tensor", "jax": "numpy.asarray"}[library]
    place = operator.attrgetter(place)(module)
    A, B, _ = scan(slices=(side // 2, side // 3), side=side)
    A, B = A.toarray().astype(np.float32), B.astype(np.float32)
    settings = {"shape": (side, side), "bounds": (0, None), "maxiter": 500}
    result = stepwell.tv(place(A), place(B), 1.0, tol=2e-5, **settings)
    assert result.success
    assert result.gap.max() <= 2e-5
    x = np.asarray(result.x)
    assert x.dtype == np.asarray(result.dual).dtype == np.float32
    wide, data = A.astype(float), B.astype(float)
    exact = stepwell.tv(wide, data, 1.0, tol=1e-5, **settings)
    terms = np.count_nonzero(A, axis=1).max()
    for j in range(2):
        f = objective(wide, data[:, j], x[:, j].astype(float), 1.0, (side, side))
        # A sum of k terms in single precision is wrong by at most k ε of the sum of their sizes; that meets Ax − b.
        lost = terms * np.finfo(np.float32).eps * (wide @ np.abs(x[:, j]))
        room = lost @ np.abs(wide @ x[:, j] - data[:, j]) + lost @ lost
        assert abs(f - result.objective[j]) <= room
        assert result.lower[j] <= exact.objective[j] + room
        assert f - exact.objective[j] <= result.gap[j] * f + room


def test_float32_ends_at_its_floor():
    A, B, _ = scan(slices=(4,), side=8)
    result = stepwell.tv(A.astype(np.float32), B.astype(np.float32), 1.0, shape=(8, 8), tol=1e-12, maxiter=2000)
    assert result.status == [TVStatus.STAGNATED]
    # 64 ε of the lower bound is given away for what products round.
    assert 60 * np.finfo(np.float32).eps <= result.gap[0] < 1e-4


# ---- adjoints that are none ----


@pytest.mark.parametrize("error", [0.3, 1e-2, 1e-4])
def test_an_unmatched_adjoint_is_found_and_never_certified(error):
    A, B, _ = scan()
    other = A.copy()
    other.data = other.data * (1 + error * np.random.default_rng(0).normal(size=other.data.size))
    result = stepwell.tv((lambda x: A @ x, lambda y: other.T @ y), B, 1.0, shape=SHAPE, bounds=(0, None), maxiter=12)
    assert not result.success
    assert result.status == [TVStatus.UNMATCHED] * 3
    assert np.all(result.lower == 0)
    assert np.all(result.gap == 1)
    assert result.adjoint_error > 1e-7
    judged = stepwell.tv_gap((lambda x: A @ x, lambda y: other.T @ y), B, result.x, 1.0, shape=SHAPE, maxiter=5)
    assert np.all(judged.lower == 0)


def test_a_scaled_adjoint_is_found():
    A, B, _ = scan()
    result = stepwell.tv((lambda x: A @ x, lambda y: 1.001 * (A.T @ y)), B[:, 0], 1.0, shape=SHAPE, maxiter=60)
    assert result.status is TVStatus.UNMATCHED


def test_a_true_adjoint_has_an_error_of_rounding():
    A, B, _ = scan()
    assert stepwell.tv(A, B, 1.0, shape=SHAPE).adjoint_error < 1e-12


# ---- λ from the noise ----


def test_discrepancy_brings_the_residual_to_the_noise():
    A, B, X = scan(slices=(12, 9))
    sigma = np.linalg.norm(B - A @ X, axis=0) / np.sqrt(B.shape[0])
    result = stepwell.tv(A, B, "discrepancy", noise=sigma, shape=SHAPE, bounds=(0, None))
    assert result.success
    level = np.linalg.norm(A @ result.x - B, axis=0) / (sigma * np.sqrt(B.shape[0]))
    np.testing.assert_allclose(level, 1, atol=0.011)
    assert list(result.lam_at_end) == [0, 0]
    again = stepwell.tv(A, B, result.lam, shape=SHAPE, bounds=(0, None))
    # Both are within tol of the least, so data differ by at most 2 √(2 tol f).
    apart = np.linalg.norm(A @ (again.x - result.x), axis=0)
    assert np.all(apart <= 2 * np.sqrt(2e-3 * result.objective))
    joint = stepwell.tv(A, B, "discrepancy", noise=sigma, shape=SHAPE, bounds=(0, None), joint=True)
    assert joint.lam[0] == pytest.approx(joint.lam[1])
    total = np.linalg.norm(A @ joint.x - B) / np.linalg.norm(sigma * np.sqrt(B.shape[0]))
    assert total == pytest.approx(1, abs=0.011)


def test_the_rule_without_a_search():
    """λ = σ‖A‖_F/√n, with ‖A‖_F from one random vector: its error is that of a mean of n numbers."""
    A, B, _ = scan()
    result = stepwell.tv(A, B, "noise", noise=0.01, shape=SHAPE)
    expected = 0.01 * np.sqrt(A.power(2).sum() / A.shape[1])
    np.testing.assert_allclose(result.lam, expected, rtol=0.2)


def test_a_noise_that_the_residual_never_has():
    A, B, _ = scan(slices=(12,))
    with pytest.warns(Warning, match="lam of 1 of 1 columns lies at an end"):
        result = stepwell.tv(A, B, "discrepancy", noise=1e3 * np.abs(B).max(), shape=SHAPE)
    assert list(result.lam_at_end) == [1]
