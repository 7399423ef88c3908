"""What is exported, as records: the launches of a kernel, their arrays, and the memory between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from uopc.compiled import Kernel, Step
from uopc.dtype import DType
from uopc.errors import UsageError
from uopc.kernel import Param, Source
from uopc.launches import Subject
from uopc.runtime.arrays import no_work
from uopc.runtime.limits import check_launch, parameter_bytes
from uopc.runtime.tensor_maps import MAP_BYTES
from uopc.uop.node import Shape, UOp, memory, prod, toposort
from uopc.uop.ops import Ops

#: parts of the workspace begin at multiples of it, as memory of the driver does
WORKSPACE_ALIGNMENT = 256


@dataclass(frozen=True)
class Array:
    """A parameter of the exported function; they are in slot order.

    shape: as far as it is known, else the flat one.  read, written: by any launch.  scalar: passed
    by value.  align: bytes that its address must be a multiple of.
    """

    slot: int
    dtype: DType
    shape: Shape
    size: int
    read: bool
    written: bool
    scalar: bool
    align: int

    @property
    def name(self) -> str:
        """What the CUDA text calls it."""
        return f"p{self.slot}"

    @property
    def size_bytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Partial:
    """Memory that one launch leaves for the next, or blocks for the last one.

    offset_bytes: in the workspace.  counter: zero before each launch, and zero again after it.
    """

    slot: int
    dtype: DType
    size: int
    offset_bytes: int
    counter: bool

    @property
    def name(self) -> str:
        """What the CUDA text calls it."""
        return f"p{self.slot}"


@dataclass(frozen=True)
class Part:
    """One launch: the file names it by `stem`.

    text: CUDA, byte for byte what `cubin` was compiled from.  empty: nothing to do at this size.
    """

    stem: str
    text: Source
    cubin: bytes
    registers: int
    static_shared_bytes: int
    empty: bool


@dataclass(frozen=True)
class Exported:
    """A kernel with all that its files say.

    name: prefix of the C symbols; target: the arch of the machine code; command: what made it.
    subject: the same kernel for the emulator; sinks: its graphs in LOOPS.
    """

    name: str
    target: str
    command: str
    arrays: tuple[Array, ...]
    partials: tuple[Partial, ...]
    parts: tuple[Part, ...]
    subject: Subject
    sinks: tuple[UOp, ...]

    @property
    def workspace_bytes(self) -> int:
        """Device memory that one handle of the exported kernel holds."""
        ends = [p.offset_bytes + p.size * p.dtype.itemsize for p in self.partials]
        return _rounded_up(max(ends, default=0))

    @property
    def clears_workspace(self) -> bool:
        """Are there counters, which begin as zeros?"""
        return any(p.counter for p in self.partials)


def describe(
    name: str, command: str, subject: Subject, steps: Sequence[Step], bodies: Iterable[UOp] = ()
) -> Exported:
    """The records of a kernel.

    Parameters
    ----------
    name: prefix of the C symbols.
    subject: a Kernel, or a SINK with the one step that it is.
    bodies: what the kernel was compiled from, where that is known: they have shapes.

    Raises UsageError for a kernel that C code cannot be given, ToolchainError or TargetError where
    its machine code cannot be made.
    """
    if not steps[0].source.target.is_gpu:
        raise UsageError(
            f"{name} is for {steps[0].source.target}; what is exported runs on a GPU. Choose a "
            "target such as --target sm_90a."
        )
    params = _params(steps)
    _check(name, params, subject)
    shapes = _shapes(subject, steps, bodies)
    between = _partials(subject)
    reads = frozenset(s for step in steps for s in _read(step.sink))
    arrays = tuple(
        Array(
            p.slot,
            p.dtype,
            shapes.get(p.slot, (p.size,)),
            p.size,
            p.slot in reads,
            p.written,
            p.scalar,
            p.align,
        )
        for p in params.values()
        if p.slot not in {x.slot for x in between}
    )
    target = steps[0].source.target.name
    parts = tuple(_part(name, n, len(steps), step) for n, step in enumerate(steps, 1))
    sinks = tuple(step.sink for step in steps)
    return Exported(name, target, command, arrays, between, parts, subject, sinks)


def _params(steps: Sequence[Step]) -> dict[int, Param]:
    """Parameters of all steps by slot, as the strictest of them wants each."""
    found: dict[int, Param] = {}
    for step in steps:
        for p in step.cuda_source.params:
            if (q := found.get(p.slot)) is not None:
                written, align = p.written or q.written, max(p.align, q.align)
                p = Param(p.slot, p.dtype, p.size, written, p.scalar, align, p.bundle)
            found[p.slot] = p
    return {slot: found[slot] for slot in sorted(found)}


def _check(name: str, params: dict[int, Param], subject: Subject) -> None:
    if bundles := [p.slot for p in params.values() if p.bundle]:
        raise UsageError(
            f"{name}: slots {bundles} are bundles, tables of any number of arrays, which no "
            "exported function takes. Export a kernel of single arrays."
        )
    if isinstance(subject, Kernel) and subject.errors is not None:
        raise UsageError(
            f"{name} reports stray indices to uopc's runtime, which the exported program has not. "
            "Export a body that does not check its indices."
        )


def _partials(subject: Subject) -> tuple[Partial, ...]:
    if not isinstance(subject, Kernel):
        return ()
    made: list[Partial] = []
    used = 0
    for p in subject.partials:
        slot, size = p.arg.slot, prod(p.arg.shape)
        made.append(Partial(slot, p.dtype, size, used, slot in subject.counters))
        used = _rounded_up(used + size * p.dtype.itemsize)
    return tuple(made)


def _shapes(subject: Subject, steps: Sequence[Step], bodies: Iterable[UOp]) -> dict[int, Shape]:
    """Shapes by slot: of the user's buffers, and of the outputs."""
    roots = [*bodies] or [step.sink for step in steps]
    shapes = {u.arg.slot: u.arg.shape for u in toposort(*roots) if u.op is Ops.BUFFER}
    if isinstance(subject, Kernel):
        shapes |= dict(zip(subject.output_slots, subject.out_shapes, strict=True))
    return shapes


def _read(sink: UOp) -> set[int]:
    """Slots that a kernel in LOOPS reads: by LOAD, ATOMIC, or a copy from them."""
    read = set()
    for u in toposort(sink):
        if u.op in (Ops.LOAD, Ops.ATOMIC):
            read.add(memory(u.src[0]))
        elif u.op is Ops.COPY:
            source = u.src[1]
            read.add(memory(source.src[0] if source.op is Ops.TENSORMAP else source))
    return {m.arg.slot for m in read if m.op is Ops.BUFFER}


def _part(name: str, number: int, count: int, step: Step) -> Part:
    """One launch.  Raises TargetError where it does not fit its target."""
    text, cubin = step.cuda_source, step.cubin
    launch, used, maps = text.launch, cubin.resources, len(text.tensor_maps)
    empty = no_work(text.params, launch.grid)
    if not empty:
        check_launch(
            text.target,
            text.name,
            launch.grid,
            launch.block,
            static_shared_bytes=used.shared_bytes,
            dynamic_shared_bytes=text.dynamic_shared_bytes,
            parameter_bytes=parameter_bytes(text.params) + MAP_BYTES * (maps + bool(maps)),
            registers=used.registers,
        )
    stem = name if count == 1 else f"{name}_step{number}"
    return Part(stem, text, cubin.code, used.registers, used.shared_bytes, empty)


def _rounded_up(size_bytes: int) -> int:
    return -(-size_bytes // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
