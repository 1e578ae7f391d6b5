"""check_jac: right derivatives pass, wrong ones are named."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell

T = np.linspace(0, 3, 20)


def residual(x):
    return x[..., :1] * np.exp(-x[..., 1:] * T) - 1 if np.ndim(x) > 1 else x[0] * np.exp(-x[1] * T) - 1


def jacobian(x):
    a, k = x[..., 0, None], x[..., 1, None]
    return np.stack([np.exp(-k * T), -a * T * np.exp(-k * T)], axis=-1)


def test_right_and_wrong():
    right = stepwell.check_jac(residual, np.array([2.0, 1.0]), jacobian)
    assert right
    assert right.error < 1e-8

    def wrong(x):
        J = jacobian(x)
        J[7, 1] *= 1.01
        return J

    found = stepwell.check_jac(residual, np.array([2.0, 1.0]), wrong)
    assert not found
    assert found.worst == (7, 1)


def test_of_a_batch_at_bounds():
    points = np.array([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]])
    found = stepwell.check_jac(residual, points, jacobian, bounds=(0, 3))
    assert found
    assert found.jac.shape == (3, 20, 2)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="rtol"):
        stepwell.check_jac(residual, np.array([2.0, 1.0]), jacobian, rtol=-1)
