"""Minimisation of smooth functions, with or without bounds (L-BFGS, L-BFGS-B)."""
