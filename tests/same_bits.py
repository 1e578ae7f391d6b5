"""Do two versions of the package give the same bits? Hashes of several hundred runs of every solver, in a file.

    python tests/same_bits.py write before.txt      # with the version before a change
    python tests/same_bits.py compare before.txt    # with the version after it, on the same machine: the same libraries

A change that moves code, or merges two paths into one, keeps every line; one that changes arithmetic says which lines
it changes and why. Only what every version has is hashed: answers and their certificates, no texts or times. (pytest
does not collect this file.)
"""

from __future__ import annotations

import argparse
import hashlib
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.optimize

import stepwell

Line = tuple[str, tuple[Any, ...]]


def digest(arrays: tuple[Any, ...]) -> str:
    """Return a hash of the arrays' bytes."""
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(np.ascontiguousarray(np.asarray(array)).tobytes())
    return whole.hexdigest()[:12]


# ---- small least squares ----


def nonnegative(rng: np.random.Generator, A: np.ndarray, b: np.ndarray, k: int) -> Iterator[Line]:
    """Runs of ``nnls``."""
    m, n = A.shape
    dtype = A.dtype
    r = stepwell.nnls(A, b)
    yield "nnls", (r.x, r.dual, r.residual, r.violation, r.status, r.solves, r.insertions, r.removals, r.passes)
    r = stepwell.nnls(A, b, lam=0.3, weights=np.abs(rng.normal(size=m)).astype(dtype))
    yield "nnls weights", (r.x, r.dual, r.status, r.lam)
    r = stepwell.nnls(A, b.T.copy(), axis=1, method="qr")
    yield "nnls qr", (r.x, r.residual, r.dual)
    r = stepwell.nnls(A, b, lam=0.1, method="gram", insertion="single", warm_start=np.ones(n, dtype))
    yield "nnls gram", (r.x, r.dual, r.solves)
    r = stepwell.nnls(A, b, warm_start="chain", mask=rng.random(n) > 0.2)
    yield "nnls chain", (r.x, r.solves)
    r = stepwell.nnls(np.stack([A] * len(b)), b, lam=np.arange(1.0, 1 + len(b)), uncertainty="variance")
    yield "nnls own", (r.x, r.lam, r.variance, r.sigma)
    r = stepwell.nnls(A, b[0], lam=["chi2", "gcv", "lcurve"][k % 3]) if m > 2 else r
    yield "nnls rule", (r.x, r.lam)
    convolution = stepwell.Convolution(np.abs(rng.normal(size=5)), n, m=n + 4)
    r = stepwell.nnls(convolution, rng.normal(size=(3, n + 4)), lam=0.01)
    yield "nnls pulse", (r.x, r.dual)


def bounded(rng: np.random.Generator, A: np.ndarray, b: np.ndarray, k: int) -> Iterator[Line]:
    """Runs of ``lsq_linear`` and ``lsq_gram``."""
    m, n = A.shape
    r = stepwell.lsq_linear(A, b, (-0.5, 1.0), lam=0.1)
    yield "lsq", (r.x, r.dual, r.state, r.status, r.violation, r.residual)
    r = stepwell.lsq_linear(A, b, (0, np.inf), L=np.diff(np.eye(n), axis=0), lam=0.2)
    yield "lsq L", (r.x, r.dual, r.seminorm)
    r = stepwell.lsq_linear(A, b, (0, np.inf), sum_bounds=(1, 1))
    yield "lsq sum", (r.x, r.status, r.multipliers, r.gap)
    r = stepwell.lsq_linear(np.stack([A, 2 * A]), b, (-1, 1), which=np.arange(len(b)) % 2, uncertainty="variance")
    yield "lsq which", (r.x, r.variance)
    if n > 3:
        r = stepwell.lsq_linear(A, b, (-1, 1), equality=(rng.normal(size=(2, n)), np.zeros(2)))
        yield "lsq equalities", (r.x, r.status, r.multipliers)
        r = stepwell.lsq_linear(A, b, (0, np.inf), equality=(np.ones(n), 1.0))
        yield "lsq equality", (r.x, r.status)
    if m > 2:
        r = stepwell.lsq_linear(A, b, (0, np.inf), lam=["chi2", "gcv", "lcurve"][k % 3])
        yield "lsq rule", (r.x, r.lam)
    G, c = (A.T @ A + np.eye(n)).astype(float), (A.T @ b.T).T.astype(float)
    r = stepwell.lsq_gram(G, c, (-1, 1), lam=0.2, bb=(b**2).sum(1))
    yield "lsq gram", (r.x, r.dual, r.lam, r.residual)


# ---- Krylov methods and L-BFGS-B ----


def linear(rng: np.random.Generator, A: np.ndarray, b: np.ndarray, k: int) -> Iterator[Line]:
    """Runs of ``tikhonov``, ``cg``, ``ProjectedCG`` and ``tv``."""
    m, n = A.shape
    lam: Any = ["gcv", "lcurve", 0.2, 0.5][k % 4] if m > 4 else 0.3
    method: Any = ["auto", "block", "cgls", "pseudo-block", "aprcg", "prcg"][k % 6]
    t = stepwell.tikhonov(A, b.T.copy(), lam, method=method)
    yield "tikhonov", (t.x, t.residual, t.iterations)
    yield "tikhonov bounds", (stepwell.tikhonov(A, b.T.copy(), 0.3, bounds=(0, None)).x,)
    how: Any = ["auto", "block", "cgls"][k % 3]
    yield "cg", (stepwell.cg(A.T @ A + np.eye(n), rng.normal(size=(n, 2)), method=how).x,)
    yield "projected cg", (stepwell.ProjectedCG(A, 0.3).solve(b[0]).x,)


def smooth(rng: np.random.Generator, A: np.ndarray, b: np.ndarray, k: int) -> Iterator[Line]:
    """Runs of ``minimize``, ``minimize_batch``, ``LBFGSB`` and ``scipy_method``."""
    n = A.shape[1]
    rises = np.arange(1, n + 1)

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        r = A @ x - b[0]
        return float(np.sum(r**2) + np.sum(x**4)), np.asarray(2 * A.T @ r + 4 * x**3)

    def rows(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.sum((X - b[0][:1]) ** 2 * rises, axis=-1), 2 * (X - b[0][:1]) * rises

    start = np.zeros(n, A.dtype)
    q = stepwell.minimize(fun, start, jac=True, bounds=(-0.3, 0.4) if k % 2 else None, options={"maxcor": 5})
    yield "minimize", (q.x, q.fun, q.nit, q.nfev)
    q = stepwell.minimize(lambda x: fun(x)[0], np.zeros(n))
    yield "minimize by differences", (q.x, q.nfev)
    q = stepwell.minimize_batch(rows, np.zeros((4, n)), jac=True, bounds=(-1, 0.2))
    yield "minimize_batch", (q.x, q.nit)
    run = stepwell.LBFGSB(np.zeros(n), (-1, 1))
    for _ in range(5):
        if run.done:
            break
        value, gradient = fun(run.x)
        run.tell(value, np.asarray(gradient, float))
    state = {name: value for name, value in sorted(run.state_dict().items()) if name not in "sy"}
    yield "LBFGSB", tuple(value for value in state.values() if isinstance(value, np.ndarray))
    how: Any = stepwell.scipy_method
    s = scipy.optimize.minimize(
        lambda x: fun(x)[0], np.zeros(n), jac=lambda x: np.asarray(fun(x)[1], float), method=how
    )
    yield "scipy_method", (s.x, s.nfev)


def fits(rng: np.random.Generator) -> Iterator[Line]:
    """Runs of ``curve_fit``: compiled models and callables, of each number of parameters that has code of its own."""
    t = np.linspace(0.0, 3.0, 32)
    for n in (1, 2, 3, 4, 5, 6, 9, 20):
        waves = rng.normal(size=(n, t.size))

        def model(t: np.ndarray, *p: np.ndarray, waves: np.ndarray = waves) -> np.ndarray:
            return np.asarray(sum(a * wave * np.exp(-0.1 * a * a) for a, wave in zip(p, waves)))

        y = model(t, *(np.full((20, 1), 0.5 + 0.1 * k) for k in range(n))) + 0.05 * rng.normal(size=(20, t.size))
        for name, given in (("", {}), (" bounds", {"bounds": (-0.2, 0.55)}), (" huber", {"loss": "huber"})):
            found: Any = stepwell.curve_fit(model, t, y, p0=np.full(n, 0.3), **given)
            yield f"curve_fit {n}{name}", (found.x, found.cost, found.pcov, found.nit)
    for name, compiled, start in (
        ("exponentials", stepwell.models.exponentials(2), [0.5, 0.5, 0.5, 5.0]),
        ("gaussians", stepwell.models.gaussians(1), [0.6, 1.5, 0.4]),
    ):
        y = compiled(t, *start) + 0.01 * rng.normal(size=(40, t.size))
        found = stepwell.curve_fit(compiled, t, y, p0=1.05 * np.array(start))
        yield f"curve_fit {name}", (found.x, found.cost, found.pcov, found.nit)


def known_problems() -> Iterator[Line]:
    """Fifteen steps on every problem of ``stepwell.problems``."""
    for name in stepwell.problems.names():
        problem = stepwell.problems.get(name)
        q = stepwell.minimize(problem.fun, problem.x0, jac=True, bounds=problem.bounds, options={"maxiter": 15})
        yield f"problem {name}", (q.x, q.fun)


# ---- derivatives and containers ----


def in_torch(rng: np.random.Generator) -> Iterator[Line]:
    """Solutions in graphs of PyTorch: values, gradients, tangents and second derivatives."""
    try:
        import torch
    except ImportError:
        return
    for _ in range(8):
        yield from _in_torch(torch, rng)


def _in_torch(torch: Any, rng: np.random.Generator) -> Iterator[Line]:
    unit, ones = torch.eye(5, dtype=torch.float64), torch.ones(5, dtype=torch.float64)
    A = torch.tensor(rng.normal(size=(8, 5)), requires_grad=True)
    b = torch.tensor(rng.normal(size=(3, 8)), requires_grad=True)
    own = torch.tensor(rng.normal(size=(3, 8, 5)), requires_grad=True)
    lam = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    pulse = torch.tensor(rng.random(4) + 0.1, requires_grad=True)
    C = torch.stack([ones, unit[0] - unit[1]])
    calls: dict[str, tuple[Callable[[], Any], list[Any]]] = {
        "nnls": (lambda: stepwell.nnls(A, b, lam=0.1).x, [A, b]),
        "nnls lam": (lambda: stepwell.nnls(A, b, lam=lam).x, [A, b, lam]),
        "nnls own": (lambda: stepwell.nnls(own, b).x, [own, b]),
        "nnls own lam": (lambda: stepwell.nnls(own, b, lam=lam).x, [own, b, lam]),
        "nnls one": (lambda: stepwell.nnls(A, b[0]).x, [A, b]),
        "nnls across": (lambda: stepwell.nnls(A, b.T, axis=1).x, [A, b]),
        "nnls pulse": (lambda: stepwell.nnls(stepwell.Convolution(pulse, 5, m=8), b).x, [pulse, b]),
        "nnls weights": (lambda: stepwell.nnls(A, b, lam=0.1, weights=torch.ones(8)).x, [A, b]),
        "nnls vmap": (lambda: torch.vmap(lambda one: stepwell.nnls(A, one).x)(b), [A, b]),
        "lsq": (lambda: stepwell.lsq_linear(A, b, (-0.5, 0.5)).x, [A, b]),
        "lsq own": (lambda: stepwell.lsq_linear(own, b, (0, 0.5), lam=lam, L=C).x, [own, b, lam]),
        "lsq sum": (lambda: stepwell.lsq_linear(A, b, (0, np.inf), sum_bounds=(1, 1)).x, [A, b]),
        "lsq rows": (lambda: stepwell.lsq_linear(A, b, (-1, 1), equality=(C, torch.zeros(2))).x, [A, b]),
        "lsq gram": (lambda: stepwell.lsq_gram(A.mT @ A + unit, b @ A, (-0.5, 0.5)).x, [A, b]),
        "tikhonov": (lambda: stepwell.tikhonov(A, b.mT, 0.3).x, [A, b]),
        "tikhonov maps": (lambda: stepwell.tikhonov((lambda x: A @ x, lambda y: A.T @ y), b.mT, 0.3).x, [A, b]),
        "cg": (lambda: stepwell.cg(A.mT @ A + unit, b[:, :5].mT).x, [A, b]),
    }
    for name, (call, inputs) in calls.items():
        x = call()
        first = torch.autograd.grad((x**2).sum(), inputs, allow_unused=True, create_graph=True)
        with_graph = [g for g in first if g is not None and g.requires_grad]
        plain = torch.autograd.grad((call() ** 2).sum(), inputs, allow_unused=True)
        second = torch.autograd.grad(sum((g**2).sum() for g in with_graph), inputs, allow_unused=True)
        found = (x, *first, *plain, *second)
        yield f"torch {name}", tuple(t.detach() for t in found if t is not None)
    dot = torch.tensor(rng.normal(size=(3, 8)))
    yield "torch tangent nnls", torch.func.jvp(lambda t: stepwell.nnls(A.detach(), t).x, (b.detach(),), (dot,))
    ends = (-0.5, 0.5)
    yield (
        "torch tangent lsq",
        torch.func.jvp(lambda t: stepwell.lsq_linear(A.detach(), t, ends).x, (b.detach(),), (dot,)),
    )


def in_jax(rng: np.random.Generator) -> Iterator[Line]:
    """Solutions in programs of JAX: values, gradients, second derivatives."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return
    jax.config.update("jax_enable_x64", True)
    unit = jnp.eye(5)
    calls: dict[str, Callable[[Any, Any], Any]] = {
        "nnls": lambda A, b: stepwell.nnls(A, b, lam=0.1).x,
        "nnls weights": lambda A, b: stepwell.nnls(A, b, weights=jnp.ones(8)).x,
        "nnls vmap": lambda A, b: jax.vmap(lambda one: stepwell.nnls(A, one).x)(b),
        "lsq": lambda A, b: stepwell.lsq_linear(A, b, (-0.5, 0.5)).x,
        "lsq sum": lambda A, b: stepwell.lsq_linear(A, b, (0, np.inf), sum_bounds=(1, 1), lam=0.1).x,
        "lsq gram": lambda A, b: stepwell.lsq_gram(A.T @ A + unit, b @ A, (-0.5, 0.5)).x,
        "tikhonov": lambda A, b: stepwell.tikhonov(A, b.T, 0.3).x,
        "cg": lambda A, b: stepwell.cg(A.T @ A + unit, b[:, :5].T).x,
    }
    for _ in range(2):
        A, b = jnp.asarray(rng.normal(size=(8, 5))), jnp.asarray(rng.normal(size=(3, 8)))
        for name, call in calls.items():

            def total(A: Any, b: Any, call: Any = call) -> Any:
                return (call(A, b) ** 2).sum()

            first = jax.grad(total, argnums=(0, 1))
            second = jax.grad(lambda A, b, first=first: (first(A, b)[0] ** 2).sum())
            yield f"jax {name}", (jax.jit(call)(A, b), *first(A, b), second(A, b))


def in_blocks(rng: np.random.Generator) -> Iterator[Line]:
    """Systems in arrays of dask."""
    try:
        import dask.array as da
    except ImportError:
        return
    A, b = rng.normal(size=(6, 4)), da.from_array(rng.normal(size=(40, 6)), chunks=(10, 6))
    yield "dask nnls", (stepwell.nnls(A, b).x.compute(),)
    yield "dask nnls across", (stepwell.nnls(A, b.T, axis=1, lam=0.1).dual.compute(),)
    yield "dask lsq", (stepwell.lsq_linear(A, b, (-1, 1)).x.compute(),)


def every_run() -> Iterator[Line]:
    """All runs, of the same arguments every time."""
    rng = np.random.default_rng(3)
    for k in range(48):
        m, n, systems = int(rng.integers(1, 40)), int(rng.integers(1, 30)), int(rng.integers(1, 6))
        dtype = np.float32 if k % 3 == 0 else np.float64
        A, b = rng.normal(size=(m, n)).astype(dtype), rng.normal(size=(systems, m)).astype(dtype)
        for runs in (nonnegative, bounded, linear, smooth):
            yield from runs(rng, A, b, k)
    yield from known_problems()
    for k in range(3):
        noisy = np.cumsum(rng.normal(size=(12, 9)), axis=k % 2)
        yield "tv", (stepwell.tv(np.eye(noisy.size), noisy.ravel(), 0.5, shape=noisy.shape).x,)
    yield from fits(np.random.default_rng(11))
    yield from in_torch(rng)
    yield from in_jax(rng)
    yield from in_blocks(rng)
    shots = stepwell.apps.waveform.synthetic_shots(3, samples=80)
    yield "waveform", (stepwell.apps.waveform.deconvolve(shots).amplitudes,)


def main() -> int:
    """Write the hashes, or compare them with those of a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("file", type=pathlib.Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [f"{name}: {digest(arrays)}" for name, arrays in every_run()]
    if given.action == "write":
        given.file.write_text("\n".join(lines) + "\n")
        sys.stdout.write(f"{len(lines)} runs of {stepwell.__file__}\n")
        return 0
    before = given.file.read_text().splitlines()
    other = [f"{k}: {old} -> {new}" for k, (old, new) in enumerate(zip(before, lines)) if old != new]
    if len(before) != len(lines):
        other.append(f"{len(before)} runs before, {len(lines)} now")
    sys.stdout.write("".join(line + "\n" for line in other) + f"{len(lines)} runs, {len(other)} of other bits\n")
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())
