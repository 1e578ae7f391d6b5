"""One convention over the solvers: spellings, the axis of right-hand sides, statuses, short texts of results."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import numpy as np
import pytest

import stepwell
from stepwell import LinearStatus, NNLSStatus, SolverStatus
from stepwell.arrays.reprs import MAX_LINES, MAX_WIDTH, summarise

random = np.random.default_rng(11)
A = random.normal(size=(12, 8))
H = A.T @ A + np.eye(8)


# ---- spellings ----


@pytest.mark.parametrize("function", [stepwell.nnls, stepwell.tikhonov, stepwell.cg, stepwell.ProjectedCG.solve])
def test_spellings_are_the_same_everywhere(function):
    names = set(inspect.signature(function).parameters)
    assert {"maxiter", "tol"} <= names
    assert not {"max_iter", "damping", "args", "kwargs"} & names


def test_lam_is_the_same_number_in_both_solvers():
    """With an x that is positive anyway the two minimise the same function."""
    positive = np.abs(A)
    b = positive @ np.arange(1.0, 9.0)
    found = stepwell.nnls(positive, b, lam=0.3)
    assert found.positive.all()
    np.testing.assert_allclose(found.x, stepwell.tikhonov(positive, b, 0.3, tol=1e-13).x, rtol=1e-8)


# ---- the axis of right-hand sides ----


@pytest.mark.parametrize("systems", [1, 5, 12])  # 12: as many as rows, where the shape would not tell
def test_axis_of_nnls(systems):
    b = random.normal(size=(systems, 12))
    rows, columns = stepwell.nnls(A, b), stepwell.nnls(A, b.T, axis=1)
    for field in ("x", "dual", "state"):
        np.testing.assert_array_equal(getattr(columns, field), getattr(rows, field).T)
    np.testing.assert_array_equal(columns.residual, rows.residual)
    np.testing.assert_array_equal(stepwell.nnls(A, b, axis=0).x, rows.x)
    again = stepwell.nnls(A, b.T, axis=1, warm_start=columns.x)
    np.testing.assert_allclose(again.x, columns.x, atol=1e-12)
    assert again.solves.max() <= rows.solves.max()
    own = np.broadcast_to(A, (systems, *A.shape))
    np.testing.assert_allclose(stepwell.nnls(own, b.T, axis=1).x, rows.x.T, atol=1e-12)


@pytest.mark.parametrize("columns", [1, 5, 12])
def test_axis_of_tikhonov_and_cg(columns):
    B, x0 = random.normal(size=(12, columns)), random.normal(size=(8, columns))
    for method in ("direct", "block", "cgls", "pseudo-block"):
        one = stepwell.tikhonov(A, B, 0.5, method=method, x0=x0, tol=1e-12)
        other = stepwell.tikhonov(A, B.T.copy(), 0.5, method=method, x0=x0.T, tol=1e-12, axis=0)
        assert other.x.shape == (columns, 8)
        np.testing.assert_allclose(other.x.T, one.x, atol=1e-9)
    np.testing.assert_allclose(
        stepwell.cg(H, B[:8].T, axis=0, tol=1e-12).x.T, stepwell.cg(H, B[:8], axis=1, tol=1e-12).x, atol=1e-9
    )


def test_axis_in_other_libraries():
    torch = pytest.importorskip("torch")
    b = random.normal(size=(5, 12))
    rows = stepwell.nnls(torch.asarray(A), torch.asarray(b.T.copy()), axis=1)
    np.testing.assert_array_equal(rows.x.numpy().T, stepwell.nnls(A, b).x)
    found = stepwell.tikhonov(torch.asarray(A), torch.asarray(b), 0.5, axis=0, tol=1e-12)
    np.testing.assert_allclose(found.x.numpy().T, stepwell.tikhonov(A, b.T, 0.5, tol=1e-12).x, atol=1e-9)


def test_errors_name_the_axis_where_the_other_one_fits():
    for call, said in (
        (lambda: stepwell.nnls(A, np.ones((12, 3))), r"b has shape \(12, 3\).*; or axis=1, if its columns are"),
        (lambda: stepwell.nnls(A, np.ones((3, 12)), axis=1), r"b has shape \(3, 12\).*; or axis=0, if its rows are"),
        (lambda: stepwell.tikhonov(A, np.ones((3, 12)), 1.0), r"B has shape \(3, 12\).*; or axis=0, if its rows are"),
        (lambda: stepwell.cg(H, np.ones((8, 3)), axis=0), r"B has shape \(8, 3\).*; or axis=1, if its columns are"),
        (lambda: stepwell.nnls(A, np.ones((5, 3))), r"b has shape \(5, 3\); allowed: 12 entries per system.*has rows$"),
        (lambda: stepwell.nnls(A, np.ones(12), axis=2), "axis is 2; allowed: 0, right-hand sides are rows, or 1"),
        (lambda: stepwell.tikhonov(A, np.ones(12), 1.0, axis="rows"), "axis is 'rows'; allowed: 0"),
    ):
        with pytest.raises(ValueError, match=said):
            call()


# ---- statuses ----


@pytest.mark.parametrize("family", [NNLSStatus, LinearStatus])
def test_one_family_of_statuses(family):
    assert issubclass(family, SolverStatus)
    for status in family:
        assert family.of(status.value) is status
        assert family(status.value) is status
        assert status.success == (status.scipy == 0) == (status.name == "CONVERGED")
        assert status.message
        assert pickle.loads(pickle.dumps(status)) is status


def test_results_agree_on_success_reason_and_message():
    one, many = stepwell.nnls(A, A[:, 0]), stepwell.nnls(A, A.T)
    assert one.success
    assert one.reason is NNLSStatus.CONVERGED
    assert one.message == one.reason.message
    assert many.success.all()
    assert many.reason == [NNLSStatus.CONVERGED] * 8
    assert f"{NNLSStatus.LIMIT} {NNLSStatus.LIMIT:d}" == "1 1"
    linear = stepwell.tikhonov(A, A, 0.1)
    assert linear.success is True
    assert linear.reason == linear.status == [LinearStatus.CONVERGED] * 8
    assert LinearStatus.CONVERGED.message in linear.message


# ---- short texts ----


@pytest.mark.parametrize("systems", [None, 1, 3000])
def test_results_have_short_texts(systems):
    b = random.normal(size=12 if systems is None else (systems, 12))
    results = [stepwell.nnls(A, b), stepwell.nnls(A, b, maxiter=1), stepwell.tikhonov(A, b.T, 0.1, method="block")]
    for result in results:
        lines = repr(result).splitlines()
        assert len(lines) <= MAX_LINES
        assert max(map(len, lines)) <= MAX_WIDTH
        assert lines[0] == type(result).__name__
        assert lines[1].split()[0] == "status:"
        assert lines[2].split()[0] == "message:"
        assert str(result) == repr(result)
    assert "CONVERGED" in repr(results[0]).splitlines()[1]


def test_texts_of_arrays():
    torch = pytest.importorskip("torch")
    text = summarise(
        "Result",
        {
            "x": np.arange(12.0).reshape(3, 4),
            "few": np.array([1.0, 0.25]),
            "marks": np.array([True, False]),
            "counts": torch.arange(9),
            "none": np.empty((0, 3)),
            "number": 1 / 3,
            "words": np.array(["a", "b"]),
            "objects": [LinearStatus.CONVERGED] * 3 + [LinearStatus.STOPPED],
            "histories": [np.ones(3), np.ones(5)],
            "nothing": None,
        },
    )
    assert text.splitlines()[1:] == [
        "          x: float64 (3, 4): 0, 1, 2, 3, ..., 11",
        "        few: float64 (2,): 1, 0.25",
        "      marks: bool (2,): True, False",
        "     counts: int64 (9,): 0, 1, 2, 3, ..., 8",
        "       none: float64 (0, 3)",
        "     number: 0.333333",
        "      words: <U1 (2,)",
        "    objects: 3 x LinearStatus.CONVERGED, 1 x LinearStatus.STOPPED",
        "  histories: 2 arrays of 3 to 5 numbers",
        "    nothing: None",
    ]
    many = summarise("Result", {f"field{k}": k for k in range(100)})
    assert len(many.splitlines()) == MAX_LINES


# ---- what a plain import gives ----


def test_apps_after_a_plain_import():
    code = (
        "import stepwell; stepwell.apps.tomography.parallel_beam; stepwell.apps.waveform.deconvolve; "
        "stepwell.apps.voronoi.centroidal; stepwell.LinearResult; stepwell.NNLSResult; stepwell.Progress; "
        "import pytest\nwith pytest.raises(AttributeError, match='weather'):\n    stepwell.apps.weather"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
