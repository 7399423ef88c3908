"""The stages of the IR as tables: operands of each op; ops, ranges and limits of each stage.

TENSOR   shaped values: BUFFER, CONST, elementwise, movement, IOTA, GATHER and SCATTER, REDUCE over
         last axes; and what only the scheduler sees: ASSIGN, DETACH, CURVE
INDEXED  SINK of STOREs: scalars over RANGEs that are kernel axes; REDUCE and END name the ranges
         that they close; a STORE with a ReportArg, of which one iteration's value is kept
MAPPED   the same after `split`: ranges are digits, values may be STAGEd and SHUFFLEd; no order yet
LOOPS    memories, loops and the order of effects; what `linearize` reads

LOOPS alone has what only hand-written kernels and the passes for matrix products use: IF, ROLE,
atomics, votes, asynchronous copies, mbarriers, tensor cores.
Native C has neither the ranges of blocks and warps nor SHARED, BARRIER and SHUFFLE; a GPU has no
THREAD.
`uopc/uop/spec.py` holds graphs against these tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from types import NoneType
from typing import TypeAlias

from uopc.uop.ops import (
    BINARY,
    EFFECTS,
    ELEMENTWISE,
    IN_THREAD,
    MOVEMENT,
    UNARY,
    WHOLE_KERNEL,
    AtomicArg,
    AxisType,
    BarrierArg,
    BasedArg,
    CopyArg,
    DescriptorArg,
    Engine,
    Fence,
    GatherArg,
    LaunchArg,
    MatrixArg,
    Ops,
    ParamArg,
    PrintArg,
    RangeArg,
    RoleArg,
    ScanArg,
    ScatterArg,
    ShuffleArg,
    TensorMapArg,
    VoteArg,
    WaitArg,
    WarpReduceArg,
)


class Stage(Enum):
    """The stages whose graphs are UOps (PROGRAM is a tree: see `uopc/kernel.py`)."""

    TENSOR = auto()
    INDEXED = auto()
    MAPPED = auto()
    LOOPS = auto()


class Part(Enum):
    """What a node is to the node that uses it."""

    VALUE = "a value"
    TUPLED = "several values (TUPLE)"
    MEMORY = "a memory"
    ADDRESS = "an INDEX"
    EFFECT = "an effect"
    BOTH = "an effect that gives a value"
    RANGE = "a RANGE"
    SCOPE = "an IF or a ROLE"
    MAP = "a TENSORMAP"

    __hash__ = object.__hash__


# ---- table 1: the operands of each op: those it must have, those it may add, what may follow
_VALUE = frozenset((Part.VALUE, Part.RANGE, Part.BOTH))
_VALUES = _VALUE | {Part.TUPLED}
_MEMORY = frozenset((Part.MEMORY,))
_ADDRESS = frozenset((Part.ADDRESS,))
_EFFECT = frozenset((Part.EFFECT, Part.BOTH))
_RANGE = frozenset((Part.RANGE,))
_SCOPE = _RANGE | {Part.SCOPE}
_MAP = frozenset((Part.MAP,))
_DONE = _EFFECT | _SCOPE
Parts: TypeAlias = frozenset[Part]


@dataclass(frozen=True)
class Operands:
    """must: one set of parts per required operand; may: optional ones; rest: any number more."""

    must: tuple[Parts, ...] = ()
    may: tuple[Parts, ...] = ()
    rest: Parts | None = None


OPERANDS: dict[Ops, Operands] = {
    **dict.fromkeys((Ops.BUFFER, Ops.ALLOC, Ops.CONST, Ops.RANGE, Ops.IOTA), Operands()),
    **dict.fromkeys((*UNARY, *MOVEMENT), Operands((_VALUE,))),
    **dict.fromkeys((*BINARY, Ops.PAD, Ops.ASSIGN), Operands((_VALUE, _VALUE))),
    **dict.fromkeys((Ops.GATHER, Ops.SCATTER), Operands((_VALUE, _VALUE), rest=_VALUE)),
    Ops.DETACH: Operands((_VALUE,)),
    Ops.CURVE: Operands((_VALUE, _VALUE), rest=_VALUE),
    **dict.fromkeys((Ops.WHERE, Ops.FMA), Operands((_VALUE, _VALUE, _VALUE))),
    **dict.fromkeys((Ops.SEGMENT, Ops.INDEX), Operands((_MEMORY, _VALUE))),
    Ops.LOAD: Operands((_ADDRESS,), may=(_VALUE, _VALUE)),
    Ops.STORE: Operands((_ADDRESS, _VALUE), may=(_VALUE,)),
    Ops.AFTER: Operands((_MEMORY | _VALUE, _DONE), rest=_DONE),
    Ops.IF: Operands((_VALUE,), rest=_DONE),
    Ops.ROLE: Operands(rest=_DONE),
    Ops.ATOMIC: Operands((_ADDRESS, _VALUE), may=(_VALUE,)),
    Ops.BARRIER: Operands(may=(_DONE | _VALUE,), rest=_DONE),
    Ops.END: Operands((_EFFECT, _SCOPE), rest=_SCOPE),
    Ops.SINK: Operands((_EFFECT,), rest=_EFFECT),
    Ops.TENSORMAP: Operands((_MEMORY,)),
    Ops.COPY: Operands((_ADDRESS | _MAP, _ADDRESS | _MAP | _VALUE), rest=_ADDRESS | _VALUE),
    **dict.fromkeys((Ops.COMMIT, Ops.WAITG, Ops.FENCE), Operands(rest=_DONE | _MEMORY)),
    **dict.fromkeys((Ops.MBAR_INIT, Ops.WAIT), Operands((_ADDRESS, _VALUE))),
    Ops.ARRIVE: Operands((_ADDRESS,), may=(_VALUE,)),
    **dict.fromkeys((Ops.LDMATRIX, Ops.STMATRIX), Operands((_ADDRESS, _ADDRESS))),
    Ops.DESCRIPTOR: Operands((_ADDRESS,)),
    Ops.DOT: Operands((_VALUE, _VALUE)),
    Ops.MMA: Operands((_ADDRESS, _ADDRESS | _VALUE, _ADDRESS | _VALUE), may=(_VALUE,)),
    Ops.PRINTF: Operands(rest=_DONE | _VALUE),
    Ops.ASSERT: Operands((_VALUE,), rest=_DONE),
    Ops.REDUCE: Operands((_VALUES,), rest=_RANGE),
    Ops.SCAN: Operands((_VALUE,), may=(_VALUE,), rest=_RANGE),
    Ops.TUPLE: Operands((_VALUE,), rest=_VALUE),
    Ops.ITEM: Operands((frozenset((Part.TUPLED,)),)),
    Ops.STAGE: Operands((_VALUES, _VALUE, _VALUE, _VALUE), rest=_RANGE),
    Ops.SHUFFLE: Operands((_VALUES,), may=(_VALUE,)),
    **dict.fromkeys((Ops.VOTE, Ops.WARP_REDUCE), Operands((_VALUE,))),
}

#: the record in arg: of the ops that have one whatever the stage, and of those that may have one
ARGS: dict[Ops, tuple[type, ...]] = {
    **{Ops.BUFFER: (ParamArg,), Ops.ALLOC: (ParamArg,), Ops.RANGE: (RangeArg,)},
    **{Ops.SHUFFLE: (ShuffleArg,), Ops.VOTE: (VoteArg,), Ops.WARP_REDUCE: (WarpReduceArg,)},
    **{Ops.ATOMIC: (AtomicArg,), Ops.ROLE: (RoleArg,), Ops.COPY: (CopyArg,)},
    **{Ops.TENSORMAP: (TensorMapArg,), Ops.COMMIT: (Engine,), Ops.WAITG: (WaitArg,)},
    **{Ops.FENCE: (Fence,), Ops.LDMATRIX: (MatrixArg,), Ops.STMATRIX: (MatrixArg,)},
    **{Ops.DESCRIPTOR: (DescriptorArg,), Ops.MMA: (str,), Ops.DOT: (str,), Ops.PRINTF: (PrintArg,)},
    **{Ops.GATHER: (GatherArg,), Ops.SCATTER: (ScatterArg,), Ops.CURVE: (str,)},
    **{Ops.ASSERT: (str,), Ops.BARRIER: (BarrierArg, NoneType), Ops.SINK: (LaunchArg, NoneType)},
    **{Ops.SCAN: (ScanArg,), Ops.INDEX: (BasedArg, NoneType)},
    **dict.fromkeys(
        (
            *(Ops.IF, Ops.AFTER, Ops.END, Ops.MBAR_INIT, Ops.ARRIVE, Ops.WAIT),
            *(Ops.ASSIGN, Ops.DETACH, Ops.SEGMENT),
        ),
        (NoneType,),
    ),
}

# ---- table 2: the ops of each stage
_SCALAR = ELEMENTWISE | {Ops.BUFFER, Ops.CONST}
_ACCESS = frozenset((Ops.SEGMENT, Ops.INDEX, Ops.LOAD, Ops.STORE, Ops.RANGE, Ops.END, Ops.SINK))
_REDUCED = frozenset((Ops.REDUCE, Ops.SCAN, Ops.TUPLE, Ops.ITEM))
_GPU_VALUES = frozenset((Ops.SHUFFLE, Ops.VOTE, Ops.WARP_REDUCE, Ops.TENSORMAP, Ops.DESCRIPTOR))
STAGE_OPS: dict[Stage, frozenset[Ops]] = {
    Stage.TENSOR: _SCALAR
    | MOVEMENT
    | _REDUCED
    | {Ops.IOTA, Ops.GATHER, Ops.SCATTER, Ops.ASSIGN, Ops.DETACH, Ops.CURVE},
    Stage.INDEXED: _SCALAR | _ACCESS | _REDUCED,
    Stage.MAPPED: _SCALAR | _ACCESS | _REDUCED | {Ops.STAGE, Ops.SHUFFLE, Ops.DOT},
    Stage.LOOPS: _SCALAR
    | _ACCESS
    | EFFECTS
    | _GPU_VALUES
    | {Ops.ALLOC, Ops.AFTER, Ops.IF, Ops.ROLE},
}

# ---- table 3: the ranges of each stage, and which kinds a digit of a split axis may have
_BOUND = IN_THREAD | {AxisType.GLOBAL, AxisType.LOCAL}
STAGE_RANGES: dict[Stage, frozenset[AxisType]] = {
    Stage.TENSOR: frozenset(),
    Stage.INDEXED: frozenset((AxisType.LOOP, AxisType.REDUCE)),
    Stage.MAPPED: _BOUND | {AxisType.WARPGROUP, AxisType.WARP, AxisType.LANE},
    Stage.LOOPS: IN_THREAD | WHOLE_KERNEL,
}
DIGIT_KINDS: dict[str, frozenset[AxisType]] = {
    "g": frozenset((AxisType.GLOBAL, AxisType.THREAD)),
    "c": frozenset((AxisType.GLOBAL, AxisType.UPCAST)),
    "b": frozenset((AxisType.GLOBAL,)),
    "k": frozenset((AxisType.LOOP, AxisType.REDUCE)),
    "t": frozenset((AxisType.LOOP, AxisType.REDUCE)),
    "s": frozenset((AxisType.LOOP, AxisType.REDUCE)),
    "i": frozenset((AxisType.LOOP, AxisType.REDUCE)),
    "p": frozenset((AxisType.LOCAL, AxisType.WARP, AxisType.WARPGROUP)),
    "u": frozenset((AxisType.UPCAST,)),
    "l": frozenset((AxisType.LOCAL, AxisType.LANE)),
    "v": frozenset((AxisType.UPCAST,)),
    "w": frozenset((AxisType.LOOP, AxisType.REDUCE, AxisType.UPCAST)),
}
#: what a REDUCE may close: in the thread, or over the threads or warps of a block; and, of GLOBAL
#: ranges, the digits of a cluster's blocks, and of blocks that make parts of a sum
REDUCE_RANGES = frozenset(
    (AxisType.LOOP, AxisType.REDUCE, AxisType.UPCAST, AxisType.LOCAL, AxisType.WARP)
)

# ---- table 4: what only a GPU, or only native C, has
GPU_RANGES = WHOLE_KERNEL
GPU_OPS = (EFFECTS | _GPU_VALUES | {Ops.ROLE}) - {Ops.STORE}
WIDTHS = (2, 4, 8, 16)
#: bytes of the widest access of one thread
WIDEST_BYTES = 16

#: what a node is whatever its sources are; any other is a VALUE, or what its first source is
PARTS: dict[Ops, Part] = {
    Ops.ALLOC: Part.MEMORY,
    Ops.SEGMENT: Part.MEMORY,
    Ops.INDEX: Part.ADDRESS,
    Ops.RANGE: Part.RANGE,
    Ops.TUPLE: Part.TUPLED,
    Ops.TENSORMAP: Part.MAP,
    **dict.fromkeys((*EFFECTS, Ops.END, Ops.SINK), Part.EFFECT),
    Ops.ATOMIC: Part.BOTH,
    **dict.fromkeys((Ops.IF, Ops.ROLE), Part.SCOPE),
}
