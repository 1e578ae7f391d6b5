"""Every public function, every argument, every wrong value: an error that names the argument, before any evaluation.

`tests/helpers/argument_table.py` has the right calls. An argument that is not in it fails here, too.
"""

from __future__ import annotations

import inspect
import re
import warnings

import argument_table
import pytest
from argument_table import RIGHT, WRONG, calls

import stepwell
from stepwell import operators
from stepwell.apps import decomposition, relaxation, t2, tomography, unmixing, voronoi

#: Arguments that are functions, or may be: what a caller's function then raises is the caller's.
FUNCTIONS = {"fun", "jac", "callback", "progress", "h0", "forward", "adjoint", "program", "put", "preconditioner", "H",
             "workers"}  # fmt: skip
#: Wrong values that another argument is told of, with which they do not go together.
TOLD_OF = {
    ("SpectralLibrary", "spectra", "2 axes"): "wavelengths",
    ("cvt_energy", "density", "2 axes"): "sites",
    ("find_axis", "integrals", "3 axes"): "angles",
    ("extract_endmembers", "pixels", "2 axes"): "count",
    ("least_squares", "kwargs", "dict of something"): "keyword argument",  # Python says it of the caller's function
    ("check_jac", "kwargs", "dict of something"): "keyword argument",
}
#: Arguments for which the objective must be asked first.
EVALUATED = {"fun", "args", "jac"}
#: Public functions that are no part of the table, and why.
ELSEWHERE = {
    "scipy_method": "raises what SciPy raises",
    "argmin": "needs an array of PyTorch or JAX",
    "load_scan": "reads a file",
    "map_image": "reads a file",
    "read_library": "reads a file",
    "unmix_image": "reads a file",
    "relaxation.map_series": "reads files",
    "decomposition.decompose_file": "reads a file",
    "Operator": "what from_functions and as_operator make",
}


#: Arguments that are handed on to the caller's function, which may take anything: what it raises is the caller's.
HANDED_ON = {("curve_fit", "xdata"), ("least_squares", "x0"), ("check_jac", "x0"), ("least_squares", "kwargs"),
             ("check_jac", "kwargs")}  # fmt: skip
#: Arguments whose number of points the function's values must have.
COMPARED = {("curve_fit", "ydata")}


@pytest.mark.parametrize("name", RIGHT)
def test_wrong_arguments_are_named(name):
    function, right = RIGHT[name]
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function(**right)
        for argument in right:
            for what, value in WRONG.items():
                if what == "function" and argument in FUNCTIONS:
                    continue
                calls.count = 0
                named = TOLD_OF.get((name, argument, what), argument)
                try:
                    function(**right | {argument: value})
                except Exception as error:
                    if (name, argument) in HANDED_ON and calls.count:
                        continue
                    if not isinstance(error, TypeError | ValueError):
                        wrong.append(f"{argument} = {what}: {type(error).__name__}: {error}")
                        continue
                    if not re.search(rf"(?<!\w){named}(?!\w)", str(error)):
                        wrong.append(f"{argument} = {what}: {type(error).__name__} without its name: {error}")
                    if calls.count and argument not in EVALUATED and (name, argument) not in COMPARED:
                        wrong.append(f"{argument} = {what}: told after {calls.count} evaluations: {error}")
                    if "\n" in str(error).split("; allowed: ")[0]:
                        wrong.append(f"{argument} = {what}: more than one line: {error}")
    assert not wrong, "\n".join(wrong)


def public_functions():
    """Functions and classes with arguments of a caller's, by name; results are not made by callers."""
    for module in (stepwell, operators, tomography, t2, unmixing, voronoi, relaxation, decomposition):
        for name in module.__all__:
            found = getattr(module, name)
            if name == "simulate" or module in (relaxation, decomposition):  # names that several have
                full = f"{module.__name__.rpartition('.')[2]}.{name}"
            else:
                full = name
            result = isinstance(found, type) and re.search(r"(Result|Status|Check|Progress|Options|Interrupted)$", name)
            data = isinstance(found, type) and name in argument_table.DATA
            if callable(found) and not result and not data and full not in ELSEWHERE:
                yield full, found


@pytest.mark.parametrize(
    ("name", "function"), list(public_functions()), ids=lambda one: one if isinstance(one, str) else ""
)
def test_every_argument_is_in_the_table(name, function):
    parameters = inspect.signature(function).parameters.values()
    named = {one.name for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    assert named == set(RIGHT[name][1])
