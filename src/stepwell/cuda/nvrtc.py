"""Compiles the CUDA sources at run time, and keeps what it compiled on disk.

Nothing of CUDA is imported before a kernel is asked for. The cache is keyed by every source file, the options, the
architecture and the compiler's version, and lies in ``$STEPWELL_CACHE`` or the user's cache folder. What it holds is
run on the device, so an entry counts only if this user owns it and its folder, nobody else may write to them, and its
checksum is right; otherwise the kernel is compiled again.

``STEPWELL_COMPILE=quick`` asks the compiler for less work: half the time or less for a large kernel, whose code is
two to seven times slower and rounds otherwise. Such code has entries of its own.

An installation may have kernels of its own, compiled while it was built (scripts/usual_kernels.py) or by whoever made
it (``stepwell info --warm --ship``): they are looked for first, and count whichever compiler made them, NVRTC or nvcc,
of no newer a CUDA than the one here.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import stat
from typing import Any

from stepwell.common.checks import require
from stepwell.common.files import Unreadable, open_regular, replacing
from stepwell.cuda.driver import INSTALL, import_cuda
from stepwell.cuda.entries import STANDARD, checksum, entry_name, source_of


def source_folder() -> pathlib.Path:
    """Return the folder that holds ``core`` and ``cuda``: inside the package, or beside it in a checkout."""
    package = pathlib.Path(__file__).resolve().parent.parent
    installed = package / "_source"
    return installed if installed.is_dir() else package.parent


def cache_folder() -> pathlib.Path:
    """Return the folder of compiled kernels."""
    chosen = os.environ.get("STEPWELL_CACHE")
    if chosen:
        return pathlib.Path(chosen)
    base = pathlib.Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the XDG specification: "consider the path invalid and ignore it"
        base = pathlib.Path.home() / ".cache"
    return base / "stepwell"


def compiles_quickly() -> bool:
    """Whether ``STEPWELL_COMPILE`` asks for quick compilation."""
    chosen = os.environ.get("STEPWELL_COMPILE", "full")
    require(chosen in ("full", "quick"), "STEPWELL_COMPILE", chosen, "full, quick")
    return chosen == "quick"


def shipped_folder() -> pathlib.Path:
    """Return the folder of kernels that are part of the installation, if it has any."""
    return pathlib.Path(__file__).resolve().parent.parent / "_kernels"


def cuda_core() -> Any:
    """Import cuda.core, or say what to install."""
    return import_cuda("cuda.core")


def _load_compiler() -> str:
    """Load NVRTC, or say what to install; returns its version."""
    nvrtc = import_cuda("cuda.bindings", "nvrtc")
    try:
        _, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError as error:  # cuda-core is here, the compiler's library is not
        raise ImportError(INSTALL) from error
    return f"{major}.{minor}"


def _compiler_version() -> str:
    """Return the version of NVRTC: of the package that brings it, or else by loading it, which takes a while."""
    import importlib.metadata  # takes as long as a small module of this package, and nobody needs it without CUDA

    major = import_cuda("cuda.bindings").__version__.split(".")[0]
    try:
        return importlib.metadata.version("nvidia-cuda-nvrtc" + ("-cu12" if major == "12" else ""))
    except importlib.metadata.PackageNotFoundError:
        return _load_compiler()


def compile_kernel(
    name: str,
    defines: dict[str, str | int],
    architecture: str,
    path: pathlib.Path | None = None,
    *,
    ship: bool = False,
) -> bytes:
    """Compile the source ``NAME.cu``, or that of `path`, for one architecture (``"sm_90"``) and return the cubin.

    Needs no driver and no GPU. `ship`: what is compiled becomes part of the installation, not of the user's cache.
    """
    folder = source_folder()
    source = (path or source_of(name, folder)).read_text()
    version = _compiler_version()
    entry = entry_name(name, defines, architecture, source, folder)
    quick = compiles_quickly() and not ship
    kept = _shipped(entry, version)
    if kept is not None:
        return kept
    mode = "-quick" if quick else ""
    stored = (shipped_folder() if ship else cache_folder()) / f"{entry}-{version}{mode}.cubin"
    kept = None if ship else _read_entry(stored)
    if kept is not None:
        return kept
    _load_compiler()
    core = cuda_core()
    options = core.ProgramOptions(
        std=STANDARD,
        arch=architecture,
        include_path=str(folder),
        define_macro=[(key, str(value)) for key, value in defines.items()],
        device_as_default_execution_space=True,  # generic lambdas have no annotation of their own
        ofast_compile="mid" if quick else None,
    )
    code = bytes(core.Program(source, code_type="c++", options=options).compile("cubin").code)
    _store(stored, code, own=not ship)
    return code


def _shipped(entry: str, version: str) -> bytes | None:
    """Return the code that the installation has of an entry.

    Of a compiler of an older CUDA than this `version` too: what such a one made, newer drivers run.
    """
    for path in sorted(shipped_folder().glob(f"{entry}-*.cubin")):
        made_by = path.name[len(entry) + 1 :].split(".")[0]
        if made_by.isdigit() and int(made_by) <= int(version.split(".")[0]):
            code = _read_entry(path, own=False)
            if code is not None:
                return code
    return None


def _is_trusted(found: os.stat_result) -> bool:
    """Whether a file or folder is this user's, and only theirs to change."""
    if not hasattr(os, "geteuid"):  # no owners of this kind
        return True
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _read_entry(path: pathlib.Path, own: bool = True) -> bytes | None:
    """Return the code of an entry, or None where there is none that is whole and can be trusted.

    What is not the user's `own` is part of the installation, and trusted as its modules are.
    """
    try:
        if own and not _is_trusted(os.stat(path.parent)):
            return None
        with open_regular(path) as file:
            if own and not _is_trusted(os.fstat(file.fileno())):
                return None
            content = file.read()
    except (OSError, Unreadable):
        return None
    size = hashlib.sha256().digest_size
    code = content[:-size]
    return code if code and content[-size:] == checksum(path.name, code) else None


def _store(path: pathlib.Path, code: bytes, own: bool = True) -> None:
    """Write code and checksum in one step.

    Of the user's `own` cache: a home that is read-only, full or another user's is no error. Into the installation:
    for all its users to read, or an error.
    """
    try:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700 if own else 0o755, exist_ok=True)
        if own and not _is_trusted(os.stat(path.parent)):
            return
        path.unlink(missing_ok=True)  # what is there was refused: its mode and owner are not to be kept
        with replacing(path) as file:
            os.chmod(file.name, 0o600 if own else 0o644)
            file.write(code + checksum(path.name, code))
    except OSError:
        if not own:
            raise
