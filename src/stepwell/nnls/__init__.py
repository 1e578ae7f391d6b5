"""Non-negative least squares for one system or very many: ``nnls`` and the ``Convolution`` it takes as a matrix."""

from stepwell.nnls.api import nnls
from stepwell.nnls.convolution import Convolution
from stepwell.nnls.result import NNLSResult, NNLSStatus

__all__ = ["Convolution", "NNLSResult", "NNLSStatus", "nnls"]
