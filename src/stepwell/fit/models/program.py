"""Graphs as programs: instructions over registers for the host, statements of C++ for a device, NumPy for people."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.fit.models.graph import Graph, Node

#: How C++ writes an operation; what is not here is a function of its own name.
_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
_CALLS = {"arctan": "atan", "absolute": "fabs", "power": "pow"}


@dataclasses.dataclass(frozen=True)
class Program:
    """What the core's ``FitModelJob`` says of an expression."""

    instructions: np.ndarray  # (count, 4), int32
    constants: np.ndarray
    outputs: np.ndarray  # int32: registers of the derivatives, and of the value
    registers: int
    uniform: int


def compile_program(
    graph: Graph, outputs: Sequence[int], parameters: Sequence[str], variables: Sequence[str]
) -> Program:
    """Number the registers and write the instructions.

    What depends on parameters alone has a register of its own; registers of points are used again once nobody reads
    them any more.
    """
    nodes = graph.needed(list(outputs))
    numbers = [node for node in nodes if node.kind == "number"]
    varies: dict[int, bool] = {}
    for node in nodes:
        inside = node.kind == "symbol" and node.value in variables
        varies[node.index] = inside or any(varies[part] for part in node.parts)
    place = {node.index: len(parameters) + k for k, node in enumerate(numbers)}
    for node in nodes:
        if node.kind == "symbol" and not varies[node.index]:
            place[node.index] = parameters.index(str(node.value))
    made = [node for node in nodes if node.kind not in ("number", "symbol")]
    once = [node for node in made if not varies[node.index]]
    first = len(parameters) + len(numbers)
    place |= {node.index: first + k for k, node in enumerate(once)}
    uniform = first + len(once)
    for node in nodes:
        if node.kind == "symbol" and varies[node.index]:
            place[node.index] = uniform + variables.index(str(node.value))
    often = [node for node in made if varies[node.index]]
    registers = _assign(often, outputs, place, uniform + len(variables))
    code = _core.FIT_OPERATIONS
    rows = [(code[n.kind], place[n.index], place[n.parts[0]], place[n.parts[-1]]) for n in (*once, *often)]
    return Program(
        np.array(rows, dtype=np.int32).reshape(-1, 4),
        np.array([float(node.value or 0.0) for node in numbers]),
        np.array([place[index] for index in outputs], dtype=np.int32),
        registers,
        uniform,
    )


def _assign(nodes: Sequence[Node], outputs: Sequence[int], place: dict[int, int], first: int) -> int:
    """Give registers to nodes of points; returns how many registers there are in all."""
    last = {part: k for k, node in enumerate(nodes) for part in node.parts}
    own = {node.index for node in nodes}
    free: list[int] = []
    count = first
    for k, node in enumerate(nodes):
        # What is read for the last time here may be written at once: operands are read before.
        done = {part for part in node.parts if part in own and last[part] == k and part not in outputs}
        free += [place[part] for part in sorted(done)]
        if free:
            place[node.index] = free.pop()
        else:
            place[node.index], count = count, count + 1
        if node.index not in last and node.index not in outputs:
            free.append(place[node.index])
    return count


def device_row(graph: Graph, outputs: Sequence[int], parameters: Sequence[str], variables: Sequence[str]) -> str:
    """Return statements of C++ that set ``J[...]`` and ``value`` from ``p`` and ``x``."""
    named = {name: f"p[{k}]" for k, name in enumerate(parameters)}
    named |= {name: f"x[{k}]" for k, name in enumerate(variables)}
    text: dict[int, str] = {}
    lines = []
    for node in graph.needed(list(outputs)):
        if node.kind == "number":
            text[node.index] = f"Number({node.value!r})"
        elif node.kind == "symbol":
            text[node.index] = named[str(node.value)]
        else:
            text[node.index] = f"t{node.index}"
            lines.append(f"const Number t{node.index} = {_statement(node, [text[part] for part in node.parts])};")
    *slopes, value = outputs
    lines += [f"J[{k}] = {text[index]};" for k, index in enumerate(slopes)]
    return " ".join([*lines, f"value = {text[value]};"])


def _statement(node: Node, parts: list[str]) -> str:
    if node.kind in _SIGNS:
        return f"{parts[0]} {_SIGNS[node.kind]} {parts[1]}"
    if node.kind == "negative":
        return f"-{parts[0]}"
    if node.kind == "sign":
        return f"Number({parts[0]} > Number(0)) - Number({parts[0]} < Number(0))"
    if node.kind == "step":
        return f"Number({parts[0]} > Number(0))"
    return f"{_CALLS.get(node.kind, node.kind)}({', '.join(parts)})"


def evaluate(graph: Graph, output: int, values: Mapping[str, Any], functions: Mapping[str, Any]) -> Any:
    """Return a node's value from those of the symbols, by functions of the caller's library."""
    found: dict[int, Any] = {}
    for node in graph.needed([output]):
        if node.kind == "number":
            found[node.index] = node.value
        elif node.kind == "symbol":
            found[node.index] = values[str(node.value)]
        else:
            found[node.index] = functions[node.kind](*(found[part] for part in node.parts))
    return found[output]
