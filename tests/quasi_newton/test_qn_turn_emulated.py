"""The CUDA turn without a device: the source of the kernel runs on emulated blocks, beside the host engine."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from native_programs import ROOT, build_once
from rank_problems import signs

from stepwell import LBFGSB, _core, problems
from stepwell.distributed import split
from stepwell.quasi_newton.cuda.layout import NUMBERS, kernel_defines
from stepwell.quasi_newton.settings import Settings
from stepwell.quasi_newton.state import STATE_DTYPE

pytestmark = pytest.mark.native
WALK = 32  # breakpoints that the emulated device walks at a time


def emulated(program, fun, x0, bounds, weights, vary, settings, grid, walk=WALK):
    """Run to the end on the emulated device, the objective here; returns the point, the state, and how many points were
    absorbed while they were judged, how many of those refused, and the phases of a grid's longest turn."""
    options = settings.engine_options(
        bounded=bounds is not None,
        boxed=bounds is not None and all(np.isfinite(half).all() for half in bounds),
        weighted=weights is not None,
        weights_vary=vary,
        single=x0.dtype == np.float32,
    )
    options.slots = settings.m + 1
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as device:

        def send(*parts):
            for part in parts:
                device.stdin.write(part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes())
            device.stdin.flush()

        def receive(dtype, count):
            dtype = np.dtype(dtype)
            return np.frombuffer(device.stdout.read(count * dtype.itemsize), dtype)

        sizes = np.array([x0.size, int(_core.sums_length(options)) + NUMBERS, walk, grid], dtype=np.int64)
        send(
            sizes, options.to_bytes(), x0, *([] if bounds is None else bounds), *([] if weights is None else [weights])
        )
        while receive(np.uint32, 1)[0]:
            f, g = fun(receive(x0.dtype, x0.size))
            send(np.float64(f), np.asarray(g, dtype=x0.dtype))
        return receive(x0.dtype, x0.size), receive(STATE_DTYPE, 1)[0], receive(np.int64, 3)


CASES = {
    # Threads of the block, pairs, dtype, problem and its sizes, bounds, diagonal, policy.
    "staged rows": (64, 8, "float64", ("torsion", {"nx": 13, "ny": 13}), "own", False, "exact"),
    "three blocks of rows, diagonal, walks": (64, 10, "float64", ("rosenbrock", {"n": 30}), (-1.5, 0.8), True, "exact"),
    "a warp, refused trial points": (32, 4, "float64", ("rosenbrock", {"n": 14}), None, False, "exact"),
    "a warp, single precision": (32, 5, "float32", ("torsion", {"nx": 9, "ny": 9}), "own", False, "none"),
    "a warp, whole tiles and a part": (32, 8, "float64", ("torsion", {"nx": 14, "ny": 11}), (0.0, 0.2), False, "exact"),
    "history of bfloat16, a warp, doubles": (32, 8, "float64", ("torsion", {"nx": 14, "ny": 11}), "own", False, "none"),
    "a grid, walks": (64, 6, "float64", ("rosenbrock", {"n": 300}), (-1.5, 0.8), True, "exact"),
    "one block of rows": (64, 3, "float64", ("wood", {"n": 24}), None, True, "exact"),
    "a diagonal that may vary": (64, 5, "float64", ("beale", {"n": 24}), (-2.0, 2.4), True, "exact"),
    "rows from the ring, strips": (
        64,
        18,
        "float64",
        ("torsion", {"nx": 14, "ny": 11}),
        (0.0, 0.2),
        False,
        "first-interval",
    ),
    "history of float32": (64, 8, "float64", ("torsion", {"nx": 13, "ny": 13}), "own", False, "exact"),
    "history of bfloat16, half a warp": (64, 9, "float64", ("rosenbrock", {"n": 30}), (-1.5, 0.8), True, "exact"),
    "history of bfloat16, a warp": (32, 5, "float32", ("torsion", {"nx": 9, "ny": 9}), "own", False, "exact"),
    "history of bfloat16, several tiles, walks": (
        64,
        8,
        "float32",
        ("torsion", {"nx": 27, "ny": 27}),
        "own",
        False,
        "exact",
    ),
    "history of bfloat16, several tiles, no bounds": (64, 5, "float32", ("beale", {"n": 700}), None, False, "exact"),
    "history of bfloat16, ten pairs": (64, 10, "float32", ("torsion", {"nx": 19, "ny": 17}), "own", False, "exact"),
    "history of bfloat16, three pairs": (64, 3, "float32", ("rosenbrock", {"n": 130}), (-1.5, 0.8), False, "none"),
    "history of bfloat16, from the ring": (64, 18, "float32", ("torsion", {"nx": 9, "ny": 9}), "own", False, "exact"),
}

# Where rounding decides how many iterations a whole run takes. Gradients that differ by an ulp make 41 to 54 iterations
# of this one on the host itself; 20 iterations in they have moved f by 2e-10.
ITERATIONS = {"a warp, refused trial points": 20}


@pytest.mark.parametrize("name", CASES)
def test_a_run_on_the_emulated_device_is_that_of_the_host(name, tmp_path_factory):
    threads, m, dtype, (kind, sizes), box, weighted, cauchy = CASES[name]
    problem = problems.get(kind, **sizes)
    x0 = np.asarray(problem.x0, dtype=dtype).reshape(-1)
    bounds = None
    if box == "own":
        bounds = tuple(np.asarray(half, dtype=dtype).reshape(-1) for half in problem.bounds)
    elif box is not None:
        # A number for all, on one side where the other is a row: that has other steps and the same bits.
        arrays = {"walks": (1, 1), "strips": (0, 1), "vary": (1, 0)}
        rows = next((steps for word, steps in arrays.items() if word in name), (0, 0))
        bounds = tuple(np.full(x0.size if row else 1, half, dtype=dtype) for half, row in zip(box, rows))
    if bounds is not None:
        x0 = np.clip(x0, *bounds)
    # About the inverse of the second derivatives: with a diagonal far too long no first trial would be accepted.
    size = 1e-3 if kind == "wood" else 1.0
    weights = (size * np.linspace(0.5, 2, x0.size)).astype(dtype) if weighted else None
    vary = "vary" in name
    gtol = 1e-7 if dtype == "float64" else 1e-3
    history = next((kind for kind in ("float32", "bfloat16") if f"history of {kind}" in name), None)
    steps = (1, 1) if bounds is None else tuple(int(half.size > 1) for half in bounds)
    defines = kernel_defines(threads, m, dtype == "float32", bounds is not None, weighted, vary, history, steps)
    defines |= {"SW_WARMED_UP_FROM": 0, "SW_GROUPS_FOR_ONE": 0}
    program = build_once(
        tmp_path_factory,
        [ROOT / "tests/native/turn_device.cpp"],
        ["-O1", *(f"-D{key}={value}" for key, value in defines.items())],
    )

    def fun(x):
        return problem.fun(x.astype(np.float64))

    maxiter = ITERATIONS.get(name, 60)
    settings = Settings(m=m, gtol=gtol, ftol=0.0, cauchy=cauchy, maxiter=maxiter, history=history)
    x, state, (hoped, refused, _) = emulated(program, fun, x0, bounds, weights, vary, settings, "grid" in name)
    h0 = (lambda _: weights) if vary else weights
    host = LBFGSB(x0, bounds, m=m, gtol=gtol, ftol=0.0, cauchy=cauchy, maxiter=maxiter, h0=h0, history=history)
    while not host.done:
        f, g = fun(np.asarray(host.x))
        host.tell(f, np.asarray(g, dtype=dtype))
    # The sums are taken in another order: in few iterations that is all that differs.
    assert int(state["status"]) == host.status.value
    assert abs(int(state["iterations"]) - host.nit) <= 2
    expected = fun(np.asarray(host.x))[0]
    assert abs(float(state["f"]) - expected) <= (1e-8 if dtype == "float64" else 1e-4) * max(1.0, abs(expected))
    # What the names of the cases say.
    assert int(state["cauchy_walks"]) > 0 or "walks" not in name
    assert hoped > 0
    assert refused > 0 or "refused" not in name
    if bounds is not None:
        assert ((x >= bounds[0]) & (x <= bounds[1])).all()


@pytest.mark.parametrize("bounded", [False, True])
def test_a_steep_start_on_the_emulated_device(bounded, tmp_path_factory):
    """f falls by 38 orders of magnitude in its first step; its minimum is 0. The steps are those of the host."""
    x0 = np.array([500.0, -0.1])
    bounds = (np.array([-1e3, -1.0]), np.array([1e3, 1.0])) if bounded else None
    defines = kernel_defines(32, 4, False, bounded, False, False, None, (1, 1))
    defines |= {"SW_WARMED_UP_FROM": 0, "SW_GROUPS_FOR_ONE": 0}
    flags = ["-O1", *(f"-D{key}={value}" for key, value in defines.items())]
    program = build_once(tmp_path_factory, [ROOT / "tests/native/turn_device.cpp"], flags)

    def fun(x):
        steep = np.exp(-1000 * x[1])
        return x[0] ** 2 + steep, np.array([2 * x[0], -1000 * steep])

    _, state, _ = emulated(program, fun, x0, bounds, None, False, Settings(m=4), False)
    host = LBFGSB(x0, bounds, m=4)
    while not host.done:
        host.tell(*fun(host.x))
    assert float(state["f"]) < 1e-9
    assert int(state["status"]) == host.status.value
    # (An ulp of a gradient makes 25 or 26 evaluations of it on the host itself.)
    assert int(state["iterations"]) == host.nit
    assert abs(int(state["evaluations"]) - host.nfev) <= 1


def steep(n, starts):
    """Return log(1 + exp(-y x)) + x²/200, a start and bounds: the first walk crosses all of them."""
    terms, start, bounds = signs(split(n, "self"), n, starts)

    def fun(x):
        values, gradient = terms(x)
        return float(values.sum()), gradient

    return fun, start, tuple(np.full(1, bound) for bound in bounds)


def wavy(n, starts):
    """Return (x - centre)⁴/4 + cos x, a start and bounds: walks end among the breakpoints."""
    centre = 3 * np.sin(np.linspace(0, 7, n))

    def fun(x):
        return float((0.25 * (x - centre) ** 4 + np.cos(x)).sum()), (x - centre) ** 3 - np.sin(x)

    return fun, np.zeros(n), (np.full(1, -0.5), np.full(1, 0.8))


@pytest.mark.parametrize(
    ("make", "n", "walk", "starts", "grid"),
    [
        (steep, 9000, 4096, None, False),
        (steep, 5000, 1250, None, True),
        (steep, 5000, 1250, 7, True),  # ties that fit a later list
        (steep, 5000, 512, 6, False),  # ties that fit none
        (wavy, 5000, 1000, None, True),
    ],
)
def test_a_long_walk_takes_few_lists(make, n, walk, starts, grid, tmp_path_factory):
    """Lists twice as long as the one before, sorted where they lie: points of the host, in few phases."""
    fun, x0, bounds = make(n, starts)
    defines = kernel_defines(64, 3, False, True, False, False, None, (0, 0))
    defines |= {"SW_WARMED_UP_FROM": 0, "SW_GROUPS_FOR_ONE": 0}
    flags = ["-O1", *(f"-D{key}={value}" for key, value in defines.items())]
    program = build_once(tmp_path_factory, [ROOT / "tests/native/turn_device.cpp"], flags)
    points = []

    def recorded(x):
        points.append(x.copy())
        return fun(x)

    settings = Settings(m=3, gtol=0.0, ftol=0.0, maxiter=3)
    _, state, (*_, phases) = emulated(program, recorded, x0, bounds, None, False, settings, grid, walk)
    host = LBFGSB(x0, bounds, m=3, gtol=0.0, ftol=0.0, maxiter=3)
    moved = 0
    for point in points:
        x = np.array(host.x)
        np.testing.assert_allclose(point, x, rtol=0, atol=1e-9)
        moved = max(moved, int((np.isin(x, bounds) & ~np.isin(points[0], bounds)).sum()))
        host.tell(*fun(x))
    assert host.done
    assert int(state["cauchy_walks"]) == int(host.state["cauchy_walks"]) > 0
    assert moved > (n // 2 if make is wavy else n - 1)
    # A usual turn has four phases. A list is too long, and its range counted: octaves, parts of one, perhaps parts of a
    # part. As bins end where they do, lists are not quite full. Lists of 512 would take thirty sweeps.
    lists = 3 + (n - 512 - 1024) / walk + 1
    assert phases <= 8 + lists + (starts or 0)
