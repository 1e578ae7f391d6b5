"""Fits of arrays of dask and xarray: the bits of a direct call, parameter names as a coordinate."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_fits import Decays, decay

import stepwell

da = pytest.importorskip("dask.array")
P = Decays(24, seed=8)
FIELDS = ("x", "pcov", "stderr", "cost", "status", "active_mask", "nfev", "rank")


@pytest.fixture(scope="module")
def direct():
    return stepwell.curve_fit(decay, P.t, P.y, P.p0, bounds=P.bounds)


def test_dask_has_the_bits_of_a_direct_call(direct):
    r = stepwell.curve_fit(decay, P.t, da.from_array(P.y, chunks=(7, -1)), P.p0, bounds=P.bounds)
    assert "not computed" in r.message
    for name in FIELDS:
        assert np.array_equal(getattr(r, name).compute(), getattr(direct, name)), name
    image = da.from_array(P.y.reshape(4, 6, -1), chunks=(2, 3, -1))
    low = np.broadcast_to(P.bounds[0], (4, 6, 4))
    r = stepwell.curve_fit(decay, P.t, image, P.p0, bounds=(low, P.bounds[1]), uncertainty="stderr")
    assert np.array_equal(r.x.compute().reshape(24, 4), direct.x)
    assert r.pcov is None


def test_blocks_within_problems_are_refused():
    with pytest.raises(ValueError, match="rechunk"):
        stepwell.curve_fit(decay, P.t, da.from_array(P.y, chunks=(7, 16)), P.p0)
    with pytest.raises(ValueError, match="progress"):
        stepwell.curve_fit(decay, P.t, da.from_array(P.y), P.p0, progress=print)


def test_xarray_names_parameters(direct):
    xr = pytest.importorskip("xarray")
    data = xr.DataArray(P.y.T.reshape(32, 4, 6), dims=("time", "y", "x"), coords={"time": P.t, "y": np.arange(4.0)})
    r = stepwell.curve_fit(decay, data.time, data, P.p0, bounds=P.bounds, dim="time")
    assert r.x.dims == ("y", "x", "param")
    assert list(r.x.param.values) == ["a1", "a2", "k1", "k2"]
    assert r.pcov.dims == ("y", "x", "cov_i", "cov_j")
    assert np.array_equal(r.x.values.reshape(24, 4), direct.x)
    assert np.array_equal(r.x.sel(param="k1", y=2.0).values, direct.x.reshape(4, 6, 4)[2, :, 2])
    lazy = stepwell.curve_fit(decay, P.t, data.chunk({"y": 2, "time": -1}), P.p0, bounds=P.bounds, dim="time")
    assert np.array_equal(lazy.x.compute().values.reshape(24, 4), direct.x)
    with pytest.raises(ValueError, match="dim"):
        stepwell.curve_fit(decay, P.t, data, P.p0)
