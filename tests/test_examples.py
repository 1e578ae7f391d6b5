"""The examples of the gallery run as they stand, each in a process of its own, and draw."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples" / "gallery").glob("*.py"))
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
}


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(script, tmp_path):
    pytest.importorskip("matplotlib")
    environment = os.environ | {"MPLBACKEND": "Agg", "PYTHONWARNINGS": "error::RuntimeWarning"}
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    if "needs PyTorch" in script.read_text() and importlib.util.find_spec("torch") is None:
        assert "needs PyTorch" in done.stdout
        return
    for words in PRINTED.get(script.stem, ()):
        assert words in done.stdout
    assert not list(tmp_path.iterdir()), "an example leaves files where it was started"
