"""L-BFGS-B by reverse communication: ask for a point, tell its value and gradient."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from stepwell.arrays import Array, as_user_array, copy_to_device_of, is_cuda, numpy_dtype
from stepwell.common.checks import require, require_path
from stepwell.common.keywords import keywords_told
from stepwell.common.threads import OneAtATime
from stepwell.quasi_newton import checkpoint, saved_state
from stepwell.quasi_newton.results import single_result
from stepwell.quasi_newton.run import Run
from stepwell.quasi_newton.settings import CauchyPolicy, HistoryDtype, LineSearch, LineSearchPreset, Settings
from stepwell.quasi_newton.state import LOOK_EVERY
from stepwell.quasi_newton.status import Status, status_message
from stepwell.quasi_newton.target import Box
from stepwell.quasi_newton.variables import Variables

if TYPE_CHECKING:
    from stepwell.quasi_newton.inverse_hessian import DeviceInverseHessian
    from stepwell.quasi_newton.inverse_operator import InverseHessian
    from stepwell.quasi_newton.ranks.hessian import RankInverseHessian
    from stepwell.quasi_newton.result_types import Result

_DEFAULT = Settings()


class LBFGSB:
    """L-BFGS-B that asks for evaluations instead of making them.

    Parameters
    ----------
    x0 : array
        Starting point: NumPy, PyTorch, CuPy or JAX; any shape; float64 or float32. The run takes place where it lives.
    bounds : optional
        As in `stepwell.minimize`.
    m : int, default 10
        Pairs of history.
    h0 : array or callable, optional
        Diagonal of the initial inverse Hessian, all positive; or ``h0(x)`` giving it at each accepted point.
    line_search : str, dict or LineSearch
        ``"lbfgsb"`` or ``"va15"``, or constants of your own.
    gtol, ftol, patience, relative_gtol, maxiter, maxfun, target, time_limit, cauchy, threads, history
        As the options of `stepwell.minimize`.
    comm : optional
        As in `stepwell.minimize`: one problem over many ranks, each of which has a piece of x0 and what belongs to it.
        `tell`, `stop`, `save` and products with the inverse Hessian are calls of all ranks.

    Examples
    --------
    >>> import numpy as np
    >>> opt = LBFGSB(np.array([3.0, -0.5]), bounds=(np.array([1.0, -1.0]), np.array([5.0, 5.0])))
    >>> while not opt.done:
    ...     opt.tell(float(opt.x @ opt.x), 2 * opt.x)
    >>> opt.x, opt.status.name
    (array([1., 0.]), 'GRADIENT')

    Notes
    -----
    On a GPU, `tell` launches a turn and returns at once. `done` looks at the state as of the last turn that has
    finished, and waits for all of them every few turns; turns after the end do nothing.

    One thread at a time: a second one that calls `tell`, `stop`, `state_dict` or `save` meanwhile gets a RuntimeError.
    """

    @keywords_told
    def __init__(
        self,
        x0: Array,
        bounds: Any = None,
        *,
        m: int = _DEFAULT.m,
        h0: Array | Callable[[Array], Array] | None = None,
        line_search: LineSearch | LineSearchPreset | dict[str, Any] = "lbfgsb",
        gtol: float = _DEFAULT.gtol,
        ftol: float = _DEFAULT.ftol,
        patience: int = _DEFAULT.patience,
        relative_gtol: float = _DEFAULT.relative_gtol,
        maxiter: float = _DEFAULT.maxiter,
        maxfun: float = _DEFAULT.maxfun,
        target: float = _DEFAULT.target,
        time_limit: float = _DEFAULT.time_limit,
        cauchy: CauchyPolicy = _DEFAULT.cauchy,
        threads: int | None = None,
        history: HistoryDtype | None = None,
        comm: Any = None,
    ) -> None:
        def read() -> Settings:
            search = LineSearch.of(line_search)
            return Settings(
                m, gtol, ftol, patience, relative_gtol, maxiter, maxfun, target, time_limit, cauchy, search, threads,
                history,
            )  # fmt: skip

        if comm is None and not hasattr(x0, "base_comm"):
            self._begin(Run(x0, bounds, h0, read()))
            return
        from stepwell.quasi_newton.ranks.setup import read_ranks, together

        x0, bounds, comm, ranks = read_ranks(x0, bounds, comm)
        self._begin(Run(x0, bounds, h0, together(ranks, read), comm=comm, ranks=ranks))

    def _begin(self, run: Run) -> None:
        self._run, self.settings = run, run.settings
        self._told = 0
        self._began = time.perf_counter()
        self._alone = OneAtATime("this LBFGSB")
        #: Several ranks look at their clocks where they can tell each other.
        self._has_clock = not hasattr(run.target, "set_limit")
        if not self._has_clock:
            run.target.set_limit(self._began + self.settings.time_limit)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        n, pairs = math.prod(self._run.variables.shape), int(self.state["pairs"])
        how = self.status.name if self.done else "running"
        return f"LBFGSB(n={n}, {how}, f={self.fun:.6g}, {self.nit} iterations, {self.nfev} evaluations, {pairs} pairs)"

    @property
    def x(self) -> Array:
        """The point to evaluate next; once done, the solution. A view that the next `tell` overwrites."""
        return self._run.variables.shown(self._run.target.trial)

    @property
    def done(self) -> bool:
        """Whether the run has ended; on a GPU, as far as the host has seen."""
        if self._told % LOOK_EVERY == 0:
            self._run.target.wait()
        return self.seen_done

    @property
    def seen_done(self) -> bool:
        """Whether the host has seen the end of the run; never waits for a GPU, where turns after the end do nothing."""
        return self._run.target.running == 0

    @property
    def state(self) -> Any:
        """The engine's record of the run, by field names (`f`, `iterations`, `step` ...); for reading only."""
        return self._run.target.states()[0]

    @property
    def accepted(self) -> bool:
        """Whether the last `tell` accepted an iteration."""
        return bool(self.state["accepted"])

    @property
    def status(self) -> Status:
        """Why the run ended, or ``Status.RUNNING``."""
        return Status.of(self.state["status"])

    @property
    def message(self) -> str:
        """What the status means, in words."""
        return status_message(self.state)

    @property
    def nit(self) -> int:
        """Iterations accepted so far."""
        return int(self.state["iterations"])

    @property
    def nfev(self) -> int:
        """Evaluations told so far."""
        return int(self.state["evaluations"])

    @property
    def fun(self) -> float:
        """Value of f at the last accepted point; NaN before the first `tell`."""
        state = self.state
        return float(state["f"]) if state["evaluations"] else math.nan

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, where the run takes place."""
        return self._run.target.nbytes

    def tell(self, f: Any, g: Array) -> None:
        """Take the value and gradient at `x`, and move `x` to the next trial point or to the solution."""
        run = self._run
        if self._has_clock:
            value, gradient = run.variables.read_values(f), run.variables.read_gradient(g, "g")
        else:
            value, gradient = run.read_held(f, g)
        with self._alone:
            if not run.variables.on_device and run.target.running == 0:
                raise RuntimeError(f"the run has ended ({self.message}); tell() takes no more values")
            run.turn(value, gradient)
            self._told += 1
        if self._has_clock and time.perf_counter() - self._began > self.settings.time_limit:
            self.stop(Status.TIME_LIMIT)

    def stop(self, status: Status = Status.CALLBACK) -> None:
        """End the run now; `x` becomes the last accepted point."""
        good = isinstance(status, Status) and status is not Status.RUNNING
        require(good, "status", status, "a stepwell.Status other than RUNNING")
        with self._alone:
            self._run.target.stop(status.value)

    def accepted_point(self) -> Array:
        """Return a copy of the last accepted point, in the caller's kind and shape."""
        return self._run.accepted("x")

    def accepted_gradient(self) -> Array:
        """Return a copy of the gradient at the last accepted point."""
        return self._run.accepted("g")

    def pairs(self) -> tuple[list[Array], list[Array]]:
        """Return copies of the pairs of history, changes of x and of the gradient, oldest first; flat arrays."""
        return self._run.pairs(0)

    def inverse_hessian(self) -> InverseHessian | DeviceInverseHessian | RankInverseHessian:
        """Return the inverse Hessian approximation as a linear operator; over ranks, on pieces of vectors.

        Of a run that has ended it shares the history with the optimizer; of one that goes on it has a copy.
        """
        return self._run.inverse_hessian(shared=self._run.target.running == 0)

    def result(self) -> Result:
        """Return the outcome so far, as `stepwell.minimize` does."""
        return single_result(
            self.state,
            x=self.accepted_point(),
            jac=self.accepted_gradient(),
            hess_inv=self.inverse_hessian(),
            **self._run.shared_fields(),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to resume, as a dict of NumPy arrays and plain values (copies).

        It can be saved with `numpy.savez` (and read with `numpy.load`) or pickle. A callable ``h0`` is not in it: pass
        it again to `from_state_dict`. Its checksum tells a state that was changed. Over ranks it has this rank's piece;
        `save` and `load` are for all of them.
        """
        with self._alone:
            return saved_state.with_checksum(self._run.state())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to resume to a file, which is replaced in one step; over ranks, to a folder.

        A callable ``h0`` is not in it. The format is that of `stepwell.minimize` with ``checkpoint=``. Over ranks, all
        of them call with a folder that all of them see; it gets a file a rank and, last, a manifest. What was saved
        there before stays whole until then. See `load`.

        Examples
        --------
        >>> import numpy as np, pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "run.ckpt"
        >>> opt = LBFGSB(np.ones(3))
        >>> opt.tell(1.5, np.array([1.0, 2.0, 3.0]))
        >>> opt.save(file)
        >>> bool((LBFGSB.load(file).x == opt.x).all())
        True
        """
        with self._alone:
            if self._run.share is None:
                checkpoint.write(path, self._run)
                return
            from stepwell.quasi_newton.ranks.files import save_pieces

            save_pieces(path, self._run, self._run.share)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        comm: Any = None,
        *,
        like: Array = None,
        h0: Callable[[Array], Array] | None = None,
    ) -> LBFGSB:
        """Make an optimizer that continues, bit for bit, where `save` was called; on any number of ranks.

        Parameters
        ----------
        path : path
            Of `save`, or of ``minimize(..., checkpoint=path)``. A file that was changed or cut short is a ValueError.
        comm : optional
            A communicator, or a layout of as many variables and the same `align` and `chunk`: this rank gets its
            piece, as `stepwell.distributed.split` has it. None: all of it, in this process.
        like, h0
            As in `from_state_dict`.
        """
        require_path("path", path)
        if comm is None and not os.path.isdir(path):
            return cls._continued(checkpoint.read(path)[0], like, h0)
        from stepwell.distributed import Ranks
        from stepwell.quasi_newton.ranks.files import Folder
        from stepwell.quasi_newton.ranks.setup import together

        ranks = None if comm is None else Ranks(comm)
        found = together(ranks, lambda: Folder.of(path))
        if comm is None and found.align == 1 and not found.chunk:
            return cls._continued(found.piece(0, found.n), like, h0)
        layout = together(ranks, lambda: found.layout("self" if comm is None else comm, on_device=is_cuda(like)))
        return cls._continued(together(ranks, lambda: found.piece(*layout)), like, h0, layout)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by the state: what comes out goes on bit for bit, and alone."""
        if self._run.share is not None:
            raise TypeError("an LBFGSB over ranks cannot be pickled: it holds a communicator; allowed: save and load")
        variables = self._run.variables
        empty = np.empty(0, variables.dtype)
        like = (
            copy_to_device_of(empty, variables.template)
            if variables.on_device
            else as_user_array(empty, variables.template)
        )
        return _resumed, (type(self), self.state_dict(), like, self._run.diagonal)

    @classmethod
    def from_state_dict(
        cls,
        state: Mapping[str, Any],
        *,
        like: Array = None,
        h0: Callable[[Array], Array] | None = None,
        comm: Any = None,
    ) -> LBFGSB:
        """Make an optimizer that continues, bit for bit, where `state_dict` was taken.

        Parameters
        ----------
        state : dict
            From `state_dict`. It is checked as a whole before anything is made of it.
        like : array, optional
            An array of the kind in which points are to be handed out, on the device where the run is to go on; NumPy
            by default.
        h0 : callable, optional
            The callable diagonal, if the run had one.
        comm : optional
            The communicator or layout, if the state is a piece of a run over ranks.
        """
        if comm is None:
            return cls._continued(saved_state.unpack(state), like, h0)
        from stepwell.distributed import Ranks
        from stepwell.quasi_newton.ranks.setup import together

        return cls._continued(together(Ranks(comm), lambda: saved_state.unpack(state)), like, h0, comm)

    @classmethod
    def _continued(
        cls, saved: saved_state.Saved, like: Array, h0: Callable[[Array], Array] | None, comm: Any = None
    ) -> LBFGSB:
        """Make an optimizer of a state that has been checked."""
        good = callable(h0) if saved.weights_vary else h0 is None
        require(good, "h0", h0, f"{'a callable' if saved.weights_vary else 'None'}, as in the saved run")
        template = np.empty(0, saved.dtype) if like is None else like
        on_device = is_cuda(template)
        if on_device and numpy_dtype(template) != saved.dtype:
            raise TypeError(f"like has dtype {template.dtype}; allowed: {saved.dtype}, as the saved run")
        variables = Variables(template, saved.shape, saved.dtype, is_batch=False, on_device=on_device)

        def placed(array: np.ndarray) -> Array:
            return copy_to_device_of(array, template) if on_device else array

        box = None
        if saved.lower is not None and saved.upper is not None:
            boxed = bool(np.isfinite(saved.lower).all() and np.isfinite(saved.upper).all())
            box = Box(placed(saved.lower), placed(saved.upper), boxed)
        weights = None if saved.weights is None else placed(saved.weights)
        new = cls.__new__(cls)
        trial, diagonal, share = placed(saved.arrays["trial"]), h0 if saved.weights_vary else weights, None
        if comm is not None:
            from stepwell.distributed import Ranks
            from stepwell.quasi_newton.ranks.setup import settle

            variables, box, share = settle(Ranks(comm), comm, variables, box, diagonal, saved.settings)
        new._begin(Run.resumed(variables, trial, box, diagonal, saved, share))
        if saved.weights_vary:
            new._run.target.set_diagonal(weights, np.zeros(1, int))
        return new


def _resumed(cls: type[LBFGSB], state: Mapping[str, Any], like: Array, h0: Any) -> LBFGSB:
    """Make an optimizer from what `LBFGSB.__reduce__` has put away."""
    return cls.from_state_dict(state, like=like, h0=h0)
