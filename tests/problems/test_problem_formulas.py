"""Values against the formulas term by term, gradients against differences and automatic differentiation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from problem_cases import ALL, SMALL, points

from stepwell import problems


def triangles(problem, border=None, width=1.0, height=1.0):
    """Yield (i, |gradient|^2, values at the corners, lower?) of all triangles; border(i, j) is v outside."""
    nx, ny = problem.parameters["nx"], problem.parameters["ny"]
    hx, hy = width / (nx + 1), height / (ny + 1)

    def of(v):
        def at(i, j):
            if 1 <= i <= nx and 1 <= j <= ny:
                return v[(j - 1) * nx + i - 1]
            return border(i, j) if border else 0.0

        for j in range(ny + 1):
            for i in range(nx + 1):
                a, b, c = at(i, j), at(i + 1, j), at(i, j + 1)
                yield i, ((b - a) / hx) ** 2 + ((c - a) / hy) ** 2, (a, b, c), True
        for j in range(1, ny + 2):
            for i in range(1, nx + 2):
                a, b, c = at(i, j), at(i - 1, j), at(i, j - 1)
                yield i, ((a - b) / hx) ** 2 + ((a - c) / hy) ** 2, (a, b, c), False

    return of, hx, hy


def naive_rosenbrock(x, problem):
    return sum(100.0 * (x[i + 1] - x[i] ** 2) ** 2 + (1.0 - x[i]) ** 2 for i in range(0, len(x), 2))


def naive_beale(x, problem):
    y = (1.5, 2.25, 2.625)
    return sum((y[k] - x[i] * (1.0 - x[i + 1] ** (k + 1))) ** 2 for i in range(0, len(x), 2) for k in range(3))


def naive_powell(x, problem):
    return sum(
        (a + 10.0 * b) ** 2 + 5.0 * (c - d) ** 2 + (b - 2.0 * c) ** 4 + 10.0 * (a - d) ** 4
        for a, b, c, d in x.reshape(-1, 4)
    )


def naive_wood(x, problem):
    return sum(
        100.0 * (a**2 - b) ** 2
        + (a - 1.0) ** 2
        + 90.0 * (c**2 - d) ** 2
        + (c - 1.0) ** 2
        + 10.1 * ((b - 1.0) ** 2 + (d - 1.0) ** 2)
        + 19.8 * (b - 1.0) * (d - 1.0)
        for a, b, c, d in x.reshape(-1, 4)
    )


def naive_trigonometric(x, problem):
    cosines = sum(math.cos(v) for v in x)
    return sum((len(x) - cosines + (i + 1) * (1.0 - math.cos(v)) - math.sin(v)) ** 2 for i, v in enumerate(x))


def naive_torsion(x, problem):
    of, hx, hy = triangles(problem)
    return hx * hy * (sum(s for _, s, _, _ in of(x)) / 4.0 - problem.parameters["c"] * math.fsum(x))


def naive_journal_bearing(x, problem):
    e, nx = problem.parameters["e"], problem.parameters["nx"]
    of, hx, hy = triangles(problem, width=2.0 * math.pi, height=2.0 * problem.parameters["b"])
    w = [(1.0 + e * math.cos(i * hx)) ** 3 for i in range(nx + 2)]
    energy = sum((2.0 * w[i] + (w[i + 1] if low else w[i - 1])) / 12.0 * s for i, s, _, low in of(x))
    return hx * hy * (energy - e * sum(math.sin((k % nx + 1) * hx) * v for k, v in enumerate(x)))


def enneper(x, y):
    """Solve for Enneper's parameters by a general root finder."""
    from scipy.optimize import root

    def equations(p):
        u, s = p
        return [u + u * s**2 - u**3 / 3.0 - x, -s - u**2 * s + s**3 / 3.0 - y]

    u, s = root(equations, [x, -y], tol=1e-14).x
    return u**2 - s**2


def naive_minimal_surface(x, problem):
    nx, ny = problem.parameters["nx"], problem.parameters["ny"]
    of, hx, hy = triangles(problem, lambda i, j: enneper(i / (nx + 1) - 0.5, j / (ny + 1) - 0.5))
    return hx * hy / 2.0 * sum(math.sqrt(1.0 + s) for _, s, _, _ in of(x))


def naive_composites(x, problem):
    lam = problem.parameters["lam"]
    t1, t2 = math.sqrt(lam), math.sqrt(4.0 * lam)  # mu1 = 1, mu2 = 2

    def psi(t):
        if t <= t1:
            return t * t
        return 2.0 * t1 * t - lam if t < t2 else t * t / 2.0 + lam

    of, hx, hy = triangles(problem)
    return hx * hy * (sum(psi(math.sqrt(s)) for _, s, _, _ in of(x)) / 2.0 + math.fsum(x))


def naive_combustion(x, problem):
    of, hx, hy = triangles(problem)
    lam = problem.parameters["lam"]
    return hx * hy / 2.0 * sum(s / 2.0 - lam / 3.0 * sum(map(math.exp, at)) for _, s, at, _ in of(x))


def naive_ginzburg_landau_1d(x, problem):
    """The coefficients at T = 5 as the literature's code prints them."""
    n = len(x)
    n1 = n // 4
    total = 0.0
    for i in range(n):
        middle = n1 <= i < n - n1
        h = 2.0 / (n - 2 * n1) if middle else 2.2 / n1
        alpha = -1.81660146318326 if middle else 0.177930695526769
        beta = 2.26019042922169e-4 if middle else 6.56136285822701e-6
        a, b = x[i], x[(i + 1) % n]
        total += h * alpha / 3.0 * (b**2 + a * b + a**2) + 305.203092233809 * (b - a) ** 2 / h
        total += h * beta / 10.0 * sum(b**k * a ** (4 - k) for k in range(5))
    return total


def naive_lennard_jones(x, problem):
    atoms = x.reshape(-1, problem.parameters["ndim"])
    distances = [math.dist(a, b) for i, a in enumerate(atoms) for b in atoms[:i]]
    return sum(r**-12 - 2.0 * r**-6 for r in distances)


def naive_ginzburg_landau_2d(x, problem):
    nx, ny, nv, kappa = (problem.parameters[key] for key in ("nx", "ny", "nv", "kappa"))
    hx, hy = math.sqrt(nv / 2.0) * 3.0 / nx, math.sqrt(nv / 2.0) * 3.0 * math.sqrt(3.0) / ny
    re, im, a1, a2 = x.reshape(4, ny, nx)
    v = re + 1j * im
    total = 0.0
    for j in range(ny):
        for i in range(nx):
            wrap = i + 1 == nx
            right = v[j, (i + 1) % nx] * (np.exp(2j * math.pi * nv * j / ny) if wrap else 1.0)
            top = v[(j + 1) % ny, i]
            a2_right = a2[j, (i + 1) % nx] + (2.0 * math.pi * nv / (ny * hy) if wrap else 0.0)
            density = abs(v[j, i]) ** 2
            total += density**2 / 2.0 - density
            total += abs(right - v[j, i] * np.exp(1j * hx * a1[j, i])) ** 2 / hx**2
            total += abs(top - v[j, i] * np.exp(1j * hy * a2[j, i])) ** 2 / hy**2
            total += kappa**2 * ((a2_right - a2[j, i]) / hx - (a1[(j + 1) % ny, i] - a1[j, i]) / hy) ** 2
    return total / (nx * ny)


@ALL
def test_value_against_the_formula_term_by_term(name):
    problem = problems.get(name, **SMALL[name])
    naive = globals()["naive_" + name.replace("-", "_")]
    for x in points(problem, 3):
        # A few hundred terms round to 1e-13 of the largest partial sum; the 1-D superconductor's
        # coefficients are printed to 15 digits.
        assert float(problem.fun(x)[0]) == pytest.approx(naive(x, problem), rel=1e-11, abs=1e-12)


@ALL
def test_gradient_against_central_differences(name):
    problem = problems.get(name, **SMALL[name])
    step = 1e-4
    for x in points(problem, 3, seed=1):
        f, g = problem.fun(x)
        eye = np.eye(problem.n)

        def central(h, x=x, eye=eye):
            return (problem.fun(x + h * eye)[0] - problem.fun(x - h * eye)[0]) / (2.0 * h)

        coarse, fine = central(2.0 * step), central(step)
        # Their difference is three times the truncation error of the finer one; rounding adds eps |f| / h,
        # and a hundred times that for the length of the sums and the size of their terms.
        bound = np.abs(coarse - fine) + 100.0 * np.finfo(float).eps * max(1.0, abs(float(f))) / step
        assert np.all(np.abs(fine - g) <= bound)


@ALL
def test_gradient_against_automatic_differentiation(name):
    torch = pytest.importorskip("torch")
    problem = problems.get(name, **SMALL[name])
    x = torch.tensor(points(problem, 1, seed=2)[0], requires_grad=True)
    f, g = problem.fun(x)
    (automatic,) = torch.autograd.grad(f, x)
    scale = float(torch.abs(automatic).max())
    assert float(torch.abs(automatic - g.detach()).max()) <= 1e-13 * scale


@ALL
def test_start_and_bounds(name):
    problem = problems.get(name, **SMALL[name])
    assert problem.name == name
    assert problem.x0.shape == (problem.n,)
    assert problem.x0.dtype == np.float64
    assert np.all(np.isfinite(problem.fun(problem.x0)[1]))
    assert (problem.bounds is not None) == (name in ("torsion", "journal-bearing"))
    if problem.bounds is not None:
        lower, upper = problem.bounds
        assert lower.shape == upper.shape == (problem.n,)
        assert np.all(lower <= problem.x0)
        assert np.all(problem.x0 <= upper)


def test_distance_bounds_of_torsion():
    problem = problems.get("torsion", nx=4, ny=3)
    expected = [[min(min(i, 5 - i) / 5, min(j, 4 - j) / 4) for i in range(1, 5)] for j in range(1, 4)]
    np.testing.assert_allclose(problem.x0.reshape(3, 4), expected, rtol=1e-15)
    np.testing.assert_array_equal(problem.bounds[0], -problem.x0)
    np.testing.assert_array_equal(problem.bounds[1], problem.x0)


def test_trigonometric_keeps_its_digits_near_the_solution():
    """Near 0, r_i = -x_i + O(x^2): f / |x|^2 tends to 1, where n - sum cos(x_j) has no digit left."""
    problem = problems.get("trigonometric", n=8)
    x = np.full(8, 1e-12)
    assert float(problem.fun(x)[0]) == pytest.approx(8e-24, rel=1e-10)
