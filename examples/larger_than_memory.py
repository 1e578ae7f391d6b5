"""Solve a cube of spectra that is larger than memory, from Zarr to Zarr on two workers, one of which is killed.

Run: python examples/larger_than_memory.py [--systems 2000000] [--block 20000] [--memory 512MiB]

The cube has one spectrum of 60 bands a row and is never in memory as a whole: dask hands blocks of rows to the workers,
each of which solves them for 30 non-negative amounts and writes them. When a third of the blocks is written the program
kills a worker; dask starts another one and repeats what was lost. The bits are those of a direct call.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import zarr
from dask.distributed import Client, LocalCluster

import stepwell

BANDS, MATERIALS = 60, 30


def library_of_spectra() -> np.ndarray:
    """Spectra of the materials, smooth bumps along the bands, as columns of A."""
    band, centre = np.arange(BANDS)[:, None], np.linspace(0, BANDS, MATERIALS)[None]
    return np.exp(-0.5 * ((band - centre) / 4.0) ** 2)


def spectra(block: int, rows: int) -> np.ndarray:
    """Return the spectra of one block: few materials each, and noise."""
    random = np.random.default_rng(block)
    amounts = random.exponential(size=(rows, MATERIALS)) * (random.random((rows, MATERIALS)) < 0.2)
    return amounts @ library_of_spectra().T + 0.01 * random.standard_normal((rows, BANDS))


def kill_a_worker(pids: list[int], written: Path, after: int, said: list[str]) -> None:
    """Wait until so many blocks are written, then kill the process of a worker."""
    while (
        done := sum(1 for path in written.rglob("*") if path.parent.name != written.name and path.is_file())
    ) < after:
        time.sleep(0.01)
    os.kill(pids[0], signal.SIGKILL)
    said.append(f"killed the worker with process {pids[0]} after {done} blocks")


def main() -> int:
    """Write the cube, solve it, kill a worker, compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--systems", type=int, default=2_000_000)
    parser.add_argument("--block", type=int, default=20_000)
    parser.add_argument("--memory", default="512MiB", help="what a worker may take")
    options = parser.parse_args()
    blocks = -(-options.systems // options.block)
    A = library_of_spectra()
    with tempfile.TemporaryDirectory() as folder:
        kind = {"chunks": (options.block, BANDS), "dtype": "float64"}
        cube = zarr.create_array(f"{folder}/cube.zarr", shape=(options.systems, BANDS), **kind)
        for block in range(blocks):
            rows = slice(block * options.block, min((block + 1) * options.block, options.systems))
            cube[rows] = spectra(block, rows.stop - rows.start)
        print(f"a cube of {options.systems} spectra, {cube.nbytes / 1e6:.0f} MB in {blocks} blocks", flush=True)

        amounts = zarr.create_array(
            f"{folder}/amounts.zarr", shape=(options.systems, MATERIALS), chunks=(options.block, MATERIALS),
            dtype="float64", fill_value=np.nan,
        )  # fmt: skip
        result = stepwell.nnls(A, da.from_zarr(f"{folder}/cube.zarr"))  # nothing is read or computed yet
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, memory_limit=options.memory, dashboard_address=None,
                host="127.0.0.1",
            ) as cluster,
            Client(cluster) as client,
        ):  # fmt: skip
            pids = [worker["pid"] for worker in client.run(lambda: {"pid": os.getpid()}).values()]
            said: list[str] = []
            written = Path(f"{folder}/amounts.zarr")
            killer = threading.Thread(
                target=kill_a_worker, args=(pids, written, max(1, blocks // 3), said), daemon=True
            )
            start = time.perf_counter()
            killer.start()
            with dask.config.set({"distributed.scheduler.allowed-failures": 10}):
                da.store(result.x, amounts, lock=False)
            seconds = time.perf_counter() - start
            killer.join(timeout=60)
        print(f"{said[0] if said else 'no worker was killed'}; all written in {seconds:.1f} s")
        same = all(
            np.array_equal(
                amounts[begin : begin + options.block], stepwell.nnls(A, cube[begin : begin + options.block]).x
            )
            for begin in {0, options.block * (blocks // 3), options.block * (blocks - 1)}
        )
        print(f"same bits as a direct call: {same}")
    return 0 if same and said else 1


if __name__ == "__main__":
    sys.exit(main())
