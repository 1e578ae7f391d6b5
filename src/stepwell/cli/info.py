"""`stepwell info`: what this installation is and what it can run on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from stepwell.cli.console import make_table
from stepwell.cli.output import Output, output_options

if TYPE_CHECKING:
    from stepwell.cuda.devices import CudaDevice

#: Optional libraries: distribution names, since importing them would take seconds.
_OPTIONAL = {
    "PyTorch": ("torch",),
    "JAX": ("jax",),
    "CuPy": ("cupy", "cupy-cuda12x", "cupy-cuda13x"),
    "cuda-core": ("cuda-core",),
    "NVRTC": ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
    "matplotlib": ("matplotlib",),
    "nibabel": ("nibabel",),
    "h5py": ("h5py",),
}


@click.command(name="info")
@click.option("--warm", is_flag=True, help="Compile the common GPU kernels now, so that no first call waits for them.")
@click.option("--arch", multiple=True, metavar="SM", help="With --warm: architectures, such as sm_90; else those here.")
@click.option("--ship", is_flag=True, help="With --warm: into this installation, for all its users.")
@output_options()
def command(warm: bool, arch: tuple[str, ...], ship: bool, output: Output) -> None:
    """Show versions, compiler, instruction set, threads and devices; or fill the cache of GPU kernels."""
    if warm or arch or ship:
        _fill_cache(arch, warm, ship, output)
        return
    from stepwell.common.machine import machine_facts, version_of

    facts = machine_facts()
    table = make_table("", "", header=False)
    table.columns[0].style = "bold"
    table.columns[0].no_wrap = True
    table.add_row("stepwell", str(facts["stepwell"]))
    table.add_row("compiler", str(facts["compiler"]))
    table.add_row("instruction set", str(facts["instructions"]))
    table.add_row("threads", f"{facts['cores']} by default, {facts['processors']} processors")
    table.add_row("Python", f"{facts['python']} ({facts['system']})")
    table.add_row("NumPy", str(facts["numpy"]))
    table.add_row("SciPy", str(facts["scipy"]))
    for name, distributions in _OPTIONAL.items():
        table.add_row(name, version_of(*distributions) or "not installed")
    table.add_row("devices", "CPU")
    for line in cuda_devices():
        table.add_row("", line)
    output.say(table)
    libraries = {name: version_of(*distributions) for name, distributions in _OPTIONAL.items()}
    output.record({}, {"machine": facts, "libraries": libraries, "devices": ["CPU", *cuda_devices()]})


def _fill_cache(arch: tuple[str, ...], warm: bool, ship: bool, output: Output) -> None:
    """Compile the common kernels for the given architectures or those of the devices here."""
    from stepwell.cli.warming import architectures_here, compile_common
    from stepwell.common.machine import machine_facts
    from stepwell.cuda.nvrtc import cache_folder, shipped_folder

    if not warm:
        raise click.UsageError(f"{'--arch' if arch else '--ship'} is for --warm: stepwell info --warm --arch sm_90")
    folder = shipped_folder() if ship else cache_folder()
    try:
        chosen = list(arch) or architectures_here()
        if not chosen:
            raise click.ClickException("no CUDA device is here; name an architecture: --arch sm_90")
        began = time.perf_counter()
        with output.status(f"compiling for {', '.join(chosen)}") as tell:
            cores = int(machine_facts()["cores"])
            count = compile_common(
                chosen, cores, lambda ready, of: tell(f"{ready} of {of} kernels compiled"), ship=ship
            )
    except (ImportError, RuntimeError, OSError) as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    seconds = time.perf_counter() - began
    output.say(f"{count} kernels for {', '.join(chosen)} are in {folder} ({seconds:.0f} s)")
    output.record({}, {"architectures": chosen, "kernels": count, "folder": str(folder), "seconds": seconds})


def cuda_devices() -> list[str]:
    """Return a line per CUDA device and one on the driver, or one line that says why there is none."""
    from stepwell.cuda.devices import driver_version, fastest_device, list_devices

    try:
        devices = list_devices()
        lines = [_device_line(device, len(devices) > 1 and device.index == fastest_device()) for device in devices]
        return [*lines, f"driver {driver_version()}"] if lines else ["no CUDA device"]
    except ImportError:
        return ["no CUDA: cuda-core is not complete here (pip install 'stepwell[cu13]' or 'stepwell[cu12]')"]
    except RuntimeError as error:
        return [f"no CUDA: {error}"]


def _device_line(device: CudaDevice, default: bool) -> str:
    from stepwell.cuda.devices import memory_free

    try:
        free, total = memory_free(device.index)
        memory = f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
    except RuntimeError as error:  # such as a device that another process holds for itself
        memory = f"{device.memory / 2**30:.1f} GiB ({error})"
    return (
        f"cuda:{device.index} {device.name}, sm_{device.capability[0]}{device.capability[1]}, "
        f"{device.multiprocessors} multiprocessors at {device.clock_mhz:.0f} MHz, {memory}"
        + (" (the fastest: default)" if default else "")
    )
