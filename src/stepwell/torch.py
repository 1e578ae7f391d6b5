"""Stepwell for PyTorch: an optimizer with bounds. Import it by name, ``import stepwell.torch``; it needs PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from stepwell.arrays import capture as capture_graph
from stepwell.arrays.bounds import split_bounds
from stepwell.common.checks import read_choice, read_real, read_switch, read_whole, require, require_kind, warn_caller
from stepwell.common.keywords import keywords_told
from stepwell.quasi_newton.optimizer import LBFGSB as Engine

__all__ = ["LBFGSB"]

#: What may differ between groups: everything else belongs to the one run that all parameters share.
_OWN = ("params", "bounds")
#: Pairs of history by default: without bounds, and with.
_PAIRS = (50, 10)


class LBFGSB(torch.optim.Optimizer):
    """L-BFGS-B as an optimizer of PyTorch: ``torch.optim.LBFGS`` with bounds, in one line's change.

    Each `step` goes on with the run that the first one began: history and line search are carried over. Parameters end
    each step at the last point that was accepted, inside their bounds. Where somebody else changes them between steps,
    that is noticed and a new run begins there. The closure is to be the same function every time (no random batches).

    Parameters
    ----------
    params : iterable of tensors, or of dicts that define groups
        Real, float64 or float32, of one dtype and on one device. Groups may differ in `bounds` alone.
    lr : float, default 1
        There for compatibility: the line search chooses the length of steps, and other values are refused.
    max_iter : int, default 20
        Iterations in a step.
    max_eval : int, default 1.25 max_iter
        Evaluations of the closure in a step.
    tolerance_grad : float, default 1e-7
        The run has converged where the projected gradient's largest element is this small.
    tolerance_change : float, default 1e-9
        The run ends where the loss decreases by less, relative to max(abs(loss), 1).
    history_size : int, optional
        Pairs of history. By default 50, and 10 with bounds, where the work grows with the square of it. (PyTorch's
        default is 100. Networks gain from many pairs, well-conditioned functions seldom from more than 10.)
    line_search_fn : {None, "strong_wolfe"}
        There for compatibility: there is always a line search.
    bounds : optional
        A tuple (lower, upper) of numbers or tensors that broadcast to every parameter of the group, None standing for
        no bound on a side; or a ``scipy.optimize.Bounds``, or a tensor with lower and upper along its first axis. Or a
        list with one of these, or None, for each parameter. Parameters outside are projected
        at the first step, with a warning.
    capture : bool, default False
        On a CUDA device: record the closure once, at its second call, as a CUDA graph, and replay that. The closure has
        then to do the same on the same tensors every time, without a look at values on the host, and what else it does
        in Python is done twice. One that is another object is recorded anew. Small problems gain most: launching a
        closure's kernels takes longer than running them.

    Examples
    --------
    >>> import torch, stepwell.torch
    >>> x = torch.nn.Parameter(torch.tensor([-1.2, 1.0], dtype=torch.float64))
    >>> optimizer = stepwell.torch.LBFGSB([x], bounds=(None, 1.2), max_iter=100)
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    ...     loss.backward()
    ...     return loss
    >>> _ = optimizer.step(closure)
    >>> x.detach().round(decimals=3)
    tensor([1., 1.], dtype=torch.float64)
    """

    @keywords_told
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int | None = None,
        line_search_fn: str | None = None,
        *,
        bounds: Any = None,
        capture: bool = False,
    ) -> None:
        allowed = "1: the line search chooses the length of steps"
        require(read_real("lr", lr) == 1, "lr", lr, allowed)
        if line_search_fn is not None:
            read_choice("line_search_fn", line_search_fn, ("strong_wolfe",))
        defaults = dict(
            lr=lr,
            max_iter=read_whole("max_iter", max_iter, 1),
            max_eval=max_iter * 5 // 4 if max_eval is None else read_whole("max_eval", max_eval, 1),
            tolerance_grad=read_real("tolerance_grad", tolerance_grad, at_least=0),
            tolerance_change=read_real("tolerance_change", tolerance_change, at_least=0),
            history_size=None if history_size is None else read_whole("history_size", history_size, 1),
            line_search_fn=line_search_fn,
            bounds=bounds,
            capture=read_switch("capture", capture),
        )
        self._captured: _Captured | None = None
        self._engine: Engine | None = None
        self._known: Tensor | None = None  # where the last step left the parameters
        self._loss: Tensor | None = None  # and the loss there
        super().__init__(params, defaults)

    # ---- groups ----

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, before the first step; it may differ from the others in its bounds."""
        if self._engine is not None:
            raise RuntimeError("a run of LBFGSB has its parameters from the first step on; allowed: a new optimizer")
        super().add_param_group(param_group)
        first, added = self.param_groups[0], self.param_groups[-1]
        for name in first:
            if name not in _OWN:
                require(added[name] == first[name], name, added[name], f"{first[name]!r}, as in the first group")
        template = first["params"][0]
        for tensor in added["params"]:
            require_kind(tensor.layout == torch.strided, "params", tensor.layout, "dense tensors")
            require_kind(tensor.dtype in (torch.float64, torch.float32), "params", tensor.dtype, "float64, float32")
            for what in ("dtype", "device"):
                found, wanted = getattr(tensor, what), getattr(template, what)
                require_kind(found == wanted, f"the {what} of params", found, f"{wanted}, that of all parameters")
        _read_bounds(added)

    def _parameters(self) -> list[Tensor]:
        return [tensor for group in self.param_groups for tensor in group["params"]]

    # ---- a step ----

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take up to `max_iter` iterations; return the loss that the step began with.

        Parameters
        ----------
        closure : callable
            Zeroes the gradients, computes the loss, calls ``backward`` and returns the loss.
        """
        require_kind(callable(closure), "closure", closure, "a callable: the loss is evaluated several times per step")
        assert closure is not None
        with torch.enable_grad():
            return self._advance(closure)

    def _advance(self, closure: Callable[[], Any]) -> Any:
        engine = self._begun()
        before = self._loss
        settings = self.param_groups[0]
        if engine.done:  # nothing is left to do but to say the loss
            return closure()
        start, evaluations, first = engine.nit, 0, None
        # An evaluation makes one iteration at most: so many need no look at the run, which waits for a device.
        unseen = int(settings["max_iter"])
        # As the run knows them: what is written to these is no part of a graph.
        parameters = [tensor.detach() for tensor in self._parameters()]
        trial = self._pieces(engine.x)
        evaluate = self._evaluation(closure, parameters, trial)
        while not engine.seen_done and evaluations < settings["max_eval"]:
            if unseen == 0:
                unseen = settings["max_iter"] - (engine.nit - start)
                if unseen <= 0:
                    break
            loss, gradient = evaluate()
            if first is None:
                first = loss.clone() if isinstance(evaluate, _Captured) else loss
            if gradient.is_cuda:
                engine.tell(loss.detach() if isinstance(loss, Tensor) else loss, gradient)
            else:  # as the run reads them, without a look at what they are
                engine.tell(loss.item() if isinstance(loss, Tensor) else loss, gradient.numpy())
            evaluations, unseen = evaluations + 1, unseen - 1
        self._known = engine.accepted_point()
        _copy(parameters, self._pieces(self._known))
        self._loss = torch.as_tensor(engine.fun, dtype=self._known.dtype, device=self._known.device)
        return first if before is None else before

    def _begun(self) -> Engine:
        """The run, begun anew where the parameters are not where it has left them."""
        parameters = self._parameters()
        now = torch.cat([tensor.detach().reshape(-1) for tensor in parameters])
        if self._engine is not None and self._known is not None and torch.equal(now, self._known):
            return self._engine
        if self._engine is not None:
            warn_caller("parameters were changed between steps of LBFGSB; a new run begins where they are")
        settings, bounds = self.param_groups[0], _joined(self.param_groups)
        given = settings["history_size"]
        self._engine = Engine(
            now,
            bounds,
            m=_PAIRS[bounds is not None] if given is None else given,
            gtol=settings["tolerance_grad"],
            ftol=settings["tolerance_change"],
            maxiter=float("inf"),
            maxfun=float("inf"),
        )
        self._loss = None
        return self._engine

    def _pieces(self, point: Tensor) -> list[Tensor]:
        """Views of a point as the parameters have it."""
        parameters = self._parameters()
        pieces = point.split([tensor.numel() for tensor in parameters])
        return [piece.view(tensor.shape) for piece, tensor in zip(pieces, parameters)]

    def _evaluation(
        self, closure: Callable[[], Any], parameters: list[Tensor], trial: list[Tensor]
    ) -> Callable[[], tuple[Any, Tensor]]:
        """Return what moves the parameters to the trial point and gives the loss and the gradient there."""

        def evaluate() -> tuple[Any, Tensor]:
            _copy(parameters, trial)
            loss = closure()
            return loss, self._gradient()

        if not self.param_groups[0].get("capture", False) or not parameters[0].is_cuda:
            return evaluate
        if self._captured is None or not self._captured.is_of(closure, trial):
            self._captured = _Captured(closure, trial)
        self._captured.evaluate = evaluate
        return self._captured

    def _gradient(self) -> Tensor:
        parts = []
        for tensor in self._parameters():
            grad = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
            require_kind(not grad.is_sparse, "a gradient", grad.layout, "dense gradients")
            parts.append(grad.detach().reshape(-1))
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    # ---- saving ----

    def state_dict(self) -> dict[str, Any]:
        """Return the state as PyTorch's optimizers do, with the run in it: tensors and plain values alone."""
        state = super().state_dict()
        if self._engine is not None:
            run = self._engine.state_dict()
            state["run"] = {
                name: torch.from_numpy(value.copy()) if hasattr(value, "dtype") and value.ndim else value
                for name, value in run.items()
            }
            state["known"], state["loss"] = self._known, self._loss
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up a saved run, which goes on bit for bit once the parameters are those it was saved with."""
        state = dict(state_dict)
        run, known, loss = (state.pop(name, None) for name in ("run", "known", "loss"))
        super().load_state_dict(state)
        if run is None:
            self._engine = self._known = self._loss = None
            return
        template = self._parameters()[0].detach()
        arrays = {name: value.cpu().numpy() if isinstance(value, Tensor) else value for name, value in run.items()}
        self._engine = Engine.from_state_dict(arrays, like=template.reshape(-1)[:0])
        self._known = None if known is None else known.to(template.device)
        self._loss = None if loss is None else loss.to(template.device)


class _Captured:
    """An evaluation as a CUDA graph: the first call is one as usual, the second is recorded."""

    def __init__(self, closure: Callable[[], Any], trial: list[Tensor]) -> None:
        self.evaluate: Callable[[], tuple[Any, Tensor]]
        self._closure, self._trial = closure, trial
        self._play: Callable[[], tuple[Tensor, Tensor]] | None = None
        self._calls = 0

    def is_of(self, closure: Callable[[], Any], trial: list[Tensor]) -> bool:
        """Whether a closure, and where the run puts its points, are those that were recorded."""
        same = [one.data_ptr() for one in self._trial] == [one.data_ptr() for one in trial]
        return closure is self._closure and same

    def __call__(self) -> tuple[Any, Tensor]:
        """Evaluate."""
        self._calls += 1
        if self._calls == 1:
            loss, gradient = self.evaluate()
            # (A loss with a graph would keep what must be made anew while this is recorded.)
            return loss.detach(), gradient
        if self._play is None:
            try:
                self._play = capture_graph(self._trial[0], lambda stream: self._detached())
            except Exception as error:  # whatever PyTorch says when work cannot be captured
                raise RuntimeError(f"capture is True, but the closure cannot be captured: {error}") from error
        return self._play()

    def _detached(self) -> tuple[Tensor, Tensor]:
        loss, gradient = self.evaluate()
        require_kind(isinstance(loss, Tensor), "the loss", loss, "a tensor, where capture=True")
        return loss.detach(), gradient


def _copy(to: list[Tensor], pieces: list[Tensor]) -> None:
    if len(to) == 1:
        to[0].copy_(pieces[0])
    else:
        torch._foreach_copy_(to, pieces)


def _pairs(group: dict[str, Any]) -> list[Any]:
    bounds, count = group["bounds"], len(group["params"])
    pairs = list(bounds) if isinstance(bounds, list) else [bounds] * count
    require(len(pairs) == count, "bounds", bounds, f"a tuple (lower, upper), or a list of {count}, one a parameter")
    return pairs


def _read_bounds(group: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
    """The lower and the upper bounds of each parameter of a group, of its shape."""
    halves: tuple[list[Tensor], list[Tensor]] = ([], [])
    for tensor, pair in zip(group["params"], _pairs(group)):
        ends = split_bounds(pair, "ends") or (-torch.inf, torch.inf)
        for half, bound in zip(halves, ends):
            value = torch.as_tensor(bound, dtype=torch.float64, device=tensor.device)
            try:
                half.append(value.detach().expand(tensor.shape))
            except RuntimeError:
                wanted = f"one that broadcasts to {tuple(tensor.shape)}, that of the parameter"
                raise ValueError(f"bounds has shape {tuple(value.shape)}; allowed: {wanted}") from None
    return halves


def _joined(groups: list[dict[str, Any]]) -> tuple[Tensor, Tensor] | None:
    if all(pair is None for group in groups for pair in _pairs(group)):
        return None
    read = [_read_bounds(group) for group in groups]
    lower, upper = (torch.cat([one.reshape(-1) for halves in read for one in halves[side]]) for side in (0, 1))
    return lower, upper
