"""JAX compiles a program for every new shape, which takes far longer than to run it: few shapes, whatever the steps."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import stepwell
from stepwell.krylov.kept import KeptPanels

#: Far below what a shape in every step would take: some twenty operations a step.
FEW = {"block": 30, "pseudo-block": 45, "cgls": 45, "direct": 40, "prcg": 50, "aprcg": 50}


@functools.cache
def events():
    """The times of all compilations of this process, from here on."""
    jax = pytest.importorskip("jax")
    found = []

    def note(name, seconds, **_):
        if name.endswith("backend_compile_duration"):
            found.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(note)
    return found


def compiled(work):
    """Return how many programs some work had compiled, and what it returned."""
    before = len(events())
    result = work()
    return len(events()) - before, result


def problem(columns, seed, condition=1e3, rows=90, unknowns=60):
    """A matrix whose columns need different numbers of steps; some right-hand sides come near others."""
    jax = pytest.importorskip("jax")
    random = np.random.default_rng(seed)
    left, right = (np.linalg.qr(random.normal(size=(size, unknowns)))[0] for size in (rows, unknowns))
    A = (left * np.geomspace(1, 1 / condition, unknowns)) @ right.T
    B = A @ random.normal(size=(unknowns, columns)) + 1e-2 * random.normal(size=(rows, columns))
    B[:, 0] = A @ right[:, 0]  # found in one step
    return jax.numpy.asarray(A, "float32"), jax.numpy.asarray(B, "float32")


@pytest.mark.parametrize("method", FEW)
def test_few_programs_and_none_in_a_second_call(method):
    jax = pytest.importorskip("jax")
    jax.clear_caches()
    A, B = problem(5, 0)

    def solved(B, lam=0.1, **options):
        return stepwell.tikhonov(A, B, lam, method=method, tol=1e-3, **options)

    first, result = compiled(lambda: solved(B))
    assert result.success
    if method != "direct":
        assert len(set(result.iterations.tolist())) > 1  # columns have ended one after the other
    assert 0 < first <= FEW[method]
    assert compiled(lambda: solved(B))[0] == 0
    longer, again = compiled(lambda: solved(B, lam=0.01))
    if method != "direct":
        assert again.iterations.max() > result.iterations.max()
    # Other steps, other columns that end first: nothing but a second round, or directions that are repeated, is new.
    assert longer <= 4
    assert compiled(lambda: solved(problem(5, 1)[1], lam=0.01))[0] <= 4


def test_rounds_and_columns_that_have_ended_change_no_shape():
    """A tolerance near rounding errors takes several rounds, in which fewer and fewer columns take part."""
    jax = pytest.importorskip("jax")
    jax.clear_caches()
    A, B = problem(6, 2)
    counts = [
        compiled(lambda: stepwell.tikhonov(A, B, 0.05, method="block", tol=tol))[0]  # noqa: B023
        for tol in (1e-3, 1e-5, 3e-6, 1e-6)
    ]
    assert sum(counts) <= FEW["block"] + 8


@pytest.mark.parametrize(
    ("method", "memory"), [*((method, None) for method in FEW), ("block", 3000), ("prcg", 20_000), ("aprcg", 20_000)]
)
def test_the_answers_are_those_of_numpy(method, memory):
    A, B = problem(5, 3)
    options = dict(method=method, tol=1e-4, memory=memory)
    found = stepwell.tikhonov(A, B, 0.1, **options)
    host = stepwell.tikhonov(np.asarray(A), np.asarray(B), 0.1, **options)
    assert found.success
    assert host.success
    normal = np.asarray(A, float).T @ np.asarray(A, float) + 0.01 * np.eye(A.shape[1])
    exact = np.linalg.solve(normal, np.asarray(A, float).T @ np.asarray(B, float))
    bound = 1e-4 * np.linalg.cond(normal) * np.linalg.norm(exact, axis=0)
    assert np.all(np.linalg.norm(np.asarray(found.x) - exact, axis=0) <= bound)
    # (A tensor's directions are all removed, twice; blocks of one width fill the memory otherwise.)
    assert np.all(np.abs(found.iterations - host.iterations) <= 3 + host.iterations // 4)


def test_columns_that_are_zero_or_not_finite():
    A, B = problem(6, 4)
    B = B.at[:, 2].set(0).at[3, 4].set(np.nan)
    for method in ("block", "pseudo-block"):
        result = stepwell.tikhonov(A, B, 0.1, method=method, tol=1e-4)
        assert [status.name for status in result.status] == [
            "NONFINITE" if column == 4 else "CONVERGED" for column in range(6)
        ]
        assert np.all(np.asarray(result.x)[:, 2] == 0)
        assert result.iterations[2] == result.iterations[4] == 0


def test_panels_write_over_the_oldest_block():
    random = np.random.default_rng(0)
    size, width = 60, 4
    blocks = np.split(np.linalg.qr(random.normal(size=(size, 7 * width)))[0], 7, axis=1)  # conjugate for H = I
    kept = KeptPanels(2 * 3 * blocks[0].nbytes + 8)
    given = random.normal(size=(size, 3))
    np.testing.assert_array_equal(kept.conjugate(given), given)
    for count in range(1, 8):
        kept.add(blocks[count - 1].copy(), blocks[count - 1].copy(), np.eye(width))
        newest = np.concatenate(blocks[max(0, count - 3) : count], axis=1)
        left = kept.conjugate(given)
        np.testing.assert_allclose(newest.T @ left, 0, atol=1e-13)
        if count > 3:
            oldest = np.concatenate(blocks[: count - 3], axis=1)
            np.testing.assert_allclose(oldest.T @ left, oldest.T @ given, atol=1e-13)
