"""Launch compiled steps on buffers: what can be checked or prepared is, once; a launch is the rest.

The caller keeps the promises that `Program` and `run_cuda` check at every call: buffers of the
right device, dtype and size, and none that is written beside another over the same bytes.  Under
Config.sync every launch is checked and waited for, so that a failure names kernel and arguments.

Kernels that check indices report the worst one in an error word, one a device, which is read at the
next synchronisation: a launch does not wait to be told that it went well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Protocol, TypeAlias

import numpy as np

from uopc.config import Config, current
from uopc.dtype import dtypes
from uopc.errors import CompilerError, DeviceError, OutOfRangeError, UsageError
from uopc.kernel import Param, Source
from uopc.runtime import observe
from uopc.runtime.arrays import no_work
from uopc.runtime.buffer import Buffer, synchronize
from uopc.runtime.cuda import CUDA
from uopc.runtime.device import NAMES, device_name
from uopc.runtime.memory import gpu_of
from uopc.runtime.program import Program

#: what a launch has at a local slot: a list where the parameter is a bundle
Argument: TypeAlias = Buffer | Sequence[Buffer]
Arguments: TypeAlias = Sequence[Argument] | Mapping[int, Argument]
#: what is passed: a Buffer for each slot
Placed: TypeAlias = Sequence[Buffer] | Mapping[int, Buffer]
#: tables of bundles that a launcher keeps for arrays that come again
_TABLES_MAX = 16
_REPORTED, _LARGEST = 1 << 63, (1 << 31) - 1


class Launchable(Protocol):
    """What is launched: a step of a compiled kernel (`uopc.compiled.Step`)."""

    @property
    def runs(self) -> Source:
        """The text that its device runs."""


class _Loaded(Protocol):
    """A kernel that is ready to run on one device, on arrays given by their addresses."""

    def run(self, addresses: Sequence[int]) -> None:
        """Start it.  Raises DeviceError where it does not start."""

    def bound(self, addresses: Sequence[int]) -> Callable[[], None]:
        """What starts it on the same arrays each time."""

    def record(self, stream: int, addresses: Sequence[int]) -> None:
        """Put it on a GPU's stream that records a graph."""


class Launcher:
    """One step on one device: `launcher(buffers)` starts it, in the order of calls.

    buffers are by local slot.  Where a parameter is a bundle, a list stands at its slot, or the
    table that the kernel is passed (`uopc.runtime.segments`) in a Buffer of the device.  On cuda it
    returns before the kernel is done.  Any thread may call it.  Work of no size is none.

    Parameters
    ----------
    step: of a kernel that was compiled for this device.
    device: "cpu", "emulated", "cuda" or "cuda:1".
    reports: the kernel writes to the error word; `errors_of(device)` is to be at its slot.

    Attributes: name; step; device; source; slots of its arguments, in order; reports.

    Raises UsageError for a step of another device or with a parameter by value, TargetError for a
    launch that the device does not allow, DeviceError where the device cannot be used, and
    ToolchainError where the kernel does not compile.
    """

    def __init__(
        self,
        step: Launchable,
        device: str,
        *,
        reports: bool = False,
        config: Config | None = None,
    ) -> None:
        config = config or current()
        observe.hear_as_configured(config)
        self.step = step
        self.source, self.device, self.reports = step.runs, device_name(device), reports
        self.name, self.sync = self.source.name, config.sync
        self.slots = tuple(p.slot for p in self.source.params)
        self._check_source()
        self._bundles = {p.slot: p.bundle for p in self.source.params if p.bundle}
        self._tables: OrderedDict[bytes, Buffer] = OrderedDict()
        self._lock = Lock()
        self._word = word_of(self.device) if reports else None
        self._loaded = self._load(config)
        self._run = self._loaded.run

    def __call__(self, buffers: Arguments, heard: bool = False) -> None:
        """heard: by who observes (`uopc.runtime.observe`), and who calls this then."""
        observer = observe.current
        if observer is not None and not heard:
            observer.launch(self, buffers, partial(self, buffers, heard=True))
            return
        if self.sync:
            self._check_buffers(buffers)
        passed: Any = self.placed(buffers) if self._bundles else buffers
        if self.sync:
            self._run_and_wait(passed)
        else:
            self._run([passed[slot].address for slot in self.slots])
        if self._word is not None:
            self._word.pending = True

    def placed(self, buffers: Arguments) -> dict[int, Buffer]:
        """The buffers that a launch passes, with a table in the place of each list."""
        return {
            slot: b if isinstance(b := buffers[slot], Buffer) else self._table(slot, b)
            for slot in self.slots
        }

    def bound(self, placed: Placed) -> Callable[[], None]:
        """What launches it on what `placed` gave, each time; the caller keeps all memory."""
        return self._loaded.bound(self._addresses(placed))

    def record(self, stream: int, placed: Placed) -> None:
        """Put a launch on a GPU's stream that records a graph; the caller keeps all memory."""
        self._loaded.record(stream, self._addresses(placed))

    def _addresses(self, placed: Placed) -> list[int]:
        return [placed[slot].address for slot in self.slots]

    def _table(self, slot: int, buffers: Sequence[Buffer]) -> Buffer:
        """A bundle's table on the device; one that was made before where the memories are equal."""
        table = np.zeros((2, self._bundles[slot]), np.uint64)
        table[0, : len(buffers)] = [b.address for b in buffers]
        table[1, : len(buffers)] = [b.size for b in buffers]
        key = table.tobytes()
        with self._lock:
            if found := self._tables.get(key):
                self._tables.move_to_end(key)
                return found
        made = Buffer.from_numpy(self.device, table)
        with self._lock:
            self._tables[key] = made
            while len(self._tables) > _TABLES_MAX:
                self._tables.popitem(last=False)
        return made

    def _check_source(self) -> None:
        kind = self.device.partition(":")[0]
        runs = {"cpu": "c", "emulated": "emulated", "cuda": "cuda"}[kind]
        if self.source.language != runs:
            raise UsageError(
                f"kernel {self.name} is {self.source.language} text, device {self.device} runs "
                f"{runs}. Compile it with target={kind!r}."
            )
        if scalar := next((p for p in self.source.params if p.scalar), None):
            raise UsageError(
                f"kernel {self.name} takes slot {scalar.slot} by value, a Launcher passes buffers. "
                f"Make it an array of one element, shape (1,)."
            )

    def _load(self, config: Config) -> _Loaded:
        if no_work(self.source.params, self.source.launch.grid):
            return _Nothing()
        if self.source.language == "cuda":
            return _OnGPU(gpu_of(self.device), self.source)
        return _OnHost(Program(self.source, config=config))

    # ---- Config.sync
    def _check_buffers(self, buffers: Arguments) -> None:
        """Raises CompilerError: who launches has promised that they fit."""
        for p in self.source.params:
            given = buffers[p.slot]
            if isinstance(given, Buffer):
                dtype, size = p.passed
                fits = (given.device, given.dtype, given.size) == (self.device, dtype, size)
            else:
                fits = len(given) <= p.bundle and all(
                    (b.device, b.dtype) == (self.device, p.dtype) and b.size <= p.size
                    for b in given
                )
            if not fits:
                wanted = f"{_shown(p)} on {self.device}"
                raise CompilerError(
                    f"kernel {self.name}, slot {p.slot}: wants {wanted}, got {given}."
                )

    def _run_and_wait(self, placed: Placed) -> None:
        try:
            self._run(self._addresses(placed))
            synchronize(self.device)
        except DeviceError as error:
            raise type(error)(f"{error}\n{self._described(placed)}") from None

    def _described(self, placed: Placed) -> str:
        """The launch, for errors: grid, block and each argument."""
        launch = self.source.launch
        lines = [f"kernel {self.name} on {self.device}, grid {launch.grid}, block {launch.block}:"]
        for p in self.source.params:
            how = "writes" if p.written else "reads"
            where = f"at {placed[p.slot].address:#x}"
            lines.append(f"  slot {p.slot}: {how} {_shown(p)} {where}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Launcher({self.name}, {self.device})"


def _shown(p: Param) -> str:
    """What a parameter takes: "f32[8]", for a bundle "table of 4 f32[8]"."""
    return f"{f'table of {p.bundle} ' if p.bundle else ''}{p.dtype}[{p.size}]"


class _OnHost:
    """Native or emulated C, which is done when it returns."""

    def __init__(self, program: Program) -> None:
        self._program, self.run = program, program.prepared()

    def bound(self, addresses: Sequence[int]) -> Callable[[], None]:
        return self._program.bound(addresses)

    def record(self, stream: int, addresses: Sequence[int]) -> None:
        raise UsageError(f"kernel {self._program.name} runs on the host, not on a stream.")


class _OnGPU:
    """A kernel loaded on a GPU, launched on the stream of its tensors."""

    def __init__(self, gpu: CUDA, source: Source) -> None:
        self._gpu, self._function = gpu, gpu.function(source)
        self._prepared = gpu.prepare(self._function)
        launch = source.launch
        shared = source.dynamic_shared_bytes
        self._what = (
            f"kernel {source.name} (grid {launch.grid}, block {launch.block}, shared {shared})"
        )

    def run(self, addresses: Sequence[int]) -> None:
        if status := self._prepared(addresses):
            self._gpu.check(self._what, status)

    def bound(self, addresses: Sequence[int]) -> Callable[[], None]:
        return lambda: self.run(addresses)

    def record(self, stream: int, addresses: Sequence[int]) -> None:
        self._gpu.check(self._what, self._prepared.on(stream, addresses))


class _Nothing:
    """Work of no size."""

    def run(self, addresses: Sequence[int]) -> None:
        pass

    def bound(self, addresses: Sequence[int]) -> Callable[[], None]:
        return lambda: None

    def record(self, stream: int, addresses: Sequence[int]) -> None:
        pass


# ---- the error word
@dataclass(eq=False)
class ErrorWord:
    """Where the kernels of one device report an index that is out of range.

    The word is 0 while there is none, else bit 63, the axis's size in 31 bits (0: it does not fit,
    or is 0), and the low 32 bits of the index as it was given, clipped.  pending: some launch since
    it was last read can have written it.
    """

    buffer: Buffer
    pending: bool = False

    def raise_if_set(self) -> None:
        """Read it where it is pending; raises OutOfRangeError, once, where an index was reported.

        Waits for the device if it reads.  DeviceError comes where a kernel failed.
        """
        if not self.pending:
            return
        self.pending = False  # before reading: what is launched meanwhile is for the next time
        code = int(self.buffer.numpy()[0])
        if code & _REPORTED:
            self.buffer.zero()
            raise OutOfRangeError(_said(code))


_words: dict[str, ErrorWord] = {}
_making = Lock()


def word_of(device: str) -> ErrorWord:
    """The error word of a device.  Raises as `Buffer` does where the device is missing."""
    if found := _words.get(device):
        return found
    name = device_name(device)
    with _making:
        if name not in _words:
            _words[name] = ErrorWord(Buffer(name, dtypes.u64, 1).zero())
        return _words[name]


def errors_of(device: str) -> Buffer:
    """The buffer of a device's error word, one u64."""
    return word_of(device).buffer


def raise_errors(device: str) -> None:
    """Raise what kernels of the device have reported since it was last asked.

    It costs nothing unless a kernel that checks indices was launched since; then it waits for the
    device.  Raises OutOfRangeError, an IndexError that names index and axis size.
    """
    word = _words.get(device if device in NAMES else device_name(device))
    if word is not None:
        word.raise_if_set()


def _said(code: int) -> str:
    size = code >> 32 & _LARGEST
    index = (code & 0xFFFFFFFF) - ((code & 1 << 31) << 1)
    beyond = {_LARGEST: " or more", ~_LARGEST: " or less"}.get(index, "")
    axis = f"an axis of size {size}" if size else f"its axis, of size 0 or more than {_LARGEST}"
    allowed = f" ({-size} to {size - 1})" if size else ""
    return (
        f"index {index}{beyond} is out of range for {axis}{allowed}. A kernel that gathers or "
        f"scatters read it from an array of indices."
    )
