"""A volume whose slices lie over ranks: the operators, the example and the command."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from mpi_runner import run_ranks

import stepwell
from stepwell.apps import tomography
from stepwell.cli.group import main
from stepwell.distributed import run_threads
from stepwell.operators import adjoint_error, gradient

random = np.random.default_rng(2)
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_slices_are_projected_one_by_one():
    A = tomography.parallel_beam(6, angles=[0.0, 30.0, 100.0])
    volume = random.standard_normal((4, 36, 2))
    operator = tomography.project_slices(A, 4)
    expected = np.concatenate([A @ image for image in volume])
    np.testing.assert_allclose(operator.forward(volume.reshape(144, 2)), expected, atol=1e-12)
    assert adjoint_error(operator) < 1e-14


def test_the_gradient_of_a_volume():
    volume = random.standard_normal((3, 4, 5))
    L = tomography.volume_gradient((3, 4, 5))
    image = L.forward(volume.reshape(60, 1))[:, 0]
    plane = gradient((4, 5))
    expected = [plane @ part.ravel() for part in volume] + [(volume[i + 1] - volume[i]).ravel() for i in range(2)]
    np.testing.assert_allclose(image, np.concatenate(expected), atol=1e-14)
    assert adjoint_error(L) < 1e-14


@pytest.mark.parametrize("held", [(3, 3), (1, 0, 4, 1), (0, 6), (6,)])
def test_the_gradient_over_ranks_is_that_of_the_whole(held):
    """LᵀL of a volume does not depend on where its slices lie; ranks without slices are passed over."""
    volume = random.standard_normal((6, 4, 5))
    whole = tomography.volume_gradient((6, 4, 5))
    expected = whole.adjoint(whole.forward(volume.reshape(120, 1))).reshape(volume.shape)
    ends = np.cumsum([0, *held])

    def program(comm):
        mine = volume[ends[comm.rank] : ends[comm.rank + 1]]
        L = tomography.volume_gradient(mine.shape, comm)
        image = L.forward(mine.reshape(-1, 1))
        assert image.shape[0] == L.shape[0]
        return L.adjoint(image).reshape(mine.shape), image.size

    found = run_threads(len(held), program, timeout=20)
    # Products of a sparse matrix with one column are summed otherwise than with many.
    np.testing.assert_allclose(np.concatenate([part for part, _ in found]), expected, atol=1e-13)
    assert sum(size for _, size in found) == whole.shape[0]


def test_a_volume_over_ranks_takes_the_steps_of_one():
    size, slices = 12, 7
    one = tomography.parallel_beam(size, angles=np.arange(0, 180, 15.0))
    truth = tomography.shepp_logan_3d(size)[2 : 2 + slices]
    data = np.array([one @ image.ravel() for image in truth]) + 0.01 * random.standard_normal((slices, one.shape[0]))

    def program(comm):
        first, last = tomography.slices_of_rank(slices, comm)
        A = tomography.project_slices(one, last - first)
        L = tomography.volume_gradient((last - first, size, size), comm)
        return stepwell.tikhonov(A, data[first:last].ravel(), 0.3, L, tol=1e-14, maxiter=12, comm=comm).x

    (whole,) = run_threads(1, program)
    for ranks in (2, 3):
        found = run_threads(ranks, program, timeout=20)
        # After so many steps: sums in another order, whose rounding errors the steps enlarge.
        np.testing.assert_allclose(np.concatenate(found), whole, atol=1e-8)


@pytest.mark.slow
def test_the_example_takes_about_the_same_steps_on_any_number_of_ranks():
    program = EXAMPLES / "tomography_ranks.py"
    if not program.exists():
        pytest.skip("the examples are not part of this copy")
    one, three = (
        int(re.search(r"(\d+) steps", run_ranks(ranks, program, "--size", "16", "--angles", "12"))[1])
        for ranks in (1, 3)
    )
    assert abs(one - three) <= 1  # rounding may decide about the last one


COMMAND = "from stepwell.cli.group import main; main()"


@pytest.mark.slow
@pytest.mark.parametrize("lam", ["0.5", "discrepancy"])
def test_the_command_over_ranks(tmp_path, lam):
    program = tmp_path / "command.py"
    program.write_text(COMMAND)
    arguments = ("reconstruct", "phantom", "--size", "16", "--angles", "12", "--lam", lam, "--tol", "1e-8")
    printed = run_ranks(3, program, *arguments, "-o", str(tmp_path / "3"), "--plots" if lam == "0.5" else "--no-plots")
    assert "3 ranks, 5 slices each or one more" in printed
    assert printed.count("16 of 16 slices") == 1  # one rank prints
    alone = CliRunner().invoke(main, [*arguments, "-o", str(tmp_path / "1"), "--no-plots"])
    assert alone.exit_code == 0
    one, three = (np.load(tmp_path / str(ranks) / "volume.npy") for ranks in (1, 3))
    assert one.shape == three.shape == (16, 16, 16)
    # Residuals of 1e-8; a rule finds λ in a Krylov space here and in the whole space there.
    np.testing.assert_allclose(three, one, atol=1e-5 if lam == "0.5" else 0.05)
    if lam == "0.5":
        assert (tmp_path / "3" / "montage.png").exists()
