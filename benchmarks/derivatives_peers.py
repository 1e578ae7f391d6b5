"""Derivatives of solutions beside jaxnnls and cvxpylayers, the optimizer beside torch.optim.LBFGS, and an acquisition
function beside BoTorch's own optimizer.

    python benchmarks/derivatives_peers.py [--quick] [--parts jax,layers,optimizer,acquisition]

Ratios within one run; packages that are not installed are left out. The figures go to
benchmarks/raw/derivatives_peers.json.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
import torch
from common import interleave, medians, save, wall
from derivatives import SHAPES, Empty

import stepwell
import stepwell.torch

#: With a λ: two blurs, and a random matrix with more columns than rows.
DAMPED = [(1, 432, 432, 1e-3), (4, 432, 432, 1e-3), (1, 600, 1000, 1e-3)]
PARTS = ("x", "gradient")


def blur(n):
    """A row of Gaussians of width 2, as a blur has them."""
    place = np.arange(n)
    return np.exp(-0.5 * ((place[:, None] - place) / 2.0) ** 2)


def jax_rows(shapes, repeats):
    """jit(vmap(nnls)) and its gradient in b, one matrix for all; jaxnnls beside it where it is installed.

    A shape with a fourth entry has that λ, a square one a blur as its matrix. (jaxnnls is given AᵀA + λ²I.)
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    try:
        import jaxnnls
    except ImportError:
        jaxnnls = None
    rows = []
    for systems, m, n, *damped in shapes:
        random = np.random.default_rng(n)
        lam = damped[0] if damped else 0.0
        matrix = blur(n) if m == n else random.normal(size=(m, n))
        right = random.normal(size=(systems, m))
        if m == n:
            right = np.maximum(0, random.normal(size=(systems, n)) - 1) @ matrix.T + 0.01 * right
        A, b = jax.numpy.asarray(matrix), jax.numpy.asarray(right)
        ways = {"ours": lambda b, A=A, lam=lam: stepwell.nnls(A, b, lam=lam).x}
        if jaxnnls is not None:
            gram = A.T @ A + lam**2 * jax.numpy.eye(n)
            ways["jaxnnls"] = lambda b, A=A, gram=gram: jaxnnls.solve_nnls_primal(gram, A.T @ b)
        runs = {}
        for name, way in ways.items():
            value = jax.jit(jax.vmap(way))
            slope = jax.jit(jax.vmap(jax.grad(lambda b, way=way: way(b).sum())))
            for part, call in (("x", value), ("gradient", slope)):
                jax.block_until_ready(call(b))
                runs[f"{name} {part}"] = wall(lambda call=call, b=b: jax.block_until_ready(call(b)))
        found = medians(interleave(repeats if n < 400 else 3, **runs))
        row = {"shape": [systems, m, n], "lam": lam, "ms": {k: 1e3 * v for k, v in found.items()}}
        row["gradient over solution"] = found["ours gradient"] / found["ours x"]
        if jaxnnls is not None:
            row |= {f"jaxnnls over ours, {part}": found[f"jaxnnls {part}"] / found[f"ours {part}"] for part in PARTS}
        rows.append(row)
        print(rows[-1])
    return rows


def acquisition_rows(repeats):
    """Sixty-four restarts of an acquisition function, beside BoTorch's own where it is installed: rows and seconds."""
    try:
        from botorch.acquisition import LogExpectedImprovement
        from botorch.fit import fit_gpytorch_mll
        from botorch.generation import gen_candidates_scipy
        from botorch.models import SingleTaskGP
        from gpytorch.mlls import ExactMarginalLogLikelihood

        from stepwell.plugs.botorch import gen_candidates
    except ImportError:
        print("BoTorch is not installed")
        return []
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(30, 4, generator=generator, dtype=torch.float64)
    Y = (torch.sin(5 * X[:, :1]) + torch.cos(3 * X[:, 1:2]) - (X[:, 2:] - 0.4).square().sum(1, keepdim=True)).detach()
    model = SingleTaskGP(X, Y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    counted = []

    class Counted(LogExpectedImprovement):
        def forward(self, X):
            counted.append(len(X))
            return super().forward(X)

    acquisition = Counted(model, best_f=Y.max())
    starts = torch.rand(64, 1, 4, generator=generator, dtype=torch.float64)
    ways = {"ours": gen_candidates, "botorch": gen_candidates_scipy}
    figures = {}
    for name, way in ways.items():
        counted.clear()
        _, values = way(starts, acquisition, 0.0, 1.0)
        figures[name] = {"rows": sum(counted), "calls": len(counted), "best": float(values.max())}
    found = medians(
        interleave(repeats, **{name: wall(lambda f=f: f(starts, acquisition, 0.0, 1.0)) for name, f in ways.items()})
    )
    for name, seconds in found.items():
        figures[name]["seconds"] = seconds
    figures["botorch over ours"] = found["botorch"] / found["ours"]
    print(figures)
    return figures


def layer_rows(repeats):
    """Thirty-two systems, forward and backward, beside cvxpylayers where it is installed.

    "seconds" are those of one call after a pause, when caches hold what others have done; "in a row" those of a call
    among others like it, as training has them. The floor is what neither can be without: the compiled solution and
    gradient, and a function of PyTorch's that does nothing.
    """
    try:
        import cvxpy
        import diffcp  # noqa: F401  what solves them
        from cvxpylayers.torch import CvxpyLayer
    except ImportError:
        print("cvxpylayers, or diffcp, is not installed")
        return []
    rows = []
    for m, n in ((20, 8), (56, 40)):
        random = np.random.default_rng(n)
        A = torch.tensor(random.normal(size=(32, m, n)), requires_grad=True)
        b = torch.tensor(random.normal(size=(32, m)), requires_grad=True)
        a_, b_, x_ = cvxpy.Parameter((m, n)), cvxpy.Parameter(m), cvxpy.Variable(n, nonneg=True)
        problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(a_ @ x_ - b_)))
        layer = CvxpyLayer(problem, parameters=[a_, b_], variables=[x_])
        runs = {
            "ours": wall(lambda A=A, b=b: torch.autograd.grad(stepwell.nnls(A, b).x.sum(), (A, b))),
            "cvxpylayers": wall(lambda A=A, b=b, f=layer: torch.autograd.grad(f(A, b)[0].sum(), (A, b))),
        }
        runs["floor"] = wall(layer_floor(A, b))
        for run in runs.values():
            run()
        found, in_a_row = ({name: [] for name in runs} for _ in range(2))
        for _ in range(repeats):
            for name, run in runs.items():
                time.sleep(0.2)  # threads of the other one still look for work for a while
                found[name].append(run())
                calls = 1 if name == "cvxpylayers" else 50
                in_a_row[name].append(sum(run() for _ in range(calls)) / calls)
        found, in_a_row = medians(found), medians(in_a_row)
        row = {"shape": [32, m, n], "seconds": found, "ratio": found["cvxpylayers"] / found["ours"]}
        rows.append(row | {"in a row": in_a_row, "ratio in a row": in_a_row["cvxpylayers"] / in_a_row["ours"]})
        print(rows[-1])
    return rows


def layer_floor(A, b):
    """Return a call of what is compiled of ours alone, and of an empty function of PyTorch's."""
    from stepwell import _core
    from stepwell.common.threads import default_threads
    from stepwell.lsq import host
    from stepwell.lsq.arguments import check
    from stepwell.lsq.job import make_job

    plain = check(A.detach().numpy(), b.detach().numpy())
    answers, threads = host.find_answers(plain), default_threads()
    job = bytes(make_job(plain, host._address, plain.matrix, plain.b, None, answers))
    g, to_a, to_b = np.ones_like(answers.x), np.empty_like(plain.matrix), np.empty_like(plain.b)

    def run():
        _core.nnls_solve(job, False, plain.form_gram, threads)
        _core.nnls_pull_back(plain.matrix, plain.b, 0.0, answers.x, g, to_a, to_b, threads)
        torch.autograd.grad(Empty.apply(A, b).sum(), (A, b))

    return run


def optimizer_rows(quick):
    """Evaluations and seconds a step beside torch.optim.LBFGS on a chained Rosenbrock function, on each device.

    What the closure takes by itself, as often, is measured beside them: "own" is the rest, and "the closure alone" over
    ours the most that any optimizer could be faster. "captured" is ours with the closure as a CUDA graph. The way to
    the loss that PyTorch's has reached, in steps of five iterations, is timed as well.
    """
    rows = []
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        for n in (100, 10_000) if quick or device == "cpu" else (100, 10_000, 1_000_000):
            names = ["ours", "torch"] + ["captured"] * (device == "cuda")
            found = {name: optimizer_row(name, n, device) for name in names}
            goal = found["torch"]["loss"]
            for name, row in found.items():
                row["ms to the loss"] = 1e3 * float(np.median([seconds_to(goal, name, n, device) for _ in range(3)]))
                print(row)
            ratios = {"device": device, "n": n}
            for name in (name for name in names if name != "torch"):
                for what in ("ms a step", "own ms a step", "ms to the loss"):
                    ratios[f"torch over {name}, {what}"] = found["torch"][what] / found[name][what]
            ratios["torch over the closure alone, ms a step"] = (
                found["torch"]["ms a step"] / found["torch"]["the closure alone, ms a step"]
            )
            ratios["evaluations, ours over torch"] = found["ours"]["evaluations"] / found["torch"]["evaluations"]
            print(ratios)
            rows += [*found.values(), ratios]
    return rows


def optimizer_of(name, n, device, max_iter):
    """An optimizer, its closure, and the list of the closure's calls."""
    options = {"max_iter": max_iter, "history_size": 10, "tolerance_grad": 0, "tolerance_change": 0}
    options |= {"line_search_fn": "strong_wolfe"} if name == "torch" else {"capture": name == "captured"}
    x = torch.nn.Parameter(torch.full((n,), -1.0, dtype=torch.float64, device=device))
    optimizer = (torch.optim.LBFGS if name == "torch" else stepwell.torch.LBFGSB)([x], **options)
    calls = []

    def closure():
        optimizer.zero_grad()
        loss = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
        loss.backward()
        calls.append(1)
        return loss

    return optimizer, closure, calls


def seconds_to(goal, name, n, device):
    """From the first step on, in steps of five iterations."""
    optimizer, closure, _ = optimizer_of(name, n, device, 5)
    optimizer.step(closure)  # what is made once is not counted
    start = time.perf_counter()
    for _ in range(100):
        if float(optimizer.step(closure).detach()) <= goal:
            break
    return time.perf_counter() - start


def optimizer_row(name, n, device, rounds=5):
    """Five runs of five steps each from the same start; the median."""
    seconds, alone = [], []
    for _ in range(rounds):
        optimizer, closure, calls = optimizer_of(name, n, device, 20)

        def made(optimizer=optimizer, calls=calls):
            return optimizer._engine.nfev if name == "captured" else len(calls)

        optimizer.step(closure)  # what is made once is not counted
        before = made()
        start = time.perf_counter()
        for _ in range(5):
            last = optimizer.step(closure)
        last = float(last.detach())
        seconds.append(time.perf_counter() - start)
        evaluations = made() - before
        start = time.perf_counter()
        for _ in range(evaluations):
            value = closure()
        float(value.detach())
        alone.append(time.perf_counter() - start)
    row = {"device": device, "n": n, "who": name, "evaluations": evaluations, "loss": last}
    whole, own = float(np.median(seconds)), float(np.median(np.subtract(seconds, alone)))
    row |= {"ms a step": 200 * whole, "own ms a step": 200 * own}
    return row | {"the closure alone, ms a step": 200 * float(np.median(alone))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", default="jax,layers,optimizer,acquisition")
    given = parser.parse_args()
    quick = given.quick
    shapes, repeats = (SHAPES[:4], 3) if quick else (SHAPES + DAMPED, 7)
    parts = {
        "jax": lambda: jax_rows(shapes, repeats),
        "layers": lambda: layer_rows(repeats),
        "optimizer": lambda: optimizer_rows(quick),
        "acquisition": lambda: acquisition_rows(repeats),
    }
    where = "quick" if quick else "cuda" if torch.cuda.is_available() else "cpu"
    for name in given.parts.split(","):
        try:
            figures = {"load of the machine before": os.getloadavg()[0], "rows": parts[name]()}
        except ImportError as error:
            print(f"{name}: {error.name} is not installed")
        else:
            save("derivatives_peers", f"{name}, {where}", figures)


if __name__ == "__main__":
    main()
