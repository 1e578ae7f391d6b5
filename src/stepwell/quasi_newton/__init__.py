"""Minimisation of smooth functions, with or without bounds (L-BFGS, L-BFGS-B).

======================  ===============================================================================================
`api`                   `minimize`, `minimize_batch`
`optimizer`             `LBFGSB`: you evaluate
`driver`                the loop
`run`                   variables, target and diagonal of one run
`inputs`                start, bounds and diagonal, read once for every target
`variables`             points handed out, values and gradients taken in
`objective`             the caller's function and its gradient; `differences` where there is none
`options`, `settings`   what the caller asks for, and what the engine is told
`target`                what a place where a run can live must do: `host_target`, `cuda`, `ranks`
`state`, `saved_state`  the engine's records; a run as plain arrays
`status`, `results`     why a run ended, and what it gave; `result_types`, `inverse_hessian`, `printing`
`gradient_check`        whether a gradient is right
`cuda`                  the target on a CUDA device: memory, layout, windows of turns, events
`ranks`                 a run over ranks: setup, targets, values, files, inverse Hessian
`scipy`                 the same as ``method=`` of `scipy.optimize.minimize`; what SciPy takes, and its conventions
======================  ===============================================================================================
"""
