"""What kernels need of a library and its device, as far as a CPU shows it; and sparse matrices of the libraries."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from stepwell import arrays
from stepwell.apps.voronoi.assignment import empty_cells
from stepwell.apps.voronoi.starts import first_above
from stepwell.arrays import device, sparse
from stepwell.arrays.device_memory import DeviceMemory


@pytest.fixture(params=["make_torch", "make_jax"])
def make_other(request):
    """Makes an array of PyTorch or JAX, the libraries at hand that can have a device."""
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "uint8"])
def test_memory_for_kernels(make_other, dtype):
    memory = DeviceMemory(make_other(np.zeros(3)))
    zeros = memory.zeros((2, 3), dtype)
    assert tuple(zeros.shape) == tuple(memory.empty((2, 3), dtype).shape) == (2, 3)
    assert arrays.numpy_dtype(zeros) == np.dtype(dtype)
    np.testing.assert_array_equal(arrays.host_copy(zeros), np.zeros((2, 3)))
    assert memory.address(None) == 0
    assert memory.address(zeros) == arrays.device_address(zeros) > 0
    assert memory.device_id == 0
    assert "on cpu" in repr(memory)


def test_bytes_arrive_as_they_are(make_other):
    data = np.arange(5.0).tobytes()
    there = DeviceMemory(make_other(np.zeros(1))).upload(data)
    assert arrays.host_copy(there).tobytes() == data


def test_flags_become_bool(make_other):
    flags = make_other(np.array([0, 1, 1], np.uint8))
    found = arrays.bytes_as_bool(flags)
    assert arrays.numpy_dtype(found) == np.bool_
    np.testing.assert_array_equal(arrays.host_copy(found), [False, True, True])


def test_memory_of_the_host_is_known(make):
    free = arrays.available_bytes(make(np.zeros(1)))
    assert free is None or free > 2**20


class Device:
    """A device of JAX that counts its memory; it has taken 60 of 100 at its start, of which 20 are in use."""

    platform, id = "gpu", 0

    def __init__(self, **told):
        self.told = told

    def memory_stats(self):
        return self.told


@pytest.mark.parametrize(
    ("told", "free", "expected"),
    [
        (dict(bytes_limit=75, bytes_in_use=20, pool_bytes=60), 40, 55),  # more of the device's, up to its limit
        (dict(bytes_limit=75, bytes_in_use=20, pool_bytes=60), 5, 45),  # others hold the rest of the device
        (dict(bytes_limit=75, bytes_in_use=20, pool_bytes=75), 25, 55),
        (dict(bytes_limit=75, bytes_in_use=75, pool_bytes=75), 25, 0),
        ({}, 40, 40),
    ],
)
def test_what_jax_can_hand_out(monkeypatch, told, free, expected):
    class OnDevice:
        def devices(self):
            return {Device(**told)}

    monkeypatch.setattr("stepwell.cuda.devices.memory_free", lambda index: (free, 100))
    monkeypatch.setattr(device, "device_index", lambda array: 0)
    assert device._available_to_jax(OnDevice()) == expected


def test_waiting_and_timing_on_the_host(make):
    template = make(np.zeros(1))
    calls = []
    assert arrays.seconds_of(lambda: calls.append(1), 3, template) >= 0
    assert len(calls) == 3
    arrays.wait_for_device(template)
    assert arrays.wait_for_values(template) is template


def test_arrays_of_a_library_at_hand_are_not_viewed_anew(make_other):
    array = make_other(np.zeros(2))
    assert arrays.view_foreign(array, array) is array


MATRIX = sp.random(7, 5, density=0.4, random_state=3, format="csr")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sparse_matrices_of_every_library(make, dtype):
    like = make(np.zeros(1, dtype))
    matrix = sparse.sparse_like(MATRIX, like)
    dense = arrays.host_copy(matrix.to_dense() if hasattr(matrix, "to_dense") else matrix.todense())
    np.testing.assert_array_equal(dense, MATRIX.toarray().astype(dtype))
    assert dense.dtype == np.dtype(dtype)


def test_sparse_tensors_are_seen(make_torch):
    tensor = sparse.sparse_like(MATRIX, make_torch(np.zeros(1)))
    for matrix in (tensor, tensor.to_sparse_coo()):
        assert sparse.is_sparse(matrix)
        assert sparse.has_own_product(matrix)
        csr, transposed = sparse.csr_with_transpose(matrix, "float32")
        starts, columns, entries = (part.numpy() for part in sparse.csr_parts(csr))
        again = sp.csr_matrix((entries, columns, starts), shape=MATRIX.shape)
        np.testing.assert_array_equal(again.toarray(), MATRIX.toarray().astype(np.float32))
        np.testing.assert_array_equal(transposed.to_dense().numpy(), MATRIX.toarray().astype(np.float32).T)
    assert sparse.is_sparse(MATRIX)
    assert not sparse.has_own_product(MATRIX)
    assert not sparse.is_sparse(tensor.to_dense())


def test_sums_and_cells_in_every_library(make):
    sums, wanted = np.array([1, 1, 4, 4, 9]), np.array([0, 1, 3, 4, 8])
    found = first_above(make(sums), make(wanted))
    expected = [int(np.flatnonzero(sums > number)[0]) for number in wanted]
    np.testing.assert_array_equal(arrays.host_copy(found), expected)
    owners = np.array([[0, 2, 2], [5, 0, 2]], np.int32)
    empty = empty_cells(make(owners), 7)
    np.testing.assert_array_equal(arrays.host_copy(empty), sorted(set(range(7)) - set(owners.ravel().tolist())))
