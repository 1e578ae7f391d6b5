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
    with pytest.raises(ValueError, match=r"n is 16; allowed: 15 = nx \* ny for nx = 3 and ny = 5"):
        problems.get(name, n=16, nx=3, ny=5)
    for bad in ({"nx": 0}, {"ny": -1}, {"n": 0}, {"nx": 2.5}, {"n": True}, {"nx": "3"}):
        with pytest.raises(
            ValueError, match=rf"n[xy]? is {next(iter(bad.values()))!r}; allowed: an integer of at least 1"
        ):
            problems.get(name, **bad)


def test_four_fields_and_atoms():
    assert problems.get("ginzburg-landau-2d", n=400).parameters["nx"] == 10
    assert problems.get("ginzburg-landau-2d", nx=3, ny=2).n == 24
    with pytest.raises(ValueError, match=r"n is 6; allowed: 24 = 4 \* nx \* ny"):
        problems.get("ginzburg-landau-2d", nx=3, ny=2, n=6)
    assert problems.get("lennard-jones", n=39).parameters == {"natoms": 13, "ndim": 3}
    assert problems.get("lennard-jones", n=40).n == 39
    assert problems.get("lennard-jones", n=40, ndim=2).n == 40
    with pytest.raises(ValueError, match=r"n is 40; allowed: 39 = natoms \* ndim for natoms = 13 and ndim = 3"):
        problems.get("lennard-jones", natoms=13, n=40)


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("rosenbrock", {"n": 3}, "n is 3; allowed: an integer of at least 2, a multiple of 2"),
        ("beale", {"n": 0}, "n is 0; allowed: an integer of at least 2, a multiple of 2"),
        ("powell", {"n": 6}, "n is 6; allowed: an integer of at least 4, a multiple of 4"),
        ("wood", {"n": 2}, "n is 2; allowed: an integer of at least 4, a multiple of 4"),
        ("trigonometric", {"n": 0}, "n is 0; allowed: an integer of at least 1"),
        ("rosenbrock", {"n": 10.0}, "n is 10.0; allowed: an integer of at least 2, a multiple of 2"),
        ("rosenbrock", {"c": 0.0}, "c is 0.0; allowed: a finite number above 0"),
        ("torsion", {"c": float("nan")}, "c is nan; allowed: a finite number"),
        ("torsion", {"c": "five"}, "c is 'five'; allowed: a finite number"),
        ("journal-bearing", {"e": 1.0}, "e is 1.0; allowed: a finite number above 0 and below 1"),
        (
            "journal-bearing",
            {"eccentricity": -0.1},
            "e is -0.1; allowed: a finite number above 0 and below 1",
        ),
        ("journal-bearing", {"b": 0}, "b is 0; allowed: a finite number above 0"),
        ("composites", {"lam": 0}, "lam is 0; allowed: a finite number above 0"),
        ("combustion", {"lam": True}, "lam is True; allowed: a finite number of at least 0"),
        ("combustion", {"lam": -1}, "lam is -1; allowed: a finite number of at least 0"),
        ("ginzburg-landau-1d", {"n": 3}, "n is 3; allowed: an integer of at least 4"),
        ("ginzburg-landau-1d", {"T": 3.0}, "T is 3.0; allowed: a finite number above 3.73 and below 7.32"),
        ("ginzburg-landau-2d", {"nv": 0}, "nv is 0; allowed: an integer of at least 1"),
        ("ginzburg-landau-2d", {"kappa": float("inf")}, "kappa is inf; allowed: a finite number above 0"),
        ("ginzburg-landau-2d", {"nx": 1}, "nx is 1; allowed: an integer of at least 2"),
        ("lennard-jones", {"ndim": 4}, "ndim is 4; allowed: a whole number from 2 to 3"),
        ("lennard-jones", {"ndim": 1}, "ndim is 1; allowed: a whole number from 2 to 3"),
        ("lennard-jones", {"natoms": 1}, "natoms is 1; allowed: an integer of at least 2"),
    ],
)
def test_bad_sizes_are_named(name, sizes, message):
    with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
        problems.get(name, **sizes)


def test_unknown_names_list_the_known():
    with pytest.raises(
        ValueError, match=r"name is 'rosenbrok'; allowed: 'rosenbrock', 'beale'.*; did you mean 'rosenbrock'\?"
    ):
        problems.get("rosenbrok")
    with pytest.raises(ValueError, match=r"did you mean 'journal-bearing'\?"):
        problems.get("journal_bearing")
    with pytest.raises(ValueError, match=r"name is 'zzz'; allowed: 'rosenbrock'.*'ginzburg-landau-2d'$"):
        problems.get("zzz")
    with pytest.raises(ValueError, match=r"^name is 3; allowed: 'rosenbrock', 'beale'"):
        problems.get(3)


def test_unknown_parameters_list_the_known():
    with pytest.raises(TypeError, match=r"combustion got lambd = 1; allowed: n, nx, ny, lam; did you mean 'lam'\?"):
        problems.get("combustion", lambd=1)
    with pytest.raises(TypeError, match="rosenbrock got nx = 3; allowed: n, c"):
        problems.get("rosenbrock", nx=3)
    with pytest.raises(TypeError, match="got e twice, once as eccentricity"):
        problems.get("journal-bearing", e=0.1, eccentricity=0.2)


def test_second_spelling_of_the_eccentricity():
    assert problems.get("journal-bearing", eccentricity=0.5).parameters["e"] == 0.5


def test_bad_arguments_of_fun():
    problem = problems.get("powell", n=8)
    with pytest.raises(ValueError, match=r"x has shape \(4,\); allowed: \(\.\.\., 8\) for powell with n = 8"):
        problem.fun(np.zeros(4))
    with pytest.raises(ValueError, match=r"x has shape \(\); allowed: \(\.\.\., 8\)"):
        problem.fun(np.asarray(1.0))
    with pytest.raises(TypeError, match="x has dtype int64; allowed: real floating-point numbers"):
        problem.fun(np.zeros(8, np.int64))
    with pytest.raises(TypeError, match="complex128"):
        problem.fun(np.zeros(8, np.complex128))


def test_type_of_start_and_bounds():
    problem = problems.get("torsion", nx=4, ny=3, dtype=np.float32)
    assert problem.x0.dtype == problem.bounds[0].dtype == problem.bounds[1].dtype == np.float32
    assert problem.fun(problem.x0)[1].dtype == np.float32
    assert problem.to(np).x0.dtype == np.float64
