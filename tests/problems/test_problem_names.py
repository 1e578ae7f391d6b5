"""Names, sizes and parameters: what is accepted, what is refused and how it is said."""

from __future__ import annotations

import re

import numpy as np
import pytest

import stepwell
from stepwell import problems

NAMES = [
    "rosenbrock",
    "beale",
    "powell",
    "wood",
    "trigonometric",
    "torsion",
    "journal-bearing",
    "minimal-surface",
    "composites",
    "ginzburg-landau-1d",
    "lennard-jones",
    "combustion",
    "ginzburg-landau-2d",
]
GRIDS = ("torsion", "journal-bearing", "minimal-surface", "composites", "combustion")


def test_names_are_all_there():
    assert list(problems.names()) == NAMES
    assert stepwell.problems is problems


def test_listing_tells_what_get_gives():
    lines = problems.listing()
    assert [line.name for line in lines] == NAMES
    for line in lines:
        problem = problems.get(line.name)
        assert (line.n, line.parameters) == (problem.n, problem.parameters)
        assert line.bounded == (problem.bounds is not None)
        assert line.description == problem.description
        assert line.reference == problem.reference
        assert line.description
        assert "19" in line.reference
        assert line.name in repr(problem)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_rebuild_the_problem(name):
    problem = problems.get(name, n=60)
    again = problems.get(name, **problem.parameters)
    assert again.n == problem.n
    np.testing.assert_array_equal(again.x0, problem.x0)


@pytest.mark.parametrize("name", GRIDS)
def test_sides_of_a_grid(name):
    def sides(**given):
        parameters = problems.get(name, **given).parameters
        return parameters["nx"], parameters["ny"]

    assert sides(n=100) == (10, 10)
    assert sides(n=108) == (10, 10)  # the nearest square
    assert sides(n=1) == (1, 1)
    assert sides(nx=3, ny=5) == (3, 5)
    assert sides(nx=3) == sides(ny=3) == (3, 3)
    assert sides(n=15, nx=3, ny=5) == (3, 5)
    assert problems.get(name, nx=3, ny=5).n == 15
    with pytest.raises(ValueError, match=r"n must be nx \* ny = 15 for nx = 3 and ny = 5, got 16"):
        problems.get(name, n=16, nx=3, ny=5)
    for bad in ({"nx": 0}, {"ny": -1}, {"n": 0}, {"nx": 2.5}, {"n": True}, {"nx": "3"}):
        with pytest.raises(
            ValueError, match=rf"n[xy]? must be an integer of at least 1, got {next(iter(bad.values()))!r}"
        ):
            problems.get(name, **bad)


def test_four_fields_and_atoms():
    assert problems.get("ginzburg-landau-2d", n=400).parameters["nx"] == 10
    assert problems.get("ginzburg-landau-2d", nx=3, ny=2).n == 24
    with pytest.raises(ValueError, match=r"4 \* nx \* ny = 24"):
        problems.get("ginzburg-landau-2d", nx=3, ny=2, n=6)
    assert problems.get("lennard-jones", n=39).parameters == {"natoms": 13, "ndim": 3}
    assert problems.get("lennard-jones", n=40).n == 39
    assert problems.get("lennard-jones", n=40, ndim=2).n == 40
    with pytest.raises(ValueError, match=r"n must be natoms \* ndim = 39 .* got 40"):
        problems.get("lennard-jones", natoms=13, n=40)


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("rosenbrock", {"n": 3}, "n must be a multiple of 2, at least 2, got 3"),
        ("beale", {"n": 0}, "n must be a multiple of 2, at least 2, got 0"),
        ("powell", {"n": 6}, "n must be a multiple of 4, at least 4, got 6"),
        ("wood", {"n": 2}, "n must be a multiple of 4, at least 4, got 2"),
        ("trigonometric", {"n": 0}, "n must be an integer of at least 1, got 0"),
        ("rosenbrock", {"n": 10.0}, "n must be a multiple of 2, at least 2, got 10.0"),
        ("rosenbrock", {"c": 0.0}, "c must be a finite number above 0, got 0.0"),
        ("torsion", {"c": float("nan")}, "c must be a finite number, got nan"),
        ("torsion", {"c": "five"}, "c must be a finite number, got 'five'"),
        ("journal-bearing", {"e": 1.0}, "e must be a finite number above 0 and below 1, got 1.0"),
        (
            "journal-bearing",
            {"eccentricity": -0.1},
            "e must be a finite number above 0 and below 1, got -0.1",
        ),
        ("journal-bearing", {"b": 0}, "b must be a finite number above 0, got 0.0"),
        ("composites", {"lam": 0}, "lam must be a finite number above 0, got 0.0"),
        ("combustion", {"lam": -1}, "lam must be a finite number of at least 0, got -1.0"),
        ("ginzburg-landau-1d", {"n": 3}, "n must be an integer of at least 4, got 3"),
        ("ginzburg-landau-1d", {"T": 3.0}, "T must be a finite number above 3.73 and below 7.32, got 3.0"),
        ("ginzburg-landau-2d", {"nv": 0}, "nv must be an integer of at least 1, got 0"),
        ("ginzburg-landau-2d", {"kappa": float("inf")}, "kappa must be a finite number above 0, got inf"),
        ("ginzburg-landau-2d", {"nx": 1}, "nx must be an integer of at least 2, got 1"),
        ("lennard-jones", {"ndim": 4}, "ndim must be 2 or 3, got 4"),
        ("lennard-jones", {"ndim": 1}, "ndim must be 2 or 3, got 1"),
        ("lennard-jones", {"natoms": 1}, "natoms must be an integer of at least 2, got 1"),
    ],
)
def test_bad_sizes_are_named(name, sizes, message):
    with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
        problems.get(name, **sizes)


def test_unknown_names_list_the_known():
    with pytest.raises(ValueError, match=r"rosenbrock, beale.*got 'rosenbrok'; did you mean 'rosenbrock'\?"):
        problems.get("rosenbrok")
    with pytest.raises(ValueError, match=r"did you mean 'journal-bearing'\?"):
        problems.get("journal_bearing")
    with pytest.raises(ValueError, match=r"ginzburg-landau-2d, got 'zzz'$"):
        problems.get("zzz")
    with pytest.raises(ValueError, match=r"got 3$"):
        problems.get(3)


def test_unknown_parameters_list_the_known():
    with pytest.raises(TypeError, match=r"combustion takes n, nx, ny, lam, got lambd = 1; did you mean 'lam'\?"):
        problems.get("combustion", lambd=1)
    with pytest.raises(TypeError, match=r"rosenbrock takes n, c, got nx = 3"):
        problems.get("rosenbrock", nx=3)
    with pytest.raises(TypeError, match="got e twice, once as eccentricity"):
        problems.get("journal-bearing", e=0.1, eccentricity=0.2)


def test_second_spelling_of_the_eccentricity():
    assert problems.get("journal-bearing", eccentricity=0.5).parameters["e"] == 0.5


def test_bad_arguments_of_fun():
    problem = problems.get("powell", n=8)
    with pytest.raises(ValueError, match=r"x must have shape \(\.\.\., 8\) for powell with n = 8, got \(4,\)"):
        problem.fun(np.zeros(4))
    with pytest.raises(ValueError, match=r"got \(\)"):
        problem.fun(np.asarray(1.0))
    with pytest.raises(TypeError, match="x must hold real floating-point numbers, got dtype int64"):
        problem.fun(np.zeros(8, np.int64))
    with pytest.raises(TypeError, match="complex128"):
        problem.fun(np.zeros(8, np.complex128))


def test_type_of_start_and_bounds():
    problem = problems.get("torsion", nx=4, ny=3, dtype=np.float32)
    assert problem.x0.dtype == problem.bounds[0].dtype == problem.bounds[1].dtype == np.float32
    assert problem.fun(problem.x0)[1].dtype == np.float32
    assert problem.to(np).x0.dtype == np.float64
