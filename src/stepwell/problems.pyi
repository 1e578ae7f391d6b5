"""Public name of `stepwell.lab.problems`, for type checkers and editors."""

from stepwell.lab.problems import Listing as Listing
from stepwell.lab.problems import Problem as Problem
from stepwell.lab.problems import get as get
from stepwell.lab.problems import listing as listing
from stepwell.lab.problems import names as names
