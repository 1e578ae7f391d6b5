"""The CUDA devices of this machine: what they are, which is the fastest, and what is free on them."""

from __future__ import annotations

import dataclasses

from stepwell.cuda.driver import NO_DEVICE, checked, cuda_driver, import_cuda
from stepwell.cuda.runtime import Device


@dataclasses.dataclass(frozen=True)
class CudaDevice:
    """What a device can do, as the driver tells it."""

    index: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    clock_mhz: float
    memory: int

    @property
    def speed(self) -> float:
        """Multiprocessors times clock: what devices are ranked by."""
        return self.multiprocessors * self.clock_mhz


def open_device(index: int) -> Device:
    """Make a device current and return it."""
    device = Device(index)
    device.set_current()
    return device


def list_devices() -> list[CudaDevice]:
    """Return all devices that the driver shows; opens none of them."""
    driver = cuda_driver()
    attribute = driver.CUdevice_attribute
    found = []
    for index in range(checked(*driver.cuDeviceGetCount())):
        device = checked(*driver.cuDeviceGet(index))
        major, minor, processors, clock = (
            checked(*driver.cuDeviceGetAttribute(getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), device))
            for name in ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "MULTIPROCESSOR_COUNT", "CLOCK_RATE")
        )
        name = checked(*driver.cuDeviceGetName(128, device)).split(b"\0", 1)[0].decode()
        memory = int(checked(*driver.cuDeviceTotalMem(device)))
        found.append(CudaDevice(index, name, (major, minor), processors, clock / 1e3, memory))
    return found


def fastest_device() -> int:
    """Return the number of the fastest device: multiprocessors times clock, then memory, then the lower number."""
    devices = list_devices()
    if not devices:
        raise RuntimeError(NO_DEVICE.format("the NVIDIA driver shows no device"))
    return max(devices, key=lambda device: (device.speed, device.memory, -device.index)).index


def memory_free(index: int) -> tuple[int, int]:
    """Return the free and the total bytes of a device, which becomes the current one."""
    open_device(index)
    free, total = checked(*cuda_driver().cuMemGetInfo())
    return int(free), int(total)


def memory_kept(index: int) -> int:
    """Return the bytes that our own allocations on a device have given back, but the driver keeps for the next ones."""
    driver = cuda_driver()
    pool = checked(*driver.cuDeviceGetMemPool(checked(*driver.cuDeviceGet(index))))
    kinds = driver.CUmemPool_attribute
    held, used = (
        int(checked(*driver.cuMemPoolGetAttribute(pool, kind)))
        for kind in (kinds.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, kinds.CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
    )
    return held - used


def driver_version() -> str:
    """Return the driver's version, where its management library tells it, and that of CUDA it speaks."""
    version = int(checked(*cuda_driver().cuDriverGetVersion()))
    spoken = f"CUDA {version // 1000}.{version % 1000 // 10}"
    try:
        number = import_cuda("cuda.core", "system").get_kernel_mode_driver_version()
    except Exception:  # the management library may be missing or older than its bindings
        return spoken
    text = ".".join(map(str, number)) if isinstance(number, tuple) else str(number)
    return f"{text}, {spoken}"
