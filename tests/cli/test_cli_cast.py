"""One cast over all commands: the same options, the same streams and the same exit status for the same trouble."""

from __future__ import annotations

import dataclasses
import functools
import json
import pkgutil
import re
import signal

import numpy as np
import pytest
from click.testing import CliRunner

import stepwell
from stepwell.apps.voronoi import shell
from stepwell.cli.group import COMMANDS, main
from stepwell.lab.tour import CHAPTERS

#: Maps as NumPy files, and no picture.
PLAIN = ["--format", "npy", "--no-plots"]
#: Command -> arguments that make it work for a moment, and files that it then leaves.
WORK = {
    "solve": (["rosenbrock", "-n", "20", "--solution", "x.npy"], ["x.npy"]),
    "problems": ([], []),
    "info": ([], []),
    "reconstruct": (
        ["phantom", "--size", "16", "--angles", "8", "--slices", "4:6", "-o", "out", "--no-plots"],
        ["out/volume.npy"],
    ),
    "study": (["rosenbrock", "--toy"], []),
    "voronoi": (["-n", "20", "--resolution", "64", "-o", "points.npy"], ["points.npy"]),
    "stipple": (["--demo", "-n", "30", "--resolution", "64", "-o", "points.npy"], ["points.npy"]),
    "deconvolve": (["--synthetic", "3", "-o", "returns.npz"], ["returns.npz"]),
    "decompose": (
        ["--synthetic", "3", "-o", "taken", "--no-plots"],
        ["taken/returns.csv", "taken/decomposition.npz"],
    ),
    "t2map": (
        ["--synthetic", "6x5x2", "--echoes", "16", "--flip", "180", "--lam", "0.02", *PLAIN, "-o", "maps"],
        ["maps/sfr.npy", "maps/t2map.json"],
    ),
    "relax": (["t2", "--synthetic", "6x5x2", *PLAIN, "-o", "relaxed"], ["relaxed/T2.npy", "relaxed/relax.json"]),
    "unmix": (["--synthetic", "8x6", "--bands", "20", "-o", "a.npy", "--no-plots"], ["a.npy", "a.json"]),
    "tour": (["--quick", "--no-open", "-o", "tour.html"], ["tour.html"]),
}
READING = {
    "reconstruct": ["missing.npz", "-o", "out"],
    "voronoi": ["--density", "missing.png", "-o", "out.npy"],
    "stipple": ["missing.png", "-o", "out.npy"],
    "deconvolve": ["missing.npz", "-o", "out.npz"],
    "decompose": ["missing.npz", "-o", "out"],
    "t2map": ["missing.npy", "--te", "0.01", "-o", "out"],
    "relax": ["t2", "missing.npy", "-o", "out"],
    "unmix": ["missing.hdr", "missing.csv", "-o", "out"],
}
#: Commands that solve something.
SOLVING = sorted(set(WORK) - {"problems", "info"})
#: What says where they solve: the options of a library, of a GPU, of a number of threads.
PLACES = {"--array", "--device", "--threads"}
NOT_CONVERGED = {
    "solve": ["rosenbrock", "-n", "20", "--maxiter", "2", "--solution", "x.npy"],
    "reconstruct": ["phantom", "--size", "16", "--angles", "8", "--tol", "1e-30", "-o", "out", "--no-plots"],
}
#: Where Ctrl-C is pressed: a function that is called when there is something to write, and files that are then there.
INTERRUPTED = {
    "solve": ("stepwell.lab.solve.history.History.callback", ["x.npy"]),
    "reconstruct": ("stepwell.apps.tomography.solving.Watch.__call__", ["out/volume.npy"]),
    "voronoi": ("rich.progress.Progress.update", ["points.npy"]),
    "stipple": ("rich.progress.Progress.update", ["points.npy"]),
    "deconvolve": ("stepwell.apps.waveform.deconvolve", ["returns.npz"]),
    "study": ("stepwell.lab.studies.frame.Table.add", ["out.json"]),
    "decompose": ("stepwell.apps.images.work.Work.put", ["taken/.unfinished/done.npy"]),
    "t2map": ("stepwell.apps.images.work.Work.put", ["maps/.unfinished/done.npy"]),
    "relax": ("stepwell.apps.images.work.Work.put", ["relaxed/.unfinished/done.npy"]),
    "unmix": ("stepwell.apps.images.work.Work.put", ["a.unfinished/done.npy"]),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stepwell.lab.tour.command.CHAPTERS", CHAPTERS[2:3])  # one that takes a moment
    return tmp_path


@pytest.fixture(scope="module", autouse=True)
def one_nautilus():
    """The picture of `stipple --demo` takes most of a second: it is drawn once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shell, "nautilus", functools.cache(shell.nautilus))
        yield


def invoke(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_the_table_has_every_command():
    assert set(WORK) == set(COMMANDS)
    assert set(INTERRUPTED) | {"tour"} == set(SOLVING)


@pytest.mark.parametrize("command", COMMANDS)
def test_options_that_all_have_and_those_of_solvers(command):
    arguments = [command, "nnls-updates"] if command == "study" else [command]
    run = invoke(*arguments, "--help")
    options = set(re.findall(r"--[\w-]+", run.stdout))
    assert options >= {"--json", "--quiet", "--verbose"}
    assert options & PLACES == (PLACES if command in SOLVING else set())


@pytest.mark.parametrize("command", SOLVING)
def test_a_device_that_is_none_is_refused_before_work(command, folder):
    run = invoke(command, *WORK[command][0], "--device", "gpu")
    assert (run.exit_code, run.stdout) == (2, "")
    assert "'gpu' is not a device; allowed: cpu, cuda, cuda:K" in " ".join(run.stderr.split())
    assert not any(folder.iterdir())


@pytest.mark.parametrize("command", SOLVING)
def test_libraries_that_have_no_arrays_there_are_refused_before_work(command, folder, monkeypatch):
    for arguments, words in (
        (["--array", "lists"], "'lists' is not one of 'numpy', 'torch', 'cupy', 'jax'"),
        (["--array", "numpy", "--device", "cuda"], "--array: numpy has no arrays on cuda; allowed: torch, cupy, jax"),
        (["--array", "cupy"], "--array: cupy "),  # is not installed, or has no arrays on the CPU
    ):
        run = invoke(command, *WORK[command][0], *arguments)
        assert (run.exit_code, run.stdout) == (2, "")
        assert words in " ".join(run.stderr.split())
        assert not any(folder.iterdir())
    monkeypatch.setattr("stepwell.arrays.places.LIBRARIES", ("numpy", "no_such_library"))
    run = invoke(command, *WORK[command][0], "--device", "cuda")
    assert (run.exit_code, run.stdout) == (2, "")
    assert "--device: cuda needs an array library, and none is installed" in " ".join(run.stderr.split())
    assert not any(folder.iterdir())


@pytest.mark.parametrize(
    ("command", "library"),
    [*((command, "torch") for command in SOLVING), ("voronoi", "jax"), ("stipple", "jax"), ("tour", "jax")],
)
def test_every_solver_works_on_the_arrays_of_a_library(command, library, folder):
    pytest.importorskip(library)
    run = invoke(command, *WORK[command][0], "--array", library, "--json", "-")
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["settings"]["array"] == library


def test_a_study_that_is_done_in_one_library_refuses_the_others():
    run = invoke("study", "panels", "--toy", "--array", "torch")
    assert run.exit_code == 2
    assert "--array: study panels is done in numpy on the CPU; got torch" in " ".join(run.stderr.split())
    run = invoke("study", "nnls-updates", "--toy", "--device", "cuda:0", "--array", "torch")
    assert run.exit_code == 2
    assert "--device: study nnls-updates needs no device" in " ".join(run.stderr.split())


@pytest.mark.parametrize("command", ["solve", "deconvolve", "reconstruct", "t2map", "relax", "unmix", "voronoi"])
def test_results_do_not_depend_on_threads(command, folder):
    arguments, files = WORK[command]
    held = []
    for threads in ("1", "2"):
        run = invoke(command, *arguments, "--threads", threads)
        assert run.exit_code == 0, run.output
        held.append([read_result(folder / name) for name in files if not name.endswith(".json")])
    assert held[0] == held[1]


def read_result(path):
    """The numbers of a file, without when it was written."""
    opened = np.load(path)
    if isinstance(opened, np.ndarray):
        return opened.tobytes()
    with opened:
        return {name: opened[name].tobytes() for name in opened.files}


@pytest.mark.parametrize("command", WORK)
def test_json_on_standard_output_is_alone_there(command, folder):
    arguments, files = WORK[command]
    run = invoke(command, *arguments, "--json", "-")
    assert run.exit_code == 0, run.output
    held = json.loads(run.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert held["stepwell"] == stepwell.__version__
    assert held["command"].split()[0] == command
    assert isinstance(held["settings"], dict)
    assert isinstance(held["result"], dict)
    assert all(isinstance(value, float) for value in held.get("seconds", {}).values())
    assert all((folder / name).exists() for name in files)


@pytest.mark.parametrize("command", WORK)
def test_json_in_a_file_leaves_the_report_where_it_was(command, folder):
    arguments, _ = WORK[command]
    run = invoke(command, *arguments, "--json", "out.json")
    assert run.exit_code == 0, run.output
    assert run.stdout.strip()
    assert "result" in json.loads((folder / "out.json").read_text())


@pytest.mark.parametrize("command", WORK)
def test_quiet_says_nothing_and_works(command, folder):
    arguments, files = WORK[command]
    run = invoke(command, *arguments, "--quiet")
    assert (run.exit_code, run.stdout, run.stderr) == (0, "", "")
    assert all((folder / name).exists() for name in files)


@pytest.mark.parametrize("command", WORK)
def test_nothing_moves_in_a_pipe(command):
    arguments, _ = WORK[command]
    run = invoke(command, *arguments)
    assert run.exit_code == 0
    assert "\x1b" not in run.output
    assert "\r" not in run.output


@pytest.mark.parametrize("command", WORK)
def test_quiet_and_verbose_exclude_each_other(command, folder):
    run = invoke(command, *WORK[command][0], "--quiet", "--verbose")
    assert run.exit_code == 2
    assert "exclude each other" in run.stderr
    assert not any(folder.iterdir())


@pytest.mark.parametrize("command", WORK)
def test_unknown_option(command, folder):
    run = invoke(command, *WORK[command][0], "--no-such-option")
    assert (run.exit_code, run.stdout) == (2, "")
    assert not any(folder.iterdir())


@pytest.mark.parametrize("command", WORK)
def test_json_that_cannot_be_written_is_refused_before_work(command, folder):
    run = invoke(command, *WORK[command][0], "--json", "no/such/folder.json")
    assert (run.exit_code, run.stdout) == (2, "")
    assert "--json" in run.stderr
    assert not any(folder.iterdir())


@pytest.mark.parametrize("command", READING)
def test_missing_file(command, folder):
    run = invoke(command, *READING[command])
    assert (run.exit_code, run.stdout) == (2, "")
    assert "missing" in run.stderr
    assert not any(folder.iterdir())


@pytest.mark.parametrize("command", NOT_CONVERGED)
def test_not_converged(command, folder):
    run = invoke(command, *NOT_CONVERGED[command])
    assert run.exit_code == 1
    assert run.stderr.strip()
    assert any(folder.iterdir()), "what there is, is written"


@pytest.mark.parametrize("command", INTERRUPTED)
def test_ctrl_c_writes_what_there_is(command, folder, monkeypatch):
    place, files = INTERRUPTED[command]
    owner, _, name = place.rpartition(".")
    original = getattr(pkgutil.resolve_name(owner), name)
    presses = iter([True])

    def pressed(*args, **kwargs):
        told = original(*args, **kwargs)
        if next(presses, False):
            signal.raise_signal(signal.SIGINT)
        return told

    if command == "solve":  # a callback with another signature would be told something else
        pressed = functools.wraps(original)(pressed)
    monkeypatch.setattr(place, pressed)
    run = invoke(command, *WORK[command][0], *(["--json", "out.json"] if command == "study" else []))
    assert run.exit_code == 130, run.output
    assert "interrupted" in run.stderr
    assert all((folder / name).exists() for name in files), run.output


def test_an_interrupted_tour_reports_its_chapters(folder, monkeypatch):
    from stepwell.lab.tour.run import take_tour

    def interrupt(stage):
        raise KeyboardInterrupt

    told = []
    last = dataclasses.replace(CHAPTERS[2], run=interrupt)
    monkeypatch.setattr("stepwell.lab.tour.command.CHAPTERS", (CHAPTERS[2], last))
    monkeypatch.setattr("stepwell.lab.tour.command.take_tour", lambda **how: told.append(take_tour(**how)) or told[0])
    run = invoke("tour", "--quick", "--no-open", "-o", "tour.html")
    assert run.exit_code == 130, run.output
    assert told[0].interrupted
    assert len(told[0].stops) == 1
    assert CHAPTERS[2].title in (folder / "tour.html").read_text()


def test_ctrl_c_in_any_command_is_status_130(monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("stepwell.common.machine.machine_facts", interrupt)
    run = invoke("info")
    assert run.exit_code == 130
    assert "interrupted" in run.stderr


def test_verbose_solve_prints_iterations():
    few = invoke("solve", "rosenbrock", "-n", "20").stdout
    many = invoke("solve", "rosenbrock", "-n", "20", "--verbose").stdout
    assert len(many.splitlines()) > len(few.splitlines()) + 5


def test_threads_and_library_of_deconvolve(folder):
    one = invoke("deconvolve", "--synthetic", "5", "-o", "one.npz", "--threads", "1")
    two = invoke("deconvolve", "--synthetic", "5", "-o", "two.npz")
    assert (one.exit_code, two.exit_code) == (0, 0)
    with np.load("one.npz") as first, np.load("two.npz") as second:
        assert all(np.array_equal(first[name], second[name]) for name in first.files)


def test_torch_solves_as_numpy_does(folder):
    pytest.importorskip("torch")
    for array in ("numpy", "torch"):
        assert invoke("deconvolve", "--synthetic", "5", "-o", f"{array}.npz", "--array", array).exit_code == 0
        work = ["phantom", "--size", "16", "--angles", "8", "--slices", "4:6", "--no-plots"]
        assert invoke("reconstruct", *work, "-o", array, "--array", array).exit_code == 0
    with np.load("numpy.npz") as first, np.load("torch.npz") as second:
        assert np.allclose(first["amplitudes"], second["amplitudes"], atol=1e-8)
    assert np.allclose(np.load("numpy/volume.npy"), np.load("torch/volume.npy"), atol=1e-3)


def test_completion_knows_problems():
    from stepwell.lab.problems.command import command

    (name,) = [parameter for parameter in command.params if parameter.name == "name"]
    import click

    found = [item.value for item in name.shell_complete(click.Context(command), "mini")]
    assert found == ["minimal-surface"]
