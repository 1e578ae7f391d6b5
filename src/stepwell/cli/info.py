"""`stepwell info`: what this installation is and what it can run on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

import click

import stepwell
from stepwell.cli.console import make_table, show

#: Optional libraries: distribution names, since importing them would take seconds.
_OPTIONAL = {
    "PyTorch": ("torch",),
    "JAX": ("jax",),
    "CuPy": ("cupy", "cupy-cuda12x", "cupy-cuda13x"),
    "cuda-core": ("cuda-core",),
    "NVRTC": ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
    "matplotlib": ("matplotlib",),
}


@click.command(name="info")
def command() -> None:
    """Show versions, compiler, instruction set, threads and devices."""
    from stepwell import _core
    from stepwell.settings import Settings

    table = make_table("", "", header=False)
    table.columns[0].style = "bold"
    table.columns[0].no_wrap = True
    table.add_row("stepwell", stepwell.__version__)
    table.add_row("compiler", str(_core.compiler()))
    table.add_row("instruction set", str(_core.isa()))
    table.add_row("threads", f"{Settings().thread_count()} by default, {os.cpu_count()} processors")
    table.add_row("Python", f"{platform.python_version()} ({platform.system()} {platform.machine()})")
    table.add_row("NumPy", metadata.version("numpy"))
    table.add_row("SciPy", metadata.version("scipy"))
    for name, distributions in _OPTIONAL.items():
        table.add_row(name, _version(distributions) or "not installed")
    table.add_row("devices", "CPU")
    for line in cuda_devices():
        table.add_row("", line)
    show(table)


def _version(distributions: tuple[str, ...]) -> str | None:
    for distribution in distributions:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def cuda_devices() -> list[str]:
    """Return a line per CUDA device, or one line that says why there is none."""
    try:
        from cuda.core import Device
    except ImportError:
        return ["no CUDA: cuda-core is not complete here (pip install 'stepwell[cu13]' or 'stepwell[cu12]')"]
    try:
        lines = [_device_line(device) for device in Device.get_all_devices()]
    # A missing driver shows as one of many exceptions, not all of them public.
    except Exception as error:
        return [f"no CUDA: {(str(error) or type(error).__name__).splitlines()[0]}"]
    return lines or ["no CUDA device"]


def _device_line(device: Any) -> str:
    major, minor = device.compute_capability
    try:
        memory = f", {device.to_system_device().memory_info.total / 2**30:.0f} GiB"
    except Exception:  # the management library, which knows the memory, may be missing or older than the driver
        memory = ""
    return f"cuda:{device.device_id} {device.name}, sm_{major}{minor}{memory}"
