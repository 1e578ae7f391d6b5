"""Small constrained least squares, one system or very many; a ``Convolution`` as A. The functions: `stepwell.api`."""

from stepwell.nnls.convolution import Convolution
from stepwell.nnls.result import LSQResult, NNLSResult, NNLSStatus

__all__ = ["Convolution", "LSQResult", "NNLSResult", "NNLSStatus"]
