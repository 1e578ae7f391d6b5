"""Non-negative least squares for one system or very many: ``nnls`` and the ``Convolution`` it takes as a matrix."""

from stepwell.leastsq.convolution import Convolution
from stepwell.leastsq.door import nnls
from stepwell.leastsq.result import NNLSResult, NNLSStatus

__all__ = ["Convolution", "NNLSResult", "NNLSStatus", "nnls"]
