"""The rules for λ against brute force: dense solves, and a singular value decomposition for tomography."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy.optimize import OptimizeWarning

import stepwell
from stepwell.apps import tomography
from stepwell.krylov import selection


def blurred(size: int = 48):
    """A smooth blur, a signal with edges and 1 % noise: ill-posed, so that the rules have something to choose."""
    random = np.random.default_rng(5)
    grid = np.arange(size)
    A = np.exp(-0.5 * ((grid[:, None] - grid) / 2.0) ** 2)
    X = np.stack([(grid > 10) & (grid < 25), np.sin(grid / 5.0) + 1, np.exp(-(((grid - 30) / 6.0) ** 2))], axis=1)
    clean = A @ X.astype(float)
    E = random.normal(size=clean.shape) * 0.01 * np.linalg.norm(clean, axis=0) / np.sqrt(size)
    return A, clean + E, np.linalg.norm(E, axis=0)


def dense(A, B, lam, L):
    """‖Ax − b‖² and ‖Lx‖² of every column of B, and the matrix that takes b to A x."""
    solved = np.linalg.solve(A.T @ A + lam**2 * L.T @ L, A.T)
    X = solved @ B
    return np.sum((A @ X - B) ** 2, axis=0), np.sum((L @ X) ** 2, axis=0), A @ solved


def bend_of(lams, residuals, seminorms):
    """Curvature of the L-curve by differences, −∞ where neither norm moves and at the ends of the grid."""
    t, rho, eta = np.log(lams), 0.5 * np.log(residuals), 0.5 * np.log(seminorms)
    d_rho, d_eta = np.gradient(rho, t, axis=0), np.gradient(eta, t, axis=0)
    speed = np.hypot(d_rho, d_eta)
    bend = d_rho * np.gradient(d_eta, t, axis=0) - np.gradient(d_rho, t, axis=0) * d_eta
    bend = np.where(speed > 1e-3, bend / np.maximum(speed, 1e-3) ** 3, -np.inf)
    bend[:5] = bend[-5:] = -np.inf
    return bend


PENALTIES = {"identity": np.eye(48), "difference": np.diff(np.eye(48), axis=0)}
LAMS = np.geomspace(1e-5, 1e2, 1501)
PROBES = 40


@functools.cache
def dense_at_every_lam(penalty):
    """Residuals and seminorms, a row per λ; the trace, exactly and as a mean over the probes' signs."""
    A, B, _ = blurred()
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(len(A), PROBES))
    found = [dense(A, B, lam, PENALTIES[penalty]) for lam in LAMS]
    traces = [(np.trace(hat), np.sum(signs * (hat @ signs)) / PROBES) for _, _, hat in found]
    return np.array([one[0] for one in found]), np.array([one[1] for one in found]), np.array(traces).T


@pytest.fixture(params=["exact", "krylov"])
def evaluation(request, monkeypatch):
    """Both ways to evaluate: with the whole space, and with a Krylov space large enough to hold the solution."""
    if request.param == "krylov":
        monkeypatch.setattr(selection, "EXACT_SIZE", 0)
        monkeypatch.setattr(selection, "PROBES", PROBES)
    return request.param


@pytest.mark.parametrize("penalty", PENALTIES)
def test_gcv(penalty, evaluation):
    A, B, _ = blurred()
    L = PENALTIES[penalty]
    result = stepwell.tikhonov(A, B, "gcv", None if penalty == "identity" else L, tol=1e-8)
    residuals, _, traces = dense_at_every_lam(penalty)
    exact, estimated = (residuals / (48 - trace[:, None]) ** 2 for trace in traces)
    for j, lam in enumerate(result.lam):
        score, own = (np.interp(np.log(lam), np.log(LAMS), scores[:, j]) for scores in (exact, estimated))
        if evaluation == "exact":
            assert score <= exact[:, j].min() * (1 + 1e-4)  # the minimum is flat, so compare scores
            continue
        # The trace t is a mean over sign vectors: the rule finds the minimum of that score, which the test forms, too;
        assert own <= estimated[:, j].min() * (1 + 1e-4)
        # its standard deviation is at most √(2t / probes): twice that in 48 − t, squared.
        trace = np.interp(np.log(lam), np.log(LAMS), traces[0])
        assert score <= exact[:, j].min() * (1 + 2 * np.sqrt(2 * trace / PROBES) / (48 - trace)) ** 2


@pytest.mark.parametrize("penalty", PENALTIES)
def test_discrepancy(penalty, evaluation):
    A, B, noise = blurred()
    L = PENALTIES[penalty]
    result = stepwell.tikhonov(
        A, B, "discrepancy", None if penalty == "identity" else L, noise=noise / len(B) ** 0.5, tol=1e-10
    )
    left = np.linalg.norm(A @ result.x - B, axis=0)
    np.testing.assert_allclose(left, noise, rtol=1e-4)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_lcurve(penalty, evaluation):
    A, B, _ = blurred()
    L = PENALTIES[penalty]
    result = stepwell.tikhonov(A, B, "lcurve", None if penalty == "identity" else L, tol=1e-8)
    residuals, seminorms, _ = dense_at_every_lam(penalty)
    for j in range(3):
        bend = bend_of(LAMS, residuals[:, j], seminorms[:, j])
        assert np.interp(np.log(result.lam[j]), np.log(LAMS), bend) >= 0.95 * bend.max()


class Scan:
    """Four slices of a small phantom with noise, and every function of λ from the singular values."""

    def __init__(self, noise: float, size: int = 20) -> None:
        angles = round(0.7 * size)
        self.A = tomography.parallel_beam(size, angles=np.arange(angles) * (180 / angles))
        images = tomography.shepp_logan_3d(size).reshape(size, -1).T
        images = images[:, np.linalg.norm(images, axis=0) > 0]
        clean = self.A @ images[:, np.linspace(2, images.shape[1] - 3, 4).astype(int)]
        self.B = tomography.add_noise(clean, noise)
        self.noise = np.linalg.norm(self.B - clean, axis=0)
        self.left, self.sigma, _ = np.linalg.svd(self.A.toarray(), full_matrices=False)
        self.grid = self.sigma[0] * np.geomspace(1e-5, 1.0, 1201)

    def norms(self, lam: float) -> tuple[np.ndarray, np.ndarray]:
        """‖b − A x_λ‖² and ‖x_λ‖² of every column."""
        beta, kept = self.left.T @ self.B, self.sigma**2 / (self.sigma**2 + lam**2)
        outside = np.sum(self.B**2, axis=0) - np.sum(beta**2, axis=0)
        solution = (self.sigma / (self.sigma**2 + lam**2))[:, None] * beta
        return outside + np.sum(((1 - kept)[:, None] * beta) ** 2, axis=0), np.sum(solution**2, axis=0)

    def gcv(self, lam: float, signs: np.ndarray | None = None) -> np.ndarray:
        """Scores of cross-validation, with the exact trace or with its estimate from sign vectors."""
        kept = self.sigma**2 / (self.sigma**2 + lam**2)
        trace = kept.sum() if signs is None else np.mean(kept @ (self.left.T @ signs) ** 2)
        return self.norms(lam)[0] / (self.B.shape[0] - trace) ** 2


@pytest.fixture(scope="module", params=[pytest.param(0.001, marks=pytest.mark.slow), 0.01, 0.05])
def scan(request):
    return Scan(request.param)


@pytest.fixture
def large(monkeypatch):
    """Take the way of large problems, with its own settings, however small the problem."""
    monkeypatch.setattr(selection, "EXACT_SIZE", 0)


def test_gcv_of_a_scan(scan, large):
    result = stepwell.tikhonov(scan.A, scan.B, "gcv", tol=1e-3)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(scan.B.shape[0], selection.PROBES))
    own = np.array([scan.gcv(lam, signs) for lam in scan.grid]).min(axis=0)
    true = np.array([scan.gcv(lam) for lam in scan.grid]).min(axis=0)
    for j, lam in enumerate(result.lam):
        # λ stands still to 10 %; a score changes by its second derivative there, of order one in log λ.
        assert scan.gcv(lam, signs)[j] <= own[j] * (1 + 0.1**2)
        # The estimate of the trace t has a standard deviation of at most √(2t/4); twice that in m − t, squared.
        trace = np.sum(scan.sigma**2 / (scan.sigma**2 + lam**2))
        spread = 2 * np.sqrt(2 * trace / selection.PROBES) / (scan.B.shape[0] - trace)
        assert scan.gcv(lam)[j] <= true[j] * (1 + spread) ** 2


def test_discrepancy_of_a_scan(scan, large):
    result = stepwell.tikhonov(scan.A, scan.B, "discrepancy", noise=scan.noise / len(scan.B) ** 0.5, tol=1e-3)
    for j, lam in enumerate(result.lam):
        # λ stands still to 10 %, and the residual grows at most as fast as λ.
        assert np.sqrt(scan.norms(lam)[0][j]) == pytest.approx(scan.noise[j], rel=0.1)


def test_lcurve_of_a_scan(scan, large):
    result = stepwell.tikhonov(scan.A, scan.B, "lcurve", tol=1e-3)
    points = np.array([scan.norms(lam) for lam in scan.grid])
    bend = bend_of(scan.grid, points[:, 0], points[:, 1])
    for j, lam in enumerate(result.lam):
        # The grid of the rule has steps of 8 %, and λ stands still to 10 %: near its top the curvature is flat.
        assert np.interp(np.log(lam), np.log(scan.grid), bend[:, j]) >= 0.9 * bend[:, j].max()


def test_large_problems_choose_as_small_ones_do_with_a_penalty(scan, monkeypatch):
    L = stepwell.operators.gradient((20, 20))
    whole = stepwell.tikhonov(
        scan.A, scan.B[:, :1], "discrepancy", L, noise=scan.noise[:1] / len(scan.B) ** 0.5, tol=1e-3
    )
    monkeypatch.setattr(selection, "EXACT_SIZE", 0)
    grown = stepwell.tikhonov(
        scan.A, scan.B[:, :1], "discrepancy", L, noise=scan.noise[:1] / len(scan.B) ** 0.5, tol=1e-3
    )
    assert grown.lam[0] == pytest.approx(whole.lam[0], rel=selection.STILL - 1)
    assert grown.products > whole.products  # the choice is paid for and told


def test_a_joint_rule_gives_one_lam_and_lets_columns_share_a_space():
    A, B, noise = blurred()
    operator = (lambda v: A @ v, lambda v: A.T @ v)
    result = stepwell.tikhonov(operator, B, "discrepancy", noise=noise / len(B) ** 0.5, joint=True, tol=1e-10)
    assert result.method == "block"
    assert np.unique(result.lam).size == 1
    total = np.sum((A @ result.x - B) ** 2)
    np.testing.assert_allclose(total, np.sum(noise**2), rtol=1e-4)


@pytest.mark.parametrize("used", range(1, 13))
def test_a_joint_lam_is_the_same_to_the_last_bit_for_columns_that_take_no_part(used):
    A, B, _ = blurred()
    B = np.column_stack([np.tile(B, 4)[:, :used], np.zeros(len(B))])
    result = stepwell.tikhonov((lambda v: A @ v, lambda v: A.T @ v), B, "gcv", joint=True, tol=1e-3)
    assert np.unique(result.lam).size == 1
    assert result.method == "block"


@pytest.mark.parametrize("rule", selection.RULES)
@pytest.mark.parametrize("entry", [np.nan, np.inf])
@pytest.mark.parametrize("form", ["matrix", "functions", "penalty"])
@pytest.mark.parametrize("way", ["exact", "grown"])
def test_operators_that_are_not_finite_are_told_as_without_a_rule(rule, entry, form, way, monkeypatch):
    A, B, noise = blurred()
    if way == "grown":
        monkeypatch.setattr(selection, "EXACT_SIZE", 0)
    wrong = A.copy()
    wrong[3, 5] = entry
    given = (lambda v: wrong @ v, lambda v: wrong.T @ v) if form == "functions" else A if form == "penalty" else wrong
    options = {"noise": noise / len(B) ** 0.5} if rule == "discrepancy" else {}
    with np.errstate(invalid="ignore"):  # the caller's own product
        result = stepwell.tikhonov(given, B, rule, wrong if form == "penalty" else None, **options)
        without = stepwell.tikhonov(given, B, 1.0, wrong if form == "penalty" else None)
    assert not result.success
    assert result.status == without.status
    assert np.isfinite(result.x).all()


def test_zero_columns_take_no_part_in_the_choice():
    A, B, _ = blurred()
    B[:, 1] = 0
    result = stepwell.tikhonov(A, B, "gcv")
    assert result.success
    assert not result.x[:, 1].any()


@pytest.mark.parametrize(("noise", "end", "name"), [(0.0, -1, "lower"), (1e6, 1, "upper")])
def test_unreachable_noise_levels_end_at_the_edge_of_the_range(noise, end, name, evaluation):
    A, B, levels = blurred()
    with pytest.warns(OptimizeWarning, match=rf"lam of 1 of 2 columns .* \(1 at the {name} end\)"):
        result = stepwell.tikhonov(A, B[:, :2], "discrepancy", noise=np.array([levels[0], noise]) / len(B) ** 0.5)
    assert result.lam_at_end.tolist() == [0, end]
    assert f"1 at the {name} end" in result.message
    # The range is 1e-7 to 10 times the largest singular value.
    ratio = result.lam[1] / np.linalg.norm(A, 2)
    assert ratio == pytest.approx(10.0 if end > 0 else 1e-7, rel=1e-3)


def test_cross_validation_at_the_ends_of_the_range():
    """b in the range of a well-posed A wants no damping; of b outside it nothing is explained by any x."""
    random = np.random.default_rng(8)
    A, _ = np.linalg.qr(random.normal(size=(60, 20)))
    b = A @ random.normal(size=20)
    outside = random.normal(size=60)
    outside -= A @ (A.T @ outside)
    B = np.stack([b, outside + 1e-3 * b], axis=1)
    left = [lambda lam, c=c: np.sum((c - A @ (A.T @ c) / (1 + lam**2)) ** 2) for c in B.T]
    lams = np.geomspace(1e-7, 10, 500)
    for j, best in ((0, 0), (1, lams.size - 1)):
        assert np.argmin([left[j](lam) / (60 - 20 / (1 + lam**2)) ** 2 for lam in lams]) == best
    with pytest.warns(OptimizeWarning, match="2 of 2 columns .*1 at the lower end, 1 at the upper end"):
        result = stepwell.tikhonov(A, B, "gcv")
    assert result.lam_at_end.tolist() == [-1, 1]


def test_an_l_curve_without_a_corner_says_so():
    """Of a constant, which L does not see, A = I leaves nothing at any λ: neither norm moves but by rounding."""
    A, L = np.eye(30), np.diff(np.eye(30), axis=0)
    with pytest.warns(OptimizeWarning, match="at an end of the range searched|an L-curve without a corner"):
        result = stepwell.tikhonov(A, np.ones(30), "lcurve", L)
    assert result.lam_at_end != 0


def test_an_l_curve_without_a_corner_is_not_said_to_end():
    """Orthonormal columns and a b mostly outside them: ‖x‖ = 1/(1 + λ²), and the residual hardly moves at any λ."""
    random = np.random.default_rng(8)
    A, _ = np.linalg.qr(random.normal(size=(60, 20)))
    outside = random.normal(size=60)
    outside -= A @ (A.T @ outside)
    lams = np.geomspace(1e-7, 10, 500)
    size = 1 / (1 + lams**2)
    bend = bend_of(lams, np.sum(outside**2) + (1 - size) ** 2, size**2)
    moving = np.flatnonzero(np.isfinite(bend))
    assert np.argmax(bend[moving]) == 0  # it bends less and less from where it begins to move
    with pytest.warns(OptimizeWarning, match="lam of 1 of 1 columns is where an L-curve without a corner bends most"):
        result = stepwell.tikhonov(A, outside + A[:, 0], "lcurve")
    assert result.lam_at_end == 2
    assert result.lam == pytest.approx(lams[moving[0]], rel=0.1)
    assert "without a corner" in result.message
    assert "end of the range" not in result.message


def test_a_choice_within_the_range_is_not_remarked_on():
    A, B, levels = blurred()
    for rule in selection.RULES:
        result = stepwell.tikhonov(A, B, rule, noise=levels / len(B) ** 0.5)
        assert not result.lam_at_end.any()
        assert "end of the range" not in result.message
    assert stepwell.tikhonov(A, B, 0.1).lam_at_end is None


def test_a_space_that_is_soon_complete_shows_no_corner_of_its_own(monkeypatch):
    """An integral equation: some fifty directions hold the solution, and below their λ the L-curve bends again."""
    size = 300
    t = (np.arange(size) + 0.5) / size
    A = np.tril(np.ones((size, size))) / size
    B = tomography.add_noise(A @ np.stack([np.sin(3 * t) + t**2, np.abs(t - 0.5) < 0.2], axis=1), 0.01)
    values, vectors = np.linalg.eigh(A.T @ A)
    rhs = vectors.T @ (A.T @ B)
    lams = np.sqrt(values[-1]) * np.geomspace(1e-4, 1, 401)
    points = [rhs / (values[:, None] + lam**2) for lam in lams]
    residuals = [np.sum(B**2, axis=0) - np.sum(x * (2 * rhs - values[:, None] * x), axis=0) for x in points]
    bend = bend_of(lams, np.array(residuals), np.array([np.sum(x**2, axis=0) for x in points]))
    for exact_size in (selection.EXACT_SIZE, 0):
        monkeypatch.setattr(selection, "EXACT_SIZE", exact_size)
        chosen = stepwell.tikhonov(A, B, "lcurve", tol=1e-6).lam
        for j in range(2):  # the corner is flat: what counts is that no other λ bends much more
            assert np.interp(chosen[j], lams, bend[:, j]) >= 0.9 * bend[:, j].max()


@pytest.mark.parametrize("rule", selection.RULES)
def test_every_product_of_a_choice_is_counted(rule, monkeypatch):
    monkeypatch.setattr(selection, "EXACT_SIZE", 0)
    A, B, levels = blurred()
    forwards = []

    def forward(x):
        forwards.append(1)
        return A @ x

    result = stepwell.tikhonov(
        (forward, lambda y: A.T @ y), B, rule, noise=levels / len(B) ** 0.5, method="pseudo-block", tol=1e-4
    )
    assert result.products.sum() == pytest.approx(len(forwards))
