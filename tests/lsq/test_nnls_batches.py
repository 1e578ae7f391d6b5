"""Batches: the same bits as alone, any memory order, statuses of their own, warm starts, progress."""

from __future__ import annotations

import signal
from types import SimpleNamespace

import numpy as np
import pytest
from nnls_cases import certified, decays, uniform

import stepwell
from stepwell import NNLSStatus
from stepwell.cuda.layouts import structure


@pytest.mark.parametrize("method", ["qr", "gram"])
def test_a_system_of_its_own_matrix_has_the_same_bits_alone_and_in_a_batch(method):
    A, b = uniform(7, 60)
    batch = certified(A, b, method=method)
    for threads in (1, 2, 3):
        np.testing.assert_array_equal(stepwell.nnls(A, b, method=method, threads=threads).x, batch.x)
    for s in range(7):
        alone = stepwell.nnls(A[s], b[s], method=method, threads=1)
        np.testing.assert_array_equal(alone.x, batch.x[s])
        assert alone.residual == batch.residual[s]


def test_right_hand_sides_of_one_matrix_do_not_disturb_each_other():
    A, b = decays(200)
    batch = certified(A, b)
    np.testing.assert_array_equal(stepwell.nnls(A, b[50:130]).x, batch.x[50:130])
    np.testing.assert_array_equal(stepwell.nnls(A, b[::-1]).x, batch.x[::-1])
    for s in range(0, 200, 40):
        # Alone there is no Gram matrix: another way to the same answer. Conditioning is 1e5 on these sets.
        alone = stepwell.nnls(A, b[s])
        assert alone.residual == pytest.approx(batch.residual[s], rel=1e-11)


@pytest.mark.parametrize("kind", ["few columns", "a sum", "damped", "chi2", "single"])
def test_neighbours_in_a_batch_change_no_bits(kind):
    """Products of some systems are formed at once, and factors handed on: of each they are what they are alone."""
    rng = np.random.default_rng(8)
    if kind in ("damped", "chi2"):
        A, b = decays(203)
    else:
        A = rng.random((49, 6))
        b = rng.dirichlet(np.full(6, 0.4), 203) @ A.T + 0.01 * rng.standard_normal((203, 49))
    if kind == "single":
        A, b = A.astype(np.float32), b.astype(np.float32)

    def solve(rows, threads):
        if kind == "a sum":
            return stepwell.lsq_linear(A, rows, (0, np.inf), sum_bounds=(1, 1), threads=threads)
        if kind == "chi2":
            return stepwell.lsq_linear(A, rows, (0, np.inf), lam="chi2", threads=threads)
        return stepwell.nnls(A, rows, lam=0.2 if kind == "damped" else 0.0, threads=threads)

    whole = solve(b, 1)
    for order, threads in ((rng.permutation(203), 1), (np.arange(203)[::-1], 2), (np.arange(203), 2)):
        other = solve(np.ascontiguousarray(b[order]), threads)
        for name in ("x", "dual", "residual", "violation", "status"):
            np.testing.assert_array_equal(getattr(other, name), getattr(whole, name)[order])


@pytest.mark.parametrize("order", ["fortran", "negative", "strided", "sliced"])
def test_any_memory_order(order):
    A, b = uniform(5, 40)
    expected = stepwell.nnls(A, b).x
    if order == "fortran":
        A, b = np.asfortranarray(A), np.asfortranarray(b)
    if order == "negative":
        A, b = A[:, ::-1].copy()[:, ::-1], b[:, ::-1].copy()[:, ::-1]
    if order == "strided":
        A, b = np.repeat(A, 2, axis=2)[:, :, ::2], np.repeat(b, 2, axis=1)[:, ::2]
    if order == "sliced":
        A, b = np.pad(A, ((1, 2), (3, 4), (5, 6)))[1:-2, 3:-4, 5:-6], np.pad(b, ((1, 1), (2, 3)))[1:-1, 2:-3]
    np.testing.assert_array_equal(certified(A, b).x, expected)


def test_an_interrupt_does_not_wait_for_the_whole_batch(monkeypatch):
    from stepwell.lsq import host

    rng = np.random.default_rng(8)
    A, b = rng.random((300, 5, 4)), rng.random((300, 5))
    monkeypatch.setattr(host, "ENTRIES_A_PART", 1)
    solve, parts = host._core.nnls_solve, []

    def interrupted(job, *given):
        solve(job, *given)
        parts.append(structure("NnlsJob").from_buffer_copy(job).systems)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(host, "_core", SimpleNamespace(nnls_solve=interrupted))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            stepwell.nnls(A, b, threads=1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert parts == [64]


def test_copies_are_made_in_parts(monkeypatch):
    from stepwell.lsq import host

    A, b = uniform(9, 30)
    expected = stepwell.nnls(A, b).x
    monkeypatch.setattr(host, "COPY_BYTES", 2 * A[0].nbytes)
    copied = []
    plain = np.ascontiguousarray
    monkeypatch.setattr(host.np, "ascontiguousarray", lambda a, dtype=None: copied.append(a.nbytes) or plain(a, dtype))
    np.testing.assert_array_equal(stepwell.nnls(A.transpose(0, 2, 1).copy().transpose(0, 2, 1), b).x, expected)
    assert max(copied) <= 2 * A[0].nbytes


def test_what_has_another_dtype_or_order_is_converted_in_parts(monkeypatch):
    from stepwell.lsq import host

    A, b = uniform(9, 30)
    A = A.astype(np.float32)
    expected = stepwell.nnls(A.astype(float), b).x
    monkeypatch.setattr(host, "COPY_BYTES", 2 * (8 * A[0].size + b[0].nbytes))
    copied = []
    plain = np.ascontiguousarray
    monkeypatch.setattr(
        host.np, "ascontiguousarray", lambda a, dtype=None: copied.append(np.shape(a)) or plain(a, dtype)
    )
    result = stepwell.nnls(A, np.asfortranarray(b))
    np.testing.assert_array_equal(result.x, expected)
    assert result.x.dtype == np.float64
    matrices = [shape[0] for shape in copied if len(shape) == 3]
    assert sum(matrices) == 9
    assert max(matrices) <= 2


def test_parts_are_small_beside_what_is_free(monkeypatch):
    from stepwell.lsq import host

    A, b = uniform(12, 20)
    parts = []
    monkeypatch.setattr(host.arrays, "available_bytes", lambda _: 4 * 3 * A[0].nbytes)
    solve = host._core.nnls_solve

    def counted(job, *given):
        parts.append(structure("NnlsJob").from_buffer_copy(job).systems)
        solve(job, *given)

    monkeypatch.setattr(host._core, "nnls_solve", counted)
    stepwell.nnls(A.transpose(0, 2, 1).copy().transpose(0, 2, 1), b)
    assert parts == [3, 3, 3, 3]


@pytest.mark.parametrize("method", ["qr", "gram"])
@pytest.mark.parametrize("tol", [1e-2, 1e-5, 1e-8])
def test_the_tolerance_bounds_the_violation(method, tol):
    # Nearly opposite columns: x is large beside b, and what counts is the violation all the same.
    rng = np.random.default_rng(5)
    A = rng.normal(size=(40, 20, 30))
    A[:, :, 15:] = -A[:, :, :15] + 1e-3 * rng.normal(size=(40, 20, 15))
    result = stepwell.nnls(A, rng.normal(size=(40, 20)), method=method, tol=tol)
    assert result.violation[result.status == stepwell.NNLSStatus.CONVERGED].max() <= tol
    assert (result.status == stepwell.NNLSStatus.CONVERGED).mean() > 0.9


def test_trouble_of_one_system_is_its_status_and_the_others_are_solved():
    A, b = uniform(5, 60)
    A[1, 3, 4] = np.inf
    b[3, 5] = np.nan
    result = certified(A, b)
    assert result.status.tolist() == [0, 4, 0, 4, 0]
    assert np.all(np.isnan(result.x[[1, 3]]))
    assert np.all(np.isnan(result.residual[[1, 3]]))
    np.testing.assert_array_equal(result.x[0], stepwell.nnls(A[0], b[0]).x)
    assert "3 of 5: converged" in result.message
    assert "2 of 5: A or b holds NaN" in result.message
    assert result.success.tolist() == [True, False, True, False, True]


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
@pytest.mark.parametrize("method", ["qr", "gram"])
def test_at_the_limit_the_point_so_far_is_kept(limit, method):
    A, b = uniform(3, 60)
    result = stepwell.nnls(A, b, method=method, insertion="single", maxiter=limit)
    assert np.all(result.status == NNLSStatus.LIMIT)
    assert np.all(result.solves == limit)
    for s in range(3):
        assert result.x[s].min() >= 0
        residual = np.linalg.norm(b[s] - A[s] @ result.x[s])
        assert residual < np.linalg.norm(b[s])
        assert result.residual[s] == pytest.approx(residual, rel=1e-12)
        np.testing.assert_allclose(result.dual[s], A[s].T @ (b[s] - A[s] @ result.x[s]), atol=1e-11)
        assert result.violation[s] > 0
    longer = stepwell.nnls(A, b, method=method, insertion="single", maxiter=limit + 10)
    assert np.all(longer.residual < result.residual)


@pytest.mark.parametrize("method", ["qr", "gram"])
@pytest.mark.parametrize("shared", [True, False])
def test_warm_starts_end_at_the_same_answer(method, shared):
    A, b = uniform(6, 80)
    A = A[0] if shared else A
    cold = certified(A, b, method=method)
    rng = np.random.default_rng(0)
    starts = {
        "answer": cold.x,
        "set": cold.positive,
        "one for all": cold.x[0],
        "one set for all": cold.positive[0],
        "nonsense": rng.random((6, 80)),
        "nonsense set": rng.random((6, 80)) < 0.5,
        "everything": np.ones((6, 80), dtype=bool),
        "chain": "chain",
    }
    for name, start in starts.items():
        warm = certified(A, b, method=method, warm_start=start)
        np.testing.assert_allclose(warm.x, cold.x, atol=1e-10, err_msg=name)
        if name in ("answer", "set"):
            assert np.all(warm.removals == 0)
            assert np.all(warm.solves <= 1)


def test_a_chain_saves_steps_along_a_smooth_sequence():
    A, _ = uniform(1, 80)
    rng = np.random.default_rng(1)
    b = rng.random(80) + 0.002 * np.cumsum(rng.normal(size=(150, 80)), axis=0)
    cold, warm = certified(A[0], b, method="qr"), certified(A[0], b, method="qr", warm_start="chain")
    np.testing.assert_allclose(warm.x, cold.x, atol=1e-10)
    assert warm.passes.sum() < 0.7 * cold.passes.sum()
    np.testing.assert_array_equal(stepwell.nnls(A[0], b, method="qr", warm_start="chain", threads=1).x, warm.x)


def test_progress_is_told():
    A, b = decays(500)
    seen = []
    result = stepwell.nnls(A, b, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (500, 500)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    np.testing.assert_array_equal(result.x, stepwell.nnls(A, b).x)


def test_the_choice_is_said():
    A, b = decays(100)
    assert stepwell.nnls(A, b).choice.startswith("gram: one matrix for 100")
    assert stepwell.nnls(A, b[0]).method == "gram"
    assert stepwell.nnls(A[:5, :4], b[0, :5]).choice == "qr: 5 x 4 is tiny"
    assert stepwell.nnls(A, b[0], method="qr").choice == "qr, as asked"
    # Without damping at most 3 of the 40 unknowns are positive, with it all can be.
    assert stepwell.nnls(A[:3], b[0, :3]).method == "qr"
    assert stepwell.nnls(A[:3], b[0, :3], lam=0.1).method == "gram"


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_answers_come_back_in_kind(library):
    xp = pytest.importorskip(library)
    if library == "jax.numpy":
        import jax

        jax.config.update("jax_enable_x64", True)
    A, b = uniform(3, 30)
    expected = stepwell.nnls(A, b)
    result = stepwell.nnls(xp.asarray(A), xp.asarray(b))
    for field in ("x", "dual", "residual", "violation", "positive", "state", "insertions", "status"):
        value = getattr(result, field)
        assert type(value) is type(xp.asarray(b)) or library == "jax.numpy"
        np.testing.assert_array_equal(np.asarray(value), np.asarray(getattr(expected, field)))
    x, residual = stepwell.nnls(xp.asarray(A[0]), xp.asarray(b[0]))
    np.testing.assert_array_equal(np.asarray(x), expected.x[0])
    assert residual == expected.residual[0]
    pulse = xp.asarray(np.array([1.0, 2.0, 1.0]))
    wave = stepwell.Convolution(pulse, 6, origin=1)
    right = xp.asarray(np.arange(6.0))
    np.testing.assert_allclose(
        np.asarray(stepwell.nnls(wave, right).x), np.asarray(stepwell.nnls(wave.dense(), right).x), atol=1e-12
    )


def test_jax_in_its_default_mode(recwarn):
    jax = pytest.importorskip("jax")
    from stepwell.arrays import jax_double
    from stepwell.arrays.device_memory import DeviceMemory

    A, b = (value.astype(np.float32) for value in uniform(4, 20))
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)
    try:
        right = jax.numpy.asarray(b)
        result = stepwell.nnls(jax.numpy.asarray(A), right)
        # What a kernel writes has the size it was asked for.
        memory = DeviceMemory(right)
        assert [memory.empty(3, dtype).nbytes for dtype in ("float64", "int64", "float32")] == [24, 24, 12]
    finally:
        jax.config.update("jax_enable_x64", before)
    assert result.x.dtype == np.float32
    np.testing.assert_allclose(np.asarray(result.x), stepwell.nnls(A, b).x, rtol=1e-5, atol=1e-6)
    assert not [warning for warning in recwarn if "truncated" in str(warning.message)]
    with jax_double():
        assert jax.numpy.zeros(1, "float64").dtype == np.float64


@pytest.mark.parametrize("kind", ["integers", "half of the bits"])
def test_jax_in_its_default_mode_converts_without_loss(kind, recwarn):
    jax = pytest.importorskip("jax")
    from stepwell.arrays import as_float

    A, b = uniform(1, 20)
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)
    try:
        if kind == "integers":
            A, b = (jax.numpy.asarray(np.rint(99 * value).astype(np.int32)) for value in (A[0], b))
        else:
            A, b = jax.numpy.asarray(A[0]).astype("bfloat16"), jax.numpy.asarray(b)
        result = stepwell.nnls(A, b, warm_start=jax.numpy.ones(20, dtype=A.dtype))
        assert as_float(A, "float64").dtype == np.float64  # what a device's kernel would read
    finally:
        jax.config.update("jax_enable_x64", before)
    assert result.x.dtype == np.float64
    expected = stepwell.nnls(np.asarray(A).astype(float), np.asarray(b).astype(float)).x
    np.testing.assert_allclose(np.asarray(result.x), expected, atol=1e-12)
    assert not [warning for warning in recwarn if "truncated" in str(warning.message)]


def test_tensors_that_torch_negates_lazily():
    torch = pytest.importorskip("torch")
    A, b = uniform(1, 12)
    lazy = torch.complex(torch.zeros(12, 12, dtype=torch.float64), torch.asarray(-A[0])).conj().imag
    assert lazy.is_neg()
    np.testing.assert_array_equal(stepwell.nnls(lazy, torch.asarray(b)).x.numpy(), stepwell.nnls(A[0], b).x)


def test_a_start_beyond_the_range_of_float32_is_a_start():
    A, b = (value.astype(np.float32) for value in uniform(3, 12))
    far = stepwell.nnls(A, b, warm_start=np.full(12, 1e300))
    np.testing.assert_allclose(far.x, stepwell.nnls(A, b).x, atol=1e-6)


def test_a_last_part_of_one_system_has_the_bits_of_the_batch():
    """Parts of 64, 64 and 1: what the systems share is made for the last one, too."""
    random = np.random.default_rng(8)
    A, b = random.random((12, 7)), random.normal(size=(129, 12)) + 0.5
    told: list[int] = []
    parts = stepwell.nnls(A, b, progress=lambda done, _: told.append(done))
    assert told == [64, 128, 129]
    np.testing.assert_array_equal(parts.x, stepwell.nnls(A, b).x)
