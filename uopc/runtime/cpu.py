"""C text to a callable kernel: the C compiler, the disk cache, and cffi in ABI mode.

A cached kernel is mapped from its cache file without running or parsing anything, well under a
millisecond; the GIL is released while it runs, so any thread may call it.

Emulated kernels whose threads meet call the emulator's runtime (`emulated.h`), which is compiled
once and stays loaded.  Those that have little to do cost more to compile than to run: tcc compiles
them where it is installed, in milliseconds, else the C compiler without optimisation, in half of
the time that it takes with.  All give the same bits.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from struct import Struct, pack
from threading import Lock
from typing import Any, NoReturn, cast

import _cffi_backend

from uopc.config import Config, current
from uopc.errors import DeviceError, ToolchainError, UsageError
from uopc.runtime.cache import cache_key, open_cache
from uopc.runtime.report import report

CANDIDATES = ("gcc", "clang", "cc")
#: -O by language: -O3 makes emulated kernels with barriers compile and run slower, not faster.
#: Emulation is the reference for a GPU: no vectoriser, since gcc 12's makes wrong sums (note 0004)
OPTIMISE = {"c": ("-O3",), "emulated": ("-O2", "-fno-tree-vectorize")}
#: Values stay as written: products and sums fuse only where the IR has FMA, and nothing is
#: reassociated.  errno and traps are not observed.  Overflow is made defined by the text itself (it
#: is compiled as CUDA too, which has no such switch), so there is no -fwrapv.
FLAGS = (
    *("-std=gnu11", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
    *("-fno-strict-aliasing", "-w", "-shared", "-fPIC"),
)
_LIBRARIES = ("-lm",)
#: what an emulated kernel says by its return value (`uopc.render.emulate`)
FAILURES = {
    1: "its warps wait for what never comes",
    2: "there is no memory for a block's state",
    3: "a check found a fault, or an assertion failed",
}
RUNTIME_HEADER = "emulated.h"
_RUNTIME_FOLDER = Path(__file__).parent
#: tiles and boxes are worked on here, so that they are quick whatever compiles the kernel
_RUNTIME_FLAGS = ("-O3", *FLAGS)
QUICK_COMPILER = "tcc"
_QUICK_FLAGS = ("-shared", "-w")
#: of any other C compiler; gcc -O1 saves half as much
_UNOPTIMISED = ("-O0",)
#: statements that a kernel may do for one of the two to be worth it: they take a few milliseconds
#: then, some 8 times as long as when they are optimised
QUICK_WORK = 1_000_000
_OPENMP = "#pragma omp"
#: gcc before 13.3 loads the wrong elements where it turns several conditional loads of a loop into
#: permuted masked ones (its bug 114375); without if-conversion it makes no masked loads
_CONDITIONAL_ACCESS = re.compile(r"(\?|&&|\|\||\bif \().*\w\[")
_NO_MASKED_LOADS = "-fno-tree-loop-if-convert"
_GCC_WITHOUT_THE_BUG = (13, 3)


@dataclass(frozen=True)
class Compiler:
    """A C compiler: the words that start it, and what tells it from any other."""

    command: tuple[str, ...]
    identity: str

    def __str__(self) -> str:
        return " ".join(self.command)


def find_compiler(config: Config | None = None) -> Compiler:
    """The configured compiler, else the first of gcc, clang, cc on PATH; none is run.

    Raises ToolchainError that says which were tried.
    """
    return _find((config or current()).cc)


@lru_cache(maxsize=8)
def _find(named: str) -> Compiler:
    tried = [shlex.split(named)] if named.strip() else [[name] for name in CANDIDATES]
    for words in tried:
        if path := shutil.which(words[0]):
            info = os.stat(path)
            identity = f"{path} {info.st_size} {info.st_mtime_ns} {words[1:]} {cpu_model()}"
            return Compiler((path, *words[1:]), identity)
    names = ", ".join(words[0] for words in tried)
    said = f"UOPC_CC is {named!r}" if named.strip() else f"tried {names} on PATH"
    raise ToolchainError(
        f"no C compiler found: {said}. Install gcc or clang, or set UOPC_CC to a compiler's path."
    )


@lru_cache(maxsize=1)
def cpu_model() -> str:
    """What -march=native depends on: the processor's name and a digest of its features."""
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    try:  # only the first processor's lines: on a large machine the whole file takes milliseconds
        with open("/proc/cpuinfo", "rb") as file:
            lines = file.read(8192).decode(errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.system()} {platform.machine()}"
    found = [line for line in lines if line.startswith(wanted)]
    name = next((x.split(":", 1)[1].strip() for x in found if x.startswith("model name")), "")
    return f"{platform.machine()} {name} {sha256(chr(10).join(found).encode()).hexdigest()[:16]}"


class Kernel:
    """A loaded C kernel.  Calling it with addresses runs `int NAME(void **)`; any thread may."""

    def __init__(self, library: Any, name: str, threads: int) -> None:
        self._library, self._threads = library, threads
        self._run = getattr(library, name)
        self.name = name

    def __call__(self, addresses: Sequence[int]) -> None:
        if code := self.call(addresses):
            self.fail(code)

    def fail(self, code: int) -> NoReturn:
        """Raise what a code other than 0 means."""
        why = FAILURES.get(code, "a kernel returns 0")
        raise DeviceError(f"kernel {self.name} returned {code}: {why}.")

    def call(self, addresses: Sequence[int], request: int = 0) -> int:
        """What the kernel returns.  request: of an emulated run (`emulated.Call`)."""
        if self._threads:  # a number that OpenMP keeps for each calling thread
            self._library.omp_set_num_threads(self._threads)
        return int(self._run(pack(f"{len(addresses) + 1}P", *addresses, request)))

    def prepared(self, count: int) -> Callable[[Sequence[int]], None]:
        """What calls the kernel with `count` addresses, in the least time."""
        packed, enter = Struct(f"{count + 1}P").pack, self._entry()

        def run(addresses: Sequence[int]) -> None:
            if code := enter(packed(*addresses, 0)):
                self.fail(code)

        return run

    def bound(self, addresses: Sequence[int]) -> Callable[[], None]:
        """What calls the kernel with these addresses, any number of times."""
        packed, enter = pack(f"{len(addresses) + 1}P", *addresses, 0), self._entry()

        def run() -> None:
            if code := enter(packed):
                self.fail(code)

        return run

    def _entry(self) -> Callable[[bytes], int]:
        """The function itself, called with packed addresses."""
        enter, threads = self._run, self._threads
        if not threads:
            return cast(Callable[[bytes], int], enter)
        set_threads = self._library.omp_set_num_threads

        def with_threads(packed: bytes) -> int:
            set_threads(threads)
            return int(enter(packed))

        return with_threads


def load(
    text: str, name: str, language: str = "c", config: Config | None = None, work: int | None = None
) -> Kernel:
    """Compile C text (or find it in the cache) and load the function called `name`.

    work: about how many statements an emulated kernel does, where that is known.
    Raises ToolchainError where no compiler is found, it refuses the text, or the result cannot be
    loaded, and UsageError where the text defines no such function.
    """
    config = config or current()
    compiler, flags = _compiler_for(text, language, config, work)
    openmp = _OPENMP in text
    emulator = needs_runtime(text)
    optimises = flags[0] not in (*_QUICK_FLAGS, *_UNOPTIMISED)
    conditional = optimises and _CONDITIONAL_ACCESS.search(text) is not None
    threads = config.threads if openmp else 0
    known = (*flags, *([_NO_MASKED_LOADS] * conditional), *([_headers()] * emulator))
    key = cache_key("so", text, known, compiler.identity)
    if emulator:
        load_runtime(config)
    cache = open_cache(config)
    if entry := cache.get(key):
        try:
            return Kernel(_open(entry.path, name, openmp), name, threads)
        except OSError:  # evicted since, or on a file system that maps no code: build it again
            pass
    start = time.perf_counter()
    with _workshop(f"kernel {name}") as folder:
        if conditional and _masks_wrongly(compiler.command):
            flags = (*flags, _NO_MASKED_LOADS)
        built = _build(compiler, flags, text, name, folder)
        report(config, f"compiled {name} with {compiler}", time.perf_counter() - start)
        kept = cache.put(key, built.read_bytes())
        return Kernel(_open_first((kept, built), name, openmp), name, threads)


def _compiler_for(
    text: str, language: str, config: Config, work: int | None
) -> tuple[Compiler, tuple[str, ...]]:
    """The compiler of a kernel and its flags: what takes least to compile and run it."""
    emulator = needs_runtime(text)
    mine = ("-I", os.fspath(_RUNTIME_FOLDER)) if emulator else ()
    little = language == "emulated" and work is not None and work <= QUICK_WORK
    if not config.cc.strip() and little and shutil.which(QUICK_COMPILER):
        return _find(QUICK_COMPILER), (*_QUICK_FLAGS, *mine, *_LIBRARIES)
    optimise = _UNOPTIMISED if little else OPTIMISE["emulated" if emulator else language]
    openmp = ("-fopenmp",) if _OPENMP in text else ()
    return find_compiler(config), (*optimise, *FLAGS, *openmp, *mine, *_LIBRARIES)


@contextmanager
def _workshop(what: str) -> Iterator[Path]:
    """A folder to compile in.  Raises ToolchainError where the disk does not serve."""
    try:
        with tempfile.TemporaryDirectory(prefix="uopc-") as folder:
            yield Path(folder)
    except OSError as error:
        raise ToolchainError(
            f"{what} could not be compiled: {error.strerror or error} in "
            f"{tempfile.gettempdir()}. Free some space there, or set TMPDIR to another folder."
        ) from None


# ---- the emulator's runtime
def needs_runtime(text: str) -> bool:
    """Does the text of a kernel call the emulator's runtime?"""
    return f'#include "{RUNTIME_HEADER}"' in text


@lru_cache(maxsize=1)
def _headers() -> str:
    """A digest of what the text of a kernel may include."""
    return sha256(_texts("*.h").encode()).hexdigest()


def _texts(pattern: str) -> str:
    files = sorted(_RUNTIME_FOLDER.glob(pattern))
    return "\n".join(f"{file.name}\n{file.read_text()}" for file in files)


_runtime_lock = Lock()
_runtime: list[ctypes.CDLL] = []


def load_runtime(config: Config | None = None) -> ctypes.CDLL:
    """The emulator's runtime, whose functions kernels find by name; once a process.

    Raises ToolchainError where no compiler is found or it refuses.
    """
    with _runtime_lock:
        if not _runtime:
            _runtime.append(_build_runtime(config or current()))
        return _runtime[0]


def _build_runtime(config: Config) -> ctypes.CDLL:
    compiler = find_compiler(config)
    text = _texts("*.[ch]")
    key = cache_key("so", text, (*_RUNTIME_FLAGS, *_LIBRARIES), compiler.identity)
    cache = open_cache(config)
    if entry := cache.get(key):
        with suppress(OSError):
            return ctypes.CDLL(os.fspath(entry.path), mode=ctypes.RTLD_GLOBAL)
    start = time.perf_counter()
    with _workshop("the emulator's runtime") as folder:
        what, built = "the emulator's runtime", folder / "emulated.so"
        files = sorted(_RUNTIME_FOLDER.glob("*.c"))

        def to_object(file: Path) -> None:
            made = folder / f"{file.stem}.o"
            _run_compiler(compiler, (*_RUNTIME_FLAGS, "-c"), [os.fspath(file)], made, what)

        with ThreadPoolExecutor() as pool:  # one file at a time takes 3 s
            list(pool.map(to_object, files))
        objects = [f"{file.stem}.o" for file in files]
        _run_compiler(compiler, (*_RUNTIME_FLAGS, *_LIBRARIES), objects, built, what)
        report(config, f"compiled the emulator with {compiler}", time.perf_counter() - start)
        kept = cache.put(key, built.read_bytes())
        return ctypes.CDLL(os.fspath(kept or built), mode=ctypes.RTLD_GLOBAL)


@lru_cache(maxsize=8)
def _masks_wrongly(command: tuple[str, ...]) -> bool:
    """Is this a gcc with the bug of masked loads?"""
    said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"\b(\d+)\.(\d+)\.\d+", said.stdout)
    if version is None or "Free Software Foundation" not in said.stdout:
        return False
    return (int(version[1]), int(version[2])) < _GCC_WITHOUT_THE_BUG


def _build(compiler: Compiler, flags: tuple[str, ...], text: str, name: str, folder: Path) -> Path:
    """Run the compiler in `folder`.  Raises ToolchainError with what it printed."""
    source, built = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(text)
    _run_compiler(compiler, flags, [source.name], built, f"kernel {name}")
    return built


def _run_compiler(
    compiler: Compiler, flags: Sequence[str], sources: Sequence[str], built: Path, what: str
) -> None:
    options = [flag for flag in flags if not flag.startswith("-l")]
    libraries = [flag for flag in flags if flag.startswith("-l")]  # after what needs them
    command = [*compiler.command, *options, *sources, "-o", built.name, *libraries]
    done = subprocess.run(command, cwd=built.parent, capture_output=True, text=True, check=False)
    if done.returncode or not built.exists():
        raise ToolchainError(
            f"{compiler} refused {what} (exit {done.returncode}):\n{done.stderr.strip()}\n"
            f"command: {shlex.join(command)}"
        )


def _open_first(paths: Sequence[Path | None], name: str, openmp: bool) -> Any:
    """The first of the paths that loads.  Raises ToolchainError with what the loader said."""
    problem = ""
    for path in paths:
        try:
            if path is not None:
                return _open(path, name, openmp)
        except OSError as error:
            problem = str(error)
    raise ToolchainError(
        f"kernel {name} was compiled but does not load: {problem}. If its folder is mounted "
        f"noexec, set UOPC_CACHE_DIR to one that is not."
    )


def _open(path: Path, name: str, openmp: bool) -> Any:
    """Map a shared object that exports `int NAME(void *)`.

    cffi's parser needs 50 ms at its first cdef, so this is what cffi itself writes for that
    declaration in its out-of-line ABI mode (`FFI.emit_python_code`), with the name put in.  Kernels
    say void **: as void * it takes the bytes of packed addresses as they are.
    """
    types = (
        b"\x00\x00\x04\x0d\x00\x00\x06\x03\x00\x00\x00\x0f\x00\x00\x06\x0d\x00\x00\x07\x01"
        b"\x00\x00\x00\x0f\x00\x00\x00\x01"
    )
    names = {name: b"\x00\x00\x00\x23"}
    if openmp:
        names["omp_set_num_threads"] = b"\x00\x00\x03\x23"
    entries = (item for n in sorted(names) for item in (names[n] + n.encode(), 0))
    ffi = _cffi_backend.FFI("uopc", _version=0x2601, _types=types, _globals=tuple(entries))
    # OpenMP's threads outlive a kernel: unloading it would unload their code from under them.
    keep = os.RTLD_NODELETE if openmp else 0
    library = ffi.dlopen(os.fspath(path), os.RTLD_NOW | keep)
    try:
        getattr(library, name)
    except (AttributeError, ffi.error):
        raise UsageError(f"the C text defines no function {name!r}.") from None
    return library
