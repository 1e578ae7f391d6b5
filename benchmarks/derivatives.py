"""What derivatives of solutions cost beside the solutions, and beside the floor: writing the gradient of A.

    python benchmarks/derivatives.py [--quick] [--parts torch,bounded,gram,churn] [--device cuda]

Ratios within one run: "backward over solution", and for Gram matrices and warm starts milliseconds beside goals. The
figures go to benchmarks/raw/derivatives.json. (Other packages: derivatives_peers.py.)
"""

from __future__ import annotations

import argparse
import os

import numpy as np
import torch
from common import interleave, medians, save, wall

import stepwell

SHAPES = [(1, 20, 8), (100, 20, 8), (1000, 20, 8), (1, 56, 40), (200, 56, 40), (1, 200, 100), (20, 200, 100)]
LARGE = [(1, 600, 300), (1, 1000, 500)]
DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


def timed(function, device):
    """A clock of a call, waiting for the device."""
    if device == "cpu":
        return wall(function)

    def called():
        function()
        torch.cuda.synchronize()

    return wall(called)


class Empty(torch.autograd.Function):
    """A solution without work, whose backward allocates what flows back: the floor of whatever autograd calls."""

    @staticmethod
    def forward(ctx, A, b):
        ctx.save_for_backward(A, b)
        return b.new_zeros(*b.shape[:-1], A.shape[-1])

    @staticmethod
    def backward(ctx, g):
        return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors)


def torch_rows(shapes, repeats, device):
    """Forward and backward of nnls in torch, own matrices. The floor: a copy of A, as large as its gradient."""
    rows = []
    for systems, m, n in shapes:
        random = np.random.default_rng(n)
        A = torch.tensor(random.normal(size=(systems, m, n)), device=device, requires_grad=True)
        b = torch.tensor(random.normal(size=(systems, m)), device=device, requires_grad=True)
        plain, into = (A.detach(), b.detach()), torch.empty_like(A)
        x = stepwell.nnls(A, b).x
        w, empty = torch.ones_like(x), Empty.apply(A, b)
        runs = {
            "solution": lambda plain=plain: stepwell.nnls(*plain),
            "empty backward": lambda x=empty, A=A, b=b, w=w: torch.autograd.grad(x, (A, b), w, retain_graph=True),
            "with graph": lambda A=A, b=b: stepwell.nnls(A, b),
            "backward": lambda x=x, A=A, b=b, w=w: torch.autograd.grad(x, (A, b), w, retain_graph=True),
            "backward in b": lambda x=x, b=b, w=w: torch.autograd.grad(x, (b,), w, retain_graph=True),
            "floor": lambda plain=plain, into=into: into.copy_(plain[0]),
        }
        rows.append({"device": device, "shape": [systems, m, n]} | measured(runs, repeats, device))
        print(rows[-1])
    return rows


def measured(runs, repeats, device):
    found = medians(interleave(repeats, **{name: timed(run, device) for name, run in runs.items()}))
    row = {"ms": {name: round(1e3 * seconds, 4) for name, seconds in found.items()}}
    return row | {"backward over solution": round(found["backward"] / found["solution"], 3)}


def bounded_rows(shapes, repeats, device):
    """Forward and backward of lsq_linear in torch, one matrix for all, with a sum and without."""
    rows = []
    for systems, m, n in shapes:
        random = np.random.default_rng(n)
        A = torch.tensor(random.normal(size=(m, n)), device=device, requires_grad=True)
        b = torch.tensor(random.normal(size=(systems, m)), device=device, requires_grad=True)
        for name, given in (("bounds", {}), ("bounds and a sum", {"sum_bounds": (1.0, 1.0)})):
            x = stepwell.lsq_linear(A, b, (0.0, 0.5), **given).x
            w, plain, into = torch.ones_like(x), (A.detach(), b.detach()), torch.empty_like(A)
            runs = {
                "solution": lambda plain=plain, given=given: stepwell.lsq_linear(*plain, (0.0, 0.5), **given),
                "backward": lambda x=x, A=A, b=b, w=w: torch.autograd.grad(x, (A, b), w, retain_graph=True),
                "floor": lambda plain=plain, into=into: into.copy_(plain[0]),
            }
            row = {"device": device, "shape": [systems, m, n], "what": name}
            rows.append(row | measured(runs, repeats, device))
            print(rows[-1])
    return rows


def image_systems(side, systems, sparsity, seed=0):
    """Normal equations of a blurred image with a penalty on its differences, as lens modelling has them: (G, c).

    A pixel of the image is dark where a normal number is below `sparsity`.
    """
    random = np.random.default_rng(seed)
    place = np.arange(side)
    line = np.exp(-0.5 * ((place[:, None] - place) / 1.5) ** 2)
    blur = np.kron(line, line)
    step = np.eye(side) - np.eye(side, k=1)
    bend = np.kron(step, np.eye(side)), np.kron(np.eye(side), step)
    penalty = sum(one.T @ one for one in bend)
    G, c = [], []
    for _ in range(systems):
        truth = 20 * np.maximum(0, random.normal(size=side * side) - sparsity)
        weights = 1 / (0.05 * (1 + random.random(side * side)))
        M = weights[:, None] * blur
        data = weights * (blur @ truth) + random.normal(size=side * side)
        G.append(M.T @ M + penalty)
        c.append(M.T @ data)
    return np.stack(G), np.stack(c)


def gram_rows(quick, repeats, device):
    """Three systems of 1290 unknowns given by normal equations: solution and gradient in G and c, cold and warm."""
    side, columns = (12, 150) if quick else (36, 1290)
    kinds = {f"image, {sparsity}": image_systems(side, 3, sparsity) for sparsity in (1.7, 1.2)}
    random = np.random.default_rng(0)
    large = random.standard_normal((3, columns * 5 // 4, columns))
    kinds["Gaussian"] = np.swapaxes(large, 1, 2) @ large, random.standard_normal((3, columns))
    return [gram_row(name, *given, repeats, device) for name, given in kinds.items()]


def least_work(G, c, x, gradient):
    """What a warm start cannot do without, by the array library: of each system the Cholesky factor of the positive
    columns, a solve, a product with G; of the gradient a solve more and two outer products as large as G."""
    sets = [torch.nonzero(one > 0)[:, 0] for one in x]

    def run():
        for k, own in enumerate(sets):
            factor = torch.linalg.cholesky_ex(G[k][own][:, own])[0]
            z = torch.cholesky_solve(c[k][own][:, None], factor)
            G[k][own].T @ z
            if gradient:
                torch.cholesky_solve(z, factor)
        if gradient:
            torch.addcmul(x[:, :, None] * c[:, None, :], c[:, :, None], x[:, None, :])

    return run


def gram_row(kind, G_, c_, repeats, device):
    G, c = (torch.tensor(array, device=device, requires_grad=True) for array in (G_, c_))
    plain, into = (G.detach(), c.detach()), torch.empty_like(G)
    box = (0.0, float("inf"))
    x = stepwell.lsq_gram(G, c, box).x
    start, w = x.detach(), torch.ones_like(x)
    # What was merged where this is in use: the solution of the evaluation before, here of a right-hand side 1 % away.
    near = stepwell.lsq_gram(plain[0], 1.01 * plain[1] + 0.01 * plain[1].flip(0), box).x

    def both(warm=None):
        return torch.autograd.grad(stepwell.lsq_gram(G, c, box, warm_start=warm).x.sum(), (G, c))

    def both_in_c(warm=None):
        return torch.autograd.grad(stepwell.lsq_gram(plain[0], c, box, warm_start=warm).x.sum(), (c,))

    runs = {
        "solution": lambda: stepwell.lsq_gram(*plain, box),
        "backward": lambda: torch.autograd.grad(x, (G, c), w, retain_graph=True),
        "solution and gradient": both,
        "the same, in c alone": both_in_c,
        "warm: the solution": lambda: both(start),
        "warm: a near solution": lambda: both(near),
        "warm: the solution, in c alone": lambda: both_in_c(start),
        "floor": lambda: into.copy_(plain[0]),
        "least work, warm": least_work(*plain, start, False),
        "least work, warm, with the gradient": least_work(*plain, start, True),
    }
    row = {"device": device, "kind": kind, "shape": list(G_.shape), "positive": [int(k) for k in (start > 0).sum(-1)]}
    row["condition"] = float(np.linalg.cond(G_[0]))
    row |= measured(runs, repeats, device)
    print(row)
    return row


def churn_rows(repeats, device):
    """600 x 1000 with λ = 1e-3, and warm starts with many wrong signs."""
    random = np.random.default_rng(1000)
    A, b = (torch.tensor(random.normal(size=shape), device=device) for shape in ((600, 1000), (600,)))
    cold = stepwell.nnls(A, b, lam=1e-3)
    unbounded = torch.linalg.lstsq(A.cpu(), b.cpu()[:, None]).solution[:, 0].to(device)
    wrong = torch.tensor(random.random(1000) < 0.5, device=device)
    starts = {
        "cold": None,
        "signs of the unbounded solution": unbounded > 0,
        "half of all, at random": wrong,
        "the solution with a tenth flipped": (cold.x > 0) ^ torch.tensor(random.random(1000) < 0.1, device=device),
        "the solution": cold.x,
    }
    runs = {name: lambda w=w: stepwell.nnls(A, b, lam=1e-3, warm_start=w) for name, w in starts.items()}
    runs["cold, without lambda"] = lambda: stepwell.nnls(A, b)
    counts = {}
    for name, run in runs.items():
        result = run()
        counts[name] = {key: int(getattr(result, key)) for key in ("insertions", "removals", "solves", "status")}
        counts[name]["difference"] = float((result.x - cold.x).abs().max())
    found = medians(interleave(repeats, **{name: timed(run, device) for name, run in runs.items()}))
    rows = [{"device": device, "start": name, "ms": round(1e3 * found[name], 3)} | counts[name] for name in runs]
    for row in rows:
        print(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", default="torch,bounded,gram,churn")
    parser.add_argument("--device", choices=DEVICES, help="one of them alone")
    given = parser.parse_args()
    quick = given.quick
    shapes, repeats = (SHAPES[:4], 3) if quick else (SHAPES + LARGE, 15)
    parts = {
        "torch": lambda device: torch_rows(shapes, repeats, device),
        "bounded": lambda device: bounded_rows(shapes[1:4], repeats, device),
        "gram": lambda device: gram_rows(quick, 5, device),
        "churn": lambda device: churn_rows(3, device),
    }
    for name in given.parts.split(","):
        for device in [given.device] if given.device else DEVICES:
            figures = {"load of the machine before": os.getloadavg()[0], "rows": parts[name](device)}
            save("derivatives", f"{name}, {device}{', quick' if quick else ''}", figures)


if __name__ == "__main__":
    main()
