"""The solver's source under sanitizers: threads as members of a team, and as lanes of the branches a device takes."""

from __future__ import annotations

import pytest
from native_programs import MEMORY, POOL, ROOT, THREADS, build_once, output_of

pytestmark = pytest.mark.native
#: Unoptimised: compiling takes most of the time, three times as much of it at -O1, and every access is looked at.
FLAGS = ["-O0", "-g"]


@pytest.mark.parametrize("sanitizer", [THREADS, MEMORY], ids=["thread", "address"])
@pytest.mark.parametrize("name", ["thread_team_race", "device_branches", "general_branches", "derivative_solves"])
def test_under_a_sanitizer(name, sanitizer, tmp_path_factory):
    # The program compares the teams' answers itself and ends with an error where they differ.
    output_of(build_once(tmp_path_factory, [ROOT / f"tests/lsq/{name}.cpp", POOL], [*FLAGS, *sanitizer]))


def test_small_systems(tmp_path_factory):
    # Lanes that share a system take turns: what one reads too late shows in the answers, and in who is done.
    output_of(build_once(tmp_path_factory, [ROOT / "tests/lsq/small_systems.cpp", POOL], [*FLAGS, *MEMORY]))


def test_sweeps_of_a_core(tmp_path_factory):
    # Vectors shorter than registers, of whatever width these are here.
    output_of(build_once(tmp_path_factory, [ROOT / "tests/lsq/one_core_sweeps.cpp"], [*FLAGS, *MEMORY]))


def test_systems_of_a_core(tmp_path_factory):
    # What is read before it is written differs between two runs, in memory of zeros and of ones.
    output_of(build_once(tmp_path_factory, [ROOT / "tests/lsq/one_core_systems.cpp"], [*FLAGS, *MEMORY]))
