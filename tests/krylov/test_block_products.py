"""Inner products and combinations of blocks against sums in extended precision; bits that no thread changes."""

import threading

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_info, threadpool_limits

import stepwell
from stepwell import _core
from stepwell.common.threads import threads_at_most
from stepwell.operators.block_products import combined, dense_products, inner_products, plus_combined

#: Rows around the lengths at which the kernels cut (128, 1024, 32 pieces), columns around the widths of their tiles.
SIZES = [(0, 3, 2), (1, 1, 1), (5, 4, 0), (127, 3, 7), (129, 9, 2), (1000, 17, 33), (2100, 5, 5), (40000, 2, 3)]


def drawn(shape, dtype, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("rows", "left", "right"), SIZES)
def test_inner_products(rows, left, right, dtype):
    A, B = drawn((rows, left), dtype), drawn((rows, right), dtype, 1)
    exact = A.T.astype(np.longdouble) @ B.astype(np.longdouble)
    size = np.abs(A.T).astype(np.float64) @ np.abs(B)
    found = inner_products(A, B)
    assert found.dtype == dtype
    assert found.shape == (left, right)
    # A sum of N products in any order is off by at most N eps times the sum of their sizes (Higham, section 3.1).
    assert np.all(np.abs(found - exact) <= max(1, rows) * np.finfo(dtype).eps * size)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("rows", "inner", "columns"), SIZES)
@pytest.mark.parametrize("sign", [1, -1])
def test_combinations(rows, inner, columns, dtype, sign):
    A, M, base = drawn((rows, inner), dtype), drawn((inner, columns), dtype, 1), drawn((rows, columns), dtype, 2)
    product = A.astype(np.longdouble) @ M.astype(np.longdouble)
    size = np.abs(A).astype(np.float64) @ np.abs(M) + np.abs(base)
    room = (inner + 2) * np.finfo(dtype).eps * size
    assert np.all(np.abs(combined(A, M) - product) <= room)
    found = plus_combined(base, A, M, sign)
    assert found.dtype == dtype
    assert np.all(np.abs(found - (base + sign * product)) <= room)


def test_a_block_with_itself_is_symmetric_to_the_last_bit():
    for columns in (1, 3, 8, 9, 31, 40):
        block = drawn((1500, columns), np.float64)
        gram = inner_products(block, block)
        assert np.array_equal(gram, gram.T)
        # the sums above the diagonal are those that are formed for two blocks
        assert np.array_equal(np.triu(gram), np.triu(inner_products(block, block.copy())))


def test_no_thread_changes_a_bit():
    block, other, mix = drawn((5000, 23), np.float64), drawn((5000, 14), np.float64, 1), drawn((23, 14), np.float64, 2)
    found = []
    for threads in (1, 2, 5):
        with threads_at_most(threads):
            gram, sums = np.empty((23, 14)), np.empty((5000, 14))
            _core.block_gram(block, other, gram, threads)
            _core.block_combine(block, mix, other, -1, sums, threads)
            found.append((gram, sums))
    for gram, sums in found[1:]:
        assert np.array_equal(gram, found[0][0])
        assert np.array_equal(sums, found[0][1])


def test_what_is_not_finite_stays_in_its_column():
    block, mix = drawn((300, 6), np.float64), np.eye(6)
    block[7, 2] = np.nan
    gram = inner_products(block, drawn((300, 3), np.float64, 1))
    assert np.isnan(gram[2]).all()
    assert np.isfinite(np.delete(gram, 2, axis=0)).all()
    one = np.zeros((300, 5))
    one[:, 4] = np.inf
    added = plus_combined(one, drawn((300, 2), np.float64), drawn((2, 5), np.float64, 3))
    assert np.isfinite(added[:, :4]).all()
    assert np.isinf(added[:, 4]).all()
    assert np.isnan(combined(block, mix)[7]).all()


def test_any_order_in_memory():
    block, other = drawn((200, 7), np.float64), drawn((200, 5), np.float64, 1)
    assert np.array_equal(inner_products(np.asfortranarray(block), other[::1]), inner_products(block, other))
    assert np.array_equal(inner_products(block[::2], other[::2]), inner_products(block[::2].copy(), other[::2].copy()))
    assert np.array_equal(combined(block, other[:7].T[:, ::1].T[:7]), combined(block, other[:7].copy()))


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="do not fit together"):
        inner_products(np.ones((3, 2)), np.ones((4, 2)))
    with pytest.raises(ValueError, match="do not fit together"):
        combined(np.ones((3, 2)), np.ones((3, 2)))
    with pytest.raises(ValueError, match="do not fit together"):
        plus_combined(np.ones((3, 1)), np.ones((3, 2)), np.ones((2, 2)))


def test_block_answers_do_not_depend_on_threads_of_the_blas_or_of_our_own():
    random = np.random.default_rng(0)
    A = sp.random(3000, 2500, density=2e-3, random_state=random, format="csr") + sp.eye(3000, 2500, format="csr")
    B = random.normal(size=(3000, 70))
    answers = []
    for blas, own in ((1, 1), (2, 1), (2, 2)):
        with threadpool_limits(blas, user_api="blas"), threads_at_most(own):
            answers.append(stepwell.tikhonov(A, B, 0.3, method="block", tol=1e-2).x)
    assert np.array_equal(answers[0], answers[1])
    assert np.array_equal(answers[0], answers[2])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("order", ["C", "F", "neither"])
@pytest.mark.parametrize("columns", [0, 1, 4, 5, 40])
def test_products_with_a_dense_matrix(dtype, order, columns):
    A = drawn((300, 270), dtype)
    A = np.asfortranarray(A) if order == "F" else A[::2, ::2] if order == "neither" else A
    m, n = A.shape
    forward, adjoint = dense_products(A)
    for apply, matrix in ((forward, A), (adjoint, A.T)):
        block = drawn((matrix.shape[1], columns), dtype, 1)
        exact, size = matrix.astype(np.longdouble) @ block, np.abs(matrix).astype(np.float64) @ np.abs(block)
        found = apply(block)
        assert found.dtype == dtype
        assert found.flags.c_contiguous
        assert np.all(np.abs(found - exact) <= max(m, n) * np.finfo(dtype).eps * size)
        assert apply(block.astype(np.float64)).dtype == "float64"


def test_two_solvers_at_once_have_the_bits_of_each_alone():
    A, B = drawn((900, 700), np.float64), drawn((900, 40), np.float64, 1)
    alone = [stepwell.tikhonov(A, B, lam, method="block", tol=1e-8).x for lam in (1.0, 2.0)]
    together = [None, None]

    def solve(which, lam):
        together[which] = stepwell.tikhonov(A, B, lam, method="block", tol=1e-8).x

    threads = [threading.Thread(target=solve, args=each) for each in ((0, 1.0), (1, 2.0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(*each) for each in zip(alone, together))


def test_the_blas_of_the_caller_is_left_alone():
    """In functions and callbacks of the caller's, and after an exception, the BLAS has the threads that it had."""
    A, B = drawn((300, 200), np.float64), drawn((300, 6), np.float64, 1)
    seen = []

    def look(_):
        seen.append([lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"])
        if len(seen) == 3:
            raise RuntimeError("the third time")

    with threadpool_limits(2, user_api="blas"):
        before = [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]
        with pytest.raises(RuntimeError, match="the third time"):
            stepwell.tikhonov((lambda v: A @ v, lambda v: A.T @ v), B, 0.1, method="block", callback=look)
        after = [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]
    assert seen == [before] * 3
    assert after == before
