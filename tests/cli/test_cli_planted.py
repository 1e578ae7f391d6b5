"""What stands in a folder of results under the names that a command writes to is replaced, and never written to."""

from __future__ import annotations

import contextlib
import os
import signal
import stat

import pytest
from click.testing import CliRunner

from stepwell.cli.group import main

#: Commands that fill a folder, which is the last argument.
COMMANDS = {
    "t2map": "t2map --synthetic 4x3x1 --echoes 8 --bins 6 --angles 120 180 3 --quiet -o",
    "relax": "relax t2 --synthetic 3x3x1 --quiet -o",
    "decompose": "decompose --synthetic 4 --quiet -o",
    "unmix": "unmix --synthetic 4x3 --bands 20 --quiet -o",
    "reconstruct": "reconstruct phantom --size 12 --angles 8 --slices 0:2 --quiet -o",
    "reconstruct-tif": "reconstruct phantom --size 12 --angles 8 --slices 0:2 --quiet --format tif -o",
    "voronoi": "voronoi --sites 12 --maxiter 2 --quiet -o",
}
#: What tells of a finished run, and is read before it is written.
ACCOUNTS = ("t2map.json", "relax.json", "decompose.json", "reconstruct.json", "out.json", "statistics.json")


def run(name, output):
    done = CliRunner().invoke(main, [*COMMANDS[name].split(), str(output)])
    assert done.exit_code == 0, done.output


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_links_and_pipes_under_the_names_of_results_are_replaced(name, tmp_path):
    if name.endswith("tif"):
        pytest.importorskip("tifffile")
    pytest.importorskip("nibabel")
    (tmp_path / "first").mkdir()
    run(name, tmp_path / "first" / "out")
    inside = (tmp_path / "first" / "out").is_dir()
    first = tmp_path / "first" / "out" if inside else tmp_path / "first"
    names = sorted(path.name for path in first.iterdir())
    assert len(names) > 2
    victim = tmp_path / "victim"
    victim.write_bytes(b"of somebody else")
    for plant in (lambda path: path.symlink_to(victim), os.mkfifo):
        second = tmp_path / plant.__name__.strip("<>")
        second = second / "out" if inside else second
        second.mkdir(parents=True)
        planted = [second / one for one in names if one not in ACCOUNTS]
        with contextlib.ExitStack() as open_pipes:
            for path in planted:
                plant(path)
                if not path.is_symlink():  # with a reader nothing hangs: what were written to it is a pipe still
                    open_pipes.callback(os.close, os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            signal.alarm(120)
            run(name, second if inside else second / "out")
            signal.alarm(0)
        assert victim.read_bytes() == b"of somebody else"
        for path in planted:
            assert stat.S_ISREG(os.lstat(path).st_mode), path
            assert path.stat().st_size > 0
