"""`uopc doctor`: what is installed, what is missing and how to get it, and what really runs."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
from rich.console import Console

from uopc import __version__
from uopc.config import Config, current
from uopc.dtype import dtypes
from uopc.errors import ToolchainError, UopcError
from uopc.pipeline import compile
from uopc.printing import duration, facts, heading, mib
from uopc.runtime.cache import open_cache
from uopc.runtime.cpu import find_compiler
from uopc.runtime.cuda import describe, why_unusable
from uopc.runtime.device import devices
from uopc.runtime.nvrtc import known_archs, nvrtc_identity
from uopc.runtime.sass import find_disassembler
from uopc.uop.node import buffer

PACKAGES = ("numpy", "ml_dtypes", "cffi", "cuda-bindings", "cuda-core")
ELEMENTS = 1009  # of the test kernel: a prime, so that its guards are tried too


@dataclass(frozen=True)
class Finding:
    """One thing looked at.  state: "ok", "missing" or "failed"; detail ends with the remedy."""

    name: str
    state: str
    detail: str


def doctor(out: Console) -> int:
    """Print what there is.  Returns 0 if a kernel ran right on at least one device, else 1."""
    found = [python(), *toolchain(), cache(), settings()]
    ran = [device_works(info.name, info.usable, info.detail) for info in devices()]
    facts(out, [(f"{f.state:9}{f.name}", f.detail) for f in (*found, *ran)])
    works = [f.name.split()[-1] for f in ran if f.state == "ok"]
    heading(out, f"\nkernels run on {' and '.join(works)}" if works else "\nno device runs kernels")
    return 0 if works else 1


def python() -> Finding:
    """Versions of uopc, Python and the packages that matter."""
    parts = [f"uopc {__version__}, Python {platform.python_version()}"]
    parts += [f"{p} {version}" for p in PACKAGES if (version := _version(p))]
    return Finding("Python", "ok", f"{', '.join(parts)}; {platform.system()} {platform.machine()}")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def toolchain() -> Iterator[Finding]:
    """The C compiler, the driver with its GPU, NVRTC and the disassembler."""
    try:
        compiler = find_compiler()
        yield Finding("C compiler", "ok", f"{compiler} ({_first_line(*compiler.command)})")
    except ToolchainError as error:
        yield Finding("C compiler", "missing", str(error))
    reason = why_unusable()
    yield Finding("driver, GPU", "missing" if reason else "ok", reason or describe())
    try:
        archs = known_archs()
        where = f"{nvrtc_identity()}{_library()}, for {archs[0]} to {archs[-1]}"
        yield Finding("NVRTC", "ok", where)
    except ToolchainError as error:
        yield Finding("NVRTC", "missing", str(error))
    try:
        yield Finding("disassembler", "ok", find_disassembler())
    except ToolchainError as error:
        yield Finding("disassembler", "missing", str(error))


def _first_line(*command: str) -> str:
    """What a compiler says of itself."""
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return next(iter((done.stdout or done.stderr).splitlines()), "no version")


def _library() -> str:
    """Where NVRTC's package has its library, as " at PATH"; "" where it is no package's."""
    package = nvrtc_identity().split()[0]
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    names = ("libnvrtc.so", "nvrtc64")
    found = [f for f in files if f.name.startswith(names) and "builtins" not in f.name]
    return f" at {found[0].locate()}" if found else ""


def cache() -> Finding:
    """The folder of compiled kernels: can it be written, how full is it."""
    now = open_cache().status()
    if now.folder is None or now.problem:
        return Finding(
            "cache", "failed", f"{now.problem or 'no folder'}. Kernels compile each time."
        )
    try:
        now.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=now.folder):
            pass
    except OSError as error:
        said = f"{now.folder} cannot be written: {error.strerror or error}"
        return Finding("cache", "failed", f"{said}. Set UOPC_CACHE_DIR to a folder that can.")
    full = f"{now.entries} entries, {mib(now.size_bytes)} of {mib(now.limit_bytes)}"
    return Finding("cache", "ok", f"{now.folder}: {full}")


def settings() -> Finding:
    """The UOPC_* variables that say something else than their default."""
    now, default = current(), Config()
    given = [
        f"UOPC_{f.name.upper()}={value}"
        for f in fields(Config)
        if (value := getattr(now, f.name)) != getattr(default, f.name)
    ]
    return Finding("settings", "ok", ", ".join(given) or "no UOPC_* variable is set")


def device_works(name: str, usable: bool, detail: str) -> Finding:
    """Run x * 2 + 1 on a device; f32 has one right answer for it."""
    row = f"device {name}"
    if not usable:
        return Finding(row, "missing", detail)
    x = np.random.default_rng(0).standard_normal(ELEMENTS, np.float32)
    start = time.perf_counter()
    try:
        got = compile(buffer(0, dtypes.f32, (ELEMENTS,)) * 2.0 + 1.0, target=name, name="axpy")(x)
    except UopcError as error:
        return Finding(row, "failed", f"{type(error).__name__}: {error}")
    took = duration(time.perf_counter() - start)
    wrong = int((got != x * np.float32(2) + np.float32(1)).sum())
    if wrong:
        said = f"{wrong} of {ELEMENTS} elements of x * 2 + 1 differ from numpy's. Please report it."
        return Finding(row, "failed", said)
    return Finding(row, "ok", f"x * 2 + 1 equals numpy's, compiled and run in {took}; {detail}")
