"""Wrong arguments: a ValueError or TypeError with a text, before any work; never a crash or another error."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

import stepwell
from fuzzing.common import hold, pick

JUNK = (
    None, True, -1, 0, 2**70, 1.5, np.nan, np.inf, -np.inf, 1j, "x", b"x", [], {}, (), object(), np.array([]),
    np.array(np.nan), np.ones(3), np.ones((2, 3)), np.ones((0, 3)), np.ones((2, 3, 4)), np.array(["a"]),
    np.array([1, None]), np.ones(3, bool), np.ones(3, complex), np.ones(3, "f2"), np.ones(3, "i8"),
    np.full(3, np.nan), np.full(3, np.inf), np.ma.ones(3), [1, "a"], [[1], [1, 2]], sp.eye(3, format="csr"),
    np.datetime64("2020-01-01"), range(3), lambda *a: 1 / 0, lambda *a: None, "auto", np.float32(3), np.int8(3),
    1e-320, 1e308, float,
)  # fmt: skip


class Own(Exception):
    """What a function of the caller's raises is the caller's."""


def fun(x):
    return float((np.asarray(x) ** 2).sum()), 2 * np.asarray(x)


CALLS = {
    "minimize": (
        lambda **k: stepwell.minimize(**k),
        dict(fun=fun, x0=np.ones(3), args=(), jac=True, bounds=None, tol=None, callback=None, options=None),
    ),
    "options": (
        lambda **k: stepwell.minimize(fun, np.ones(3), jac=True, options=k),
        dict(maxcor=5, gtol=1e-5, ftol=1e-9, relative_gtol=0.0, target=-1.0, maxiter=5, maxfun=9, time_limit=9.0,
             maxls=9, cauchy="none", line_search="va15", h0=None, threads=1, verbose=0, zero_copy=False, eps=None,
             workers=None),
    ),
    "minimize_batch": (
        lambda **k: stepwell.minimize_batch(**k),
        dict(fun=lambda X: ((X**2).sum(1), 2 * X), x0=np.ones((2, 3)), jac=True, bounds=None, tol=None, options=None),
    ),
    "LBFGSB": (
        lambda **k: stepwell.LBFGSB(**k),
        dict(x0=np.ones(3), bounds=None, m=3, h0=None, gtol=1e-5, ftol=0.0, maxiter=9, cauchy="exact", threads=1),
    ),
    "tell": (lambda **k: stepwell.LBFGSB(np.ones(3)).tell(**k), dict(f=1.0, g=np.ones(3))),
    "nnls": (
        lambda **k: stepwell.nnls(**k),
        dict(A=np.eye(3), b=np.ones(3), method="auto", lam=0.0, warm_start=None, maxiter=9, tol=None, threads=1,
             axis=0),
    ),
    "Convolution": (lambda **k: stepwell.Convolution(**k), dict(pulse=np.ones(3), n=4, m=5, origin=1)),
    "tikhonov": (
        lambda **k: stepwell.tikhonov(**k),
        dict(A=np.eye(3), B=np.ones(3), lam=0.1, L=None, method="auto", x0=None, tol=1e-6, maxiter=9, axis=1,
             preconditioner=None, callback=None, noise=None, joint=False, memory=None, width=4),
    ),
    "cg": (lambda **k: stepwell.cg(**k), dict(H=np.eye(3), B=np.ones(3), x0=None, tol=1e-6, maxiter=9, method="auto")),
    "ProjectedCG": (
        lambda A, lam, L, memory, augmented, **k: stepwell.ProjectedCG(A, lam, L, memory, augmented=augmented).solve(
            **k
        ),
        dict(A=np.eye(3), lam=0.1, L=None, memory=2**20, augmented=True, b=np.ones(3), tol=1e-6, maxiter=9, x0=None),
    ),
    "check_grad": (lambda **k: stepwell.check_grad(**k), dict(fun=fun, x0=np.ones(3), jac=True)),
    "from_state_dict": (lambda **k: stepwell.LBFGSB.from_state_dict(**k), dict(state={}, like=None, h0=None)),
    "adjoint_error": (lambda **k: stepwell.adjoint_error(**k), dict(A=np.eye(3))),
}  # fmt: skip


def arguments(rng):
    for _ in range(10):
        name = pick(rng, *CALLS)
        call, right = CALLS[name]
        given = dict(right)
        changed = []
        for _ in range(int(rng.integers(1, 3))):
            argument = pick(rng, *right)
            given[argument] = pick(rng, *JUNK)
            changed.append(argument)
        try:
            call(**given)
        except (ValueError, TypeError) as error:
            hold(bool(str(error)), f"{name}({', '.join(changed)}): an error without a text")
        except ZeroDivisionError:
            pass  # of the caller's function
        except MemoryError as error:
            hold(bool(str(error)), f"{name}: a MemoryError without a text")
        except NotImplementedError as error:
            hold(bool(str(error)), f"{name}({', '.join(changed)}): an error without a text")
        except Exception as error:
            shown = {argument: repr(given[argument])[:60] for argument in changed}
            raise AssertionError(f"{name}({shown}) raised {type(error).__name__}: {error}") from error
