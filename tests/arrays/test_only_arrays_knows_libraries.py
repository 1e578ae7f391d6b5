"""Only `stepwell.arrays` imports PyTorch, CuPy, JAX, dask or xarray, or asks which of them an array is from."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).parents[2] / "src" / "stepwell"
LIBRARIES = {"torch", "cupy", "cupyx", "jax", "jaxlib", "dask", "distributed", "xarray"}
#: What imports a library to make arrays of it, or is told its name by the caller, as commands are; no array is asked
#: where it is from there either.
MAKE_ARRAYS = ("lab/studies/", "lab/tour/derivative.py", "cli/")

#: Modules that are the plug for one library, and import it: nobody else does but who has an array of it in hand.
PLUGS = ("derivatives/torch_", "derivatives/jax_", "torch.py", "plugs/botorch.py")


def library_of(name: str | None) -> str | None:
    """The library that a dotted module name belongs to, if it is one of ours to look for."""
    top = (name or "").partition(".")[0]
    return top if top in LIBRARIES else None


def called(node: ast.AST) -> str:
    """The last part of the name of what is called."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def findings(source: str, *, may_import: bool = False) -> list[tuple[int, str]]:
    """Return lines and what is wrong with them."""
    found = []
    for node in ast.walk(ast.parse(source)):
        imported: list[str | None] = []
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported = [node.module] if node.level == 0 else []
            if any(alias.name in ("kind_of", "kinds") for alias in node.names):
                found.append((node.lineno, "takes kind_of from arrays"))
        elif called(node) in ("import_module", "__import__"):
            imported = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        if not may_import:
            found += [(node.lineno, f"imports {name}") for name in imported if library_of(name)]
        if called(node) == "kind_of":
            found.append((node.lineno, "asks kind_of"))
        elif called(node).startswith("is_") and called(node).endswith(("_array", "_namespace")):
            if called(node) not in ("is_array", "is_array_api_obj"):
                found.append((node.lineno, f"asks {called(node)}"))
        elif isinstance(node, ast.Compare) and not may_import:
            strings = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
            found += [(node.lineno, f"compares with {one!r}") for one in strings if one in LIBRARIES | {"numpy"}]
        elif isinstance(node, ast.Attribute) and node.attr == "__module__":
            found.append((node.lineno, "asks for the module of a type"))
    return found


def test_the_source_is_found():
    assert len(list(PACKAGE.rglob("*.py"))) > 100


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("def f():\n    import torch", "imports torch"),
        ("from cupyx.scipy.sparse import csr_matrix", "imports cupyx.scipy.sparse"),
        ("import importlib\nimportlib.import_module('jax.numpy')", "imports jax.numpy"),
        ("from stepwell.arrays import Array, kind_of", "takes kind_of from arrays"),
        ("import stepwell.arrays as a\na.kind_of(x)", "asks kind_of"),
        ("if kind == 'torch': pass", "compares with 'torch'"),
        ("if library in ('numpy', 'jax'): pass", "compares with 'numpy'"),
        ("array_api_compat.is_jax_array(x)", "asks is_jax_array"),
        ("type(x).__module__.startswith('cupy')", "asks for the module of a type"),
    ],
)
def test_what_is_looked_for_is_found(source, what):
    assert what in [found for _, found in findings(source)]


def test_only_arrays_knows_libraries():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        package = path.relative_to(PACKAGE).parts[0]
        name = path.relative_to(PACKAGE).as_posix()
        if package == "arrays":
            continue
        told = name.startswith(PLUGS + MAKE_ARRAYS) or path.name == "command.py"
        lines = findings(path.read_text(), may_import=told)
        wrong += [f"{path.relative_to(PACKAGE)}:{line}: {what}" for line, what in lines]
    assert wrong == []


def test_no_library_is_imported_with_the_package():
    """Nor with any module of it, but for those that a function asks for."""
    program = (
        "import sys, stepwell, stepwell.common.checks, stepwell.arrays.sparse, stepwell.arrays.device_memory\n"
        "import stepwell.operators, stepwell.problems, stepwell.krylov, stepwell.lsq, stepwell.common.machine\n"
        "import stepwell.arrays.places, stepwell.lab.tour, stepwell.apps.voronoi, stepwell.derivatives.systems\n"
        "stepwell.minimize, stepwell.LBFGSB\n"
        f"print(sorted(set(sys.modules) & {LIBRARIES!r}))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
