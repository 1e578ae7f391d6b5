"""Linear operators: one small interface over dense arrays, sparse matrices, LinearOperators and pairs of functions.

Every solver here sees an :class:`Operator`: ``shape``, ``forward(X)`` and ``adjoint(Y)`` on blocks of columns, and
how many columns each has been applied to. This package is the only one that knows how the libraries' sparse matrices
differ.
"""

from __future__ import annotations

from stepwell.operators.matrices import as_operator
from stepwell.operators.operator import Operator, from_functions
from stepwell.operators.tools import adjoint_error, gradient, in_library_of

__all__ = ["Operator", "adjoint_error", "as_operator", "from_functions", "gradient", "in_library_of"]
