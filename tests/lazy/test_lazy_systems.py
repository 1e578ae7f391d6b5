"""Arrays of dask and xarray: lazy, in blocks of systems, with names, and with the bits of a direct call."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest

import stepwell
from stepwell import Convolution, NNLSStatus
from stepwell.apps.waveform import Shots, deconvolve, synthetic_shots

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
xr = pytest.importorskip("xarray")

random = np.random.default_rng(3)
A = random.random((12, 7))
B = random.normal(size=(90, 12)) + 0.5
DIRECT = stepwell.nnls(A, B)
ARRAYS = [field.name for field in dataclasses.fields(DIRECT) if isinstance(getattr(DIRECT, field.name), np.ndarray)]


@pytest.fixture(autouse=True)
def in_this_thread():
    """Blocks one after the other, where nothing else is said."""
    with dask.config.set(scheduler="synchronous"):
        yield


def assert_same_bits(result, direct=DIRECT):
    (computed,) = dask.compute(result)
    for name in ARRAYS:
        values = np.asarray(getattr(computed, name))
        expected = getattr(direct, name)
        assert values.dtype == expected.dtype
        np.testing.assert_array_equal(values.reshape(expected.shape), expected, err_msg=name)
    assert (computed.method, computed.choice) == (direct.method, direct.choice)


# ---- the family ----

FAMILY = {
    "bounds of all": lambda: dict(bounds=(-0.1, np.full(7, 0.3))),
    "bounds of each": lambda: dict(bounds=(-random.random((90, 7)), random.random((90, 7)))),
    "one side": lambda: dict(bounds=(np.zeros(7), None)),
    "sum": lambda: dict(bounds=(0, np.inf), sum_bounds=(1, 1)),
    "sum of each": lambda: dict(bounds=(0, np.inf), sum_bounds=(random.random(90), 2.0)),
    "equality": lambda: dict(equality=(np.ones(7), np.ones((90, 1)))),
    "equalities": lambda: dict(equality=(random.random((2, 7)), random.random((90, 2)))),
    "masks": lambda: dict(bounds=(0, np.inf), mask=random.random((90, 7)) < 0.7, lam="gcv"),
    "weights": lambda: dict(bounds=(0, np.inf), weights=random.random((90, 12)), lam=np.linspace(0, 1, 90)),
    "chosen": lambda: dict(bounds=(0, 0.5), lam="chi2", L=np.diff(np.eye(7), axis=0)),
    "variance": lambda: dict(bounds=(0, 0.5), uncertainty="variance", noise=np.linspace(0.1, 1, 90)),
    "warm": lambda: dict(bounds=(0, 0.5), warm_start=random.random((90, 7))),
    "which": lambda: dict(bounds=(0, 0.5), which=random.integers(0, 3, 90)),
}


def assert_same_family(result, direct, names):
    assert names
    (computed,) = dask.compute(result)
    for name in names:
        expected = getattr(direct, name)
        values = np.asarray(getattr(computed, name))
        assert values.dtype == expected.dtype
        np.testing.assert_array_equal(values.reshape(expected.shape), expected, err_msg=name)


def arrays_of(result):
    return [field.name for field in dataclasses.fields(result) if isinstance(getattr(result, field.name), np.ndarray)]


@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.parametrize("container", [False, True])
def test_the_family_in_blocks(kind, container):
    """Everything that a system may have its own of, in memory or in arrays of dask itself."""
    options = FAMILY[kind]()
    matrix = random.random((3, 12, 7)) if kind == "which" else A
    direct = stepwell.lsq_linear(matrix, B, **options)

    def cut(value):
        if isinstance(value, tuple):
            return tuple(map(cut, value))
        own = isinstance(value, np.ndarray) and value.shape[0] == 90
        return da.from_array(value, chunks=(40, *value.shape[1:])) if own and container else value

    given = {name: cut(value) for name, value in options.items()}
    result = stepwell.lsq_linear(matrix, da.from_array(B, chunks=(40, 12)), **given)
    names = arrays_of(direct)
    assert all(isinstance(getattr(result, name), da.Array) for name in names)
    assert_same_family(result, direct, names)


def test_the_family_of_labelled_arrays():
    image = xr.DataArray(B.reshape(9, 10, 12), dims=("row", "column", "band")).transpose("band", "row", "column")
    limits = xr.DataArray(random.random((9, 10)) + 0.5, dims=("row", "column"))
    names = xr.DataArray(A, dims=("band", "mineral"), coords={"mineral": list("abcdefg")})
    result = stepwell.lsq_linear(names, image, (0, np.inf), sum_bounds=(0, limits), dim="band")
    assert result.x.dims == ("row", "column", "mineral")
    assert result.x.coords["mineral"].values.tolist() == list("abcdefg")
    assert result.multipliers.dims == ("row", "column", "equality")
    direct = stepwell.lsq_linear(A, B, (0, np.inf), sum_bounds=(0, limits.values.reshape(-1)))
    assert_same_family(result, direct, arrays_of(direct))
    with pytest.raises(ValueError, match="dim is None; allowed: the dimension of b"):
        stepwell.lsq_linear(names, image)
    with pytest.raises(ValueError, match=r"progress is .*; allowed: None with arrays of dask"):
        stepwell.lsq_linear(A, da.from_array(B, chunks=(30, 12)), progress=print)


# ---- dask ----


@pytest.mark.parametrize("rows", [90, 40, 7, 1])
def test_blocks_have_the_bits_of_a_direct_call(rows):
    """Blocks of one system, too, which a call of its own would solve by another method."""
    result = stepwell.nnls(A, da.from_array(B, chunks=(rows, 12)))
    assert all(isinstance(getattr(result, name), da.Array) for name in ARRAYS)
    assert result.x.shape == (90, 7)
    assert result.x.chunks[0] == result.residual.chunks[0]
    assert_same_bits(result)


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_schedulers_do_not_change_bits(scheduler):
    with dask.config.set(scheduler=scheduler, num_workers=2):
        assert_same_bits(stepwell.nnls(A, da.from_array(B, chunks=(30, 12))))


@pytest.mark.parametrize("rows", [90, 40])
def test_a_result_is_a_collection(rows):
    """A task a block and one that joins them; fields of their own have the same bits, and blocks are solved once."""
    calls = []

    def count(block):
        calls.append(len(block))
        return block

    counted = da.from_array(B, chunks=(rows, 12)).map_blocks(count, meta=B[:0])
    result = stepwell.nnls(A, counted)
    assert dask.is_dask_collection(result)
    assert not dask.is_dask_collection(DIRECT)
    keys = [key for key in dict(dask.optimize(result)[0].__dask_graph__()) if "systems-" in str(key)]
    assert len(keys) == len(counted.chunks[0])
    calls.clear()
    whole, x, residual = dask.compute(result, result.x, result.residual)
    assert len(calls) == len(counted.chunks[0])
    assert_same_bits(whole)
    np.testing.assert_array_equal(x, whole.x)
    np.testing.assert_array_equal(residual, whole.residual)
    assert not np.shares_memory(x, whole.x)
    changed = dataclasses.replace(result, residual=result.residual + 1)
    np.testing.assert_array_equal(dask.compute(changed)[0].residual, DIRECT.residual + 1)
    assert_same_bits(pickle.loads(pickle.dumps(stepwell.nnls(A, da.from_array(B, chunks=(rows, 12))))))
    tokens = {dask.base.tokenize(one) for one in (result, changed, DIRECT, stepwell.nnls(A, counted))}
    assert len(tokens) == 3


@pytest.mark.parametrize("shape", [(90,), (9, 10), ()])
def test_results_that_persist(shape):
    cube = da.from_array(B.reshape(*shape, 12) if shape else B[0], chunks=(*(4 for _ in shape), 12))
    (kept,) = dask.persist(stepwell.nnls(A, cube))
    direct = DIRECT.x.reshape(*shape, 7) if shape else stepwell.nnls(A, B[0]).x
    (first,) = dask.compute(kept)
    first.x[...] = -1  # is the caller's, not the graph's
    np.testing.assert_array_equal(dask.compute(kept)[0].x, direct)
    np.testing.assert_array_equal(kept.x, direct)


@pytest.mark.parametrize("rows", [90, 40])
def test_results_do_not_share_memory_with_the_graph(rows):
    lam = np.full(90, 0.5)
    lazy = stepwell.nnls(A, da.from_array(B, chunks=(rows, 12)), lam=da.from_array(lam, chunks=rows, asarray=False))
    (first,) = dask.compute(lazy)
    first.lam[...] = 7
    assert_same_bits(dask.compute(lazy)[0], stepwell.nnls(A, B, lam=lam))
    assert set(lam) == {0.5}


def test_nothing_is_computed_before_it_is_asked_for():
    def fail(block):
        raise AssertionError("computed")

    result = stepwell.nnls(A, da.map_blocks(fail, da.from_array(B, chunks=(40, 12)), dtype=float))
    assert "not computed" in repr(result)
    assert "not computed yet" in result.message
    x, residual = result
    assert isinstance(result.success, da.Array)
    assert (x.dtype, residual.shape) == (np.float64, (90,))


def test_reasons_are_computed():
    result = stepwell.nnls(A, da.from_array(B[:3], chunks=(2, 12)))
    assert result.reason == [NNLSStatus.CONVERGED] * 3
    assert bool(result.success.all())


@pytest.mark.parametrize(
    "options",
    [
        {"lam": 0.2, "method": "qr"},
        {"insertion": "single", "maxiter": 2},
        {"warm_start": "chain"},
        {"warm_start": DIRECT.x[0]},
    ],
)
def test_settings_reach_the_blocks(options):
    blocks = da.from_array(B, chunks=(64, 12))  # where a chain begins anew in any case
    assert_same_bits(stepwell.nnls(A, blocks, **options), stepwell.nnls(A, B, **options))


def test_single_precision_and_many_axes():
    single = stepwell.nnls(A.astype(np.float32), B.astype(np.float32))
    cube = da.from_array(B.astype(np.float32).reshape(9, 10, 12), chunks=(4, 5, 12))
    result = stepwell.nnls(A.astype(np.float32), cube)
    assert result.x.shape == (9, 10, 7)
    assert_same_bits(result, single)


def test_systems_as_columns():
    result = stepwell.nnls(A, da.from_array(B.T, chunks=(12, 25)), axis=1)
    np.testing.assert_array_equal(result.x, DIRECT.x.T)
    np.testing.assert_array_equal(result.residual, DIRECT.residual)
    again = stepwell.nnls(A, da.from_array(B.T, chunks=(12, 25)), axis=1, warm_start=DIRECT.x.T)
    np.testing.assert_array_equal(again.x, stepwell.nnls(A, B, warm_start=DIRECT.x).x.T)


@pytest.mark.parametrize("matrices", ["in memory", "lazy", "lazy, other blocks"])
def test_a_matrix_for_each_system(matrices):
    own = A + 0.1 * random.random((90, 12, 7))
    given = own if matrices == "in memory" else da.from_array(own, chunks=(40 if matrices == "lazy" else 13, 12, 7))
    assert_same_bits(stepwell.nnls(given, da.from_array(B, chunks=(40, 12))), stepwell.nnls(own, B))


def test_one_lazy_matrix_for_all():
    assert_same_bits(stepwell.nnls(da.from_array(A), da.from_array(B, chunks=(40, 12))))
    assert_same_bits(stepwell.nnls(da.from_array(A), B))


def test_one_system_and_none():
    one = stepwell.nnls(A, da.from_array(B[0]))
    np.testing.assert_array_equal(one.x, stepwell.nnls(A, B[0]).x)
    assert one.status.shape == ()
    none = stepwell.nnls(A, da.zeros((0, 12)))
    assert none.x.compute().shape == (0, 7)
    some = da.concatenate([da.from_array(B[:4], chunks=2), da.zeros((0, 12))]).rechunk({1: -1})
    np.testing.assert_array_equal(stepwell.nnls(A, some).x, DIRECT.x[:4])


def test_pulses():
    shots = synthetic_shots(12, samples=80, returns=2)
    direct = deconvolve(shots)
    lazy = Shots(
        da.from_array(shots.waveforms, chunks=(5, 80)),
        da.from_array(shots.pulses, chunks=(5, 25)),
        shots.origin,
        shots.background,
    )
    observed = lazy.waveforms - shots.background[:, None]
    assert_same_bits(stepwell.nnls(Convolution(lazy.pulses, 80, origin=12), observed), direct.result)
    one = Convolution(shots.pulses[0], 80, origin=12)
    assert_same_bits(stepwell.nnls(one, observed), stepwell.nnls(one, shots.waveforms - shots.background[:, None]))
    done = deconvolve(lazy)
    assert isinstance(done.fit, da.Array)
    assert_same_bits(done.result, direct.result)
    np.testing.assert_array_equal(done.amplitudes, direct.amplitudes)
    np.testing.assert_array_equal(done.fit, direct.fit)
    labelled = dataclasses.replace(
        lazy,
        waveforms=xr.DataArray(lazy.waveforms, dims=("shot", "sample")),
        pulses=xr.DataArray(lazy.pulses, dims=("shot", "time")),
        background=xr.DataArray(shots.background, dims="shot"),
    )
    named = deconvolve(labelled, dim="sample")
    assert named.fit.dims == ("shot", "sample")
    np.testing.assert_array_equal(named.fit, direct.fit)
    with pytest.raises(TypeError, match=r"pulse is .*; allowed: an array in memory; stepwell.nnls alone takes"):
        Convolution(lazy.pulses, 80) @ np.ones(80)


def test_the_matrix_travels_once():
    """One key of the graph holds it, however many blocks there are."""
    large = random.random((300, 200))
    b = da.zeros((64, 300), chunks=(1, 300))
    graph = dict(stepwell.nnls(large, b).x.__dask_graph__())
    assert sum(len(pickle.dumps(task)) > large.nbytes // 2 for task in graph.values()) == 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: stepwell.nnls(A, da.from_array(B, chunks=(40, 5))), r"along axis -1; .* by b.rechunk\(\{-1: -1\}\)"),
        (
            lambda: stepwell.nnls(A, da.from_array(B.T, chunks=(5, 40)), axis=1),
            r"along axis 0; .* by b.rechunk\(\{0: -1\}\)",
        ),
        (
            lambda: stepwell.nnls(da.from_array(A, chunks=(5, 3)), B),
            r"along axis -2 and axis -1; .*A.rechunk\(\{-2: -1, -1: -1\}\)",
        ),
        (
            lambda: stepwell.nnls(A, xr.DataArray(B, dims=("y", "band")).chunk({"band": 5}), dim="band"),
            r"along band; .*b.chunk\(\{'band': -1\}\)",
        ),
        (lambda: stepwell.nnls(A, xr.DataArray(B, dims=("y", "band"))), r"dim is None; .*of \('y', 'band'\)"),
        (lambda: stepwell.nnls(A, xr.DataArray(B, dims=("y", "band")), dim="bands"), "dim is 'bands'"),
        (lambda: stepwell.nnls(A, B, dim="band"), "dim is 'band'; allowed: None, unless b is a DataArray"),
        (lambda: stepwell.nnls(A, xr.DataArray(B, dims=("y", "band")), dim="band", axis=1), "axis is 1; allowed: 0"),
        (lambda: stepwell.nnls(xr.DataArray(A, dims=("band", "n")), B), "b is 'ndarray'; allowed: a DataArray"),
        (
            lambda: stepwell.nnls(
                xr.DataArray(A, dims=("bands", "n")), xr.DataArray(B, dims=("y", "band")), dim="band"
            ),
            r"A.dims is \('bands', 'n'\); allowed: 'band' and one that b does not have, and dimensions of b",
        ),
        (lambda: stepwell.nnls(A, da.from_array(B), progress=print), "progress is .*; allowed: None with"),
        (lambda: stepwell.nnls(A, da.from_array(B[:, :5])), r"A has shape \(12, 7\), with 12 where b .* has 5"),
        (lambda: stepwell.nnls(A[None], da.from_array(B), lam=-1), "lam is -1"),
        (lambda: stepwell.nnls(np.stack([A, A]), da.from_array(B)), r"systems of b of shape .* do not fit"),
        (lambda: stepwell.nnls(np.nan * A, da.from_array(B)), r"A is nan at index \(0, 0\)"),
        (lambda: stepwell.nnls(A, da.from_array(B)[da.from_array(B)[:, 0] > 0]), "allowed: b.compute_chunk_sizes"),
    ],
)
def test_what_cannot_be_solved_is_refused_before_a_graph_is_made(call, said):
    with pytest.raises(ValueError, match=said):
        call()


# ---- xarray ----


@pytest.mark.parametrize("chunks", [None, {"y": 4, "x": 6}])
def test_names_and_coordinates(chunks):
    cube = xr.DataArray(
        B.reshape(9, 10, 12), dims=("y", "x", "band"), coords={"y": np.arange(9) / 3, "band": np.arange(12)}
    )
    matrix = xr.DataArray(A, dims=("band", "material"), coords={"material": list("abcdefg"), "band": np.arange(12)})
    turned = cube.transpose("band", "y", "x")
    turned = turned if chunks is None else turned.chunk(chunks)
    result = stepwell.nnls(matrix, turned, dim="band")
    assert result.x.dims == ("y", "x", "material")
    assert result.residual.dims == ("y", "x")
    assert (result.x.name, result.residual.name) == ("x", "residual")
    np.testing.assert_array_equal(result.x.material, matrix.material)
    np.testing.assert_array_equal(result.residual.y, cube.y)
    assert (result.x.chunks is None) == (chunks is None)
    assert ("not computed" in repr(result)) == (chunks is not None)
    assert_same_bits(result)
    again = stepwell.nnls(matrix, turned, dim="band", warm_start=result.x)
    np.testing.assert_array_equal(np.asarray(again.x).reshape(-1, 7), stepwell.nnls(A, B, warm_start=DIRECT.x).x)
    with pytest.raises(ValueError, match="align"):
        stepwell.nnls(matrix.assign_coords(band=np.arange(12) + 1), turned, dim="band")


def test_plain_matrices_and_matrices_of_their_own():
    cube = xr.DataArray(B.reshape(9, 10, 12), dims=("y", "x", "band"))
    assert stepwell.nnls(A, cube, dim="band").x.dims == ("y", "x", "unknown")
    own = xr.DataArray(A + 0.1 * random.random((10, 12, 7)), dims=("x", "band", "material"))  # one a column of pixels
    found = stepwell.nnls(own, cube.chunk({"y": 5}), dim="band")
    stack = np.broadcast_to(own, (9, 10, 12, 7)).reshape(90, 12, 7)
    np.testing.assert_array_equal(np.asarray(found.x).reshape(90, 7), stepwell.nnls(stack, B).x)
