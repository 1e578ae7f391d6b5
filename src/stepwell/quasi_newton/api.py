"""The public functions: `minimize` for one problem, `minimize_batch` for many."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from stepwell.arrays import Array, as_user_array
from stepwell.common.checks import require, require_function, require_kind, warn_caller
from stepwell.common.keywords import keywords_told
from stepwell.quasi_newton.differences import without_fixed
from stepwell.quasi_newton.driver import Interrupted, drive
from stepwell.quasi_newton.objective import Objective
from stepwell.quasi_newton.options import Options, Plan, read_options
from stepwell.quasi_newton.results import batch_result, intermediate_batch, seconds_of, single_result
from stepwell.quasi_newton.run import Run
from stepwell.quasi_newton.scipy.conventions import read_callback, warn_unused

if TYPE_CHECKING:
    from stepwell.quasi_newton.checkpoint import Checkpoint
    from stepwell.quasi_newton.result_types import BatchResult, Result
    from stepwell.quasi_newton.running_rows import RunningRows

T = TypeVar("T")
Gradient = Callable[..., Any] | bool | Literal["2-point", "3-point", "cs"] | None


@keywords_told
def minimize(
    fun: Callable[..., Any],
    x0: Array,
    args: Any = (),
    method: Literal["L-BFGS-B", "l-bfgs-b"] | None = None,
    jac: Gradient = None,
    hess: Any = None,
    hessp: Any = None,
    bounds: Any = None,
    constraints: Any = (),
    tol: float | None = None,
    callback: Callable[..., Any] | None = None,
    options: Options | None = None,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | str = "60 s",
    comm: Any = None,
) -> Result:
    """Minimise a smooth function of many variables, with or without bounds (L-BFGS, L-BFGS-B).

    The arguments are those of `scipy.optimize.minimize`, in its order.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args) -> f``, or ``-> (f, g)`` with ``jac=True``. It gets an array of x0's kind and shape: on the host
        a copy that it may keep (see ``zero_copy``), on a GPU a view that the solver overwrites after the call. Every
        point lies inside the bounds.
    x0 : array
        Starting point: NumPy, PyTorch, CuPy or JAX, any shape, float64 or float32 (integers become float64, in JAX
        its default float). The run takes place where it lives. Where it lies outside the bounds it is projected onto
        them, with a warning.
    args : tuple
        More arguments of `fun` and `jac`.
    method : str, optional
        ``"L-BFGS-B"``, the only one.
    jac : callable, bool or str, optional
        ``jac(x, *args) -> g``; True if `fun` returns both. Without it, PyTorch and JAX use automatic differentiation,
        and NumPy and CuPy functions finite differences inside the bounds (``"2-point"``;
        ``"3-point"`` is more accurate; ``"cs"``, complex steps, takes a NumPy function that is analytic).
    hess, hessp, constraints
        Not used by this method; as in SciPy, a warning says so where they are given.
    bounds : optional
        A `scipy.optimize.Bounds`; a *tuple* of two arrays or numbers (lower, upper), or a (2, n) array; or pairs
        (low, high), one per variable, as a list or tuple of pairs or an (n, 2) array, None standing for no bound. What
        can be either at n = 2 is pairs, as in SciPy; of a tuple of two lists a warning shows both readings.
    tol : float, optional
        Sets `ftol` and `gtol` where the options do not.
    callback : callable, optional
        Called after each iteration as ``callback(x)`` or, if its only parameter has that name, as
        ``callback(intermediate_result=...)`` with fields ``x fun nit nfev step projected_gradient gradient_norm``.
        Raising StopIteration ends the run with status 99.
    options : dict, optional
        Unknown options warn.

        ========================  =============  =====================================================================
        option                    default        meaning
        ========================  =============  =====================================================================
        ``maxcor``                10             pairs of history
        ``gtol``                  1e-5           stop when the projected gradient's largest element is this small
        ``ftol``                  2.2e-9         stop when f decreases by less, relative to max(abs(f), 1)
        ``patience``              10             iterations running for which that must hold, where it is in doubt
        ``relative_gtol``         0, off         stop when ‖g‖ <= relative_gtol max(1, ‖x‖)
        ``target``                -inf           stop at this value of f
        ``maxiter``, ``maxfun``   15000          limits on iterations and evaluations
        ``time_limit``            inf            seconds
        ``maxls``                 20             evaluations in one line search
        ``cauchy``                ``"exact"``    Cauchy point: also ``"first-interval"``, ``"none"``
        ``line_search``           ``"lbfgsb"``   also ``"va15"``, or a `LineSearch`
        ``h0``                    none           diagonal of the initial inverse Hessian: an array, or ``h0(x)``
        ``history``               as x0          dtype of the pairs: ``"float32"`` or ``"bfloat16"`` saves memory
        ``threads``               all            threads on the host
        ``eps``                   none           absolute step of finite differences: a number, or one per variable
        ``finite_diff_rel_step``  by rounding    the step over abs(x); where x is (near) 0, the default, as in SciPy
        ``workers``               1              processes, or a map, that evaluate the points of differences
        ``zero_copy``             False          hand out read-only views of points, which are overwritten
        ``jit``                   False          JAX: compile `fun`, with `jac` or its gradient, for this run
        ``verbose``               0              1: print a summary, 2: a line per iteration
        ``graph``                 ``"auto"``     GPU: capture evaluations and turns in a CUDA graph (True, False)
        ``time_objective``        False          GPU: let the device time both, for ``result.seconds``
        ========================  =============  =====================================================================
    comm : optional
        One problem over many ranks: an mpi4py communicator, a torch process group, ``"self"``, what
        `stepwell.distributed.split` returned, or an object with `rank`, `size` and `allgather`. Every rank calls with
        its piece of x0, bounds and h0, in the order of the ranks; `fun` gets this rank's piece of a point and returns
        its piece of the gradient (``jac=True``, or a callable), and f: the same number on all ranks, this rank's
        ``stepwell.distributed.part(f)``, or an array of one value for each of its chunks. The result has this rank's
        pieces. Pieces may lie on GPUs. See docs/distributed.md.

    checkpoint : path, optional
        A file that the run is written to as it goes on, and taken up from, bit for bit, where it is there already: run
        the same program again after a crash, SIGKILL or Ctrl-C. It is replaced in one step and has a checksum. Other
        x0, bounds, ``h0``, ``maxcor``, ``history``, ``cauchy`` or ``line_search`` than the file's are an error, and so
        is another `fun`, of which one evaluation tells; other tolerances and limits are taken as they are.
    checkpoint_every : int or str, default "60 s"
        How often: so many iterations, or a time in ``s``, ``min`` or ``h``.

    Returns
    -------
    Result
        SciPy's `OptimizeResult` fields and ours; see `Result`.

    Raises
    ------
    Interrupted
        A KeyboardInterrupt whose ``result`` is the outcome so far, when Ctrl-C ends the run.

    Examples
    --------
    >>> import numpy as np, stepwell
    >>> def fun(x):
    ...     return np.sum((x - 3) ** 2), 2 * (x - 3)
    >>> r = stepwell.minimize(fun, np.zeros(4), jac=True, bounds=(0.0, 2.0))
    >>> r.x, r.success
    (array([2., 2., 2., 2.]), True)
    """

    def read() -> tuple[Plan, Callable[..., None] | None]:
        known = method is None or (isinstance(method, str) and method.upper() == "L-BFGS-B")
        require_kind(known, "method", method, "None or 'L-BFGS-B'")
        warn_unused("L-BFGS-B", hess, hessp, constraints)
        alone = checkpoint is None or (comm is None and not hasattr(x0, "base_comm"))
        require(alone, "checkpoint", checkpoint, "None where comm is given (LBFGSB.save writes a run over ranks)")
        return read_options(options, tol), read_callback(callback)

    began = time.perf_counter()
    ranks = None
    if comm is None and not hasattr(x0, "base_comm"):
        plan, tell = read()
        run = Run(x0, bounds, plan.h0, plan.settings)
        objective = _objective(run, fun, jac, args, plan)
    else:
        from stepwell.quasi_newton.ranks.setup import read_ranks, together

        x0, bounds, comm, ranks = read_ranks(x0, bounds, comm)
        plan, tell = together(ranks, read)
        run = Run(x0, bounds, plan.h0, plan.settings, comm=comm, ranks=ranks)
        objective = together(ranks, lambda: _objective(run, fun, jac, args, plan))
    report = _printer(plan.verbose if ranks is None or ranks.rank == 0 else 0)
    target = run.target

    def after() -> None:
        state = target.states()[0]
        if not state["accepted"]:
            return
        if report is not None:
            report.iteration(state)
        if tell is not None:
            tell(state, run.accepted("x"))

    def result(**how: Any) -> Result:
        # A device may be ahead of the host, which then has evaluated more than was used.
        counted = objective.differenced or not run.variables.on_device
        counts = {"nfev": objective.nfev, "njev": objective.njev} if counted else {}
        made = single_result(
            target.states()[0],
            hess_inv=run.later_inverse_hessian(),
            **_points(run, objective),
            **counts,
            **run.shared_fields(),
            **how,
        )
        if report is not None:
            report.end(made)
        return made

    watched = tell is not None or plan.verbose > 1
    kept = None
    if checkpoint is not None:
        from stepwell.quasi_newton.checkpoint import Checkpoint

        kept = Checkpoint(checkpoint, checkpoint_every, run, objective)
        kept.resume()
    return _driven(run, objective, plan, began, after if watched else None, result, kept)


@keywords_told
def minimize_batch(
    fun: Callable[..., Any],
    x0: Array,
    args: Any = (),
    jac: Gradient = None,
    bounds: Any = None,
    tol: float | None = None,
    callback: Callable[..., Any] | None = None,
    options: Options | None = None,
    *,
    comm: None = None,
) -> BatchResult:
    """Minimise many independent functions at once, each with its own history, line search and status.

    The result for each problem is, bit for bit, that of the same problem alone. A problem that has ended stays where
    it is; a `fun` of the points alone still sees its row, but its counts no longer change.

    Parameters
    ----------
    fun : callable
        Maps points (B, n) to values (B,); with ``jac=True`` to values and gradients (B, n). Row k is problem k.
        A function with a second argument, ``fun(x, rows)``, ``fun(x, rows=None)`` or ``fun(x, rows, *args)``, gets only
        the points of problems that still run, (k, n), and their indices `rows`, (k,). (An argument that may be left out
        has to be called ``rows``, ``which``, ``index`` or ``indices`` and to be None then.) With NumPy and PyTorch on
        the CPU these are exactly the running ones; on a GPU and with JAX, where another shape costs a graph or a
        compilation, rows leave in steps, and some that have ended are still among them.
    x0 : (B, n) array
        Starting points.
    jac : callable, bool or str, optional
        As in `minimize`, on (B, n) arrays. If missing, PyTorch and JAX differentiate, NumPy and CuPy are
        differenced.
    bounds : optional
        As in `minimize`, shared by all problems; or a tuple (lower, upper) of arrays (B, n).
    callback : callable, optional
        Called after each evaluation of the batch as ``callback(intermediate_result=...)`` with fields
        ``x fun nit nfev running`` (arrays over problems); StopIteration ends all runs.
    args, tol, options
        As in `minimize`; limits count per problem, evaluations of finite differences included. ``h0`` may be (n,),
        (B, n) or a callable on (B, n) points.
    comm : None
        Problems of a batch share nothing: deal them out to ranks instead, and call this function on each.

    Returns
    -------
    BatchResult
        ``x`` (B, n), ``fun`` (B,), ``jac``, ``nit``, ``nfev``, ``status`` (SciPy's codes), ``reason`` (list of
        `Status`), ``message``, ``success``, ``projected_gradient``; ``hess_inv(k)`` gives problem k's operator.

    Examples
    --------
    >>> import numpy as np, stepwell
    >>> centre = np.array([[0.5, 2.0], [-3.0, 0.0]])
    >>> fun = lambda x: (((x - centre) ** 2).sum(1), 2 * (x - centre))
    >>> stepwell.minimize_batch(fun, np.zeros((2, 2)), jac=True, bounds=(-1.0, 1.0)).x
    array([[ 0.5,  1. ],
           [-1. ,  0. ]])
    """
    from stepwell.quasi_newton.inverse_hessian import InverseHessians

    require(comm is None, "comm", comm, "None: deal the problems out to the ranks, and minimise each rank's own")
    plan = read_options(options, tol)
    require_function("callback", callback)
    began = time.perf_counter()
    run = Run(x0, bounds, plan.h0, plan.settings, batch=True)
    objective = _batch_objective(run, fun, jac, args, plan)
    report = _printer(plan.verbose)
    target = run.target

    def after() -> None:
        if report is not None:
            report.turn(target.states())
        if callback is not None:
            callback(intermediate_result=intermediate_batch(target.states(), run.accepted("x")))

    def result(**how: Any) -> BatchResult:
        states = target.states()
        values = states["f"].copy()
        made = batch_result(
            states,
            calls_a_point=objective.calls_a_point,
            fun=values if run.variables.on_device else as_user_array(values, run.variables.template),
            evaluations=objective.nfev,
            rows_evaluated=objective.rows_evaluated,
            hess_inv=InverseHessians(run.inverse_hessian, run.variables.problems),
            **_points(run, objective),
            **how,
        )
        if report is not None:
            report.end_batch(made)
        return made

    watched = callback is not None or plan.verbose > 1
    return _driven(run, objective, plan, began, after if watched else None, result)


def _points(run: Run, objective: Objective | RunningRows) -> dict[str, Array]:
    gradient = run.accepted("g")
    if objective.differenced and run.box is not None:
        gradient = without_fixed(gradient, run.box, (run.variables.problems, run.variables.size))
    return {"x": run.accepted("x"), "jac": gradient}


def _driven(
    run: Run,
    objective: Objective | RunningRows,
    plan: Plan,
    began: float,
    after: Callable[[], None] | None,
    result: Callable[..., T],
    checkpoint: Checkpoint | None = None,
) -> T:
    """Drive a run to its end and return its result; of one that is interrupted, with the interrupt."""
    clock = _clock(run, plan)
    ready = time.perf_counter()

    def ended(mode: str | None) -> T:
        return result(seconds=seconds_of(began, ready, objective, clock), **({} if mode is None else {"mode": mode}))

    try:
        mode = drive(run, objective, began=began, after=after, graph=plan.graph, clock=clock, checkpoint=checkpoint)
    except KeyboardInterrupt as interrupt:
        if checkpoint is not None:
            checkpoint.write()
        run.finish()
        carrier = Interrupted(*interrupt.args)
        carrier.result = ended(None)
        raise carrier.with_traceback(interrupt.__traceback__) from None
    return ended(mode)


def _objective(run: Run, fun: Callable[..., Any], jac: Any, args: Any, plan: Plan) -> Objective:
    if run.share is not None:
        given = callable(jac) or (isinstance(jac, bool | np.bool_) and bool(jac))
        require(
            given,
            "jac",
            jac,
            "True or a callable where comm is given (differences would take n evaluations of all ranks, and a rank "
            "that differentiates its own part knows nothing of its neighbours)",
        )
        require(not plan.jit, "options['jit']", plan.jit, "False where comm is given")
        captured = run.variables.on_device and plan.graph is True
        require(not captured, "options['graph']", plan.graph, "'auto' or False where comm is given")
    objective = Objective(
        fun,
        jac,
        args if isinstance(args, tuple) else (args,),
        run.variables,
        run.box,
        relative_step=plan.relative_step,
        absolute_step=plan.absolute_step,
        workers=plan.workers,
        zero_copy=plan.zero_copy,
        jit=plan.jit,
        threads=plan.settings.thread_count(),
    )
    if plan.absolute_step is not None and not objective.differenced:
        warn_caller("options['eps'] is the step of finite differences, as in SciPy, and has no effect with a gradient")
    return objective


def _batch_objective(run: Run, fun: Callable[..., Any], jac: Any, args: Any, plan: Plan) -> Objective | RunningRows:
    from stepwell.quasi_newton.running_rows import RunningRows, takes_rows

    more = args if isinstance(args, tuple) else (args,)
    if not takes_rows(fun, more):
        return _objective(run, fun, jac, args, plan)
    require(not plan.jit, "options['jit']", plan.jit, "False where fun takes rows, which change while it runs")
    return RunningRows(run, fun, jac, more, lambda value, gradient: _objective(run, value, gradient, (), plan))


def _printer(verbose: int) -> Any:
    if not verbose:
        return None
    from stepwell.quasi_newton.printing import Printer

    return Printer(verbose)


def _clock(run: Run, plan: Plan) -> Any:
    if not (run.variables.on_device and plan.time_objective):
        return None
    from stepwell.quasi_newton.cuda.events import clock_for

    return clock_for(run.variables.template)
