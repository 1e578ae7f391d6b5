"""The public functions that take containers and carry derivatives. (`minimize` and its like: `stepwell.quasi_newton`.)

A function here looks for arrays of dask and xarray first, which it cuts into blocks (`blocks`), then for the library in
which the solution has to carry derivatives, whose plug it calls, and hands the rest to the solver. Nothing below this
room imports it.
"""
