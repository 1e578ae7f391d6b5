"""How a solver ended: the one family of statuses, whose members carry a code, a message and whether it is a success."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Self


class SolverStatus(enum.Enum):
    """Base of the statuses of all solvers.

    A member is written ``NAME = code, scipy, message``. A solver's enum derives from this class alone, or from
    ``int`` and this class where its members are also to be the numbers that arrays hold.

    Attributes
    ----------
    value : int
        The code: what the solver's core says, and what arrays of statuses hold.
    message : str
        The status in words.
    scipy : int
        What SciPy's `OptimizeResult.status` says: 0 success, 1 a limit was reached, 2 anything else, 99 the callback
        asked to stop.
    success : bool
        Whether the solver reached what it was asked for.

    Examples
    --------
    >>> class Ending(SolverStatus):
    ...     CONVERGED = 0, 0, "the tolerance holds"
    ...     LIMIT = 1, 1, "maxiter was reached"
    >>> Ending.of(1), Ending.LIMIT.success, Ending.LIMIT.message
    (<Ending.LIMIT: 1>, False, 'maxiter was reached')
    """

    _value_: int
    message: str
    scipy: int
    success: bool

    if TYPE_CHECKING:  # of tuples with a __new__, checkers do not see what becomes the value

        @property
        def value(self) -> int:
            """The code."""

    # (The defaults are for checkers, which read the look-up ``Status(1)`` as a call of this.)
    def __new__(cls, code: int, scipy: int = 2, message: str = "") -> Self:
        """Make a member whose value is its code."""
        if issubclass(cls, int):
            member: Self = int.__new__(cls, code)
        else:
            member = object.__new__(cls)
        member._value_ = code
        member.message = message
        member.scipy = scipy
        member.success = scipy == 0
        return member

    @classmethod
    def of(cls, code: int) -> Self:
        """Return the member with a code: one look into a table."""
        return cls._value2member_map_[int(code)]  # type: ignore[return-value]  # members of this very class
