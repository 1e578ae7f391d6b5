"""The rooms of the package: imports run down one list, also those that type checkers alone see; no circle anywhere."""

from __future__ import annotations

import ast
import graphlib
import pathlib
import re

import pytest

import stepwell

PACKAGE = pathlib.Path(__file__).parents[1] / "src" / "stepwell"
#: From the top down, as docs/design.md has them: a room imports those below it, never one above.
ROOMS = (
    "__main__", "lab", "apps", "cli", "plugs", "torch", "api", "derivatives", "fit", "krylov", "lsq",
    "quasi_newton", "operators", "distributed", "arrays", "cuda", "common",
)  # fmt: skip
#: Tables of names from which the shell imports what is called: commands, and kernels of applications.
TABLES = {"stepwell.cli.group", "stepwell.cli.warming"}


def modules() -> dict[str, pathlib.Path]:
    """Every module of the package but the package itself, by name."""
    named = {path.relative_to(PACKAGE).with_suffix("").parts: path for path in sorted(PACKAGE.rglob("*.py"))}
    whole = {".".join(("stepwell", *parts)).removesuffix(".__init__"): path for parts, path in named.items()}
    return {name: path for name, path in whole.items() if name != "stepwell"}


def imports(source: str, names: set[str]) -> set[str]:
    """Modules that a source imports, anywhere in it; of public names those that define them."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in names else node.module or "")
                found |= {stepwell._HOMES.get(alias.name, "")} if node.module == "stepwell" else set()
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "stepwell":
            found.add(stepwell._HOMES.get(node.attr, ""))
    return found & names


def named_above(source: str, room: str) -> set[str]:
    """Modules of rooms above that a source names in texts, as for `importlib.import_module`."""
    texts = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    above = "|".join(ROOMS[: ROOMS.index(room)])
    return {text for text in texts if isinstance(text, str) and re.fullmatch(rf"stepwell\.({above})(\.\w+)*", text)}


def room_of(module: str) -> str:
    return module.split(".")[1]


def upward(graph: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Imports that run up the list."""
    place = {room: k for k, room in enumerate(ROOMS)}
    return [(a, b) for a, found in graph.items() for b in found if place[room_of(a)] > place[room_of(b)]]


@pytest.fixture(scope="module")
def graph():
    paths = modules()
    return {name: imports(path.read_text(), set(paths)) for name, path in paths.items()}


def test_every_module_is_in_a_room(graph):
    assert len(graph) > 200
    assert {room_of(name) for name in graph} == set(ROOMS)


def test_imports_run_down(graph):
    assert upward(graph) == []


def test_no_circle_of_modules(graph):
    graphlib.TopologicalSorter(graph).prepare()


def test_no_room_above_is_named(graph):
    named = {name: named_above(path.read_text(), room_of(name)) for name, path in modules().items()}
    assert {name for name, found in named.items() if found} == TABLES


def test_what_is_looked_for_is_found():
    names = {"stepwell.cuda.devices", "stepwell.lsq", "stepwell.lsq.cuda", "stepwell.api.krylov"}
    up = "def f():\n    if TYPE_CHECKING:\n        from stepwell.lsq import cuda"
    assert imports(up, names) == {"stepwell.lsq.cuda"}
    assert imports("import stepwell.lsq", names) == {"stepwell.lsq"}
    assert imports("from stepwell import cg", names) == {"stepwell.api.krylov"}
    assert imports("import stepwell\nstepwell.tikhonov(A, b, 1)", names) == {"stepwell.api.krylov"}
    assert upward({"stepwell.cuda.devices": {"stepwell.lsq.cuda"}}) != []
    assert named_above("import_module('stepwell.lab.tour')", "cuda") == {"stepwell.lab.tour"}
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()
