"""Minimisation of smooth functions, with or without bounds (L-BFGS, L-BFGS-B).

======================  ===============================================================================================
`api`                   `minimize`, `minimize_batch`
`scipy_method`          the same as ``method=`` of `scipy.optimize.minimize`; `scipy_inputs` as SciPy reads them
`scipy_conventions`     callbacks and warnings of both, as SciPy has them
`optimizer`             `LBFGSB`: you evaluate
`driver`                the loop
`run`                   variables, target and diagonal of one run
`inputs`                start, bounds and diagonal, read once for every target
`variables`             points handed out, values and gradients taken in
`objective`             the caller's function and its gradient; `differences` where there is none
`options`, `settings`   what the caller asks for, and what the engine is told
`target`                what a place where a run can live must do: `host_target`, `cuda_target`
`state`, `saved_state`  the engine's records; a run as plain arrays
`status`, `results`     why a run ended, and what it gave; `result_types`, `inverse_hessian`, `printing`
`gradient_check`        whether a gradient is right
`cuda_...`              of the CUDA targets: memory, layout, windows of turns, events; a rank's piece
`rank_...`              of a run over ranks: setup, target, values, files, inverse Hessian
======================  ===============================================================================================
"""
