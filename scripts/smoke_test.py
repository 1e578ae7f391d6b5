"""A minute with an installed Stepwell: every solver gives the right answer, the command line answers.

Usage: python scripts/smoke_test.py        after pip install of a wheel, in a clean environment
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import stepwell
from stepwell.apps import tomography, voronoi


def main() -> None:
    """Solve one small problem of each kind."""
    rng = np.random.default_rng(0)
    target = rng.normal(size=1000)
    result = stepwell.minimize(
        lambda x: (np.sum((x - target) ** 2), 2 * (x - target)), np.zeros(1000), jac=True, bounds=(-1, 1)
    )
    assert result.success
    assert np.allclose(result.x, target.clip(-1, 1), atol=1e-4)

    A = rng.random((30, 12))
    truth = np.maximum(rng.normal(size=(40, 12)), 0)
    assert np.allclose(stepwell.nnls(A, truth @ A.T).x, truth, atol=1e-8)

    projector = tomography.parallel_beam(16, angles=np.arange(0, 180, 10.0))
    image = tomography.shepp_logan_3d(16)[8].ravel()
    found = stepwell.tikhonov(projector, projector @ image, 0.1)
    dense = projector.toarray()
    expected = np.linalg.solve(dense.T @ dense + 0.01 * np.eye(256), dense.T @ (dense @ image))
    assert np.allclose(found.x, expected, atol=1e-4)

    assert len(voronoi.centroidal(20, resolution=64).sites) == 20
    assert list((Path(stepwell.__file__).parent / "_source" / "cuda").rglob("*.cu")), "the CUDA sources are missing"
    said = subprocess.run([sys.executable, "-m", "stepwell", "info"], check=True, capture_output=True, text=True)
    assert stepwell.__version__ in said.stdout
    solved = [sys.executable, "-m", "stepwell", "solve", "rosenbrock", "-n", "100"]
    subprocess.run(solved, check=True, capture_output=True)
    print(f"stepwell {stepwell.__version__} works: Python {sys.version.split()[0]}, NumPy {np.__version__}")


if __name__ == "__main__":
    main()
