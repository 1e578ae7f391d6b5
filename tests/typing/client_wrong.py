"""A client program with a mistake in every line that says so: mypy must find these, and no others."""

from __future__ import annotations

import numpy as np

import stepwell

A = np.ones((3, 2))
b = np.ones(3)

stepwell.nnls("hi", b)  # wrong
stepwell.nnls(A, None)  # wrong
stepwell.nnls(A)  # wrong
stepwell.nnls(A, b, method="gramm")  # wrong
stepwell.nnls(A, b, update="mgs")  # wrong
stepwell.nnls(A, b, insertion=1)  # wrong
stepwell.nnls(A, b, warm_start="chains")  # wrong
stepwell.nnls(A, b, lam="much")  # wrong
stepwell.nnls(A, b, max_iter=3)  # wrong
stepwell.nnls(A, b, axis=2)  # wrong
stepwell.nnls(A, b, progress=3)  # wrong
stepwell.nnls(A, b).residuals  # wrong
stepwell.NNLSStatus.GOOD  # wrong

stepwell.tikhonov(A, b)  # wrong
stepwell.tikhonov(A, b, "gvc")  # wrong
stepwell.tikhonov(A, b, None)  # wrong
stepwell.tikhonov(3.0, b, 0.1)  # wrong
stepwell.tikhonov(A, b, 0.1, method="blocks")  # wrong
stepwell.tikhonov(A, b, 0.1, tol="small")  # wrong
stepwell.tikhonov(A, b, 0.1, boundz=3)  # wrong
stepwell.tikhonov(A, b, 0.1, callback=lambda: True)  # wrong
stepwell.tikhonov(A, b, 0.1).iteration  # wrong
stepwell.tikhonov(A, b, 0.1).success.all()  # wrong
stepwell.cg(A, b, maxit=3)  # wrong
stepwell.cg("H", b)  # wrong

stepwell.tv(A, b, 0.1)  # wrong
stepwell.tv(A, b, "gcv", shape=(4, 5))  # wrong
stepwell.tv(A, b, 0.1, shape=(4, 5), kind="isotrop")  # wrong
stepwell.ProjectedCG(A)  # wrong
stepwell.ProjectedCG(A, "gcv")  # wrong
stepwell.ProjectedCG(A, 0.1, augment=True)  # wrong
stepwell.ProjectedCG(A, 0.1).solve(b, maxiter="all")  # wrong

stepwell.Convolution(b, n="all")  # wrong
stepwell.apps.weather  # wrong
stepwell.minimise  # wrong
