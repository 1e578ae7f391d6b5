"""Bounded nonlinear least squares, one problem or millions: the engine behind ``curve_fit`` and ``least_squares``."""
