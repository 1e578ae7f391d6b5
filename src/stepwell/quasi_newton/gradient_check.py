"""Is a gradient the gradient of its function? An answer by central differences."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from stepwell.arrays import Array, device_name, is_cuda, same_order
from stepwell.arrays.checks import read_host_array
from stepwell.common.checks import read_seed, read_whole, require, require_function, require_shape
from stepwell.common.keywords import keywords_told
from stepwell.quasi_newton.inputs import read_start

#: Up to this many variables, the components are looked at one by one.
_SMALL = 32
#: Steps grow by this factor, and so often, until differences with a step and half of it agree.
_GROWTH, _TRIES = 8.0, 5
#: Differences that disagree among themselves by more than this cannot say anything.
_TOO_NOISY = 0.1


@dataclasses.dataclass(frozen=True, repr=False)
class GradientCheck:
    """What `check_grad` has found. It is true where the gradient is right.

    Parameters
    ----------
    verdict : {"right", "wrong", "unclear"}
        ``"unclear"``: the function is too noisy, not smooth or not finite here.
    message : str
        The verdict in words, with what is wrong.
    max_relative_error : float
        Largest difference between the gradient's slope and that of differences, relative to the larger one.
    accuracy : float
        How well the differences agree among themselves, relative likewise: the error below which they see nothing.
    index : tuple of int or None
        The component that is worst, where components were looked at.
    direction : array or None
        The direction that is worst, where no component is worse; of x0's shape.
    factor : float
        The multiple of the gradient that fits the differences best: 1 where it is right, -1 for a wrong sign.
    evaluations : int
        How often `fun` was called.
    """

    verdict: Literal["right", "wrong", "unclear"]
    message: str
    max_relative_error: float
    accuracy: float
    index: tuple[int, ...] | None
    direction: np.ndarray | None
    factor: float
    evaluations: int

    def __bool__(self) -> bool:
        return self.verdict == "right"

    def __repr__(self) -> str:
        return f"<GradientCheck {self.verdict}: {self.message}>"


@keywords_told
def check_grad(
    fun: Callable[..., Any],
    x0: Array,
    args: tuple[Any, ...] = (),
    jac: Any = True,
    *,
    directions: int = 6,
    seed: int = 0,
) -> GradientCheck:
    """Compare a gradient with central differences, along random directions and, up to 32 variables, along each.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args) -> f``, or ``-> (f, g)`` with ``jac=True``.
    x0 : array
        The point: NumPy, PyTorch or JAX, on the host, of any shape. One where nothing is zero by symmetry tells most.
    args : tuple
        More arguments of `fun` and `jac`.
    jac : callable or True
        ``jac(x, *args) -> g``; True if `fun` returns both.
    directions : int
        How many random directions; each takes four evaluations or, where steps must grow, up to twenty.
    seed : int
        Of the random directions.

    Returns
    -------
    GradientCheck
        True where the gradient is right, so that ``assert stepwell.check_grad(fun, x0)`` is a test.

    Examples
    --------
    >>> import numpy as np, stepwell
    >>> good = lambda x: (np.sum(x**4), 4 * x**3)
    >>> bool(stepwell.check_grad(good, np.array([1.0, -2.0, 0.5])))
    True
    >>> wrong = lambda x: (np.sum(x**4), 2 * x**3)
    >>> stepwell.check_grad(wrong, np.array([1.0, -2.0, 0.5]))
    <GradientCheck wrong: differences are 2 times the gradient in every direction>
    """
    require_function("fun", fun, optional=False)
    require(
        callable(jac) or jac is True, "jac", jac, "a callable, or True where fun returns a pair: a gradient to check"
    )
    read_whole("directions", directions, 1, 10_000)
    seed = read_seed(seed)
    evaluation = _Evaluation(fun, x0, args if isinstance(args, tuple) else (args,), jac)
    x = evaluation.start
    f, g = evaluation.value(x), evaluation.gradient(x)
    if not (math.isfinite(f) and np.isfinite(g).all()):
        return _unclear("f or its gradient is not finite at x0", evaluation)
    size = np.maximum(np.abs(x), 1.0)
    rng = np.random.default_rng(seed)
    tried = [size * rng.standard_normal(x.size) for _ in range(directions)]
    tried = [d / max(1.0, float(np.max(np.abs(d) / size))) for d in tried]
    floors = [float(np.linalg.norm(g * d)) for d in tried]  # what a sum with random signs has for its size
    if x.size <= _SMALL:
        tried += list(np.diag(size))
        floors += [1e-6 * float(np.max(np.abs(g) * size))] * x.size
    noise = _noise(evaluation, x, f, tried[0])
    if not math.isfinite(noise):
        return _unclear("f is not finite beside x0", evaluation)
    slopes = [_slopes(evaluation, x, g, d, noise) for d in tried]
    return _judged(slopes, floors, tried, directions, evaluation)


class _Evaluation:
    """The caller's function and gradient at flat host points of double precision, counted."""

    def __init__(self, fun: Callable[..., Any], x0: Array, args: tuple[Any, ...], jac: Any) -> None:
        if is_cuda(x0):
            raise ValueError(f"x0 is an array on {device_name(x0)}; allowed: one on the host")
        self._variables, start = read_start(x0)
        self.shape, self.dtype = self._variables.shape, self._variables.dtype
        self.start = start.astype(float).reshape(-1)
        self.calls = 0
        self._fun, self._jac, self._args = fun, jac, args

    def _called(self, function: Callable[..., Any], x: np.ndarray) -> Any:
        return function(self._variables.given(x.astype(self.dtype)), *self._args)

    def _pair(self, x: np.ndarray) -> Any:
        self.calls += 1
        out = self._called(self._fun, x)
        if self._jac is not True:
            return out, None
        if not isinstance(out, tuple | list) or len(out) != 2:
            raise TypeError(f"fun returned {type(out).__name__}; with jac=True it must return a pair (f, gradient)")
        return out

    def value(self, x: np.ndarray) -> float:
        """Return f."""
        value: float = self._variables.read_values(self._pair(x)[0])
        return value

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient, flat."""
        out = self._pair(x)[1] if self._jac is True else self._called(self._jac, x)
        gradient = read_host_array("the gradient", out)
        require_shape(same_order(gradient.shape, self.shape), "the gradient", gradient, self.shape)
        return gradient.reshape(-1)


@dataclasses.dataclass(frozen=True)
class _Slopes:
    """The slope along one direction: by the gradient, by differences, and how far the latter are to be trusted."""

    told: float
    seen: float
    doubt: float


def _noise(evaluation: _Evaluation, x: np.ndarray, f: float, d: np.ndarray) -> float:
    """Return the standard deviation of f's noise: rounding errors, or what an iterative f leaves.

    Along a short line of equal steps, fourth differences of a smooth f vanish; those of noise have its variance times
    70, the sum of the squared binomials (Hamming 1962, chapter 2; Moré, Wild 2011).
    """
    eps = float(np.finfo(evaluation.dtype).eps)
    step = eps ** (1 / 3) / 8
    values = [evaluation.value(x + k * step * d) for k in range(-6, 7)]
    with np.errstate(invalid="ignore"):
        rows = np.diff(values, 4)
    return max(math.sqrt(float(np.mean(rows**2)) / 70), eps * abs(f))


def _slopes(evaluation: _Evaluation, x: np.ndarray, g: np.ndarray, d: np.ndarray, noise: float) -> _Slopes:
    """Measure along d with growing steps, and keep the one that is least in doubt.

    The error of a central difference is h^2 / 6 times the third derivative, and noise / h: for rounding errors alone
    both are about even at the smallest step, eps^(1/3) (Gill, Murray, Saunders, Wright 1983, section 2).
    """
    best = _Slopes(math.nan, math.nan, math.inf)
    step = float(np.finfo(evaluation.dtype).eps) ** (1 / 3)
    for _ in range(_TRIES):
        seen = []
        for h in (step, step / 2):
            # Points are rounded to x0's precision: the gradient is asked about the step that was taken.
            ahead, behind = ((x + sign * h * d).astype(evaluation.dtype).astype(float) for sign in (1, -1))
            rise = evaluation.value(ahead) - evaluation.value(behind)
            seen.append((float(g @ (ahead - behind)) / (2 * h), rise / (2 * h)))
        (_, whole), (told, half) = seen
        doubt = abs(half - whole) + 2 * noise / step
        if doubt < best.doubt:
            best = _Slopes(told, half, doubt)
        if not doubt > 1e-3 * max(abs(told), abs(half)):
            break
        step *= _GROWTH
    return best


def _judged(
    slopes: list[_Slopes], floors: list[float], tried: list[np.ndarray], directions: int, evaluation: _Evaluation
) -> GradientCheck:
    told, seen, doubt = (np.array([getattr(s, name) for s in slopes]) for name in ("told", "seen", "doubt"))
    if not (np.isfinite(seen).all() and np.isfinite(doubt).all()):
        return _unclear("f is not finite beside x0", evaluation)
    scale = np.maximum(np.maximum(np.abs(told), np.abs(seen)), floors)
    scale[scale == 0] = 1.0
    error, noise = np.abs(told - seen) / scale, doubt / scale
    eps = float(np.finfo(evaluation.dtype).eps)
    tolerance = max(1e-5, 20 * eps ** (2 / 3))
    wrong = error > np.maximum(tolerance, 5 * noise)
    clear = noise <= _TOO_NOISY  # a component that f does not feel is left out
    shown = wrong if wrong.any() else clear if clear.any() else ~clear
    worst = int(np.argmax(np.where(shown, error, -1.0)))
    factor = float(told @ seen / (told @ told)) if told.any() else math.nan
    found: dict[str, Any] = {
        "max_relative_error": float(error[worst]), "accuracy": float(np.max(noise[shown])), "factor": factor,
        "index": None, "direction": None, "evaluations": evaluation.calls,
    }  # fmt: skip
    if worst < directions:
        found["direction"] = tried[worst].reshape(evaluation.shape)
    else:
        found["index"] = tuple(int(i) for i in np.unravel_index(worst - directions, evaluation.shape))
    if wrong.any():
        return GradientCheck("wrong", _fault(told, seen, noise, tolerance, factor, found), **found)
    if not clear[:directions].all():
        said = f"differences agree among themselves to {np.max(noise):.0e} only: f is noisy or not smooth at x0"
        return GradientCheck("unclear", said, **found)
    reached = max(found["max_relative_error"], found["accuracy"])
    return GradientCheck("right", f"differences agree with the gradient to {reached:.0e}", **found)


def _fault(
    told: np.ndarray, seen: np.ndarray, noise: np.ndarray, tolerance: float, factor: float, found: dict[str, Any]
) -> str:
    """Say what is wrong: the sign, the scale, a component or a direction."""
    if math.isnan(factor):
        return "the gradient is zero, the differences are not"
    left = np.abs(seen - factor * told)
    if (left <= np.maximum(100 * tolerance, 5 * noise) * np.maximum(np.abs(seen), np.max(np.abs(seen)) * 1e-2)).all():
        if abs(factor + 1) < 1e-3:
            return "the gradient has the wrong sign"
        return f"differences are {factor:.4g} times the gradient in every direction"
    if found["index"] is None:
        return f"along a random direction the relative error is {found['max_relative_error']:.2g}"
    at = found["index"][0] if len(found["index"]) == 1 else found["index"]
    return f"the relative error is {found['max_relative_error']:.2g} at index {at}"


def _unclear(why: str, evaluation: _Evaluation) -> GradientCheck:
    nan = math.nan
    return GradientCheck("unclear", why, nan, nan, None, None, nan, evaluation.calls)
