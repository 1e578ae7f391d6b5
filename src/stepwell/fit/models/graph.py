"""Expressions as graphs whose equal parts are one node, and their derivatives as graphs of the same kind."""

from __future__ import annotations

import dataclasses
import math

#: Operations of one and of two operands, by the names that the core has for them.
ONE = ("negative", "exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arctan", "erf", "absolute",
       "sign", "step")  # fmt: skip
TWO = ("add", "subtract", "multiply", "divide", "power")


@dataclasses.dataclass(frozen=True)
class Node:
    """A number, a symbol, or an operation on other nodes; `index` is its place in the graph."""

    index: int
    kind: str  # "number", "symbol", or an operation
    value: float | str | None
    parts: tuple[int, ...]


class Graph:
    """Nodes in an order in which each comes after its parts."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._known: dict[tuple[object, ...], int] = {}
        self._derivatives: dict[tuple[int, int], int] = {}

    def _node(self, kind: str, value: float | str | None, parts: tuple[int, ...] = ()) -> int:
        key = (kind, repr(value), parts)
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.nodes.append(Node(len(self.nodes), kind, value, parts))
        return self._known[key]

    def number(self, value: float) -> int:
        """Return the node of a number."""
        return self._node("number", float(value))

    def symbol(self, name: str) -> int:
        """Return the node of a parameter or variable."""
        return self._node("symbol", name)

    def number_of(self, index: int) -> float | None:
        """Return the number that a node is; None where it is not one."""
        node = self.nodes[index]
        return float(node.value) if node.kind == "number" and node.value is not None else None

    def add(self, a: int, b: int) -> int:
        """Return a + b."""
        u, v = self.number_of(a), self.number_of(b)
        if u is not None and v is not None:
            return self.number(u + v)
        if u == 0:
            return b
        if v == 0:
            return a
        return self._node("add", None, (min(a, b), max(a, b)))

    def subtract(self, a: int, b: int) -> int:
        """Return a - b."""
        u, v = self.number_of(a), self.number_of(b)
        if u is not None and v is not None:
            return self.number(u - v)
        if v == 0:
            return a
        return self.negative(b) if u == 0 else self._node("subtract", None, (a, b))

    def multiply(self, a: int, b: int) -> int:
        """Return a b."""
        u, v = self.number_of(a), self.number_of(b)
        if u is not None and v is not None:
            return self.number(u * v)
        if u == 0 or v == 0:
            return self.number(0.0)
        if u == 1 or v == 1:
            return b if u == 1 else a
        if u == -1 or v == -1:
            return self.negative(b if u == -1 else a)
        return self._node("multiply", None, (min(a, b), max(a, b)))

    def divide(self, a: int, b: int) -> int:
        """Return a / b."""
        u, v = self.number_of(a), self.number_of(b)
        if u is not None and v:
            return self.number(u / v)
        if u == 0:
            return self.number(0.0)
        return a if v == 1 else self._node("divide", None, (a, b))

    def power(self, a: int, b: int) -> int:
        """Return a to the power of b: small whole powers by products, roots by roots."""
        u, v = self.number_of(a), self.number_of(b)
        if u is not None and v is not None and (u > 0 or v == int(v)) and not (u == 0 and v < 0):
            return self.number(u**v)
        if v == 0:
            return self.number(1.0)
        if v is not None and v == int(v) and 1 <= abs(v) <= 16:
            found = self._whole_power(a, int(abs(v)))
            return found if v > 0 else self.divide(self.number(1.0), found)
        if v == 0.5:
            return self.function("sqrt", a)
        return self._node("power", None, (a, b))

    def _whole_power(self, a: int, count: int) -> int:
        if count == 1:
            return a
        half = self._whole_power(a, count // 2)
        square = self.multiply(half, half)
        return self.multiply(square, a) if count % 2 else square

    def negative(self, a: int) -> int:
        """Return -a."""
        u = self.number_of(a)
        if u is not None:
            return self.number(-u)
        node = self.nodes[a]
        return node.parts[0] if node.kind == "negative" else self._node("negative", None, (a,))

    def function(self, name: str, a: int) -> int:
        """Return a function of one operand."""
        return self.negative(a) if name == "negative" else self._node(name, None, (a,))

    def derivative(self, of: int, by: int) -> int:
        """Return the node of the derivative of one node by a symbol."""
        if (of, by) not in self._derivatives:
            self._derivatives[of, by] = self._derive(of, by)
        return self._derivatives[of, by]

    def _derive(self, of: int, by: int) -> int:
        node = self.nodes[of]
        if node.kind in ("number", "symbol"):
            return self.number(float(of == by))
        slopes = [self.derivative(part, by) for part in node.parts]
        if all(self.number_of(slope) == 0 for slope in slopes):
            return self.number(0.0)
        if node.kind in ONE:
            return self.multiply(self._slope(of, node.kind, node.parts[0]), slopes[0])
        (a, b), (da, db) = node.parts, slopes
        if node.kind == "add":
            return self.add(da, db)
        if node.kind == "subtract":
            return self.subtract(da, db)
        if node.kind == "multiply":
            return self.add(self.multiply(da, b), self.multiply(a, db))
        if node.kind == "divide":  # (a' - (a / b) b') / b
            return self.divide(self.subtract(da, self.multiply(of, db)), b)
        # a^b: b a^(b - 1) a' + log(a) a^b b'
        one = self.number(1.0)
        first = self.multiply(self.multiply(b, self.power(a, self.subtract(b, one))), da)
        if self.number_of(db) == 0:
            return first
        return self.add(first, self.multiply(self.multiply(self.function("log", a), of), db))

    def _slope(self, of: int, kind: str, a: int) -> int:
        """Return the derivative of a function, by its operand."""
        one = self.number(1.0)
        if kind == "negative":
            return self.number(-1.0)
        if kind == "exp":
            return of
        if kind == "log":
            return self.divide(one, a)
        if kind == "sqrt":
            return self.divide(self.number(0.5), of)
        if kind == "sin":
            return self.function("cos", a)
        if kind == "cos":
            return self.negative(self.function("sin", a))
        if kind == "tan":
            return self.add(one, self.multiply(of, of))
        if kind == "sinh":
            return self.function("cosh", a)
        if kind == "cosh":
            return self.function("sinh", a)
        if kind == "tanh":
            return self.subtract(one, self.multiply(of, of))
        if kind == "arctan":
            return self.divide(one, self.add(one, self.multiply(a, a)))
        if kind == "erf":
            square = self.negative(self.multiply(a, a))
            return self.multiply(self.number(2 / math.sqrt(math.pi)), self.function("exp", square))
        return self.function("sign", a) if kind == "absolute" else self.number(0.0)

    def needed(self, outputs: list[int]) -> list[Node]:
        """Return the nodes that outputs are made of, in order."""
        wanted, waiting = set(), list(outputs)
        while waiting:
            index = waiting.pop()
            if index not in wanted:
                wanted.add(index)
                waiting += self.nodes[index].parts
        return [self.nodes[index] for index in sorted(wanted)]
