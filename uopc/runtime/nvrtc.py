"""CUDA C++ text to a cubin (and PTX) through NVRTC, for any arch it knows; no GPU is needed.

Results are kept in the disk cache with ptxas's log, under the version of NVRTC's package, so that a
known text costs no import of cuda-python at all.
"""

from __future__ import annotations

import importlib.metadata
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from uopc.config import Config, current
from uopc.errors import TargetError, ToolchainError, UsageError
from uopc.runtime.cache import cache_key, open_cache
from uopc.runtime.ptxas import Resources, parse_log, with_source_lines
from uopc.runtime.report import report
from uopc.runtime.sass import disassemble
from uopc.target import Target

#: --no-cache: NVRTC 13 returns an empty log for a text that it has seen before.
OPTIONS = ("--std=c++17", "--fmad=false", "--ptxas-options=-v", "--no-cache")
INSTALL = "pip install cuda-bindings nvidia-cuda-nvrtc"
_PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
#: what ptxas says where a kernel is right but too large for its target
_TOO_LARGE = ("uses too much", "exceeds", "too many resources", "out of range for target")


@dataclass(frozen=True)
class Cubin:
    """Machine code of one kernel for one arch.

    Attributes: code, the ELF file; arch "sm_NN"; name of the kernel; resources it uses; text it was
    compiled from.
    """

    code: bytes
    arch: str
    name: str
    resources: Resources
    text: str

    @property
    def sass(self) -> str:
        """Its instructions.  Raises ToolchainError where no disassembler is installed."""
        return disassemble(self.code)


def compile_cubin(
    text: str, name: str, arch: str | Target = "sm_80", config: Config | None = None
) -> Cubin:
    """Compile the `extern "C"` kernel `name` of a CUDA text.

    Raises TargetError for an arch that NVRTC does not know or that cannot hold the kernel,
    ToolchainError with NVRTC's log where NVRTC is missing or refuses the text, and UsageError where
    the text has no such kernel.
    """
    config = config or current()
    code, log = _compiled(text, name, str(arch), "cubin", config)
    resources = parse_log(log, name)
    if resources is None:
        raise UsageError(
            f"the CUDA text has no kernel {name}. "
            f'Declare it extern "C" __global__ void {name}(...).'
        )
    return Cubin(code, str(arch), name, resources, text)


def compile_ptx(
    text: str, name: str, arch: str | Target = "sm_80", config: Config | None = None
) -> str:
    """The PTX of the same compilation: to read, not to ship (an older driver refuses it).

    Raises as `compile_cubin` does.
    """
    code, _ = _compiled(text, name, str(arch), "ptx", config or current())
    return code.rstrip(b"\x00\n").decode() + "\n"


@lru_cache(maxsize=1)
def known_archs() -> tuple[str, ...]:
    """The real archs of the installed NVRTC, as "sm_NN" (some also with a or f behind).

    Raises ToolchainError where NVRTC is missing.
    """
    nvrtc = _nvrtc()
    return tuple(f"sm_{n}" for n in _checked(nvrtc.nvrtcGetSupportedArchs()))


@lru_cache(maxsize=1)
def nvrtc_identity() -> str:
    """What tells one NVRTC from another: its package and version, without running it."""
    for package in _PACKAGES:
        try:
            return f"{package} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    version = _checked(_nvrtc().nvrtcVersion(), pair=True)  # a system's own: it has no package
    return f"nvrtc {version[0]}.{version[1]}"


def _compiled(text: str, name: str, arch: str, kind: str, config: Config) -> tuple[bytes, str]:
    """Code and log from the cache, or from one run of NVRTC that fills it with cubin and PTX."""
    options = (f"--gpu-architecture={arch}", *OPTIONS)
    identity = nvrtc_identity()
    cache = open_cache(config)
    if entry := cache.get(cache_key(kind, text, options, identity)):
        return entry.code, entry.log
    start = time.perf_counter()
    made, log = _run(text, name, arch, options)
    report(config, f"compiled {name} for {arch} with {identity}", time.perf_counter() - start)
    for other, code in made.items():
        cache.put(cache_key(other, text, options, identity), code, log)
    return made[kind], log


def _run(text: str, name: str, arch: str, options: tuple[str, ...]) -> tuple[dict[str, bytes], str]:
    nvrtc = _nvrtc()
    if arch.rstrip("af") not in known_archs():
        raise TargetError(
            f"kernel {name}: {nvrtc_identity()} compiles for {', '.join(known_archs())}, not for "
            f"{arch}. Choose one of these targets, or install a newer NVRTC."
        )
    program = _checked(nvrtc.nvrtcCreateProgram(text.encode(), f"{name}.cu".encode(), 0, [], []))
    try:
        flags = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        log = _text(nvrtc, program)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise _refusal(nvrtc, status, name, arch, log, text)
        made = {}
        for kind, size_of, read in (
            ("cubin", nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN),
            ("ptx", nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX),
        ):
            buffer = bytearray(_checked(size_of(program)))
            _checked(read(program, buffer))
            made[kind] = bytes(buffer)
        return made, log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _refusal(
    nvrtc: Any, status: Any, name: str, arch: str, log: str, text: str
) -> TargetError | ToolchainError:
    """The error for a text that NVRTC or ptxas did not take."""
    if "--gpu-architecture" in log or "--nv_arch" in log:  # a suffix that this arch has not
        return TargetError(
            f"kernel {name}: {nvrtc_identity()} has no target {arch}. Leave out the last letter."
        )
    if any(words in log for words in _TOO_LARGE):
        return TargetError(f"kernel {name} does not fit {arch}:\n{log.strip()}")
    return ToolchainError(
        f"NVRTC refused kernel {name} for {arch} ({status.name}):\n{with_source_lines(log, text)}"
    )


def _text(nvrtc: Any, program: Any) -> str:
    buffer = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
    _checked(nvrtc.nvrtcGetProgramLog(program, buffer))
    return bytes(buffer).rstrip(b"\x00").decode(errors="replace")


def _nvrtc() -> Any:
    """cuda-python's NVRTC module.  Raises ToolchainError where it or the library is missing."""
    try:
        from cuda.bindings import nvrtc  # late: 0.1 s that only CUDA text needs

        nvrtc.nvrtcVersion()  # loads the library
    except Exception as error:  # ImportError, or cuda-pathfinder's own for the library
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ToolchainError(f"NVRTC is missing ({reason}). Get it with: {INSTALL}") from None
    return nvrtc


def _checked(result: tuple[Any, ...], pair: bool = False) -> Any:
    """The value of a binding's (status, value...).  Raises ToolchainError for a bad status."""
    status, *values = result
    if int(status) != 0:
        raise ToolchainError(f"NVRTC failed: {status.name}")
    return tuple(values) if pair else values[0] if values else None


__all__ = [
    "Cubin",
    "Resources",
    "compile_cubin",
    "compile_ptx",
    "disassemble",
    "known_archs",
    "nvrtc_identity",
]
