"""NIST's certified regressions: parameters, deviations, one ragged batch."""

from __future__ import annotations

import numpy as np
import pytest
from nist_fits import MODELS, Regression, all_regressions

import stepwell


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("name", MODELS)
def test_certified_parameters(name, start):
    """Four digits from either start. A residual of rounding alone (Lanczos1, 1e-25) may end without success."""
    p = Regression(name)
    r = stepwell.least_squares(p.residual, p.starts[start], jac=p.jacobian)
    assert p.digits(r.x) >= 4
    assert r.success or name == "Lanczos1"
    assert r.rank == p.n
    if name != "Lanczos1":
        assert r.chi2 == pytest.approx(p.rss, rel=1e-7)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "Lanczos1"])
def test_certified_deviations(name):
    """Six digits at the minimum itself: deviations are as exact as x is near it, so that ftol is small here."""
    p = Regression(name)
    r = stepwell.least_squares(p.residual, p.starts[1], jac=p.jacobian, ftol=1e-17, gtol=1e-15)
    np.testing.assert_allclose(r.stderr, p.deviation, rtol=1e-6)
    # (Three exponentials, columns of condition 2e3: rounding of y, 1e-16, moves x by up to 1e-6 there.)
    np.testing.assert_allclose(r.x, p.certified, rtol=1e-6)


def ragged():
    """All 54 fits as one batch: points are padded and masked, parameters padded and fixed."""
    sets = [(p, start) for p in all_regressions() for start in p.starts]
    m, n = max(p.m for p, _ in sets), max(p.n for p, _ in sets)
    y, mask = np.zeros((len(sets), m)), np.zeros((len(sets), m), bool)
    p0, fixed = np.ones((len(sets), n)), np.ones((len(sets), n), bool)
    for i, (p, start) in enumerate(sets):
        y[i, : p.m], mask[i, : p.m] = p.y, True
        p0[i, : p.n], fixed[i, : p.n] = start, False
    return sets, y, mask, p0, fixed


def of_rows(sets, chosen, m, n):
    def f(x, p, rows):
        out = np.full((len(p), m), np.nan)
        for k, row in enumerate(rows):
            fit = sets[chosen[row]][0]
            out[k, : fit.m] = fit.model(p[k, : fit.n], fit.x)
        return out

    def jac(x, p, rows):
        out = np.zeros((len(p), m, n))
        for k, row in enumerate(rows):
            fit = sets[chosen[row]][0]
            out[k, : fit.m, : fit.n] = fit.jacobian(p[k, : fit.n])
        return out

    return f, jac


def test_one_ragged_batch_has_the_bits_of_each_alone():
    sets, y, mask, p0, fixed = ragged()
    m, n = y.shape[1], p0.shape[1]
    f, jac = of_rows(sets, range(len(sets)), m, n)
    whole = stepwell.curve_fit(f, None, y, p0, jac=jac, mask=mask, fixed=fixed, maxiter=1500)
    for i, (p, _) in enumerate(sets):
        assert p.digits(whole.x[i, : p.n]) >= 4, p.name
    for i in range(0, len(sets), 5):
        f, jac = of_rows(sets, [i], m, n)
        some = slice(i, i + 1)
        alone = stepwell.curve_fit(
            f, None, y[some], p0[some], jac=jac, mask=mask[some], fixed=fixed[some], maxiter=1500
        )
        assert np.array_equal(alone.x[0], whole.x[i])
        assert np.array_equal(alone.pcov[0], whole.pcov[i])
        assert (alone.nfev[0], alone.status[0]) == (whole.nfev[i], whole.status[i])
