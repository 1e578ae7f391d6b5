"""`stepwell solve`: what it solves, what it prints, how it refuses, how it leaves."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from scipy.optimize import minimize as scipy_minimize

import stepwell
from stepwell import problems
from stepwell.cli.group import main


def solve(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["solve", *map(str, arguments)])


def solved(*arguments: str) -> dict:
    outcome = solve(*arguments, "--json", "-")
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout)


def test_summary_says_what_was_solved_and_how_it_ended():
    outcome = solve("torsion", "--nx", 20, "--ny", 30, "-m", 5, "--ftol", 0)
    assert outcome.exit_code == 0
    assert "torsion: n = 600 (nx 20, ny 30, c 5), bounds, float64, numpy on cpu" in outcome.stdout
    assert "L-BFGS-B: m = 5, Cauchy point exact, line search lbfgsb" in outcome.stdout
    assert "converged: projected gradient <= gtol" in outcome.stdout
    assert outcome.stderr == ""
    assert "\x1b" not in outcome.stdout


@pytest.mark.parametrize("cauchy", ["exact", "first-interval", "none"])
def test_reaches_the_minimum_that_scipy_finds(cauchy):
    problem = problems.get("torsion", nx=15, ny=15, c=4)
    lower, upper = problem.bounds
    peer = scipy_minimize(
        problem.fun, problem.x0, jac=True, method="L-BFGS-B", bounds=list(zip(lower, upper)),
        options={"gtol": 1e-7, "ftol": 0},
    )  # fmt: skip
    run = solved("torsion", "-n", 225, "--param", "c=4", "--cauchy", cauchy, "--gtol", "1e-7", "--ftol", 0)
    # The Hessian's least eigenvalue is 8 sin²(π/32); with gradients of at most 1e-7 on the free variables f lies above
    # its minimum by at most n (1e-7)² / (2 eigenvalue).
    assert run["result"]["fun"] == pytest.approx(peer.fun, abs=225 * 1e-14 / (2 * 8 * np.sin(np.pi / 32) ** 2))
    assert run["settings"]["cauchy"] == cauchy


def test_options_arrive_at_the_solver():
    run = solved(
        "rosenbrock", "-n", 10, "-m", 3, "--ls-ftol", 0.01, "--ls-gtol", 0.5, "--ls-xtol", 0.2, "--stpmin", 1e-12,
        "--stpmax", 1e6, "--maxls", 30, "--gtol", 1e-7, "--ftol", 1e-14, "--relative-gtol", 1e-9, "--maxiter", 500,
        "--maxfun", 600, "--target", 1e-8, "--time-limit", 60, "--threads", 1, "--param", "c=50",
    )  # fmt: skip
    settings = run["settings"]
    assert settings["line_search"] == {
        "preset": "lbfgsb", "ftol": 0.01, "gtol": 0.5, "xtol": 0.2, "stpmin": 1e-12, "stpmax": 1e6, "maxls": 30,
    }  # fmt: skip
    names = ("m", "gtol", "ftol", "relative_gtol", "maxiter", "maxfun", "target", "time_limit", "threads")
    assert [settings[name] for name in names] == [3, 1e-7, 1e-14, 1e-9, 500, 600, 1e-8, 60, 1]
    assert run["problem"]["parameters"] == {"n": 10, "c": 50.0}
    assert run["result"]["reason"] == "TARGET"
    assert run["result"]["fun"] <= 1e-8


def test_bounds_replace_those_of_the_problem(tmp_path):
    free = solved("torsion", "-n", 100, "--no-bounds", "--gtol", 1e-7, "--ftol", 0)
    assert free["problem"]["bounded"] is False
    # Without bounds the problem is the linear system of the five-point Laplacian.
    problem = problems.get("torsion", n=100)
    _, minus_b = problem.fun(np.zeros(100))
    columns = [problem.fun(unit)[1] - minus_b for unit in np.eye(100)]
    exact = np.linalg.solve(np.array(columns), -minus_b)
    # As above, with the eigenvalue 8 sin²(π/22).
    room = 100 * 1e-14 / (2 * 8 * np.sin(np.pi / 22) ** 2)
    assert free["result"]["fun"] == pytest.approx(problem.fun(exact)[0], abs=room)

    file = tmp_path / "x.npy"
    boxed = solved("torsion", "-n", 100, "--bounds", "0.1,0.2", "--solution", str(file))
    x = np.load(file)
    assert boxed["problem"]["bounded"] is True
    assert x.shape == (100,)
    assert x.min() == 0.1
    assert x.max() == 0.2


def test_a_start_outside_the_bounds_is_said():
    outcome = solve("rosenbrock", "-n", 4, "--bounds", "-1,")
    assert outcome.exit_code == 0
    assert (
        outcome.stderr == "stepwell solve: x0 lies outside the bounds in 2 of 4 variables; it was projected onto them\n"
    )


def test_float32():
    run = solved("rosenbrock", "-n", 100, "--dtype", "float32")
    # The start (-1.2, 1) in float32 has f0 = 24.2 a pair to about 1e-7 relative, which float64 would meet to 1e-15.
    f0 = run["history"][0]["fun"]
    assert 0 < abs(f0 / 1210 - 1) < 1e-6
    assert run["result"]["fun"] < 1e-6


def test_torch_evaluates():
    pytest.importorskip("torch")
    run = solved("rosenbrock", "-n", 20, "--array", "torch")
    assert run["settings"]["array"] == "torch"
    assert run["result"]["fun"] < 1e-9


def test_jax_evaluates_in_double_precision():
    pytest.importorskip("jax")
    # In a process of its own, because the command switches JAX to 64 bits.
    command = [sys.executable, "-m", "stepwell", "solve", "rosenbrock", "-n", "20", "--array", "jax", "--json", "-"]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    run = json.loads(outcome.stdout)
    assert run["settings"]["array"] == "jax"
    assert run["history"][0]["fun"] == pytest.approx(242, rel=1e-14)
    assert run["result"]["fun"] < 1e-9


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--maxiter", "2"], "MAX_ITERATIONS", "the limit on iterations (maxiter) was reached"),
        (["--maxfun", "3"], "MAX_EVALUATIONS", "the limit on evaluations (maxfun) was reached"),
        (["--time-limit", "1e-9"], "TIME_LIMIT", "the time limit was reached"),
    ],
)
def test_exit_status_1_when_not_converged(arguments, status, said, tmp_path):
    file = tmp_path / "run.json"
    outcome = solve("rosenbrock", "-n", 10, *arguments, "--json", str(file))
    assert outcome.exit_code == 1
    assert outcome.stderr == f"stepwell solve: not converged: {said}\n"
    assert json.loads(file.read_text())["result"]["reason"] == status


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rosenbrok"], "did you mean 'rosenbrock'?"),
        (["torsion", "--bounds", "1,0"], "'--bounds': '1,0' leaves no point; allowed: LOW <= HIGH"),
        (["torsion", "--bounds", "nan,0"], "leaves no point"),
        (["torsion", "--bounds", "1"], "'1' is not LOW,HIGH"),
        (["torsion", "--bounds", "a,b"], "'a,b' is not LOW,HIGH"),
        (["torsion", "--bounds", "0,1", "--no-bounds"], "--bounds and --no-bounds exclude each other"),
        (["torsion", "--dtype", "float16"], "'float16' is not one of"),
        (["torsion", "--cauchy", "best"], "'best' is not one of"),
        (["torsion", "--param", "c"], "'c' is not NAME=NUMBER"),
        (["torsion", "--param", "c=x"], "'c=x' is not NAME=NUMBER"),
        (["torsion", "--param", "d=1"], "torsion got d = 1; allowed: n, nx, ny, c"),
        (["torsion", "--nx", "5", "--param", "nx=6"], "nx is given twice"),
        (["rosenbrock", "-n", "3"], "n is 3; allowed: an integer of at least 2, a multiple of 2"),
        (["rosenbrock", "--nx", "3"], "rosenbrock got nx = 3; allowed: n, c"),
        (["torsion", "-m", "0"], "m (maxcor) is 0; allowed: an integer from 1 to"),
        (["torsion", "--gtol", "-1"], "gtol is -1.0; allowed"),
        (["torsion", "--ls-gtol", "2"], "line_search gtol is 2.0; allowed: a finite number above 0 and below 1"),
        (["torsion", "--threads", "0"], "'--threads': 0 is not in the range x>=1"),
        (["torsion", "--device", "tpu"], "'tpu' is not a device; allowed: cpu, cuda, cuda:K"),
        (["torsion", "--device", "cuda", "--array", "numpy"], "numpy has no arrays on cuda; allowed: torch, cupy, jax"),
        (["torsion", "--iprint", "1", "4"], "4 is not in the range 0<=x<=3"),
        (["torsion", "--plot", "run.jpg"], "'run.jpg' must end in .png or .pdf or .svg"),
        (["torsion", "--plot", "nowhere/run.png"], "there is no folder 'nowhere'"),
        (["torsion", "--json", "nowhere/run.json"], "there is no folder 'nowhere'"),
        (["torsion", "--solution", "x.txt"], "'x.txt' must end in .npy"),
    ],
)
def test_exit_status_2_and_the_reason_when_the_command_line_is_wrong(arguments, said):
    outcome = solve(*arguments)
    assert outcome.exit_code == 2
    assert said in outcome.stderr
    assert outcome.stdout == ""


def test_a_missing_library_is_named(monkeypatch):
    for name in ("torch", "jax"):
        monkeypatch.setitem(sys.modules, name, None)
        outcome = solve("torsion", "--array", name)
        assert outcome.exit_code == 2
        assert f"{name} is not installed" in outcome.stderr


def test_a_missing_matplotlib_is_named_before_the_run(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    outcome = solve("torsion", "--plot", str(tmp_path / "run.png"))
    assert outcome.exit_code == 2
    assert "pip install 'stepwell[plot]'" in outcome.stderr
    assert outcome.stdout == ""


def test_progress_on_a_terminal_goes_to_standard_error_alone():
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "stepwell", "solve", "torsion", "-n", "1000000", "--gtol", "0", "--ftol", "0"]
    command += ["--maxiter", "1000000", "--maxfun", "1000000", "--time-limit", "1.6", "--json", "-"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    outcome = subprocess.run(command, stdout=subprocess.PIPE, stderr=slave, env=environment, timeout=120, check=False)
    os.close(slave)
    seen = os.read(master, 1 << 16).decode()
    os.close(master)
    assert outcome.returncode == 1
    assert json.loads(outcome.stdout)["result"]["reason"] == "TIME_LIMIT"
    assert "torsion  iteration " in seen


def test_module_and_script_are_the_same_program():
    script = Path(sys.executable).parent / "stepwell"
    if not script.exists():
        pytest.skip("the stepwell script is not beside this Python")
    runs = [
        subprocess.run([*start, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
        for start in ([str(script)], [sys.executable, "-m", "stepwell"])
    ]
    assert runs[0] == runs[1]


def test_plain_cuda_is_the_fastest_device(monkeypatch):
    torch = pytest.importorskip("torch")
    from stepwell.cuda import devices as cuda_devices

    monkeypatch.setattr(cuda_devices, "fastest_device", lambda: 7)
    outcome = CliRunner().invoke(main, ["solve", "torsion", "--device", "cuda", "--array", "torch"])
    assert outcome.exit_code == 2
    assert f"cuda:7 is not there: PyTorch {torch.__version__} sees" in " ".join(outcome.output.split())

    def none():
        raise RuntimeError("no NVIDIA driver was found: install it")

    monkeypatch.setattr(cuda_devices, "fastest_device", none)
    outcome = CliRunner().invoke(main, ["solve", "torsion", "--device", "cuda", "--array", "torch"])
    assert outcome.exit_code == 2
    assert "no NVIDIA driver was found: install it" in " ".join(outcome.output.split())


def test_times_of_a_run_on_a_gpu():
    """Set-up, objective and solver add up to the total; what recording took is in none of them."""
    from stepwell.lab.solve.history import History
    from stepwell.lab.solve.summary import SummaryReport
    from stepwell.quasi_newton.settings import Settings

    problem = problems.get("torsion", nx=5, ny=5)
    history = History(problem.fun, problem.bounds)
    result = stepwell.minimize(
        history.fun, problem.x0, jac=True, bounds=problem.bounds, callback=history.callback, options={"maxiter": 3}
    )
    result.seconds = {"total": 4.0, "setup": 1.0, "objective": 2.0, "solver": 1.0, "turns": 0.5}
    seconds = history.seconds(result)
    assert seconds["setup"] == 1.0
    assert 3.9 < seconds["total"] == seconds["setup"] + seconds["objective"] + seconds["solver"] < 4.0
    kind = {"dtype": "float64", "array": "torch", "device": "cuda:0"}
    report = SummaryReport(problem, problem.bounds, Settings(), **kind)
    assert "thread" not in report.heading()
    assert dict(report.outcome(result, seconds))["before the start"] == "1 s"


def test_a_checkpoint_is_taken_up(tmp_path):
    """Cut off by a limit, then taken up: the bits of the run that nobody cut."""
    file, whole, parts = tmp_path / "run.ckpt", tmp_path / "whole.npy", tmp_path / "parts.npy"
    plain = solved("torsion", "-n", 400, "--solution", whole)
    often = ("torsion", "-n", 400, "--checkpoint", file, "--checkpoint-every", 1)
    assert solve(*often, "--maxiter", 5).exit_code == 1
    assert file.exists()
    taken_up = solved(*often, "--solution", parts)
    assert whole.read_bytes() == parts.read_bytes()
    assert taken_up["result"]["nfev"] == plain["result"]["nfev"]
    other = solve("torsion", "-n", 900, "--checkpoint", file)
    assert other.exit_code == 2
    assert "of a run with another shape of x0" in other.stderr
    assert solve(*often[:-1], "never").exit_code == 2
    assert solve(*often[:4], tmp_path / "none" / "run.ckpt").exit_code == 2
    file.write_bytes(file.read_bytes()[:500])
    cut = solve(*often)
    assert cut.exit_code == 1
    assert cut.stderr.startswith(f"Error: {file}: ")
