"""What every result can do for a person: plot, to_dict, HTML; bars for progress=True; names that exist; warnings."""

from __future__ import annotations

import logging
import subprocess
import sys

import numpy as np
import pytest

import stepwell
from stepwell.arrays.presenting import Presented

A = np.random.default_rng(0).random((12, 4))
B = np.random.default_rng(1).random((12, 3))
RESULTS = {
    "nnls": lambda: stepwell.nnls(A, B[:, 0]),
    "nnls of many": lambda: stepwell.nnls(A, B.T),
    "lsq_linear": lambda: stepwell.lsq_linear(A, B.T, bounds=(0, 1)),
    "tikhonov": lambda: stepwell.tikhonov(A, B, 0.1),
    "cg": lambda: stepwell.cg(A.T @ A, A.T @ B),
    "tv": lambda: stepwell.tv(None, np.ones(16), 0.1, shape=(4, 4)),
    "lasso": lambda: stepwell.lasso(A, B, 0.1),
    "curve_fit": lambda: stepwell.curve_fit(lambda t, a: a * t, np.arange(5.0), 2 * np.arange(5.0), [1.0]),
    "minimize": lambda: stepwell.minimize(lambda x: ((x - 1) ** 2).sum(), np.zeros(3)),
    "minimize_batch": lambda: stepwell.minimize_batch(
        lambda x: (((x - 1) ** 2).sum(axis=1), 2 * (x - 1)), np.zeros((2, 3)), jac=True
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_become_dicts_tables_and_pictures(name, tmp_path):
    result = RESULTS[name]()
    held = result.to_dict()
    np.testing.assert_array_equal(held["x"], np.asarray(result.x))
    assert not any(key.startswith("_") for key in held)
    text = result._repr_html_()
    assert text.startswith(f"<table><caption>{type(result).__name__}</caption>")
    assert "<th>x</th>" in text
    assert len(text) < 20_000
    pytest.importorskip("matplotlib")
    figure = result.plot(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert figure.axes


def test_html_is_escaped():
    class Marked(Presented):
        def __repr__(self):
            return "Marked\n  a: <b>x</b>\n     and more\n  c: 1"

    rows = "".join(
        f'<tr><th>{name}</th><td style="text-align:left">{text}</td></tr>'
        for name, text in (("a", "&lt;b&gt;x&lt;/b&gt; and more"), ("c", "1"))
    )
    assert Marked()._repr_html_() == f"<table><caption>Marked</caption>{rows}</table>"


T = np.linspace(0, 3, 16)
DECAYS = np.array([[2.0], [1.0], [0.5]]) * np.exp(-1.5 * T)
#: Calls with an argument `progress`, each on its way to one array.
TELLING = {
    "nnls": lambda progress: stepwell.nnls(A, B.T, progress=progress).x,
    "lsq_linear": lambda progress: stepwell.lsq_linear(A, B.T, bounds=(-1, 1), progress=progress).x,
    "lsq_gram": lambda progress: stepwell.lsq_gram(A.T @ A, B.T @ A, progress=progress).x,
    "curve_fit": lambda progress: (
        stepwell.curve_fit(lambda t, a, k: a * np.exp(-k * t), T, DECAYS, [1, 1], progress=progress).x
    ),
    "curve_fit of a compiled model": lambda progress: (
        stepwell.curve_fit(stepwell.models.exponentials(1), T, DECAYS, [1, 1], progress=progress).x
    ),
    "least_squares": lambda progress: stepwell.least_squares(lambda x: x**2 - 2, np.ones((3, 2)), progress=progress).x,
    "centroidal": lambda progress: (
        stepwell.apps.voronoi.centroidal(3, resolution=16, maxiter=3, progress=progress).sites
    ),
}


@pytest.mark.parametrize("name", TELLING)
def test_true_shows_a_bar_and_a_callable_goes_on_working(name, capsys):
    told = []
    plain = TELLING[name](None)
    for progress in (True, False, lambda *news: told.append(news)):
        np.testing.assert_array_equal(TELLING[name](progress), plain)
    assert told[-1] == (3, 3)
    assert capsys.readouterr().out == ""  # nothing moves in a pipe


def test_a_notebook_has_tqdms_bar(monkeypatch):
    pytest.importorskip("tqdm")
    from stepwell.common import progress

    class Shell:
        pass

    module = type(sys)("IPython")
    module.get_ipython = Shell
    monkeypatch.setitem(sys.modules, "IPython", module)
    assert progress.in_notebook()
    with progress.shown_bar("work") as tell:
        tell(1, 2)
        tell(2, 2)
    module.get_ipython = lambda: type("TerminalInteractiveShell", (), {})()
    assert not progress.in_notebook()


def test_modules_are_there_on_first_use_or_name_what_to_install():
    program = """
import sys, stepwell
sys.modules["torch"] = None
try:
    stepwell.torch
except ImportError as error:
    assert "stepwell.torch needs torch: pip install torch" in str(error), error
else:
    raise AssertionError
for name in ("botorch", "gpytorch", "sklearn", "cil"):
    sys.modules[name] = None
for name in dir(stepwell.plugs):
    try:
        getattr(stepwell.plugs, name)
    except ImportError as error:
        assert f"stepwell.plugs.{name} needs" in str(error), error
    else:
        raise AssertionError(name)
assert set(dir(stepwell)) == {*stepwell.__all__, "torch", "plugs"}
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_torch_is_there_on_first_use():
    pytest.importorskip("torch")
    assert stepwell.torch.LBFGSB.__module__ == "stepwell.torch"


def test_typos_of_options_get_a_hint():
    with pytest.warns(match=r"unknown options \['maxitr'\] are ignored; did you mean 'maxiter'\?"):
        stepwell.minimize(lambda x: (x**2).sum(), np.ones(2), options={"maxitr": 3})


SYSTEM, KERNEL = np.eye(4), np.eye(16)
CALLS = {
    "minimize": ("bound", "bounds", lambda **given: stepwell.minimize(np.sum, np.zeros(2), **given)),
    "minimize_batch": ("jacc", "jac", lambda **given: stepwell.minimize_batch(np.sum, np.zeros((2, 2)), **given)),
    "argmin": ("option", "options", lambda **given: stepwell.argmin(np.sum, np.zeros(2), **given)),
    "nnls": ("max_iter", "maxiter", lambda **given: stepwell.nnls(A, B[:, 0], **given)),
    "lsq_linear": ("bound", "bounds", lambda **given: stepwell.lsq_linear(A, B[:, 0], **given)),
    "lsq_gram": ("maxitr", "maxiter", lambda **given: stepwell.lsq_gram(SYSTEM, np.ones(4), **given)),
    "tikhonov": ("nois", "noise", lambda **given: stepwell.tikhonov(A, B, 0.1, **given)),
    "cg": ("rtol", "tol", lambda **given: stepwell.cg(SYSTEM, np.ones(4), **given)),
    "tv": ("max_iter", "maxiter", lambda **given: stepwell.tv(KERNEL, np.ones(16), 0.1, shape=(4, 4), **given)),
    "tv_gap": ("shap", "shape", lambda **given: stepwell.tv_gap(KERNEL, np.ones(16), 0.1, **given)),
    "lasso": ("group", "groups", lambda **given: stepwell.lasso(A, B, 0.1, **given)),
    "curve_fit": ("bound", "bounds", lambda **given: stepwell.curve_fit(np.multiply, A, A, [1.0], **given)),
    "least_squares": ("bound", "bounds", lambda **given: stepwell.least_squares(np.sin, [1.0], **given)),
    "check_grad": ("direction", "directions", lambda **given: stepwell.check_grad(np.sum, np.zeros(2), **given)),
    "LBFGSB": ("maxitr", "maxiter", lambda **given: stepwell.LBFGSB(np.zeros(3), **given)),
    "ProjectedCG": ("memry", "memory", lambda **given: stepwell.ProjectedCG(A, **given)),
}


@pytest.mark.parametrize("name", CALLS)
def test_unknown_arguments_get_a_hint(name):
    wrong, right, call = CALLS[name]
    said = rf"{name}\(\) got an unexpected keyword argument '{wrong}'; did you mean '{right}'\?; allowed: "
    with pytest.raises(TypeError, match=said):
        call(**{wrong: 1})


def test_a_name_of_the_package_that_is_nearly_right_is_named():
    program = "import stepwell; stepwell.tikonov"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "Did you mean: 'tikhonov'" in done.stderr


def test_a_forgotten_jac_is_told_where_it_costs_much():
    def fun(x):
        return ((x - 1) ** 2).sum()

    with pytest.warns(match="no jac: each gradient takes 3,000 evaluations of fun"):
        stepwell.minimize(fun, np.zeros(3000), options={"maxiter": 1})
    stepwell.minimize(fun, np.zeros(1000), jac="2-point", options={"maxiter": 1})  # asked for: no warning


def test_a_torch_function_that_returns_a_vector_is_told_so():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"fun returned a tensor of shape \(3,\); allowed: one number"):
        stepwell.minimize(lambda x: (x - 1) ** 2, torch.zeros(3))


def test_commands_and_long_runs_are_logged(tmp_path, caplog):
    from click.testing import CliRunner

    from stepwell.apps import unmixing
    from stepwell.cli.group import main

    scene = unmixing.simulate(6, 5, bands=20)
    np.save(tmp_path / "a.npy", scene.image)
    with caplog.at_level(logging.INFO, "stepwell"):
        unmixing.unmix_image(tmp_path / "a.npy", scene.library, tmp_path / "out", wavelengths=scene.library.wavelengths)
        CliRunner().invoke(main, ["deconvolve", "--synthetic", "2", "-o", str(tmp_path / "a.npz")])
    assert {record.name for record in caplog.records} == {"stepwell"}
    assert "6 of 6 slabs are done" in caplog.text
    assert "deconvolve: begins" in caplog.text
