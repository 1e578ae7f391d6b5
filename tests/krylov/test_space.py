"""Kept directions: products with their rows, panels and copies, and residuals that A confirms or corrects."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stepwell
from stepwell import _core, arrays
from stepwell.krylov import space
from stepwell.krylov.projected import conjugacy_error
from stepwell.krylov.systems import Carried, TikhonovSystem
from stepwell.operators import as_operator


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 40),
    length=st.integers(1, 3000),
    dtype=st.sampled_from([np.float64, np.float32]),
    threads=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_row_products_agree_with_numpy(rows, length, dtype, threads, seed):
    random = np.random.default_rng(seed)
    R, v, base = (random.normal(size=size).astype(dtype) for size in ((rows, length), length, length))
    c = random.normal(size=rows).astype(dtype) * (random.random(rows) < 0.5)
    dots, overlaps, out, fused = (np.empty(size, dtype) for size in (rows, rows, length, length))
    _core.rows_dots(R, v, dots, threads)
    _core.rows_combine(R, c, base, out, threads)
    _core.rows_combine_and_dots(R, c, base, fused, v, overlaps, threads)
    epsilon = np.finfo(dtype).eps
    exact = R.astype(np.longdouble)
    assert np.all(np.abs(dots - exact @ v) <= length * epsilon * (np.abs(exact) @ np.abs(v)))
    bound = (rows + 1) * epsilon * (np.abs(exact.T) @ np.abs(c) + np.abs(base))
    assert np.all(np.abs(out - (exact.T @ c + base)) <= bound)
    np.testing.assert_array_equal(fused, out)
    np.testing.assert_array_equal(overlaps, dots)
    alone = np.empty(rows, dtype)
    _core.rows_dots(R, v, alone, 1)
    np.testing.assert_array_equal(alone, dots)  # whatever the number of threads


def test_rows_that_do_not_fit_are_refused():
    R = np.zeros((2, 5))
    with pytest.raises(ValueError, match="rows_dots"):
        _core.rows_dots(R, np.zeros(4), np.zeros(2), 1)
    with pytest.raises(ValueError, match="rows_combine"):
        _core.rows_combine(R, np.zeros(3), np.zeros(5), np.zeros(5), 1)
    v = np.zeros(5)
    with pytest.raises(ValueError, match="rows_combine_and_dots"):
        _core.rows_combine_and_dots(R, np.zeros(2), np.zeros(5), v, v, np.zeros(2), 1)


def small():
    random = np.random.default_rng(7)
    return random.normal(size=(90, 60)), random.normal(size=(90, 8))


def test_panels_hold_what_one_array_would(monkeypatch):
    A, B = small()
    whole, panels = (stepwell.ProjectedCG(A, 0.5, augmented=True) for _ in range(2))
    expected = [whole.solve(b, tol=1e-7) for b in B.T]
    monkeypatch.setattr(space, "PANEL", 7)
    for b, wanted in zip(B.T, expected):
        got = panels.solve(b, tol=1e-7)
        assert got.products == wanted.products
        np.testing.assert_allclose(got.x, wanted.x, rtol=0, atol=1e-9)
    assert len(panels._space.panels()) > 5
    assert conjugacy_error(panels) < 1e-10


def test_copies_go_on_independently():
    A, B = small()
    solver = stepwell.ProjectedCG(A, 0.5, augmented=True)
    solver.solve(B[:, 0], tol=1e-3)
    other = solver.copy()
    kept = solver.directions
    before = solver._space.arrays()["directions"]
    other.solve(B[:, 1], tol=1e-8)
    assert other.directions > kept == solver.directions
    np.testing.assert_array_equal(solver._space.arrays()["directions"], before)
    solver.solve(B[:, 2], tol=1e-8)
    for one in (solver, other):
        assert conjugacy_error(one) < 1e-10


def test_images_are_those_of_the_directions():
    A, B = small()
    solver = stepwell.ProjectedCG(A, 0.5, augmented=True)
    for b in B.T[:4]:
        solver.solve(b, tol=1e-6)
    held = solver._space.arrays()
    scale = np.linalg.norm(A, 2) * np.linalg.norm(held["directions"], axis=1).max()
    assert np.abs(held["directions"] @ A.T - held["images"]).max() < 1e-13 * scale
    assert solver.bytes_held == solver.directions * (2 * 60 + 90) * 8


def test_a_residual_is_confirmed_or_computed_again():
    A, B = small()
    b, x = B[:, :1], np.random.default_rng(1).normal(size=(60, 1))
    calls = {"adjoint": 0}

    def adjoint(v):
        calls["adjoint"] += 1
        return A.T @ v

    operator = stepwell.operators.from_functions(lambda v: A @ v, adjoint, A.shape)
    system = TikhonovSystem(operator, None, np.array([0.5]), b)
    true = A.T @ (b - A @ x) - 0.25 * x
    state, confirmed = system.state(x, None, Carried(b - A @ x, true), 1e-6)
    assert confirmed is true
    assert calls["adjoint"] == 0
    # A state that a further round can start from: after a step its gradient is that of the dense formula.
    move = np.random.default_rng(2).normal(size=(60, 1))
    after = system.gradient(system.advance(state, 0.3, (A @ move, move)))
    calls["adjoint"] = 0
    there = x + 0.3 * move
    np.testing.assert_allclose(after, A.T @ (b - A @ there) - 0.25 * there, atol=1e-11)
    wrong = system.state(x, None, Carried((1 + 1e-9) * (b - A @ x), 0 * true), 1e-6)[1]
    assert calls["adjoint"] == 1
    np.testing.assert_allclose(wrong, true, atol=1e-11)
    lost = system.state(x, None, Carried(np.nan * b, 0 * true), 1e-6)[1]
    np.testing.assert_allclose(lost, true, atol=1e-11)
    assert system.products == 3


def test_the_residual_told_is_the_true_one_at_every_tolerance():
    A, B = small()
    operator = as_operator(A)
    for tol in 10.0 ** np.arange(-1, -13, -1):
        solver = stepwell.ProjectedCG(operator, 0.5, augmented=True)
        for b in B.T[:5]:
            for result in (solver.solve(b, tol=tol), stepwell.tikhonov(operator, b, 0.5, method="cgls", tol=tol)):
                rhs = A.T @ b
                true = np.linalg.norm(rhs - A.T @ (A @ result.x) - 0.25 * result.x) / np.linalg.norm(rhs)
                assert result.success
                # Told and true differ by rounding, and by a part of the tolerance that is named in the system.
                assert abs(true - result.residual) <= 1e-13 + 1e-4 * tol


def test_dtypes_are_kept_apart():
    A, B = small()
    solver = stepwell.ProjectedCG(A.astype(np.float32), 0.5, augmented=True)
    single = solver.solve(B[:, 0].astype(np.float32), tol=1e-4)
    double = solver.solve(B[:, 0], tol=1e-9)
    assert (single.x.dtype, double.x.dtype) == (np.float32, np.float64)
    assert single.success
    assert double.success


def test_strided_and_read_only_data_are_taken_as_they_are():
    A, B = small()
    B.flags.writeable = False
    solver = stepwell.ProjectedCG(A, 0.5, augmented=True)
    for j in range(4):
        np.testing.assert_allclose(
            solver.solve(B[:, j], tol=1e-10).x,
            np.linalg.solve(A.T @ A + 0.25 * np.eye(60), A.T @ B[:, j]),
            atol=1e-8,
        )


def test_float32_directions_are_saved_as_they_are(tmp_path):
    A, B = small()
    solver = stepwell.ProjectedCG(A.astype(np.float32), 0.5, augmented=True)
    b = B[:, 0].astype(np.float32)
    solver.solve(b, tol=1e-4)
    solver.save(tmp_path / "space.npz")
    again = stepwell.ProjectedCG.load(tmp_path / "space.npz", A.astype(np.float32))
    assert again.directions == solver.directions
    assert again.bytes_held == solver.bytes_held
    assert again.solve(b, tol=1e-3).products == 1  # projection alone, from what was loaded


def test_directions_of_a_solve_that_dropped_some_have_no_weight_for_ever():
    A, B = small()
    solver = stepwell.ProjectedCG(A, 0.5, memory=10 * (2 * 60 + 90) * 8, augmented=True)
    for b in B.T:
        assert solver.solve(b, tol=1e-10).success
        assert np.isfinite(solver._space.arrays()["scores"]).all()
    assert conjugacy_error(solver) < 1e-10


def test_sums_of_long_float32_columns_are_of_doubles():
    values = np.full((3_000_000, 1), 0.1, dtype=np.float32)
    exact = 3_000_000 * float(np.float32(0.1)) ** 2
    found = arrays.column_dots(values, values)
    assert found.dtype == np.float32
    assert abs(found[0] - exact) <= np.finfo(np.float32).eps * exact


def test_a_multiple_of_another_dtype_is_not_rounded_to_it():
    block, other = np.array([[1 + 1e-12]]), np.ones((1, 1), np.float32)
    assert arrays.plus_multiple(block, np.float32(0.0), other)[0, 0] == block[0, 0]
