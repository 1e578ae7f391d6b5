"""Legal input that is easily forgotten: penalties of other kinds, no columns, no damping, rules near their edges."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

import stepwell
from stepwell.apps import tomography
from stepwell.cli.group import main
from stepwell.operators import gradient

ITERATIVE = ["cgls", "pseudo-block", "block", "prcg", "aprcg"]
random = np.random.default_rng(7)
A, B = random.normal(size=(30, 20)), random.normal(size=(30, 3))
D = sp.csr_matrix(gradient((4, 5)))


def expected(lam, L):
    return np.linalg.solve(A.T @ A + lam**2 * (L.T @ L), A.T @ B)


@pytest.mark.parametrize("method", [*ITERATIVE, "direct", "auto"])
@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_a_penalty_of_the_host_beside_arrays_of_another_library(method, library, form):
    module = pytest.importorskip(library)
    make = module.as_tensor if library == "torch" else module.numpy.asarray
    result = stepwell.tikhonov(make(A), make(B), 0.7, D if form == "sparse" else D.toarray(), method=method, tol=1e-9)
    np.testing.assert_allclose(np.asarray(result.x), expected(0.7, D.toarray()), atol=1e-6)


def test_a_penalty_of_another_library_is_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="L is a Tensor, while B is a numpy array on cpu; allowed: one library"):
        stepwell.tikhonov(A, B, 0.7, torch.as_tensor(D.toarray()))


@pytest.mark.parametrize("method", [*ITERATIVE, "direct"])
def test_a_penalty_given_by_functions(method):
    pair = (lambda x: D @ x, lambda y: D.T @ y)
    result = stepwell.tikhonov(A, B, 0.7, pair, method=method, tol=1e-9)
    np.testing.assert_allclose(result.x, expected(0.7, D.toarray()), atol=1e-6)


@pytest.mark.parametrize("method", [*ITERATIVE, "direct"])
def test_matrices_as_todense_makes_them(method):
    result = stepwell.tikhonov(sp.csr_matrix(A).todense(), B, 0.7, D.todense(), method=method, tol=1e-9)
    assert type(result.x) is np.ndarray
    np.testing.assert_allclose(result.x, expected(0.7, D.toarray()), atol=1e-6)


@pytest.mark.parametrize("method", [*ITERATIVE, "direct"])
def test_right_hand_sides_and_starts_that_are_matrices(method):
    b, start = (sp.csr_matrix(values).todense() for values in (B, np.ones((20, B.shape[1]))))
    result = stepwell.tikhonov(A, b, 0.7, x0=start, method=method, tol=1e-9)
    assert type(result.x) is np.ndarray
    np.testing.assert_allclose(result.x, expected(0.7, np.eye(20)), atol=1e-6)


def test_masks_and_missing_numbers_are_refused():
    for call in (
        lambda: stepwell.tikhonov(A, np.ma.masked_greater(B, 1), 0.7),
        lambda: stepwell.minimize(lambda x: (x @ x, 2 * x), np.ma.masked_greater(np.ones(3), 2), jac=True),
    ):
        with pytest.raises(TypeError, match=r"(B|x0) is a masked array; allowed: one without a mask"):
            call()
    with pytest.raises(TypeError, match=r"B is \[1.0, .*; allowed: an array of real numbers"):
        stepwell.tikhonov(A, [1.0] * 29 + [None], 0.7)


def test_the_caller_s_own_warnings_are_his():
    """Overflow in the solver is told by a status; in a caller's function NumPy warns, or raises, as he has it."""

    def overflowing(x):
        return x + 0 * min(np.float64(1e300) * np.float64(1e300), 1)

    for options in ({"preconditioner": overflowing}, {"callback": lambda told: overflowing(0)}):
        with pytest.warns(RuntimeWarning, match="overflow"):
            stepwell.cg(np.eye(3), np.ones(3), method="cgls", **options)
    with pytest.warns(RuntimeWarning, match="overflow"):
        stepwell.cg(overflowing, np.ones(3))
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        stepwell.tikhonov((overflowing, overflowing), np.ones(3), 1.0)
    before = np.geterr()
    nested = {"preconditioner": lambda block: stepwell.cg(np.eye(3), block).x}
    assert stepwell.cg(np.eye(3), np.ones(3), method="cgls", **nested).success
    assert np.geterr() == before


@pytest.mark.filterwarnings("ignore:lam of:scipy.optimize.OptimizeWarning")  # noise alone: any λ will do
@pytest.mark.parametrize("rule", ["gcv", "lcurve", "discrepancy"])
def test_rules_with_a_penalty_given_by_functions(rule):
    options = {"noise": 2.0 / len(B) ** 0.5} if rule == "discrepancy" else {}
    pair = (lambda x: D @ x, lambda y: D.T @ y)
    found = stepwell.tikhonov(A, B, rule, pair, **options)
    np.testing.assert_allclose(found.lam, stepwell.tikhonov(A, B, rule, D, **options).lam, rtol=1e-6)


@pytest.mark.parametrize("method", [*ITERATIVE, "direct", "auto"])
def test_no_columns_by_functions(method):
    pair = (lambda x: A @ x, lambda y: A.T @ y)
    result = stepwell.tikhonov(pair, B[:, :0], 0.5, method=method)
    assert result.x.shape == (20, 0)


@pytest.mark.parametrize("shape", ["wide", "deficient"])
def test_auto_without_damping(shape):
    matrix = random.normal(size=(20, 40))
    if shape == "deficient":
        matrix = np.outer(random.normal(size=50), random.normal(size=10)) + 0.0
    right = random.normal(size=(matrix.shape[0], 3))
    result = stepwell.tikhonov(matrix, right, 0.0, tol=1e-10)
    assert all(status.name == "CONVERGED" for status in result.status)
    np.testing.assert_allclose(result.x, np.linalg.pinv(matrix) @ right, atol=1e-7)


def test_a_direct_solution_has_a_history_and_progress():
    told = []
    result = stepwell.tikhonov(A, B, 0.5, method="direct", callback=lambda progress: told.append(progress.running))
    assert [len(history) for history in result.history] == [1, 1, 1]
    assert told[-1] == 0


@pytest.mark.parametrize("seed", range(6))
def test_gcv_where_nearly_everything_can_be_explained(seed):
    noise, n = np.random.default_rng(seed), 40
    x = np.linspace(0, 1, n)
    blur = np.exp(-(((x[:, None] - x) / 0.06) ** 2)) / n * 10
    b = blur @ np.sin(3 * x * np.pi) + 0.02 * noise.normal(size=n)
    left, singular, _ = np.linalg.svd(blur)

    def score(lam):
        share = lam**2 / (singular**2 + lam**2)
        return np.sum((share * (left.T @ b)) ** 2) / np.sum(share) ** 2

    best = min(score(lam) for lam in np.geomspace(1e-7 * singular[0], 10 * singular[0], 4000))
    assert score(stepwell.tikhonov(blur, b, "gcv").lam) <= 1.01 * best


class Counted:
    """A pair of functions that count their calls."""

    def __init__(self):
        self.forwards = 0

    @property
    def pair(self):
        def forward(x):
            self.forwards += 1
            return A @ x

        return forward, lambda y: A.T @ y


@pytest.mark.filterwarnings("ignore:lam of:scipy.optimize.OptimizeWarning")  # noise alone: any λ will do
@pytest.mark.parametrize("rule", [0.5, "gcv"])
def test_writing_a_matrix_out_is_counted(rule):
    counted = Counted()
    result = stepwell.tikhonov(counted.pair, B, rule, method="direct")
    assert result.products.sum() == pytest.approx(counted.forwards)
    assert result.calls >= 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--angles", "0"], "--angles is 0; allowed: an integer of at least 1"),
        (["--lam", "-1"], "--lam is -1.0; allowed: a finite number of at least 0"),
        (["--lam", "luck"], "--lam is 'luck'; allowed: a number or one of"),
        (["--relative-lam", "nan"], "--relative-lam is nan; allowed: a finite number of at least 0"),
        (["--relative-noise", "-1"], "--relative-noise is -1.0; allowed: a finite number of at least 0"),
        (["--tol", "0"], "--tol is 0.0; allowed: a finite number above 0"),
        (["-o", "a.file"], "'a.file' is a file; a folder is needed"),
    ],
)
def test_the_command_refuses_before_any_work(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.file").write_text("")
    outcome = CliRunner().invoke(main, ["reconstruct", "phantom", "--size", "16", *arguments])
    assert outcome.exit_code == 2
    assert message in " ".join(outcome.output.split())


def test_junk_is_no_scan(tmp_path):
    (tmp_path / "junk.npz").write_text("not arrays")
    outcome = CliRunner().invoke(main, ["reconstruct", str(tmp_path / "junk.npz"), "-o", str(tmp_path / "out")])
    assert outcome.exit_code == 1
    assert "is not an npz file" in " ".join(outcome.output.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": "1G"}, "memory is '1G'; allowed: a finite number of at least 0"),
        ({"memory": float("nan")}, "memory is nan; allowed: a finite number of at least 0"),
        ({"width": 2.5}, "width is 2.5; allowed: a whole number of at least 1"),
        ({"width": "a"}, "width is 'a'; allowed: a whole number of at least 1"),
        ({"callback": 3}, "callback is 3; allowed: None or a callable"),
        ({"maxiter": "a"}, "maxiter is 'a'; allowed: a whole number of at least 0"),
        ({"maxiter": float("nan")}, "maxiter is nan; allowed: a whole number of at least 0"),
        ({"lam": 1j}, r"lam is 1j; allowed: one real number or one per column \(3\)"),
        ({"lam": ["a", "b", "c"]}, r"lam is \['a', 'b', 'c'\]; allowed: one real number or one per column"),
        ({"lam": np.array([1j, 1, 1])}, "lam has dtype complex128; allowed: real numbers"),
        ({"lam": True}, "lam is True; allowed: one real number or one per column"),
        ({"lam": [True, False, True]}, r"lam is \[True, False, True\]; allowed: one real number"),
        ({"tol": True}, "tol is True; allowed: a finite number above 0"),
        ({"width": True}, "width is True; allowed: a whole number of at least 1"),
        ({"lam": None}, "lam is None; allowed: one real number or one per column"),
        ({"memory": float("inf")}, "memory is inf; allowed: a finite number of at least 0"),
        ({"joint": "no"}, "joint is 'no'; allowed: True or False"),
        ({"noise": "a"}, "noise is 'a'; allowed: one real number or one per column"),
        ({"x0": 1j * np.ones((20, 3))}, "x0 has dtype complex128; allowed: real numbers"),
        ({"x0": np.array([["a"] * 3] * 20)}, "x0 has dtype <U1; allowed: real numbers"),
        ({"L": np.full((4, 20), None)}, "L has dtype object; allowed: real numbers"),
        ({"preconditioner": 1j * np.ones(20)}, "preconditioner has dtype complex128; allowed: real numbers"),
    ],
)
def test_wrong_options_are_named(options, message):
    def never(x):
        raise AssertionError("applied")

    with pytest.raises((TypeError, ValueError), match=message):
        stepwell.tikhonov(A, B, **{"lam": 0.5, "preconditioner": never, **options})


@pytest.mark.parametrize(
    "options",
    [
        {"memory": -1},
        {"memory": "1G"},
        {"memory": float("inf")},
        {"augmented": "no"},
        {"A": "matrix"},
        {"A": None},
        {"L": 3},
        {"preconditioner": 3},
        {"lam": 1j},
        {"lam": "gcv"},
        {"lam": True},
    ],
)
def test_a_projected_solver_checks_what_it_is_given(options):
    with pytest.raises((TypeError, ValueError), match=f"^{next(iter(options))} is .*; allowed: "):
        stepwell.ProjectedCG(**{"A": A, "lam": 0.5, **options})


def test_a_projected_solver_names_what_solve_is_given():
    solver = stepwell.ProjectedCG(A, 0.5)
    for options in ({"callback": 3}, {"tol": "a"}, {"maxiter": 1j}, {"x0": "a"}):
        with pytest.raises((TypeError, ValueError), match=f"^{next(iter(options))} is .*; allowed: "):
            solver.solve(B[:, 0], **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stepwell.adjoint_error(A, shape=3), "shape is 3; allowed: a pair"),
        (lambda: stepwell.adjoint_error(A, trials=0), "trials is 0; allowed: a whole number of at least 1"),
        (lambda: gradient(3), "shape is 3; allowed: a sequence"),
        (lambda: gradient((2.5, 3)), "shape is 2.5; allowed: a whole number of at least 1"),
        (lambda: tomography.parallel_beam("a", angles=[0.0]), "size is 'a'; allowed: a whole number of at least"),
        (lambda: tomography.parallel_beam(4, angles="a"), "angles is 'a'; allowed: a list of angles"),
        (lambda: tomography.parallel_beam(4, angles=[1j]), r"angles is \[1j\]; allowed: a list of angles"),
        (
            lambda: tomography.parallel_beam(4, angles=[0.0], detectors=2.5),
            "detectors is 2.5; allowed: a whole number of at least 1",
        ),
        (lambda: tomography.parallel_beam(4, angles=[0.0], center="a"), "center is 'a'; allowed: a finite number"),
        (lambda: tomography.shepp_logan_3d("a"), "size is 'a'; allowed: a whole number of at least"),
        (lambda: tomography.add_noise(B, "a"), "level is 'a'; allowed: a finite number of at least 0"),
        (lambda: tomography.sinograms(B), r"integrals has shape \(30, 3\); allowed: \(angles"),
        (
            lambda: tomography.line_integrals(*np.ones((3, 2, 3, 4)), border="a"),
            "border is 'a'; allowed: a whole number from 0 to",
        ),
    ],
)
def test_operators_and_tomography_name_what_they_are_given(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
