"""Products of float32 arrays are made in full precision, whatever a library's setting rounds them to.

What a GPU would round shows on the CPU as well: JAX writes the precision of a product into its programs, and PyTorch
tells which products it is asked for.
"""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from krylov_oracle import METHODS, assert_solves, normal_matrix

import stepwell
from stepwell.arrays import products

random = np.random.default_rng(4)
A = random.normal(size=(40, 24)).astype(np.float32)
B = random.normal(size=(40, 3)).astype(np.float32)
LAM = 0.5
#: Products that PyTorch's setting concerns.
ROUNDED = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "_trilinear"}


@pytest.fixture(params=["high", "medium"])
def rounding_torch(request):
    torch = pytest.importorskip("torch")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield torch
    assert torch.get_float32_matmul_precision() == request.param  # the caller's is left as it is
    torch.set_float32_matmul_precision(before)


def watching(torch):
    """A context that notes all products of float32 tensors."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.single, self.double = [], []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name = function.overloadpacket.__name__
            if name in ROUNDED:
                of = self.single if any(getattr(one, "dtype", None) == torch.float32 for one in args) else self.double
                of.append(name)
            return function(*args, **(kwargs or {}))

    return Watch()


@pytest.mark.parametrize("method", METHODS)
def test_tensors(rounding_torch, method):
    torch = rounding_torch
    with watching(torch) as watch:
        result = stepwell.tikhonov(torch.from_numpy(A), torch.from_numpy(B), LAM, method=method, tol=1e-4)
    assert result.success
    assert result.x.dtype == torch.float32
    assert watch.double
    assert watch.single == []
    assert_solves(result.x.numpy(), normal_matrix(A, LAM), A.T.astype(float) @ B, 1e-4, "float32")


def test_without_such_a_setting_tensors_are_multiplied_as_they_are():
    torch = pytest.importorskip("torch")
    with watching(torch) as watch:
        stepwell.tikhonov(torch.from_numpy(A), torch.from_numpy(B), LAM, method="block", tol=1e-4)
    assert watch.single
    assert watch.double == []


@pytest.mark.parametrize("solver", ["tikhonov", "cg", "nnls", "lsq_linear"])
def test_derivatives_of_tensors(rounding_torch, solver):
    torch = rounding_torch
    matrix = torch.from_numpy(A if solver != "cg" else A.T @ A + np.eye(24, dtype=np.float32)).requires_grad_()
    right = torch.from_numpy(B if solver == "tikhonov" else B[:24] if solver == "cg" else B.T.copy())
    calls = {
        "tikhonov": lambda: stepwell.tikhonov(matrix, right, LAM, tol=1e-5),
        "cg": lambda: stepwell.cg(matrix, right, tol=1e-5),
        "nnls": lambda: stepwell.nnls(matrix, right),
        "lsq_linear": lambda: stepwell.lsq_linear(matrix, right, bounds=(-1.0, 1.0)),
    }
    with watching(torch) as watch:
        calls[solver]().x.square().sum().backward()
    assert watch.single == []
    assert torch.isfinite(matrix.grad).all()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's compiler, about its own
def test_compiled_programs(rounding_torch):
    """They may run with another setting than they were compiled with, and never ask."""
    torch = rounding_torch
    matrix = torch.from_numpy(A).requires_grad_()

    def value(matrix):
        return stepwell.tikhonov(matrix, torch.from_numpy(B), torch.tensor(LAM), tol=1e-5).x.square().sum()

    value(matrix).backward()
    expected, matrix.grad = matrix.grad.clone(), None
    torch.compile(value, fullgraph=True, backend="aot_eager")(matrix).backward()
    torch.testing.assert_close(matrix.grad, expected)


def test_newer_settings_of_pytorch():
    torch = pytest.importorskip("torch")
    cpu = getattr(torch.backends.mkldnn, "matmul", None)
    if cpu is None:
        pytest.skip("this PyTorch has the old setting alone")
    single, double = torch.zeros(2), torch.zeros(2, dtype=torch.float64)
    before = cpu.fp32_precision
    try:
        for setting, rounds in (("ieee", False), ("tf32", True), ("bf16", True)):
            cpu.fp32_precision = setting
            assert products.rounds_products(single) is rounds
            assert products.rounds_products(double) is False
    finally:
        cpu.fp32_precision = before


def test_products_by_doubles_in_parts(rounding_torch, monkeypatch):
    torch = rounding_torch
    monkeypatch.setattr(products, "_AT_A_TIME", 100)
    left, right = torch.from_numpy(A), torch.from_numpy(B[:24].copy())
    exact = (A.astype(float) @ B[:24].astype(float)).astype(np.float32)
    np.testing.assert_array_equal(products.matrix_product(left, right).numpy(), exact)
    np.testing.assert_array_equal(
        products.transposed_product(left, torch.from_numpy(B)).numpy(),
        (A.T.astype(float) @ B.astype(float)).astype(np.float32),
    )
    stack = torch.from_numpy(np.stack([A, 2 * A]))
    np.testing.assert_array_equal(products.matrix_product(stack, right).numpy(), np.stack([exact, 2 * exact]))


# ---- JAX ----


@pytest.fixture
def jax_products(monkeypatch):
    """The precisions of all products that JAX is asked for, in programs that are compiled anew."""
    jax = pytest.importorskip("jax")
    jax.clear_caches()
    products._jax_products.cache_clear()
    found = []
    inner = jax.lax.dot_general

    def dot_general(*args, precision=None, **options):
        found.append(precision)
        return inner(*args, precision=precision, **options)

    for module in ("jax.lax", "jax._src.lax.lax"):
        monkeypatch.setattr(f"{module}.dot_general", dot_general)
    yield jax, found
    jax.clear_caches()  # nobody else is to be watched
    products._jax_products.cache_clear()


def is_highest(jax, precision):
    both = precision if isinstance(precision, tuple) else (precision,)
    return (
        all(jax.lax.Precision(one) is jax.lax.Precision.HIGHEST for one in both if one is not None) and None not in both
    )


@pytest.mark.parametrize("method", METHODS)
def test_arrays_of_jax(jax_products, method):
    jax, found = jax_products
    result = stepwell.tikhonov(jax.numpy.asarray(A), jax.numpy.asarray(B), LAM, method=method, tol=1e-4)
    assert result.success
    assert found
    assert [one for one in found if not is_highest(jax, one)] == []


@pytest.mark.parametrize("solver", ["tikhonov", "cg", "nnls", "lsq_linear"])
def test_derivatives_of_jax(jax_products, solver):
    jax, found = jax_products
    matrix = jax.numpy.asarray(A if solver != "cg" else A.T @ A + np.eye(24, dtype=np.float32))
    right = jax.numpy.asarray(B if solver == "tikhonov" else B[:24] if solver == "cg" else B.T)

    def value(matrix):
        options = {"tikhonov": dict(lam=LAM), "lsq_linear": dict(bounds=(-1.0, 1.0))}.get(solver, {})
        return (getattr(stepwell, solver)(matrix, right, **options).x ** 2).sum()

    gradient = jax.grad(value)(matrix)
    assert np.isfinite(np.asarray(gradient)).all()
    assert [one for one in found if not is_highest(jax, one)] == []


def test_the_precision_stands_in_the_programs_of_jax():
    jax = pytest.importorskip("jax")
    left, right = jax.numpy.asarray(A), jax.numpy.asarray(B)
    for program in (
        jax.make_jaxpr(products.transposed_product)(left, right),
        jax.make_jaxpr(products.matrix_product)(left.T, right),
        jax.make_jaxpr(products.plus_product)(right[:24], left.T, right),
    ):
        text = str(program)
        assert text.count("dot_general") == text.count("Precision.HIGHEST") / 2 == 1


# ---- the source ----

#: Files and functions of the host alone, on arrays of NumPy.
OF_THE_HOST = {
    "_times",
    "_transposed_times",
    "dense_products",
    "_diagonal",
    "_exact",
    "diagonal_pencil",
    "conjugacy_error",
}


def plain_products(source):
    """Lines with a product that asks for no precision."""
    found, waiting = [], [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef) and node.name in OF_THE_HOST:
            continue
        waiting += ast.iter_child_nodes(node)
        called = getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            # (A sparse matrix of a library, and what is the caller's own.)
            if not (isinstance(node.left, ast.Name) and node.left.id == "csr"):
                found.append(node.lineno)
        elif called in ("matmul", "einsum", "tensordot", "vecdot", "dot", "addmm", "bmm", "mv"):
            found.append(node.lineno)
    return found


def test_what_is_looked_for_is_found():
    for source in ("x = P @ Q", "xp.matmul(P, Q)", "torch.addmm(P, Q, R)", "P.T @ Q"):
        assert plain_products(source)
    assert plain_products("matrix_product(P, Q)") == []


@pytest.mark.parametrize("room", ["krylov", "operators", "derivatives"])
def test_products_are_asked_for_in_one_place(room):
    package = Path(stepwell.__file__).parent / room
    wrong = [
        f"{path.name}:{line}" for path in sorted(package.glob("*.py")) for line in plain_products(path.read_text())
    ]
    assert wrong == []
