"""L-BFGS-B behind SciPy's interface: what it takes, the conventions it keeps, and the method for its `minimize`."""
