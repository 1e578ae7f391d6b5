"""What ``curve_fit`` and ``least_squares`` return: parameters, uncertainties and certificates."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from stepwell.arrays import Array, host_copy, is_lazy
from stepwell.arrays.presenting import Presented
from stepwell.arrays.records import ComputedLater
from stepwell.arrays.reprs import summarise
from stepwell.fit.status import FitStatus

#: Of one fit a number; of a batch an array of the caller's library with the shape of the problems.
PerFit: TypeAlias = Any


@dataclasses.dataclass(frozen=True, repr=False)
class FitResult(Presented, ComputedLater):
    """Parameters of one fit or of many, with their uncertainties and certificates.

    Of one fit, `x` is a vector and the rest are numbers; of a batch everything has the shape of the problems first.
    Arrays are of the caller's library. Unpacks as ``x, pcov``.

    Attributes
    ----------
    x : array
        The parameters; at a bound the bound itself.
    pcov : array, optional
        Covariance of x over the parameters between their bounds: s²(JᵀJ)⁻¹, with s² = 2·cost/dof, or 1 with
        ``absolute_sigma`` and a Poisson likelihood. 0 for a parameter that is fixed or at a bound, infinite for one
        that the data do not determine.
    stderr : array, optional
        Square roots of its diagonal.
    cost : float or array
        ½Σρ of the residuals; ½Σr² without a robust loss; half the deviance of a Poisson likelihood.
    dof : int or array
        Points that count, less parameters between their bounds.
    promise : float or array
        What the model within the bounds, without damping, could still take off the cost, over the cost.
    distance : float or array
        √(2·promise·cost)/s: how far the minimum is, in standard errors.
    violation : float or array
        The largest abs(g_j)/(‖J_j‖·‖r‖) of parameters that may move: a cosine, free of units.
    optimality : float or array
        The largest entry of the projected gradient, as SciPy has it.
    active_mask : int8 array
        −1 where x is at its lower bound, 1 at its upper, 0 between, 2 where it is fixed.
    rank : int or array
        How many of the parameters between their bounds the derivatives determine.
    nit, nfev, njev : int or array
        Steps tried, evaluations of the model, and points at which derivatives were used.
    start : int or array, optional
        Which of several starts won.
    spread : int or array, optional
        How many of the starts ended at that cost.
    status : FitStatus or int array
        How each fit ended: the numbers of :class:`FitStatus`.
    names : tuple of str, optional
        Names of the parameters, from the model's signature.
    success, reason, message
        Whether it converged; the status as a member, or a list of them; and in words.
    chi2, redchi
        2·cost, and that over `dof`.
    params : dict
        Parameters by name.
    residuals, fun, jac
        Residuals (model less data, weighed) and derivatives at x, evaluated when they are asked for.
    """

    x: Array
    pcov: Array | None
    stderr: Array | None
    cost: PerFit
    dof: PerFit
    promise: PerFit
    distance: PerFit
    violation: PerFit
    optimality: PerFit
    active_mask: Array
    rank: PerFit
    nit: PerFit
    nfev: PerFit
    njev: PerFit
    status: PerFit
    start: PerFit | None = None
    spread: PerFit | None = None
    names: tuple[str, ...] | None = None
    _again: Callable[[bool], Any] | None = dataclasses.field(default=None, repr=False, compare=False)
    _picture: Any = dataclasses.field(default=None, repr=False, compare=False)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.x, self.pcov))

    def __getitem__(self, place: int | str) -> Any:
        """Return x for 0 and pcov for 1, as of SciPy's pair; or a field by its name."""
        return getattr(self, place) if isinstance(place, str) else (self.x, self.pcov)[place]

    @property
    def success(self) -> PerFit:
        """Whether each fit converged."""
        return bool(self.status > 0) if isinstance(self.status, int) else self.status > 0

    @property
    def reason(self) -> FitStatus | list[FitStatus]:
        """The status as a member; of a batch a list of them."""
        if isinstance(self.status, FitStatus):
            return self.status
        return [FitStatus.of(code) for code in host_copy(self.status).reshape(-1).tolist()]

    @property
    def message(self) -> str:
        """The status in words; of a batch, how many fits ended how."""
        if isinstance(self.status, FitStatus):
            return self.status.message
        if is_lazy(self.status):
            return "not computed yet: dask.compute(result) does, or a field's compute()"
        counts, fits = self._counts(), math.prod(self.status.shape)
        if fits == 0:
            return "there were no fits"
        return "; ".join(f"{count} of {fits}: {status.message}" for status, count in counts.items())

    def _counts(self) -> dict[FitStatus, int]:
        counts = {status: int((self.status == int(status)).sum()) for status in FitStatus}
        return {status: count for status, count in counts.items() if count}

    def __repr__(self) -> str:
        if isinstance(self.status, FitStatus):
            shown: Any = self.status
        elif is_lazy(self.status):
            shown = "not computed"
        else:
            shown = ", ".join(f"{count} x FitStatus.{status.name}" for status, count in self._counts().items())
        first = {"status": shown, "message": self.message}
        fields = [field.name for field in dataclasses.fields(self) if field.repr and field.name != "status"]
        rest = {name: getattr(self, name) for name in fields}
        return summarise("FitResult", first | {name: value for name, value in rest.items() if value is not None})

    @property
    def chi2(self) -> PerFit:
        """2·cost: the sum of squared weighed residuals, of a robust loss Σρ."""
        return 2 * self.cost

    @property
    def redchi(self) -> PerFit:
        """2·cost/dof; NaN or infinite without degrees of freedom."""
        if isinstance(self.dof, int):
            return self.chi2 / self.dof if self.dof else math.nan
        with np.errstate(all="ignore"):
            return self.chi2 / self.dof

    @property
    def params(self) -> dict[str, Any]:
        """Parameters by their names, or by x0, x1 and so on where the model names none."""
        n = int(self.x.shape[-1])
        names = self.names or tuple(f"x{j}" for j in range(n))
        return {name: self.x[..., j] for j, name in enumerate(names)}

    @property
    def residuals(self) -> Array:
        """Model less data over sigma at x, evaluated again; 0 where a point does not count."""
        return self._evaluated(False)

    @property
    def fun(self) -> Array:
        """The residuals, as SciPy calls them."""
        return self._evaluated(False)

    @property
    def jac(self) -> Array:
        """Derivatives of the weighed residuals at x, evaluated again: (..., m, n)."""
        return self._evaluated(True)

    def _evaluated(self, derivatives: bool) -> Array:
        if self._again is None:
            raise ValueError("residuals are not known; allowed: of a result whose model is at hand")
        return self._again(derivatives)

    def covariance(self, index: int | tuple[int, ...] = ()) -> np.ndarray:
        """Return the covariance of one fit as an array of NumPy; `index` is its place in the shape of the problems."""
        if self.pcov is None:
            raise ValueError("the covariance is not known; allowed: of a result with uncertainty='covariance'")
        return np.asarray(host_copy(self.pcov)[index])

    def correlation(self, index: int | tuple[int, ...] = ()) -> np.ndarray:
        """Return the correlations of one fit's parameters: NaN for those without an uncertainty."""
        pcov = self.covariance(index)
        with np.errstate(all="ignore"):
            size = np.sqrt(np.diagonal(pcov))
            size = np.where((size > 0) & np.isfinite(size), size, np.nan)
            return np.asarray(pcov / size[:, None] / size)

    def plot(
        self, path: str | os.PathLike[str] | None = None, *, index: int | tuple[int, ...] = (), ax: Any = None
    ) -> Any:
        """Draw data and model of one fit of `curve_fit`; of `least_squares`, the parameters. Needs matplotlib.

        Parameters
        ----------
        path : path, optional
            Where to save the picture.
        index : int or tuple of int, optional
            Which fit of a batch; by default the only one, or the first.
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from stepwell.fit.pictures import plot_fit

        return super().plot(path) if self._picture is None else plot_fit(self, index, ax, path)
