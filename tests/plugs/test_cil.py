"""The algorithm for CIL, by a stub of its interface: CIL comes without wheels."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest


class Algorithm:
    """What CIL's class does with an algorithm: its loop, its notes of values, its end by StopIteration."""

    def __init__(self, update_objective_interval=1, max_iteration=None):
        self.update_objective_interval, self.iteration, self.configured = update_objective_interval, -1, False
        self.max_iteration = max_iteration
        self.loss = []

    def should_stop(self):
        return self.max_iteration is not None and self.iteration >= self.max_iteration

    def __iter__(self):
        return self

    def __next__(self):
        if self.should_stop():
            raise StopIteration
        assert self.configured
        if self.iteration == -1:
            self.update_objective()
        else:
            self.update()
            if self.iteration % self.update_objective_interval == 0:
                self.update_objective()
        self.iteration += 1
        return self.iteration

    def run(self, iterations):
        for _ in zip(range(iterations + (self.iteration == -1)), self):
            pass

    def get_output(self):
        return self.x


class Container:
    """A DataContainer: an array that is asked for and filled."""

    def __init__(self, array):
        self.array = np.array(array, np.float32)

    def as_array(self):
        return self.array

    def fill(self, array):
        self.array[...] = array

    def copy(self):
        return Container(self.array)


class LeastSquares:
    """½‖Wx − b‖², as CIL's functions are called."""

    def __init__(self, W, b):
        self.W, self.b = W, b

    def __call__(self, x):
        return 0.5 * float(((self.W @ x.as_array().astype(float).ravel() - self.b) ** 2).sum())

    def gradient(self, x):
        slope = self.W.T @ (self.W @ x.as_array().astype(float).ravel() - self.b)
        return Container(slope.reshape(x.as_array().shape))


@pytest.fixture
def plug(monkeypatch):
    names = ("cil", "cil.optimisation", "cil.optimisation.algorithms")
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules[names[-1]].Algorithm = Algorithm
    monkeypatch.delitem(sys.modules, "stepwell.plugs.cil", raising=False)
    import stepwell.plugs.cil as module

    yield module
    sys.modules.pop("stepwell.plugs.cil", None)


def test_a_bounded_image(plug):
    """x is single precision, as CIL's containers are: values agree to its rounding, 1e-6."""
    import scipy.optimize

    random = np.random.default_rng(1)
    W, b = random.normal(size=(20, 6)), random.normal(size=20)
    algorithm = plug.LBFGSB(Container(np.zeros((2, 3))), LeastSquares(W, b), bounds=(0.0, 0.3), options={"gtol": 1e-4})
    algorithm.run(3)
    assert algorithm.iteration == 3
    algorithm.run(100)
    assert algorithm.solver.done
    assert algorithm.iteration < 100  # converged: the loop has ended
    assert np.all(np.diff(algorithm.loss) <= 0)
    best = scipy.optimize.lsq_linear(W, b, (0.0, 0.3))
    np.testing.assert_allclose(algorithm.get_output().as_array().ravel(), best.x, atol=1e-4)
    np.testing.assert_allclose(algorithm.loss[-1], best.cost, rtol=1e-6)
    found = algorithm.objective_function(algorithm.get_output())
    np.testing.assert_allclose(found, algorithm.loss[-1], rtol=1e-6)
