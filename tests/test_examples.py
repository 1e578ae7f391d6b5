"""The examples of the gallery run as they stand, each in a process of its own, and draw."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mpi_runner import run_ranks

pytestmark = pytest.mark.slow

EXAMPLES = sorted((Path(__file__).parents[1] / "examples" / "gallery").glob("*/*.py"))
#: What they print when they have done what they show.
PRINTED = {
    "tomography": ("24 of 24", "one by one"),
    "lidar_waveforms": ("200 of 200",),
    "t2_mapping": ("6400 of 6400",),
    "stippling": ("the pen travels",),
    "spectra": ("median error",),
    "logistic_regression": ("wrong predictions",),
    "checkpoint_and_resume": ("same bits as without a break: True",),
    "full_waveform_inversion": ("mean error within the lens",),
    "unmixing": ("14000 converged",),
    "learning_lambda": ("of signals not seen",),
    "learning_endmembers": ("angles to the true spectra",),
    "hyperparameters_jax": ("one for each group",),
    "botorch_restarts": ("256 restarts", "optimize_acqf"),
    "curve_fit_spots": ("100.00 % converged",),
    "curve_fit_ivim": ("end at a bound",),
    "curve_fit_waveforms": ("3000 of 3000", "errors over stated ones"),
    "curve_fit_torch": ("after learning",),
    "curve_fit_robust": ("height 6",),
    "curve_fit_projection": ("400 of 400",),
    "ranks_of_mpi": ("1 ranks", "the noise is"),
}
#: What an example says it needs, and the package that this is.
NEEDED = {"needs PyTorch": "torch", "needs BoTorch": "botorch", "needs JAX": "jax"}


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(script, tmp_path):
    pytest.importorskip("matplotlib")
    environment = os.environ | {"MPLBACKEND": "Agg", "PYTHONWARNINGS": "error::RuntimeWarning"}
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    for says, package in NEEDED.items():
        if says in script.read_text() and importlib.util.find_spec(package) is None:
            assert says in done.stdout
            pytest.skip(f"{script.name} {says}")
    for words in PRINTED.get(script.stem, ()):
        assert words in done.stdout
    assert not list(tmp_path.iterdir()), "an example leaves files where it was started"


def test_ranks_of_mpi_have_the_bits_of_one():
    """The example of the gallery under mpiexec, and as the gallery runs it."""
    pytest.importorskip("matplotlib")
    (script,) = (path for path in EXAMPLES if path.stem == "ranks_of_mpi")
    alone = subprocess.run(
        [sys.executable, script], env=os.environ | {"MPLBACKEND": "Agg"}, capture_output=True, text=True, timeout=100
    )
    assert alone.returncode == 0, alone.stderr
    spread = run_ranks(3, script, timeout=100)
    assert "3 ranks" in spread
    digests = [re.search(r"bits of the image (\w+)", text)[1] for text in (alone.stdout, spread)]
    assert digests[0] == digests[1]
