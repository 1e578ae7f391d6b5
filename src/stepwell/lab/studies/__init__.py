"""Published experiments, repeated: each prints the paper's figures beside ours and says what differs and why.

`stepwell study NAME -o DIR` runs one; `docs/studies.md` shows what came out.

Examples
--------
>>> from stepwell.lab import studies
>>> study = studies.run("nnls-updates", size="toy")
>>> study.find_table("costs").rows[0]["update"]
'MGS, new column last'
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from stepwell.arrays.places import NoSuchPlace, choose_library
from stepwell.common.checks import meant
from stepwell.lab.studies.frame import Context, Setting, Study, StudyInterrupted

__all__ = ["STUDIES", "Study", "StudyInterrupted", "run", "settings_of"]

_FEI = "Y. Fei, G. Rong, B. Wang, W. Wang: Parallel L-BFGS-B algorithm on GPU. Computers & Graphics 40 (2014)"
_AMORE = "L. D'Amore, R. Arcucci, V. Mele, G. Scotti, A. Murli: L-BFGS for GPU-CUDA. CMCC Research Paper RP0167 (2013)"
_LUO = (
    "Y. Luo, R. Duraiswami: Efficient parallel non-negative least squares on multi-core architectures. "
    "SIAM J. Sci. Comput. 33 (2011)"
)
_LIN = "Y. Lin, R. Renaut: Projected conjugate gradient solvers on GPU and its applications. Poster (2010)"

_TOINT = (
    "S. Gratton, Ph. L. Toint: S2MPJ and CUTEst optimization problems for Matlab, Python and Julia (2024), problems "
    "without constraints and with bounds; profiles of Dolan, Moré (2002) and Moré, Wild (2009)"
)

#: Study -> (what it is about, what it repeats). Its module has the same name, with underscores.
STUDIES: dict[str, tuple[str, str]] = {
    "cauchy": ("How far the first-interval Cauchy point is from the exact one", f"{_FEI}, Tables 1 and 3"),
    "voronoi": ("Centroidal Voronoi tessellation by L-BFGS-B", f"{_FEI}, Table 2 and Figures 5 to 8"),
    "torsion": ("Elastic-plastic torsion from 400 to 4,000,000 variables", f"{_FEI}, Table 4 and Figure 9"),
    "panels": ("The panel product against the vendor's library", f"{_FEI}, Figure 3"),
    "rosenbrock": ("L-BFGS in sequence and in parallel", f"{_AMORE}, Figures 1 to 4 and the stopping criteria"),
    "nnls-updates": ("Costs of QR updates and downdates, counted", f"{_LUO}, Table 3.1"),
    "nnls": ("Many non-negative least-squares systems", f"{_LUO}, Tables 7.1 to 7.3"),
    "projected-cg": ("Four slices of a phantom, projected on a seed slice", f"{_LIN}, table"),
    "cutest": ("A public test set, solvers side by side, every end verified", _TOINT),
    "blas-levels": ("BLAS 1, 2 and 3 at the same number of operations", f"{_LIN}, BLAS performance"),
}


def _module(name: str) -> Any:
    if name not in STUDIES:
        raise ValueError(f"name must be one of {', '.join(STUDIES)}, got {name!r}{meant(name, STUDIES)}")
    return importlib.import_module(f"stepwell.lab.studies.{name.replace('-', '_')}")


def settings_of(name: str) -> tuple[Setting, ...]:
    """Return the settings that one study takes beside device and size.

    Examples
    --------
    >>> [setting.name for setting in settings_of("projected-cg")]
    ['tol', 'seed_tol', 'relative_lam', 'relative_noise', 'direct']
    """
    settings: tuple[Setting, ...] = getattr(_module(name), "SETTINGS", ())
    return settings


def _check_library(name: str, module: Any, device: str, library: str) -> None:
    """Refuse a library in which the study is not done: its module says which ones, where it is not done in all."""
    where, constant = ("the CPU", "ON_CPU") if device == "cpu" else ("a GPU", "ON_GPU")
    allowed: tuple[str, ...] | None = getattr(module, constant, None)
    if allowed == ():
        raise NoSuchPlace(f"study {name} needs no device, and has none but the CPU; got {device}", "device")
    if allowed is not None and library not in allowed:
        raise NoSuchPlace(f"study {name} is done in {' or '.join(allowed)} on {where}; got {library}", "array")


def run(
    name: str,
    *,
    device: str = "cpu",
    array: str | None = None,
    size: str = "default",
    settings: Mapping[str, Any] | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Study:
    """Run a study.

    Parameters
    ----------
    name : str
        One of `STUDIES`.
    device : str, default "cpu"
        ``"cpu"``, ``"cuda"`` or ``"cuda:K"``; with a CUDA device its rows stand beside those of the CPU.
    array : {"numpy", "torch", "cupy", "jax"}, optional
        The library that holds the vectors; by default NumPy, and on a GPU the first of the others that is installed.
        Some studies are done in one library alone, and refuse the others.
    size : {"toy", "default", "full"}
        Seconds, about a minute on two cores, or the paper's sizes.
    settings : mapping, optional
        Values for `settings_of(name)`.
    tell : callable, optional
        Told what is going on.

    Returns
    -------
    Study

    Raises
    ------
    StudyInterrupted
        By Ctrl-C; it has the tables and plots so far.
    """
    module = _module(name)
    known = {setting.name: setting.default for setting in settings_of(name)}
    unknown = sorted(set(settings or {}) - set(known))
    if unknown:
        raise ValueError(f"study {name} got settings {unknown}; allowed: {', '.join(known) or 'none'}")
    _check_library(name, module, device, choose_library(array, device))
    context = Context(
        device="cuda:0" if device == "cuda" else device,
        array=array,
        size=size,
        settings=known | dict(settings or {}),
        tell=tell,
    )
    from stepwell.lab.studies.measure import gpu_machine, machine

    title, paper = STUDIES[name]
    last = context.places[-1]
    about = machine() | (gpu_machine(last) if last.gpu else {} if last.library == "numpy" else dict(last.facts))
    study = Study(name, title, paper, context.device, size, dict(context.settings), about)
    began = time.perf_counter()
    try:
        module.run(context, study)
    except KeyboardInterrupt as stop:
        study.remarks.append("Interrupted: these are the figures so far.")
        raise StudyInterrupted(study) from stop
    finally:
        study.seconds = time.perf_counter() - began
    return study
