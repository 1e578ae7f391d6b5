"""Chapter: the derivative of a solution, with which λ is learnt. It needs PyTorch and says so where that is missing."""

from __future__ import annotations

import importlib.util

import numpy as np

from stepwell.api.krylov import tikhonov
from stepwell.lab.html import Block, Figure, Series, Text, chart
from stepwell.lab.tour.chapter import Account, Chapter, Clock, Comparison, Stage, duration
from stepwell.operators import gradient

#: Samples of a signal, and signals: for the tour, and for a quick one.
SIZES = ((100, 16), (40, 4))
#: Values of λ at which the error and its slope are shown.
LAMS = np.geomspace(0.03, 3.0, 9)
#: Step of the central difference, relative to λ; its error is of the order of its square.
STEP = 1e-4
TOL = 1e-12


def run(stage: Stage) -> Account:
    """Blur signals, solve for them at several λ, and hold the derivative of the error against differences."""
    if importlib.util.find_spec("torch") is None:
        stage.tell("PyTorch is not installed", 0.5)
        text = (
            "The solutions of stepwell.tikhonov, nnls, lsq_linear, curve_fit and minimize have derivatives in PyTorch "
        )
        return Account([], [Text(text + "and JAX. Neither this chapter nor its figure was made: it needs PyTorch.")])
    import torch

    n, count = SIZES[stage.quick]
    stage.tell("signals", 0.0)
    rng = np.random.default_rng(2)
    place = np.arange(n)
    A = np.exp(-0.5 * ((place[:, None] - place) / 3.0) ** 2) / 7.5
    steps = rng.standard_normal((n, count)) * (rng.random((n, count)) < 0.05)
    truth = steps.cumsum(axis=0)
    B = A @ truth + 0.05 * rng.standard_normal((n, count))
    matrix, data, known = (torch.as_tensor(one, dtype=torch.float64) for one in (A, B, truth))
    L = gradient((n,))

    def error(lam: torch.Tensor) -> torch.Tensor:
        x = tikhonov(matrix, data, lam, L, tol=TOL, maxiter=20 * n).x
        return ((x - known) ** 2).mean()

    errors, slopes = [], []
    with Clock() as clock:
        for number, value in enumerate(LAMS):
            stage.tell(f"λ = {value:.2f}", 0.1 + 0.7 * number / len(LAMS))
            lam = torch.tensor(value, dtype=torch.float64, requires_grad=True)
            one = error(lam)
            (slope,) = torch.autograd.grad(one, lam)
            errors.append(float(one.detach()))
            slopes.append(float(slope))
    worst = 0.0
    for value, slope in zip(LAMS[::4], slopes[::4]):
        ends = [float(error(torch.tensor(value * factor, dtype=torch.float64))) for factor in (1 + STEP, 1 - STEP)]
        worst = max(worst, abs((ends[0] - ends[1]) / (2 * STEP * value) - slope) / max(map(abs, slopes)))
    comparison = Comparison(
        f"{count} solutions of {n} unknowns and the derivative of their error in λ",
        clock.seconds / len(LAMS),
        f"the slope agrees with central differences to {worst:.0e}",
        # The difference is wrong by the third derivative times STEP²/6, and by rounding over STEP.
        worst <= 1e-6,
    )
    tangents = [
        Series("slope" if k == 0 else "", at * np.array([0.8, 1.25]), e + s * at * np.array([-0.2, 0.25]), 1, "line")
        for k, (at, e, s) in enumerate(zip(LAMS, errors, slopes))
    ]
    least = int(np.argmin(errors))
    blocks: list[Block] = [
        Text(
            f"{count} blurred and noisy signals whose truth is known. How far the solutions are from it depends on λ; "
            "the derivative goes through the solver, so that λ, or any part of a model, can be learnt by gradient "
            f"descent. {len(LAMS)} values and slopes took {duration(clock.seconds)}. The implicit-function theorem "
            "gives the slope for the price of one more solve."
        ),
        Figure(
            chart(
                [Series("mean squared error", LAMS, errors, 0, "dots"), *tangents],
                f"Mean squared error against λ with its derivative at every point; least near λ = {LAMS[least]:.2f}.",
                x_label="λ",
                y_label="error",
                x_log=True,
            ),
            f"The error by λ, and at every point the slope that automatic differentiation returns. It is least near "
            f"λ = {LAMS[least]:.2f}.",
        ),
    ]
    return Account([comparison], blocks)


CODE = """import torch, stepwell

A, b = torch.rand(100, 50, dtype=torch.float64), torch.rand(100, dtype=torch.float64)
lam = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
x = stepwell.tikhonov(A, b, lam).x
x.square().sum().backward()  # lam.grad: how the size of the solution changes with λ"""
CHAPTER = Chapter("derivative", "A derivative through a solution", run, CODE, "derivatives")
