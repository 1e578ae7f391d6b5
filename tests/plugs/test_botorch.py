"""BoTorch with our optimizer: fits, their statuses, and candidates of acquisition functions."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("botorch")

from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.optim.core import OptimizationStatus
from gpytorch.mlls import ExactMarginalLogLikelihood

from stepwell.plugs.botorch import fit_mll, gen_candidates, optimization_status
from stepwell.quasi_newton.status import Status

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what BoTorch is made of


def model():
    generator = torch.Generator().manual_seed(3)
    X = torch.rand(12, 2, generator=generator, dtype=torch.float64)
    Y = torch.sin(5 * X[:, :1]) + torch.cos(3 * X[:, 1:])
    gp = SingleTaskGP(X, Y)
    return ExactMarginalLogLikelihood(gp.likelihood, gp)


def likelihood(mll):
    mll.train()
    with torch.no_grad():
        return float(mll(mll.model(*mll.model.train_inputs), mll.model.train_targets))


def test_a_fit_is_as_good_as_botorchs_own():
    """The marginal likelihood is flat at its maximum: its value agrees to the square of what hyperparameters do."""
    ours, own = model(), model()
    fit_gpytorch_mll(ours, optimizer=fit_mll)
    fit_gpytorch_mll(own)
    assert likelihood(ours) >= likelihood(own) - 1e-6


def test_limits_are_stopped_and_nothing_is_fitted_again():
    mll = model()
    mll.train()
    told = []
    result = fit_mll(mll, options={"maxiter": 2}, callback=lambda parameters, step: told.append(step.step))
    assert result.status is OptimizationStatus.STOPPED
    assert (result.step, told) == (2, [1, 2])
    assert fit_mll(mll, timeout_sec=0.0).status is OptimizationStatus.STOPPED
    assert fit_mll(mll).status is OptimizationStatus.SUCCESS
    fit_gpytorch_mll(model(), optimizer=fit_mll, optimizer_kwargs={"options": {"maxiter": 2}})
    ends = {status: optimization_status(status) for status in Status}
    assert ends[Status.LINE_SEARCH] is ends[Status.NONFINITE_START] is OptimizationStatus.FAILURE
    assert ends[Status.TIME_LIMIT] is ends[Status.CALLBACK] is OptimizationStatus.STOPPED


def test_candidates_are_as_good_as_botorchs_own_with_fewer_rows():
    """From the same starts; rows are evaluations of one start each."""
    mll = model()
    mll.eval()
    rows = []

    class Counted(LogExpectedImprovement):
        def forward(self, X):
            rows.append(len(X))
            return super().forward(X)

    acquisition = Counted(mll.model, best_f=0.5)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    starts = torch.rand(16, 1, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = []
    for given in ({"gen_candidates": gen_candidates}, {}):
        rows.clear()
        _, value = optimize_acqf(
            acquisition, bounds, 1, num_restarts=16, batch_initial_conditions=starts.clone(), **given
        )
        found.append((float(value), sum(rows)))
    assert found[0][0] >= found[1][0] - 1e-6
    assert rows  # BoTorch's own went through the same function


def test_fixed_features_and_bounds_hold():
    centre = torch.tensor([0.3, 0.9, 0.2], dtype=torch.float64)

    def acquisition(X):
        return -((X - centre) ** 2).sum((-1, -2))

    starts = torch.full((4, 2, 3), 0.5, dtype=torch.float64)
    candidates, values = gen_candidates(
        starts, acquisition, 0.0, torch.tensor([1.0, 0.6, 1.0]), fixed_features={0: 0.7, -1: torch.full((4,), 0.1)}
    )
    np.testing.assert_allclose(candidates, torch.tensor([0.7, 0.6, 0.1]).expand(4, 2, 3), atol=1e-6)
    np.testing.assert_allclose(values, acquisition(candidates))
    alone, value = gen_candidates(starts[0], acquisition, 0.0, 1.0)
    assert alone.shape == (2, 3)
    np.testing.assert_allclose(value, [0.0], atol=1e-10)
    with pytest.raises(ValueError, match=r"equality_constraints is .*; allowed: None: bounds alone"):
        gen_candidates(starts, acquisition, 0.0, 1.0, equality_constraints=[(torch.tensor([0]), torch.ones(1), 1.0)])
