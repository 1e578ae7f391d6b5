"""What puts the solvers into other packages, one module each, which needs that package and nothing else does.

============  =========================================================================================
`botorch`     fits of Gaussian processes and candidates of acquisition functions by our L-BFGS-B
`sklearn`     non-negative least squares as an estimator of scikit-learn
`cil`         L-BFGS-B with bounds as an ``Algorithm`` of the Core Imaging Library
============  =========================================================================================

Operators of PyLops, of ASTRA (``OpTomo``) and of SciPy need no plug: the solvers take them as they are. Import a module
by its name, ``import stepwell.plugs.botorch``; nothing here is imported before.
"""
