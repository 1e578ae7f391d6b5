"""L-BFGS-B over ranks: who has which piece, targets that exchange sums, values of f, checkpoints, inverse Hessian."""
