"""Small constrained least squares, one system or very many: ``nnls``, ``lsq_linear``, and a ``Convolution`` as A."""

from stepwell.nnls.api import nnls
from stepwell.nnls.convolution import Convolution
from stepwell.nnls.lsq import lsq_gram, lsq_linear
from stepwell.nnls.result import LSQResult, NNLSResult, NNLSStatus

__all__ = ["Convolution", "LSQResult", "NNLSResult", "NNLSStatus", "lsq_gram", "lsq_linear", "nnls"]
