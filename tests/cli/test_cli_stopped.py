"""A run of synthetic data that was stopped goes on when the same command is given again, and gives the same."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from stepwell.apps.images.work import Work
from stepwell.cli.group import main

COMMANDS = {
    "t2map": ("t2map --synthetic 4x3x3 --echoes 8 --bins 6 --angles 120 180 3 --format npy --no-plots", "out/sfr.npy"),
    "relax": ("relax t2 --synthetic 3x3x3 --format npy --no-plots", "out/T2.npy"),
    "decompose": ("decompose --synthetic 4 --no-plots", "out/decomposition.npz"),
    "unmix": ("unmix --synthetic 4x3 --bands 20 --no-plots", "out.img"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_stopped_run_of_synthetic_data_goes_on(name, tmp_path, monkeypatch):
    if name in ("t2map", "relax"):
        pytest.importorskip("nibabel")
    command, result = COMMANDS[name]
    resumed, real = [], Work.__init__

    def run(folder, *more):
        return CliRunner().invoke(main, [*command.split(), *more, "-o", str(tmp_path / folder / "out")])

    def opened(self, *parts, **options):
        real(self, *parts, **options)
        resumed.append(self.resumed)

    def stopped(self, *parts):
        put(self, *parts)
        raise KeyboardInterrupt

    for folder in ("whole", "parts"):
        (tmp_path / folder).mkdir()
    put = Work.put
    monkeypatch.setattr(Work, "__init__", opened)
    assert run("whole").exit_code == 0
    with monkeypatch.context() as patch:
        patch.setattr(Work, "put", stopped)
        assert run("parts").exit_code == 130
    other = run("parts", "--seed", "5")  # another phantom is another input
    assert other.exit_code == 1
    assert "other settings or another input" in other.output
    with monkeypatch.context() as patch:
        patch.setattr(Work, "put", stopped)
        assert run("parts", "--restart").exit_code == 130
    again = run("parts")
    assert again.exit_code == 0, again.output
    assert resumed[0] == 0
    assert resumed[-1] > 0
    whole, parts = (tmp_path / folder / result for folder in ("whole", "parts"))
    if result.endswith("npz"):
        with np.load(whole) as one, np.load(parts) as two:
            for key in one.files:
                np.testing.assert_array_equal(one[key], two[key])
    else:
        assert whole.read_bytes() == parts.read_bytes()
