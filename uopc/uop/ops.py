"""The vocabulary of the IR: the ops, and the records that stand in their `arg`.

Stages and what each op may contain in them: `uopc/uop/spec.py`.  Meaning: `uopc/uop/oracle/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from uopc.dtype import AddrSpace, DType


class Ops(Enum):
    """Every op, in the order that sorts commutative operands (memory first, constants last)."""

    # memory and values from outside
    BUFFER = auto()  # ()                          ParamArg   a parameter: memory, or a 0-d scalar
    ALLOC = auto()  # ()                           ParamArg   SHARED or REG memory of the kernel
    INDEX = auto()  # (memory, offset)                        one element; offset in elements
    LOAD = auto()  # (index[, gate, else])         AccessArg? read
    # loops and order
    RANGE = auto()  # ()                           RangeArg   a loop variable, dtype index
    AFTER = auto()  # (x, effect or range...)                 x, seen after all of these
    STORE = auto()  # (index, value[, gate])       AccessArg? write
    BARRIER = auto()  # (effect or range...)                  every thread of the block meets
    END = auto()  # (effect, range...)                        closes ranges, outermost first
    SINK = auto()  # (effect...)                   LaunchArg? the kernel
    # movement of shaped values
    RESHAPE = auto()  # (x,)                       shape
    EXPAND = auto()  # (x,)                        shape
    PERMUTE = auto()  # (x,)                       axes
    SHRINK = auto()  # (x,)                        ((begin, end), ...)
    PAD = auto()  # (x, value)                     ((before, after), ...)
    FLIP = auto()  # (x,)                          axes
    IOTA = auto()  # ()                            IotaArg    0, 1, 2, ...
    # reductions and where values live
    REDUCE = auto()  # (x, range...)               ReduceArg
    TUPLE = auto()  # (x...)                                  several values that reduce together
    ITEM = auto()  # (tuple,)                      int
    STAGE = auto()  # (x, write, read, gate, range...)  StageArg
    SHUFFLE = auto()  # (x,)                       ShuffleArg the value of lane ^ mask
    # arithmetic
    MUL = auto()
    ADD = auto()
    SUB = auto()
    DIV = auto()  # floats, correctly rounded
    IDIV = auto()  # integers, floor; by zero gives 0
    MOD = auto()  # integers, floor; by zero gives 0
    MAX = auto()  # NaN wins, -0 < +0
    MIN = auto()
    AND = auto()
    OR = auto()
    XOR = auto()
    SHL = auto()  # by 0 <= n < bits
    SHR = auto()  # arithmetic for signed
    LT = auto()
    EQ = auto()
    NE = auto()
    WHERE = auto()  # (condition, x, y)
    FMA = auto()  # a*b + c, rounded once
    NEG = auto()
    NOT = auto()  # bits, or truth of a bool
    CAST = auto()  #                               DType
    BITCAST = auto()  #                            DType
    SQRT = auto()
    TRUNC = auto()
    FLOOR = auto()
    CEIL = auto()
    RINT = auto()  # to nearest even
    EXP2 = auto()
    LOG2 = auto()
    EXP = auto()
    LOG = auto()
    SIN = auto()
    COS = auto()
    TAN = auto()
    TANH = auto()
    ERF = auto()
    CONST = auto()  # ()                           ConstArg

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__
    __hash__ = object.__hash__  # identity: Enum's hashes the name each time


class AxisType(Enum):
    """How a range runs: in one thread (LOOP, REDUCE, UPCAST), or bound to hardware."""

    LOOP = auto()
    REDUCE = auto()
    UPCAST = auto()
    THREAD = auto()
    GLOBAL = auto()
    LOCAL = auto()
    WARPGROUP = auto()
    WARP = auto()
    LANE = auto()

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__
    __hash__ = object.__hash__


#: ranges rendered as loops that stay loops
SERIAL = frozenset((AxisType.LOOP, AxisType.REDUCE))
#: ranges that are loops inside one thread's text
IN_THREAD = frozenset((AxisType.LOOP, AxisType.REDUCE, AxisType.UPCAST, AxisType.THREAD))
#: ranges that live for the whole kernel and are closed by SINK
WHOLE_KERNEL = frozenset(
    (AxisType.GLOBAL, AxisType.LOCAL, AxisType.WARPGROUP, AxisType.WARP, AxisType.LANE)
)


@dataclass(frozen=True, slots=True)
class ParamArg:
    """A memory: its slot, element dtype, shape and address space.

    Slots number a kernel's parameters (GLOBAL), or tell equal allocations apart (SHARED, REG).
    Shape () in GLOBAL is a scalar passed by value.  name: what an allocation holds, for reading.
    """

    slot: int
    dtype: DType
    shape: tuple[int, ...]
    addrspace: AddrSpace = AddrSpace.GLOBAL
    name: str = ""


@dataclass(frozen=True, slots=True)
class RangeArg:
    """A range of `size` values start, start + step, ...: one axis, or one digit of it.

    axis is the kernel axis (the position in Opts); digit says which part of a split axis this is
    ("" before the split: then g k t u l v, or w for a re-read of warps' partial results);
    instance tells apart the copies that different loops open.
    """

    axis: int
    size: int
    kind: AxisType
    digit: str = ""
    instance: int = 0
    start: int = 0
    step: int = 1


@dataclass(frozen=True, slots=True)
class ConstArg:
    """A constant by dtype and bits (floats) or value (integers): 0.0 is not -0.0, NaN is itself."""

    dtype: DType
    bits: int


class Combine(Enum):
    """How a REDUCE combines; its meaning and identity: `uopc/uop/combine.py`."""

    ADD = auto()
    MUL = auto()
    MAX = auto()
    MIN = auto()
    AND = auto()
    OR = auto()
    XOR = auto()
    ARGMAX = auto()  # over TUPLE(value, index): the first of the largest, NaN largest
    ARGMIN = auto()  # over TUPLE(value, index): the first of the smallest, NaN smallest

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class ReduceArg:
    """combine; axes: how many last axes it reduces (shaped values), 0 once it names ranges."""

    combine: Combine
    axes: int = 0


@dataclass(frozen=True, slots=True)
class IotaArg:
    """0, 1, ..., size - 1 as a vector of dtype."""

    size: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class AccessArg:
    """A LOAD or STORE of `width` consecutive elements at once (a pair of them copies)."""

    width: int


@dataclass(frozen=True, slots=True)
class StageArg:
    """Where a staged value lives: REG per thread or SHARED per block; size in elements per value.

    exchange: other threads read it, so a barrier stands after the fill (and before the next one).
    """

    space: AddrSpace
    size: int
    exchange: bool = False


@dataclass(frozen=True, slots=True)
class ShuffleArg:
    """The value that lane ^ xor_mask of the same warp holds."""

    xor_mask: int


@dataclass(frozen=True, slots=True)
class LaunchArg:
    """What a SINK tells the renderers beside its ranges.

    lanes: axes whose LOCAL digits are threadIdx.x, .y, .z, fastest first; the others follow, last
    axis first.  grid: the same for blockIdx.  blocks_per_sm: second number of the launch bounds, 0
    leaves it out.  early: loads that wait for nothing are issued first.
    """

    lanes: tuple[int, ...] = ()
    grid: tuple[int, ...] = ()
    blocks_per_sm: int = 0
    early: bool = True


COMMUTATIVE = frozenset(
    (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR, Ops.EQ, Ops.NE)
)
COMPARE = frozenset((Ops.LT, Ops.EQ, Ops.NE))
MOVEMENT = frozenset((Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.SHRINK, Ops.PAD, Ops.FLIP))
TRANSCENDENTAL = frozenset(
    (Ops.EXP2, Ops.LOG2, Ops.EXP, Ops.LOG, Ops.SIN, Ops.COS, Ops.TAN, Ops.TANH, Ops.ERF)
)
UNARY_FLOAT = TRANSCENDENTAL | frozenset((Ops.SQRT, Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.RINT))
BINARY = frozenset(
    (
        *(Ops.ADD, Ops.SUB, Ops.MUL, Ops.DIV, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.MIN),
        *(Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.LT, Ops.EQ, Ops.NE),
    )
)
UNARY = UNARY_FLOAT | frozenset((Ops.NEG, Ops.NOT, Ops.CAST, Ops.BITCAST))
ELEMENTWISE = BINARY | UNARY | frozenset((Ops.WHERE, Ops.FMA))
#: values that cost enough to be kept rather than computed again
DEAR = frozenset((Ops.LOAD, Ops.SHUFFLE, Ops.DIV, Ops.SQRT)) | TRANSCENDENTAL
