"""Public names, for type checkers and editors; ``__init__.py`` imports them on first use."""

from stepwell import apps as apps
from stepwell import distributed as distributed
from stepwell import operators as operators
from stepwell import plugs as plugs
from stepwell import torch as torch
from stepwell.api.argmin import argmin as argmin
from stepwell.api.fit import curve_fit as curve_fit
from stepwell.api.fit import least_squares as least_squares
from stepwell.api.krylov import cg as cg
from stepwell.api.krylov import tikhonov as tikhonov
from stepwell.api.lsq import lsq_gram as lsq_gram
from stepwell.api.lsq import lsq_linear as lsq_linear
from stepwell.api.lsq import nnls as nnls
from stepwell.common.status import SolverStatus as SolverStatus
from stepwell.fit import FitResult as FitResult
from stepwell.fit import FitStatus as FitStatus
from stepwell.fit import models as models
from stepwell.fit.jacobian_check import JacobianCheck as JacobianCheck
from stepwell.fit.jacobian_check import check_jac as check_jac
from stepwell.krylov import LinearResult as LinearResult
from stepwell.krylov import LinearStatus as LinearStatus
from stepwell.krylov import Progress as Progress
from stepwell.krylov import ProjectedCG as ProjectedCG
from stepwell.krylov.lasso import LassoProgress as LassoProgress
from stepwell.krylov.lasso import LassoResult as LassoResult
from stepwell.krylov.lasso import LassoStatus as LassoStatus
from stepwell.krylov.lasso import lasso as lasso
from stepwell.krylov.tv import TVGap as TVGap
from stepwell.krylov.tv import TVProgress as TVProgress
from stepwell.krylov.tv import TVResult as TVResult
from stepwell.krylov.tv import TVStatus as TVStatus
from stepwell.krylov.tv import cosine_preconditioner as cosine_preconditioner
from stepwell.krylov.tv import tv as tv
from stepwell.krylov.tv import tv_gap as tv_gap
from stepwell.lab import problems as problems
from stepwell.lsq import Convolution as Convolution
from stepwell.lsq import LSQResult as LSQResult
from stepwell.lsq import NNLSResult as NNLSResult
from stepwell.lsq import NNLSStatus as NNLSStatus
from stepwell.operators import adjoint_error as adjoint_error
from stepwell.quasi_newton.api import minimize as minimize
from stepwell.quasi_newton.api import minimize_batch as minimize_batch
from stepwell.quasi_newton.driver import Interrupted as Interrupted
from stepwell.quasi_newton.gradient_check import GradientCheck as GradientCheck
from stepwell.quasi_newton.gradient_check import check_grad as check_grad
from stepwell.quasi_newton.optimizer import LBFGSB as LBFGSB
from stepwell.quasi_newton.options import Options as Options
from stepwell.quasi_newton.result_types import BatchResult as BatchResult
from stepwell.quasi_newton.result_types import Result as Result
from stepwell.quasi_newton.scipy.method import scipy_method as scipy_method
from stepwell.quasi_newton.settings import LineSearch as LineSearch
from stepwell.quasi_newton.status import Status as Status

__version__: str
__all__ = [
    "LBFGSB",
    "BatchResult",
    "Convolution",
    "GradientCheck",
    "Interrupted",
    "LSQResult",
    "LassoProgress",
    "LassoResult",
    "LassoStatus",
    "LineSearch",
    "LinearResult",
    "LinearStatus",
    "NNLSResult",
    "NNLSStatus",
    "Options",
    "Progress",
    "ProjectedCG",
    "Result",
    "SolverStatus",
    "Status",
    "TVGap",
    "TVProgress",
    "TVResult",
    "TVStatus",
    "__version__",
    "adjoint_error",
    "apps",
    "argmin",
    "cg",
    "check_grad",
    "cosine_preconditioner",
    "distributed",
    "lasso",
    "lsq_gram",
    "lsq_linear",
    "minimize",
    "minimize_batch",
    "nnls",
    "operators",
    "plugs",
    "problems",
    "scipy_method",
    "tikhonov",
    "torch",
    "tv",
    "tv_gap",
]
