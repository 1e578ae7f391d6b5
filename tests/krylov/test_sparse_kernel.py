"""The sparse product on a GPU: its arrangement of rows holds the matrix, its kernels compile and agree with SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell import operators
from stepwell.apps import tomography
from stepwell.arrays import as_user_array, copy_to_device_of, to_host
from stepwell.cuda import nvrtc
from stepwell.operators import cuda_sparse


def banded(rows: int, columns: int, dtype: str, seed: int) -> sp.csr_matrix:
    """Random rows of neighbouring entries, some rows empty: neighbours share columns."""
    random = np.random.default_rng(seed)
    A = np.zeros((rows, columns), dtype)
    for row in range(rows):
        first = min(columns - 1, row * columns // rows)
        last = min(columns, first + int(random.integers(0, 9)))
        A[row, first:last] = random.normal(size=last - first)
    return sp.csr_matrix(A)


def dense_of(grouped: cuda_sparse.GroupedRows) -> np.ndarray:
    """Write out what the groups hold, from the layout as documented."""
    starts, slots, values = (np.asarray(part) for part in (grouped.starts, grouped.slots, grouped.values))
    dense = np.zeros((8 * (starts.size - 1), grouped.shape[1]), values.dtype)
    for group in range(starts.size - 1):
        for step in range(starts[group], starts[group + 1]):
            tile = values[step].reshape(8, 4) if values.itemsize == 8 else values[step].reshape(4, 8).T
            for part in range(4):  # a repeated slot holds zeros
                dense[8 * group : 8 * group + 8, slots[step, part]] += tile[:, part]
    assert not dense[grouped.shape[0] :].any()
    return dense[: grouped.shape[0]]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    dtype=st.sampled_from(["float64", "float32"]),
    index=st.sampled_from([np.int32, np.int64]),
    seed=st.integers(0, 99),
    library=st.sampled_from(["numpy", "torch"]),
)
def test_groups_hold_the_matrix(rows, columns, dtype, index, seed, library):
    A = banded(rows, columns, dtype, seed)
    parts = [A.indptr.astype(index), A.indices.astype(index), A.data]
    if library == "torch":
        torch = pytest.importorskip("torch")
        parts = [as_user_array(part, torch.empty(0)) for part in parts]
    grouped = cuda_sparse.group_rows(*parts, A.shape)
    touched = sum(np.unique(A[first : first + 8].indices).size for first in range(0, rows, 8))
    if A.nnz == 0 or A.nnz < cuda_sparse.MIN_SHARING * touched:
        assert grouped is None
    else:
        np.testing.assert_array_equal(dense_of(grouped), A.toarray())
        arrays = (grouped.starts, grouped.slots, grouped.values)
        assert grouped.memory == sum(np.asarray(part).nbytes for part in arrays)


def test_entries_that_occur_twice_are_added_up():
    indptr, indices = np.array([0, 3, 4]), np.array([1, 0, 1, 1])
    grouped = cuda_sparse.group_rows(indptr, indices, np.array([1.0, 2.0, 4.0, 8.0]), (2, 3))
    np.testing.assert_array_equal(dense_of(grouped), [[2.0, 5.0, 0.0], [0.0, 8.0, 0.0]])


def test_projection_matrices_share_columns_and_random_ones_do_not():
    A = tomography.parallel_beam(24, angles=np.arange(0, 180, 10.0))
    for matrix in (A, sp.csr_matrix(A.T)):
        grouped = cuda_sparse.group_rows(matrix.indptr, matrix.indices, matrix.data, matrix.shape)
        assert matrix.nnz > 1.5 * grouped.slots.size
    scattered = sp.random(400, 4000, 0.002, format="csr", random_state=np.random.default_rng(0))
    assert cuda_sparse.group_rows(scattered.indptr, scattered.indices, scattered.data, scattered.shape) is None


@given(width=st.integers(1, 2000), word=st.sampled_from([4, 8]))
def test_panels_cover_the_columns_once(width, word):
    panels, tiles = cuda_sparse.tiling(width, word)
    assert 1 <= tiles <= cuda_sparse.MAX_TILES[word]
    columns = tiles * cuda_sparse.TILE_COLUMNS[word]
    assert (panels - 1) * columns < width <= panels * columns


@pytest.mark.kernels
@pytest.mark.parametrize("word", [8, 4])
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_kernels_compile_without_a_device(word, architecture, monkeypatch, tmp_path):
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path))
    try:
        code = nvrtc.compile_kernel("sparse_product", cuda_sparse.kernel_defines(word), architecture)
    except Exception as error:
        if "DynamicLibNotFound" not in type(error).__name__:
            raise
        pytest.skip(f"NVRTC is not installed: {error}")
    for tiles in range(1, cuda_sparse.MAX_TILES[word] + 1):
        assert f"spmm_{tiles}".encode() in code


def template(library: str, dtype: str):
    module = pytest.importorskip(library)
    if library == "cupy":
        return module.empty(0, dtype=dtype)
    return module.empty(0, dtype=getattr(module, dtype), device="cuda")


@pytest.mark.cuda
@pytest.mark.parametrize("library", ["cupy", "torch"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_product_is_scipys(library, dtype):
    like = template(library, dtype)
    random = np.random.default_rng(0)
    matrices = [banded(rows, columns, dtype, 1) for rows, columns in ((1, 5), (203, 150), (64, 300), (1001, 90))]
    matrices.append(sp.csr_matrix(tomography.parallel_beam(32, angles=np.arange(0, 180, 5.0)), dtype=dtype))
    widths = (1, 2, 7, 8, 9, 31, 33, 64, 65, 102, 128, 129, 300)
    for A in matrices:
        operator = operators.as_operator(operators.in_library_of(A, like))
        for matrix, apply in ((A, operator.forward), (sp.csr_matrix(A.T), operator.adjoint)):
            block = random.normal(size=(matrix.shape[1], max(widths))).astype(dtype)
            exact = matrix.astype(float) @ block.astype(float)
            # A sum of k terms, in any order, is off by at most k ε Σ|a||x|.
            slack = (np.diff(matrix.indptr).max() + 1) * np.finfo(dtype).eps * (abs(matrix) @ abs(block)).astype(float)
            for width in widths:
                ours = to_host(apply(copy_to_device_of(block[:, :width], like)))
                assert np.all(np.abs(ours - exact[:, :width]) <= slack[:, :width])


@pytest.mark.cuda
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_any_order_of_the_block_and_the_same_bits_in_any_width(library):
    like = template(library, "float64")
    A = tomography.parallel_beam(32, angles=np.arange(0, 180, 5.0))
    operator = operators.as_operator(operators.in_library_of(A, like))
    assert operator.memory > 2 * A.data.nbytes  # the groups are there
    X = np.random.default_rng(0).normal(size=(A.shape[1], 102))
    wide = to_host(operator.forward(copy_to_device_of(X, like)))
    turned = copy_to_device_of(np.ascontiguousarray(X.T), like).T
    np.testing.assert_array_equal(to_host(operator.forward(turned)), wide)
    np.testing.assert_array_equal(to_host(operator.forward(copy_to_device_of(X[:, 40:49], like))), wide[:, 40:49])
    assert operator.forward(copy_to_device_of(X[:, :0], like)).shape == (A.shape[0], 0)
