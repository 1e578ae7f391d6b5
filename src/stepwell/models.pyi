"""Public name of `stepwell.fit.models`, for type checkers and editors."""

from stepwell.fit.models import CompiledModel as CompiledModel
from stepwell.fit.models import exponentials as exponentials
from stepwell.fit.models import expression as expression
from stepwell.fit.models import gaussian2d as gaussian2d
from stepwell.fit.models import gaussians as gaussians
from stepwell.fit.models import ivim as ivim
from stepwell.fit.models import lorentzians as lorentzians
from stepwell.fit.models import polynomial_peak as polynomial_peak
from stepwell.fit.models import pseudo_voigts as pseudo_voigts
from stepwell.fit.models import tofts as tofts
