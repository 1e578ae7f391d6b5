"""The shipped module itself under AddressSanitizer and UndefinedBehaviorSanitizer, or under ThreadSanitizer.

    python tests/sanitized.py address                     # build, a part of the tests, five minutes of fuzzing
    python tests/sanitized.py thread --minutes 20
    python tests/sanitized.py address --tests tests/lsq tests/quasi_newton/test_qn_api.py

Needs GCC with its sanitizers, scikit-build-core and nanobind. The module is built into a folder of its own, beside the
installed NumPy and SciPy; --folder keeps it for the next time. Exit status 0: the sanitizer said nothing, and no test
failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLAGS = {
    "address": "-fsanitize=address,undefined -fno-sanitize-recover=undefined",
    "thread": "-fsanitize=thread",
}
LIBRARIES = {"address": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}
#: What goes through the compiled module, in a few minutes. Programs of their own, without the sanitizer, are left out.
TESTS = {
    "address": [
        "tests/quasi_newton/test_qn_api.py",
        "tests/quasi_newton/test_qn_invariants.py",
        "tests/quasi_newton/test_qn_resume.py",
        "tests/quasi_newton/test_qn_cauchy.py",
        "tests/quasi_newton/test_qn_trouble.py",
        "tests/lsq/test_nnls_answers.py",
        "tests/lsq/test_nnls_fuzz.py",
        "tests/krylov/test_sparse_kernel.py",
        "tests/krylov/test_space.py",
        "tests/voronoi/test_voronoi_energy.py",
    ],
    "thread": [
        "tests/quasi_newton/test_qn_scale.py",
        "tests/quasi_newton/test_qn_programs.py",
        "tests/lsq/test_nnls_batches.py",
        "tests/krylov/test_sparse_kernel.py",
        "tests/voronoi/test_voronoi_energy.py",
    ],
}


def library(name: str) -> str:
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = found.stdout.strip()
    if path == name:
        sys.exit(f"{name} is not there: install GCC's sanitizers")
    return os.path.realpath(path)


def build(kind: str, folder: Path) -> None:
    """Install the package of this checkout, with the sanitizer, into a folder."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--upgrade"]
    command += ["--target", str(folder), str(ROOT), "-C", f"build-dir={folder}-build", "-C", "install.strip=false"]
    command += ["-C", "cmake.build-type=RelWithDebInfo", "-C", "cmake.define.CMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1"]
    command += ["-C", "cmake.define.STEPWELL_OPTIMIZE=-O1"]
    command += ["-C", f"cmake.define.CMAKE_CXX_FLAGS={FLAGS[kind]} -fno-omit-frame-pointer"]
    command += ["-C", f"cmake.define.CMAKE_MODULE_LINKER_FLAGS={FLAGS[kind]}"]
    subprocess.run(command, check=True)


def environment(kind: str, folder: Path, reports: Path) -> dict[str, str]:
    preloaded = [library(name) for name in LIBRARIES[kind]] + [library("libstdc++.so")]
    say = f"log_path={reports}/report:halt_on_error=1:exitcode=66"
    return os.environ | {
        "LD_PRELOAD": " ".join(preloaded),
        "PYTHONPATH": str(folder),
        "PYTHONMALLOC": "malloc",
        # Python does not free everything at its end, and a wish for too much memory is refused, not a fault.
        "ASAN_OPTIONS": f"{say}:detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": f"{say}:print_stacktrace=1",
        "TSAN_OPTIONS": f"{say}:ignore_noninstrumented_modules=1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=FLAGS)
    parser.add_argument("--minutes", type=float, default=5.0, help="of fuzzing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", nargs="*", help="files and folders of tests in place of the selection")
    parser.add_argument("--folder", type=Path, help="where the module is built, and found again the next time")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp()) / given.kind
    if not (folder / "stepwell").exists():
        build(given.kind, folder)
    reports = Path(tempfile.mkdtemp())
    run = environment(given.kind, folder, reports)
    # ThreadSanitizer cannot place its shadow memory under some settings of address randomisation.
    first = ["setarch", "-R"] if given.kind == "thread" and shutil.which("setarch") else []
    tests = TESTS[given.kind] if given.tests is None else given.tests
    where = "import stepwell._core as c; import sys; sys.stdout.write(c.__file__ + chr(10))"
    commands = [[sys.executable, "-c", where]]
    if tests:
        options = ["-q", "-p", "no:cacheprovider", "-m", "not cuda and not native and not wheels", "-W", "ignore"]
        options += ["-k", "not without_a_device"]  # what NVRTC compiles is not the module
        commands.append([sys.executable, "-m", "pytest", *options, *tests])
    if given.minutes:
        fuzz = [sys.executable, "tests/fuzz.py", "--minutes", str(given.minutes), "--seed", str(given.seed)]
        commands.append(fuzz)
    status = 0
    for command in commands:
        sys.stdout.write("== " + " ".join(command[1:]) + "\n")
        sys.stdout.flush()
        status |= subprocess.run([*first, *command], env=run, cwd=ROOT).returncode != 0
    said = sorted(reports.iterdir())
    for report in said:
        sys.stdout.write(f"== {report.name}\n{report.read_text(errors='replace')[:6000]}\n")
    sys.stdout.write("clean\n" if not said and not status else f"{len(said)} reports, status {int(status)}\n")
    return 1 if said or status else 0


if __name__ == "__main__":
    sys.exit(main())
