"""Reads the text of an expression into a graph: a small part of Python's grammar, and nothing is run."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence

from stepwell.fit.models.graph import Graph

#: Names that expressions may call, and the operation of each.
FUNCTIONS = {
    "exp": "exp", "log": "log", "sqrt": "sqrt", "sin": "sin", "cos": "cos", "tan": "tan", "sinh": "sinh",
    "cosh": "cosh", "tanh": "tanh", "arctan": "arctan", "atan": "arctan", "erf": "erf", "abs": "absolute",
    "fabs": "absolute",
}  # fmt: skip
CONSTANTS = {"pi": math.pi, "e": math.e}
#: More would be a mistake, and take long.
MAX_LENGTH, MAX_DEPTH = 4000, 100

_OPERATORS: dict[type, Callable[[Graph, int, int], int]] = {
    ast.Add: Graph.add,
    ast.Sub: Graph.subtract,
    ast.Mult: Graph.multiply,
    ast.Div: Graph.divide,
    ast.Pow: Graph.power,
}


def parse(text: str, variables: Sequence[str]) -> tuple[Graph, int, tuple[str, ...]]:
    """Return the graph of an expression, the node of its value, and its parameters in the order of their appearance.

    Raises
    ------
    ValueError
        Where the text is no expression, or has something in it that is not allowed; the message says what and where.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"expression has {len(text)} characters; allowed: at most {MAX_LENGTH}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"expression is {text!r}, which is not one: {error}") from None
    graph = Graph()
    names: list[str] = []
    for node in _in_order(tree):
        if isinstance(node, ast.Name) and node.id not in (*FUNCTIONS, "pow", *CONSTANTS, *variables, *names):
            names.append(node.id)
    value = _read(tree, graph, text, 0)
    if not names:
        raise ValueError(f"expression is {text!r}, which has no parameter; allowed: at least one beside {variables}")
    return graph, value, tuple(names)


def _in_order(tree: ast.AST) -> list[ast.AST]:
    """Nodes in the order of the text."""
    return sorted(ast.walk(tree), key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))


def _read(node: ast.AST, graph: Graph, text: str, depth: int) -> int:
    try:
        return _read_node(node, graph, text, depth)
    except OverflowError:
        piece = ast.get_source_segment(text.strip(), node)
        raise ValueError(f"expression has {piece!r}, which is out of range; allowed: finite numbers") from None


def _read_node(node: ast.AST, graph: Graph, text: str, depth: int) -> int:
    if depth > MAX_DEPTH:
        raise ValueError(f"expression is nested more than {MAX_DEPTH} deep; allowed: less")
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            if not math.isfinite(float(value)):
                raise ValueError(f"expression has the number {value}; allowed: finite ones")
            return graph.number(float(value))
        case ast.Name(id=name):
            return graph.number(CONSTANTS[name]) if name in CONSTANTS else graph.symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return graph.negative(_read(inner, graph, text, depth + 1))
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _read(inner, graph, text, depth + 1)
        case ast.BinOp(op=operator, left=left, right=right) if type(operator) in _OPERATORS:
            parts = _read(left, graph, text, depth + 1), _read(right, graph, text, depth + 1)
            return _OPERATORS[type(operator)](graph, *parts)
        case ast.Call(func=ast.Name(id=name), args=[one], keywords=[]) if name in FUNCTIONS:
            return graph.function(FUNCTIONS[name], _read(one, graph, text, depth + 1))
        case ast.Call(func=ast.Name(id="pow"), args=[base, exponent], keywords=[]):
            return graph.power(_read(base, graph, text, depth + 1), _read(exponent, graph, text, depth + 1))
    piece = ast.get_source_segment(text.strip(), node) if isinstance(node, ast.expr) else type(node).__name__
    allowed = ", ".join(sorted({*FUNCTIONS, "pow"}))
    raise ValueError(
        f"expression has {piece!r}; allowed: numbers, names, + - * / **, parentheses, and functions of one operand: "
        f"{allowed}"
    )
