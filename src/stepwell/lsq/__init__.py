"""Small constrained least squares, one system or very many; a ``Convolution`` as A. The functions: `stepwell.api`."""

from stepwell.lsq.convolution import Convolution
from stepwell.lsq.result import LSQResult, NNLSResult, NNLSStatus

__all__ = ["Convolution", "LSQResult", "NNLSResult", "NNLSStatus"]
