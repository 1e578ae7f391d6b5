"""The checks that all public functions share: what they let through, and what errors name."""

from __future__ import annotations

import importlib
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

import stepwell
from stepwell import _core
from stepwell.arrays import checks as array_checks
from stepwell.common import checks

NO_NUMBERS = [True, np.True_, np.array(True), "1", b"1", None, 1j, np.complex64(1), [1.0], np.ones(1), 10**400]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_what_is_no_number_is_refused_as_both_errors(value):
    shown = repr(value) if len(repr(value)) < 80 else repr(value)[:77] + "..."
    for read, allowed in (
        (lambda: checks.read_real("a", value, at_least=0), "a finite number of at least 0"),
        (lambda: checks.read_whole("a", value, 0, as_float=True), "a whole number of at least 0"),
        (lambda: checks.read_whole("a", value, 0, 9), "an integer from 0 to 9"),
        (lambda: checks.read_whole("a", value, 1, other="an array"), "an integer of at least 1, or an array"),
    ):
        for error in (TypeError, ValueError):
            with pytest.raises(error) as caught:
                read()
            assert str(caught.value) == f"a is {shown}; allowed: {allowed}"


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int8(2), np.array(2.0), Fraction(2), Decimal(2)], ids=repr)
def test_one_number_in_many_forms(value):
    for found in (checks.read_real("a", value), checks.read_whole("a", value, 0, as_float=True)):
        assert found == 2
    assert type(checks.read_real("a", value)) is float
    assert type(checks.read_whole("a", value, 0, as_float=True)) is int


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_numbers_of_other_libraries(library):
    xp = pytest.importorskip(library)
    assert checks.read_real("a", xp.asarray(0.5)) == 0.5
    assert checks.read_whole("a", xp.asarray(3), 0) == 3
    for wrong in (xp.asarray(True), xp.asarray(1j), xp.asarray([1.0])):
        with pytest.raises(checks.WrongKind, match=r"^a is .*; allowed: a finite number$"):
            checks.read_real("a", wrong)


@pytest.mark.parametrize(
    ("limits", "inside", "outside", "allowed"),
    [
        ({}, [-1e300, 0, 1e300], [np.nan, np.inf, -np.inf], "a finite number"),
        ({"infinite": True}, [-np.inf, 0, np.inf], [np.nan], "a number"),
        ({"at_least": 0}, [0, 1e300], [-1e-300, np.inf, np.nan], "a finite number of at least 0"),
        ({"above": 0, "infinite": True}, [1e-300, np.inf], [0, np.nan], "a number above 0"),
        ({"above": 0, "below": 1}, [1e-300, 0.99], [0, 1, np.nan], "a finite number above 0 and below 1"),
    ],
)
def test_ranges_of_real_numbers(limits, inside, outside, allowed):
    for value in inside:
        assert checks.read_real("a", value, **limits) == value
    for value in outside:
        with pytest.raises(ValueError, match=f"^a is {value}; allowed: {allowed}$"):
            checks.read_real("a", value, **limits)


def test_whole_numbers():
    assert checks.read_whole("a", 1e4, 0, as_float=True) == 10_000
    assert checks.read_whole("a", np.inf, 0, as_float=True, infinite=True) == checks.UNLIMITED
    assert checks.read_whole("a", 10**30, 0, as_float=True, infinite=True) == checks.UNLIMITED
    assert checks.read_whole("a", 10**30, 0, 10**31) == checks.read_seed(10**30) == 10**30
    with pytest.raises(ValueError, match=rf"^a is {10**30}; allowed: an integer from 0 to {checks.UNLIMITED}$"):
        checks.read_whole("a", 10**30, 0)
    for value, options in ((2.0, {}), (2.5, {"as_float": True}), (np.inf, {"as_float": True}), (np.nan, {})):
        with pytest.raises(
            checks.WrongKind, match=rf"^a is {value}; allowed: (a whole number|an integer) of at least 0$"
        ):
            checks.read_whole("a", value, 0, **options)
    for value in (3, 1, 12):
        with pytest.raises(ValueError, match=f"^a is {value}; allowed: an integer from 2 to 10, a multiple of 2$"):
            checks.read_whole("a", value, 2, 10, multiple=2)


def test_several_numbers_and_texts():
    assert checks.read_sizes("shape", [2, 3.0], 2, meaning="rows, columns") == (2, 3)
    assert checks.read_sizes("shape", np.array([4]), None, meaning="all") == (4,)
    assert checks.read_reals("range", (1, np.float32(2)), 2, meaning="ends", above=0) == (1.0, 2.0)
    assert checks.read_texts("names", np.array(["a", "b"]), 2, "one each") == ["a", "b"]
    for wrong in (3, None, "ab", b"ab", {1, 2}, {1: 2}, (1,), (1, 2, 3), np.ones((2, 2)), object()):
        with pytest.raises(checks.WrongKind, match=r"^shape is .*; allowed: 2 whole numbers, rows, columns$"):
            checks.read_sizes("shape", wrong, 2, meaning="rows, columns")
    with pytest.raises(ValueError, match=r"^shape is 0; allowed: a whole number of at least 1$"):
        checks.read_sizes("shape", (1, 0), 2, meaning="rows, columns")
    with pytest.raises(ValueError, match=r"^range is 0; allowed: a finite number above 0$"):
        checks.read_reals("range", (0, 1), 2, meaning="ends", above=0)
    with pytest.raises(checks.WrongKind, match=r"^names is \['a', 2\]; allowed: 2 texts, one each$"):
        checks.read_texts("names", ["a", 2], 2, "one each")


def test_kinds_templates_and_memory():
    checks.require_instance("a", 3, int)
    checks.require_instance("a", None, int, optional=True)
    with pytest.raises(checks.WrongKind, match=r"^a is None; allowed: a int$"):
        checks.require_instance("a", None, int)
    array_checks.require_template("like", None)
    array_checks.require_template("like", np.ones(2, np.float32))
    for wrong in (3, [1.0], "x", memoryview(b"x")):
        with pytest.raises(checks.WrongKind, match=r"^like is .*; allowed: None or an array of NumPy"):
            array_checks.require_template("like", wrong)
    with pytest.raises(checks.WrongKind, match=r"^like has dtype complex128; allowed: real numbers$"):
        array_checks.require_template("like", np.ones(2, complex))
    checks.require_memory("n", 3, 3)
    with pytest.raises(ValueError, match=r"^n is 9; allowed: a size that fits into the memory"):
        checks.require_memory("n", 9, 2**60)


def test_long_values_are_shown_in_a_line():
    with pytest.raises(ValueError, match=r"^a is array\(\[\[0\., 0\., 0\.\], \[0\., 0\., 0\.\]\]\); allowed: more$"):
        checks.require(False, "a", np.zeros((2, 3)), "more")


def test_words_switches_and_functions():
    names = ("torsion", "journal-bearing")
    assert checks.read_choice("name", "torsion", names) == "torsion"
    for wrong, hint in (("torson", "; did you mean 'torsion'?"), ("x", ""), (3, ""), (np.ones(2), "")):
        said = f"name is {wrong!r}; allowed: 'torsion', 'journal-bearing'{hint}"
        with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
            checks.read_choice("name", wrong, names)
    assert checks.read_switch("joint", np.True_) is True
    with pytest.raises(TypeError, match=r"^joint is 1; allowed: True or False$"):
        checks.read_switch("joint", 1)
    checks.require_function("callback", None)
    checks.require_function("callback", print)
    with pytest.raises(TypeError, match=r"^callback is 3; allowed: None or a callable$"):
        checks.require_function("callback", 3)
    with pytest.raises(TypeError, match=r"^fun is None; allowed: a callable$"):
        checks.require_function("fun", None, optional=False)


def test_arrays_are_left_as_they_are():
    torch = pytest.importorskip("torch")
    for array in (
        np.ones(3, np.float32),
        np.ones(3, ">f8"),
        np.ones((2, 2), bool),
        torch.ones(3, dtype=torch.bfloat16),
    ):
        assert array_checks.read_array("b", array) is array
    assert array_checks.read_array("b", [1, 2]).dtype.kind == "i"
    assert array_checks.read_array("b", [Fraction(1, 2), 10**30]).tolist() == [0.5, 1e30]
    jax = pytest.importorskip("jax")
    half = jax.numpy.ones(3, dtype=jax.numpy.bfloat16)
    assert array_checks.read_array("b", half) is half


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("abc", "b is 'abc'; allowed: an array of real numbers"),
        (["1", "2"], r"b is \['1', '2'\]; allowed: an array of real numbers"),
        ([[1, 2], [3]], r"b is \[\[1, 2\], \[3\]\]; allowed: an array of real numbers"),
        ([10**400], r"b is \[1000.*; allowed: an array of real numbers"),
        ([1j], r"b is \[1j\]; allowed: an array of real numbers"),
        (np.ones(2, complex), "b has dtype complex128; allowed: real numbers"),
        (np.array(["a"]), "b has dtype <U1; allowed: real numbers"),
        (np.array([1], "M8[s]"), r"b has dtype datetime64\[s\]; allowed: real numbers"),
        (sparse.csr_array(np.eye(2)), "b is a sparse csr_array; allowed: a dense array"),
    ],
)
def test_what_is_no_array_of_real_numbers(value, said):
    with pytest.raises(TypeError, match=f"^{said}"):
        array_checks.read_array("b", value)


def test_the_first_bad_number_is_named():
    array_checks.require_finite("b", np.ones((2, 3)))
    array_checks.require_finite("b", np.empty(0))
    for array, where in (
        (np.array([1.0, np.nan, np.inf]), "nan at index 1"),
        (np.array([[1.0, 2.0], [3.0, np.inf]]), r"inf at index \(1, 1\)"),
        (np.array(np.nan), "nan"),
    ):
        with pytest.raises(ValueError, match=f"^b is {where}; allowed: finite numbers$"):
            array_checks.require_finite("b", array)


def test_arrays_of_two_libraries():
    torch = pytest.importorskip("torch")
    array_checks.require_one_home("b", np.ones(2), "A", torch.ones(2), library=False)
    with pytest.raises(
        checks.WrongKind, match=r"^b is a numpy array on cpu, A a torch array on cpu; allowed: one library"
    ):
        array_checks.require_one_home("b", np.ones(2), "A", torch.ones(2))
    with pytest.raises(
        checks.WrongKind, match=r"^b is a torch array on meta, A a torch array on cpu; allowed: one library"
    ):
        array_checks.require_one_home("b", torch.ones(2, device="meta"), "A", torch.ones(2), library=False)


def unaligned(values):
    """Return the values at an odd address, as np.frombuffer makes them of a file with a header of odd length."""
    made = np.zeros(values.nbytes + 1, np.uint8)[1:].view(values.dtype).reshape(values.shape)
    made[...] = values
    assert not made.flags.aligned
    return made


def test_what_is_not_aligned_is_copied():
    """To read a double at an odd address is undefined in C++, whatever a machine makes of it."""
    values = np.arange(6.0).reshape(2, 3)
    found = array_checks.read_host_array("a", unaligned(values))
    assert found.flags.aligned
    assert np.array_equal(found, values)
    assert array_checks.read_host_array("a", values) is values


@pytest.mark.parametrize("shared", [True, False])
def test_nnls_reads_aligned_arrays_alone(monkeypatch, shared):
    host = importlib.import_module("stepwell.lsq.host")
    rng = np.random.default_rng(0)
    A, b, start = rng.random((5, 8, 4)), rng.random((5, 8)), rng.random((5, 4))
    A = A[0] if shared else A
    seen = []
    monkeypatch.setattr(host, "_address", lambda array: seen.append(array.flags.aligned) or int(array.ctypes.data))
    found = stepwell.nnls(unaligned(A), unaligned(b), warm_start=unaligned(start))
    assert seen
    assert all(seen)
    assert np.array_equal(found.x, stepwell.nnls(A, b, warm_start=start).x)


def test_gradients_and_products_that_are_not_aligned():
    found = stepwell.minimize(lambda x: (float(x @ x), unaligned(2 * x)), np.arange(1.0, 5.0), jac=True)
    assert np.array_equal(found.x, stepwell.minimize(lambda x: (float(x @ x), 2 * x), np.arange(1.0, 5.0), jac=True).x)
    A = sparse.csr_matrix(np.arange(12.0).reshape(4, 3))
    odd = sparse.csr_matrix((unaligned(A.data), A.indices, A.indptr), shape=A.shape)
    b = np.arange(4.0)
    assert np.array_equal(stepwell.tikhonov(odd, unaligned(b), 0.5).x, stepwell.tikhonov(A, b, 0.5).x)


@pytest.mark.parametrize("order", ["C", "F"])
def test_dense_products_that_are_not_aligned(monkeypatch, order):
    """Neither the matrix nor a block reaches compiled code unaligned."""
    products = importlib.import_module("stepwell.operators.block_products")
    seen = []

    class Watched:
        def __getattr__(self, name):
            def call(*args):
                seen.extend(arg.flags.aligned for arg in args if isinstance(arg, np.ndarray))
                return getattr(_core, name)(*args)

            return call

    monkeypatch.setattr(products, "_core", Watched())
    A, X = np.arange(60.0).reshape(10, 6), np.arange(30.0).reshape(6, 5)
    odd = unaligned(A) if order == "C" else unaligned(np.ascontiguousarray(A.T)).T
    for matrix in (A, odd):
        forward, adjoint = products.dense_products(matrix)
        np.testing.assert_allclose(forward(unaligned(X)), A @ X, rtol=1e-14)
        np.testing.assert_allclose(adjoint(unaligned(A @ X)), A.T @ (A @ X), rtol=1e-14)
    assert seen
    assert all(seen)
