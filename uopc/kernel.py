"""Records that travel between stages: what one kernel computes, Numerics, the tree of a PROGRAM, a
rendered Source, a launch.

A PROGRAM is a tree of scopes in execution order: `linearize` makes it, the renderers print it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from uopc.dtype import DType, dtypes
from uopc.target import Target
from uopc.uop.node import UOp
from uopc.uop.ops import TensorMapArg
from uopc.uop.stages import Stage

Dims: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class Output:
    """One value that a kernel stores.

    value: shaped, in stage TENSOR without ASSIGN and DETACH; memory: the BUFFER that takes it, of
    as many elements and the same dtype.  A memory that the kernel also reads is written in place:
    all that reads it comes first (`passes/in_place.py`).
    """

    value: UOp
    memory: UOp


@dataclass(frozen=True)
class KernelBody:
    """What one kernel computes, and along which axes: what a schedule is made of.

    outputs: what it stores.
    sizes: the size of each kernel axis.
    axes: for the value of each output, and for REDUCEs inside of them, the kernel axis of each
        dimension of its domain (of a REDUCE: its source's shape, the kept dimensions, then the
        reduced ones); -1 where the dimension has size 1.  A REDUCE that is not named gets axes of
        its own.
    checked: GATHERs and SCATTERs whose indices this kernel checks.
    errors: the error word, a BUFFER of one u64; there where checked is not empty.
    """

    outputs: tuple[Output, ...]
    sizes: tuple[int, ...]
    axes: Mapping[UOp, tuple[int, ...]]
    checked: frozenset[UOp] = field(default=frozenset())
    errors: UOp | None = None


@dataclass(frozen=True)
class Numerics:
    """What the numbers of a kernel are, beside its body: a promise that no tuning touches.

    exact_math: exp, log, sin and their kin are computed by the kernel's own arithmetic, with the
    same bits on every device (`uopc/passes/exact_math.py`); else by the device's library: fewer
    instructions on a GPU, and bits that agree within ulps.

    tf32: products of f32 may be made by tensor cores, which take 10 bits of each factor's fraction;
    sums stay f32.  Without it f32 means f32, whatever is faster.
    """

    exact_math: bool = False
    tf32: bool = False


#: no promise beyond those of every kernel
USUAL = Numerics()


@dataclass(frozen=True)
class Passed:
    """The graph that a pass has left, in stage `stage`, and why that pass stands where it does.

    rules: what fired in it, (name, how often), in the order of first firing: rules of rewriting, or
    what else the pass counts its work in.
    """

    name: str
    graph: UOp = field(repr=False)
    why: str
    stage: Stage
    rules: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        """Its name, and what fired."""
        fired = ", ".join(f"{rule} x{n}" for rule, n in self.rules)
        return f"{self.name}\n   fired: {fired}" if fired else self.name


class Fired:
    """What a pass does, by name: it adds to what it is given, and whoever gave it reads."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, rule: str, count: int = 1) -> None:
        """It has fired so often."""
        if count:
            self.counts[rule] = self.counts.get(rule, 0) + count

    @property
    def rules(self) -> tuple[tuple[str, int], ...]:
        """(name, how often), in the order of first firing."""
        return tuple(self.counts.items())


class _Unasked(Fired):
    """Nobody wants to know."""

    def add(self, rule: str, count: int = 1) -> None:
        return


#: for passes that are called alone
UNASKED: Fired = _Unasked()


@dataclass(frozen=True)
class Declare:
    """A REG or SHARED memory comes into being (REG: in each iteration of the scope around it)."""

    alloc: UOp


@dataclass(frozen=True)
class Let:
    """A value gets a name: it is used again, by another thread, or read before a write.

    An ATOMIC is one too, used or not: it is done where it stands."""

    value: UOp


@dataclass(frozen=True)
class Do:
    """An effect without a value: one of `uopc.uop.ops.EFFECTS` but ATOMIC."""

    effect: UOp


@dataclass(frozen=True)
class Scope:
    """Items inside `opener`: a RANGE that is a loop in the thread, an IF or a ROLE."""

    opener: UOp
    items: tuple[Item, ...]


Item: TypeAlias = Declare | Let | Do | Scope


@dataclass(frozen=True)
class Axis:
    """A hardware range with the expression that gives its value: (position // stride) % size.

    dim: 0, 1, 2 for .x, .y, .z of blockIdx or threadIdx; stride 1 and whole=True where the axis has
    that component to itself.
    """

    range: UOp
    dim: int
    stride: int
    whole: bool


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched: grid and block (x, y, z), and which range reads which component.

    cluster: so many blocks that follow each other along x form a thread block cluster.
    """

    grid: Dims
    block: Dims
    grid_axes: tuple[Axis, ...] = ()
    block_axes: tuple[Axis, ...] = ()
    blocks_per_sm: int = 0
    cluster: int = 1

    @property
    def threads(self) -> int:
        """Threads of one block."""
        return self.block[0] * self.block[1] * self.block[2]


@dataclass(frozen=True)
class Param:
    """One parameter of a rendered kernel, in slot order.

    size in elements; scalar: passed by value; align: bytes that its address must be a multiple of
    (16 where the kernel makes wide accesses, else the element's size).
    bundle: it stands for so many memories of up to `size` elements each, 0 for one memory.  A
    launch passes a table of them: their addresses, then how many elements each has, all 8 bytes.
    """

    slot: int
    dtype: DType
    size: int
    written: bool
    scalar: bool = False
    align: int = 1
    bundle: int = 0

    @property
    def passed(self) -> tuple[DType, int]:
        """dtype and elements of the array whose address a launch passes."""
        return (dtypes.u64, 2 * self.bundle) if self.bundle else (self.dtype, self.size)


@dataclass(frozen=True)
class ProgramTree:
    """A kernel in stage PROGRAM: the tree, its memories and parameters, and its launch."""

    items: tuple[Item, ...]
    params: tuple[Param, ...]
    launch: Launch
    sink: UOp

    def walk(self) -> Iterator[Item]:
        """Every item, outer before inner, in order."""
        stack: list[Item] = list(reversed(self.items))
        while stack:
            item = stack.pop()
            yield item
            if isinstance(item, Scope):
                stack.extend(reversed(item.items))


@dataclass(frozen=True)
class TensorMapUse:
    """A tensor map that a launch passes after the parameters: how bulk copies see parameter `slot`.

    dtype: of the parameter's elements.
    """

    slot: int
    dtype: DType
    arg: TensorMapArg


class Source(str):
    """Rendered text that knows how it must be called.

    Attributes: name of the kernel; language "c", "emulated" or "cuda"; params in slot order;
    launch; shared_bytes per block, and dynamic_shared_bytes of them that a launch asks for; target.
    CUDA text also has tensor_maps, which follow the parameters, and asserts, the messages of its
    ASSERTs by number.
    A checked or traced emulation also has what its numbers stand for: places, the node of each
    access and effect; memories, BUFFERs in slot order, then ALLOCs; program, its tree; mutants,
    (number, node, what is wrong with it) of mutated text; work, about how many statements its
    threads do; checked; order, kind and seed of that in which warps run unless told otherwise.
    """

    name: str
    language: str
    params: tuple[Param, ...]
    launch: Launch
    shared_bytes: int
    dynamic_shared_bytes: int
    target: Target
    places: tuple[UOp, ...]
    memories: tuple[UOp, ...]
    program: ProgramTree | None
    tensor_maps: tuple[TensorMapUse, ...]
    asserts: tuple[str, ...]
    mutants: tuple[tuple[int, UOp, str], ...]
    checked: bool
    work: int
    order: tuple[int, int]

    def __new__(
        cls,
        text: str,
        *,
        name: str,
        language: str,
        params: tuple[Param, ...],
        launch: Launch,
        shared_bytes: int = 0,
        dynamic_shared_bytes: int = 0,
        target: Target,
        places: tuple[UOp, ...] = (),
        memories: tuple[UOp, ...] = (),
        program: ProgramTree | None = None,
        tensor_maps: tuple[TensorMapUse, ...] = (),
        asserts: tuple[str, ...] = (),
        mutants: tuple[tuple[int, UOp, str], ...] = (),
        checked: bool = False,
        work: int = 0,
        order: tuple[int, int] = (0, 0),
    ) -> Source:
        self = super().__new__(cls, text)
        self.name, self.language, self.params, self.launch = name, language, params, launch
        self.shared_bytes, self.dynamic_shared_bytes, self.target = (
            shared_bytes,
            dynamic_shared_bytes,
            target,
        )
        self.places, self.memories, self.program = places, memories, program
        self.tensor_maps, self.asserts = tensor_maps, asserts
        self.mutants, self.checked, self.work, self.order = mutants, checked, work, order
        return self
