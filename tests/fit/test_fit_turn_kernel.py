"""The turn kernel of fits whose model a library evaluates on a device: it compiles, and on a device it fits."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_fits import Decays, decay

import stepwell


@pytest.mark.kernels
@pytest.mark.parametrize("real", ["float", "double"])
@pytest.mark.parametrize("n", [1, 4, 16])
def test_the_kernel_compiles(real, n, tmp_path, monkeypatch):
    from stepwell.cuda.nvrtc import compile_kernel
    from stepwell.fit.device_loop import kernel_defines

    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path))
    try:
        made = compile_kernel("fit_turn", kernel_defines(real == "float", n), "sm_90")
    except ImportError as error:
        pytest.skip(str(error))
    assert made


P = Decays(500, seed=3)


@pytest.mark.cuda
@pytest.mark.parametrize("real", ["float64", "float32"])
def test_torch_on_a_device(real):
    """Within √(ftol·dof) standard errors of what the host finds: ftol is 1e-10, and 1e-6 in float32."""
    torch = pytest.importorskip("torch")

    def f(t, a1, a2, k1, k2):
        return a1 * torch.exp(-k1 * t) + a2 * torch.exp(-k2 * t)

    plain = stepwell.curve_fit(decay, P.t, P.y, P.p0, bounds=P.bounds, jac="cs")
    t, y = (torch.from_numpy(part).to("cuda", getattr(torch, real)) for part in (P.t, P.y))
    r = stepwell.curve_fit(f, t, y, P.p0, bounds=P.bounds)
    assert r.x.is_cuda
    unit = np.where(plain.stderr > 0, plain.stderr, np.inf)  # (at a bound there is no error)
    apart = np.abs((r.x.cpu().numpy() - plain.x) / unit).max(axis=1)
    same = np.sort(r.x.cpu().numpy()[:, 2:], axis=1)[:, 0] == r.x.cpu().numpy()[:, 2]
    good = same == (plain.x[:, 2] < plain.x[:, 3])  # the two terms may have changed places
    assert good.mean() > 0.97
    assert np.quantile(apart[good], 0.99) < (1e-3 if real == "float64" else 5e-2)
    if real == "float64":
        np.testing.assert_allclose(r.stderr.cpu().numpy()[good], plain.stderr[good], rtol=1e-3)
    masked = torch.ones(32, dtype=torch.bool, device="cuda")
    masked[3] = False
    again = stepwell.curve_fit(f, t, y, P.p0, bounds=P.bounds, mask=masked)
    assert bool((again.dof == r.dof - 1).all())


@pytest.mark.cuda
def test_jax_on_a_device():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def f(t, a1, a2, k1, k2):
        return a1 * jnp.exp(-k1 * t) + a2 * jnp.exp(-k2 * t)

    plain = stepwell.curve_fit(decay, P.t, P.y, P.p0, bounds=P.bounds, jac="cs")
    with jax.enable_x64(True):
        gpu = jax.devices("gpu")[0]
        t, y = (jax.device_put(jnp.asarray(part), gpu) for part in (P.t, P.y))
        r = stepwell.curve_fit(jax.jit(f), t, y, P.p0, bounds=P.bounds)
        np.testing.assert_allclose(np.asarray(r.cost), plain.cost, rtol=1e-7)
