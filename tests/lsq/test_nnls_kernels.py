"""The CUDA side without a GPU: every kernel compiles, launches have the layout the kernels read, memory is planned."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from stepwell import NNLSStatus, _core
from stepwell.cuda import nvrtc
from stepwell.cuda.layouts import structure
from stepwell.derivatives import cuda as derivatives
from stepwell.lsq import arguments, cuda, small_systems
from stepwell.lsq.arguments import check_gram
from stepwell.lsq.job import Answers, job_sizes, make_job


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path))


def compile_or_skip(defines, architecture, source="nnls"):
    try:
        return nvrtc.compile_kernel(source, defines, architecture)
    except ImportError as error:
        pytest.skip(str(error))
    except Exception as error:
        if "DynamicLibNotFound" in type(error).__name__:
            pytest.skip(f"NVRTC is not installed: {error}")
        raise


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("architecture", "single", "convolution", "by_warp", "general"),
    [
        ("sm_80", False, False, False, False),
        ("sm_90", False, False, False, False),
        ("sm_90", False, True, False, False),
        ("sm_90", True, False, True, False),
        ("sm_100", False, False, True, False),
        ("sm_90", False, False, False, True),
    ],
)
def test_kernels_compile_without_a_device(architecture, single, convolution, by_warp, general):
    code = compile_or_skip(cuda.kernel_defines(single, convolution, by_warp, 256, general), architecture)
    assert b"nnls_solve" in code
    code = compile_or_skip(cuda.sharing_defines(single, convolution, general), architecture, "nnls_share")
    for entry in (b"nnls_share_columns", b"nnls_share_gram"):
        assert entry in code


@pytest.mark.kernels
def test_the_kernel_of_large_normal_equations_compiles_without_a_device():
    code = compile_or_skip(cuda.kernel_defines(False, False, False, 512, True, cuda.CLUSTER_BLOCKS), "sm_90")
    assert b"nnls_solve" in code


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("architecture", "single", "source", "kind", "capacity", "width"),
    [
        ("sm_90", False, "one_matrix", (0, 0, 0), 64, 1),
        ("sm_90", False, "one_matrix", (0, 0, 1), 64, 32),
        ("sm_80", True, "some_matrices", (1, 1, 1), 32, 32),
        ("sm_80", True, "own_matrix", (1, 0, 0), 16, 1),
        ("sm_100", False, "normal_equations", (1, 1, 0), 32, 32),
    ],
)
def test_kernels_for_small_systems_compile_without_a_device(architecture, single, source, kind, capacity, width):
    bounded, summed, penalized = map(bool, kind)
    defines = small_systems.kernel_defines(
        single, source, bounded=bounded, summed=summed, penalized=penalized, capacity=capacity, width=width
    )
    code = compile_or_skip(defines, architecture, "nnls_small")
    assert b"nnls_small" in code
    assert (b"nnls_form_tables" in code) == (source == "own_matrix")


@pytest.mark.kernels
@pytest.mark.parametrize(("architecture", "single", "threads"), [("sm_80", True, 32), ("sm_90", False, 512)])
def test_the_kernel_of_derivatives_compiles_without_a_device(architecture, single, threads):
    code = compile_or_skip(derivatives.kernel_defines(single, threads), architecture, "free_solve")
    assert b"nnls_free_solve" in code


def test_structures_hold_what_the_core_declares():
    """A job filled by name is the job that the core reads: sizes that it answers from, and every address."""
    for name in _core.LAYOUTS:
        structure(name)  # refuses a layout whose fields do not fill it
    job = structure("NnlsJob")(systems=2, rows=1 << 12, columns=1 << 11, pulse_length=9)
    assert not _core.nnls_shares_columns(bytes(job))  # too many columns of a convolution
    job.pulse_length = 0
    assert _core.nnls_shares_columns(bytes(job))
    job.a_stride = 1 << 23
    assert not _core.nnls_shares_columns(bytes(job))
    with pytest.raises(ValueError, match="another size"):
        _core.nnls_shares_columns(b"short")


def test_statuses_and_updates_are_those_of_the_core():
    assert {status.name: int(status) for status in NNLSStatus} == _core.NNLS_STATUS
    assert {*get_args(arguments.Update), "gram"} == set(_core.NNLS_UPDATES)


def batch(systems, rows, columns, **options):
    shape = (rows, columns) if options.pop("shared", False) else (systems, rows, columns)
    values = dict(method="auto", insertion="guarded", lam=0.0, warm_start=None, maxiter=None)
    values |= dict(tol=None, threads=None, progress=None) | options
    return arguments.check(np.broadcast_to(0.0, shape), np.broadcast_to(0.0, (systems, rows)), **values)


H200 = dict(multiprocessors=132, shared_limit=227 * 1024, shared_per_multiprocessor=228 * 1024, cluster_blocks=8)


def test_teams_follow_the_shape():
    assert cuda.plan(batch(10**6, 200, 8, shared=True), **H200, free_bytes=2**37).by_warp
    large = cuda.plan(batch(192, 512, 512), **H200, free_bytes=2**37)
    assert not large.by_warp
    assert large.blocks == 192  # all systems at once: two blocks a multiprocessor
    assert cuda.plan(batch(10**5, 56, 40, shared=True), **H200, free_bytes=2**37).threads <= 256


def source_of(work):
    return small_systems.source_of(job_sizes(work), work.form_gram)


def test_which_systems_are_small():
    """By their shape: a system alone as one of a batch."""
    assert source_of(batch(10**6, 56, 40, shared=True)) == "one_matrix"
    assert source_of(batch(2, 200, 8)) == source_of(batch(1, 200, 8)) == "own_matrix"
    assert source_of(batch(1, 200, 8, shared=True)) == "own_matrix"
    assert source_of(batch(10**6, 56, 64, shared=True)) is None
    assert source_of(batch(10, 200, 16)) is None
    assert source_of(batch(10**6, 56, 40, shared=True, method="qr")) is None
    assert source_of(batch(10**6, 56, 40, shared=True, warm_start="chain")) is None
    defines = small_systems.defines(batch(9, 56, 17, shared=True, lam=0.1), "one_matrix")
    assert (defines["SW_SOURCE"], defines["SW_COLUMNS"], defines["SW_POSITIONS"]) == ("one_matrix", 32, 32)


def test_warps_share_systems_of_more_columns():
    """Unless the one matrix leaves no room for them; their memory is that of a block, whatever the shape."""
    one, width_of = "one_matrix", small_systems.width_of
    assert width_of(batch(9, 200, 16, shared=True), one) == 1
    assert width_of(batch(9, 56, 17, shared=True), one) == 32
    assert width_of(batch(9, 1000, 40, shared=True), one) == 1
    for rows, columns in [(130, 63), (56, 40), (400, 20)]:
        work = batch(9, rows, columns, shared=True)
        warp = small_systems.store_bytes(small_systems.defines(work, one))
        assert (H200["shared_limit"] - 4096 - small_systems.shared_bytes(work, one)) // warp >= 12


def gram_batch(systems, columns, sum_bounds=None):
    given = dict(bounds=(0, np.inf), bb=None, rows=None, lam=0, L=None, warm_start=None, maxiter=None, tol=None)
    given |= dict(threads=None, progress=None, mask=None, noise=None, uncertainty=None)
    return check_gram(np.eye(columns), np.ones((systems, columns)), sum_bounds=sum_bounds, **given)


def test_clusters_are_for_few_large_normal_equations():
    few = cuda.plan(gram_batch(3, 1290), **H200, free_bytes=2**37)
    assert (few.blocks_in_team, few.teams, few.blocks) == (cuda.CLUSTER_BLOCKS, 3, 3 * cuda.CLUSTER_BLOCKS)
    assert few.members == few.threads * few.blocks_in_team
    for other in (
        cuda.plan(gram_batch(100, 1290), **H200, free_bytes=2**37),  # multiprocessors have systems of their own
        cuda.plan(gram_batch(3, 100), **H200, free_bytes=2**37),
        cuda.plan(gram_batch(3, 1290, (1, 1)), **H200, free_bytes=2**37),  # columns one by one
        cuda.plan(gram_batch(3, 1290), **{**H200, "cluster_blocks": 1}, free_bytes=2**37),
        cuda.plan(batch(3, 1290, 1290), **H200, free_bytes=2**37),
    ):
        assert other.blocks_in_team == 1
        assert other.blocks == other.teams


def test_which_normal_equations_are_small():
    for sums in (None, (1, 1), (0, 1)):
        work = gram_batch(5, 9, sums)
        assert source_of(work) == "normal_equations"
        assert small_systems.defines(work, "normal_equations")["SW_SUMMED"] == int(sums is not None)
    assert source_of(gram_batch(5, 32, (0, 1))) is None


def test_memory_bounds_the_number_of_teams():
    work = batch(192, 512, 512)
    plenty = cuda.plan(work, **H200, free_bytes=2**37)
    scarce = cuda.plan(work, **H200, free_bytes=20 * plenty.slow_bytes)
    assert 1 <= scarce.blocks <= 16
    assert scarce.teams * scarce.slow_bytes <= 0.8 * 20 * plenty.slow_bytes
    with pytest.raises(MemoryError, match=r"systems of 512 x 512 need \d+ MiB of workspace, of which the device has"):
        cuda.plan(work, **H200, free_bytes=plenty.slow_bytes // 2)


def test_chains_are_not_split_between_teams():
    assert cuda.plan(batch(192, 512, 512, warm_start="chain"), **H200, free_bytes=2**37).blocks == 3


def test_starts_are_read_by_their_own_strides():
    torch = pytest.importorskip("torch")
    from stepwell.arrays.device_memory import DeviceMemory

    wide = torch.arange(5.0 * 9, dtype=torch.float64).reshape(5, 9)
    for start, stride in ((wide[:, :4], 9), (wide[:1, :4].expand(5, 4), 0), (wide[0, :4], 0), (wide[:, :4].clone(), 4)):
        values = dict(method="auto", insertion="guarded", lam=0.0, warm_start=start)
        values |= dict(maxiter=None, tol=None, threads=None, progress=None)
        work = arguments.check(torch.zeros(6, 4, dtype=torch.float64), torch.zeros(5, 6, dtype=torch.float64), **values)
        memory = DeviceMemory(work.b)
        empty = torch.empty(0)
        answers = Answers(empty, empty, empty, empty, empty, empty)
        job = make_job(work, memory.address, work.matrix, work.b, cuda._warm(work, memory), answers)
        assert (job.warm_values, job.warm_stride) == (start.data_ptr(), stride)
