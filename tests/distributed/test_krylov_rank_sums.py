"""Sums of linear systems over ranks: messages of an iteration, and that all long sums are taken in one place."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from krylov_rank_cases import LAM, A, B
from spread_operators import SpreadMatrix

import stepwell
from stepwell.distributed import run_threads
from stepwell.krylov.reductions import Sums


def test_random_vectors_do_not_depend_on_the_pieces():
    sizes = (9000, 1, 0, 5000)

    def program(comm):
        sums = Sums(comm)
        (extent,) = sums.extents(sizes[comm.rank] if comm.size > 1 else sum(sizes))
        return sums.random_rows("normal", extent, 2)

    whole, pieces = run_threads(1, program), run_threads(4, program)
    np.testing.assert_array_equal(np.concatenate(pieces), whole[0])


# ---- messages ----


def messages(comm, spread, method):
    """Messages an iteration of one solve, without those before and after: by two runs of different lengths."""
    counted = []
    for limit in (20, 30):
        sums = Sums(comm)
        made = []

        def exchange(row, *rest, ranks=sums.ranks, inner=sums.ranks.exchange, made=made, **options):
            made.append(row.size)
            return inner(row, *rest, **options)

        sums.ranks.exchange = exchange
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("stepwell.krylov.calls.Sums", lambda comm, sums=sums: sums)
            right = B[spread.rows] if method != "aprcg" else B[spread.rows, :1]
            stepwell.tikhonov(spread.operator, right, LAM, method=method, maxiter=limit, tol=1e-14, comm=comm)
        counted.append(len(made))
    return (counted[1] - counted[0]) / 10


@pytest.mark.parametrize(("method", "expected"), [("pseudo-block", 2), ("block", 4), ("aprcg", 3)])
def test_messages_an_iteration(method, expected):
    (found,) = run_threads(1, lambda comm: messages(comm, SpreadMatrix(A, comm), method))
    assert found == expected


@pytest.mark.parametrize("method", ["prcg", "aprcg"])
def test_four_messages_a_step_at_most_in_a_long_solve(method):
    """Directions of several panels, many of which are conjugated twice, which takes two messages more."""
    at = np.arange(500.0)
    blur = np.exp(-0.5 * ((at[:, None] - at) / 2.0) ** 2)
    right = blur @ (abs(at - 200) < 80) + 1e-3 * np.random.default_rng(0).normal(size=at.size)

    def program(comm):
        spread = SpreadMatrix(blur, comm)
        return stepwell.tikhonov(spread.operator, right[spread.rows], 3e-4, method=method, tol=1e-8, comm=comm)

    for r in run_threads(2, program):
        assert r.success
        assert r.iterations > 200
        # Those before the first step and after the last do not grow with their number.
        assert r.iterations < r.exchanges <= 4 * r.iterations + 20


#: Files and functions that are not spread over ranks, and a name of a small matrix.
NOT_SPREAD = {"direct.py", "reductions.py"}
NOT_SPREAD_FUNCTIONS = {"_take_up", "_exact", "diagonal_pencil"}
SMALL = {"turn"}


def raw_sums(source):
    """Lines that sum over the long axis of an array otherwise than by `Sums`."""
    found = []
    waiting = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef) and node.name in NOT_SPREAD_FUNCTIONS:
            continue
        waiting += ast.iter_child_nodes(node)
        called = getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            left = node.left
            if isinstance(left, ast.Attribute) and left.attr == "T" and getattr(left.value, "id", "") not in SMALL:
                found.append((node.lineno, "a product with a transpose"))
        elif called in ("einsum", "vector_norm", "norm", "vdot", "dot"):
            found.append((node.lineno, called))
        elif isinstance(node, ast.Name | ast.alias):
            name = node.id if isinstance(node, ast.Name) else node.name
            if name in ("column_dots", "column_norms", "rows_times", "inner_products"):
                found.append((node.lineno, name))
    return found


def test_what_is_looked_for_is_found():
    sources = (
        "x = P.T @ Q",
        "np.einsum('ij,ij->j', P, Q)",
        "from stepwell.arrays import column_dots",
        "np.linalg.norm(x)",
    )
    assert all(raw_sums(source) for source in sources)


def test_sums_over_long_axes_are_taken_in_one_place():
    package = Path(__file__).parents[2] / "src" / "stepwell" / "krylov"
    wrong = [
        f"{path.name}:{line}: {what}"
        for path in sorted(package.glob("*.py"))
        if path.name not in NOT_SPREAD
        for line, what in raw_sums(path.read_text())
    ]
    assert wrong == []
