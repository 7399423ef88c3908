"""The vocabulary of the IR: the ops, and the records that stand in their `arg`.

Stages and what each op may contain in them: `uopc/uop/spec.py`.  Meaning: `uopc/uop/oracle/`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from uopc.dtype import AddrSpace, DType
from uopc.layouts.shared import OperandTile


class Word(Enum):
    """A member prints as its name, and hashes by identity: Enum hashes the name each time."""

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__
    __hash__ = object.__hash__


class Ops(Word):
    """Every op, in the order that sorts commutative operands (memory first, constants last)."""

    # memory and values from outside
    BUFFER = auto()  # ()                          ParamArg   a parameter: memory, or a 0-d scalar
    ALLOC = auto()  # ()                           ParamArg   SHARED or REG memory of the kernel
    SEGMENT = auto()  # (bundle, which)                       one of the memories of a bundle
    INDEX = auto()  # (memory, offset)             BasedArg?  one element; offset in elements
    LOAD = auto()  # (index[, gate, else])         AccessArg? read
    # scopes and order; "done" is any number of effects and opened scopes
    RANGE = auto()  # ()                           RangeArg   a loop variable, dtype index
    IF = auto()  # (condition, done...)                       opens what is done where it holds
    ROLE = auto()  # (done...)                     RoleArg    opens what only some warps do
    AFTER = auto()  # (x, done...)                            x, seen after all of these
    STORE = auto()  # (index, value[, gate])       AccessArg? write (ReportArg: see there)
    ATOMIC = auto()  # (index, value[, compare])   AtomicArg  read, change, write; the old value
    BARRIER = auto()  # ([id,] done...)            BarrierArg? threads meet; None: the whole block
    END = auto()  # (effect, scope...)                        closes scopes, outermost first
    SINK = auto()  # (effect...)                   LaunchArg? the kernel
    # asynchronous copies, and what orders them
    TENSORMAP = auto()  # (buffer,)                TensorMapArg  a box-wise view of a parameter
    COPY = auto()  # (to, from[, gate])            CopyArg    cp.async; or bulk, see CopyArg
    COMMIT = auto()  # (done...)                   Engine     closes a group of copies or MMAs
    WAITG = auto()  # (done...)                    WaitArg    until at most n groups are pending
    FENCE = auto()  # (done or memory...)          Fence      orders proxies, registers, memory
    MBAR_INIT = auto()  # (index, count)                      an mbarrier that expects arrivals
    ARRIVE = auto()  # (index[, bytes])                       one arrival a thread, bytes to come
    WAIT = auto()  # (index, parity)                          until the phase of that parity ended
    # tensor cores
    LDMATRIX = auto()  # (to REG, from SHARED)     MatrixArg  8x8 tiles into fragments, by a warp
    STMATRIX = auto()  # (to SHARED, from REG)     MatrixArg
    DESCRIPTOR = auto()  # (index SHARED,)         DescriptorArg  where a wgmma operand lies, u64
    MMA = auto()  # (accumulator, a, b[, keep])    str        an atom of `uopc.layouts`, in place
    DOT = auto()  # (a, b)                         str        what an MMA would add, as a value
    # for people
    PRINTF = auto()  # (value..., done...)         PrintArg   a line for each thread
    ASSERT = auto()  # (condition, done...)        str        stops the kernel where false
    # movement of shaped values
    RESHAPE = auto()  # (x,)                       shape
    EXPAND = auto()  # (x,)                        shape
    PERMUTE = auto()  # (x,)                       axes
    SHRINK = auto()  # (x,)                        ((begin, end), ...)
    PAD = auto()  # (x, value)                     ((before, after), ...)
    FLIP = auto()  # (x,)                          axes
    IOTA = auto()  # ()                            IotaArg    0, 1, 2, ...
    GATHER = (
        auto()
    )  # (x, index...)               GatherArg  elements of x at places that data names
    SCATTER = auto()  # (values, index...)         ScatterArg  the transpose: sums at those places
    # what tensors remember; the scheduler removes all three
    ASSIGN = auto()  # (old, value)                           the next version of a BUFFER
    DETACH = auto()  # (x,)                                   x, through which no gradient passes
    CURVE = auto()  # (value, x...)                str        value; its name says how it follows x
    # reductions and where values live
    REDUCE = auto()  # (x, range...)               ReduceArg
    SCAN = auto()  # (x[, start, range...])        ScanArg    what is combined so far, at each place
    TUPLE = auto()  # (x...)                                  several values that reduce together
    ITEM = auto()  # (tuple,)                      int
    STAGE = auto()  # (x, write, read, gate, range...)  StageArg
    SHUFFLE = auto()  # (x[, lane])                ShuffleArg the value that another lane has
    VOTE = auto()  # (condition,)                  VoteArg    any, all, or the ballot of the lanes
    WARP_REDUCE = auto()  # (x,)                   WarpReduceArg  of all lanes, to all lanes
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


class AxisType(Word):
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

    CLUSTER memory has shape (blocks of the cluster, elements of each block): block r holds the
    elements r*shape[1] ... (r+1)*shape[1] - 1.

    bundle: the parameter stands for shape[0] memories, wherever they lie, of up to shape[1]
    elements each; SEGMENT picks one.  The kernel is passed a table of their addresses, so that its
    text is the same however many there are and whatever their sizes.
    """

    slot: int
    dtype: DType
    shape: tuple[int, ...]
    addrspace: AddrSpace = AddrSpace.GLOBAL
    name: str = ""
    bundle: bool = field(default=False, repr=False)  # the repr is a key: no memory has both kinds


@dataclass(frozen=True, slots=True)
class RangeArg:
    """A range of `size` values start, start + step, ...: one axis, or one digit of it.

    A GLOBAL range with digit "c" counts the blocks of one cluster (their rank); an UPCAST one, to
    which of them a value is sent.  One with digit "b" counts the blocks that make parts of the same
    sums.
    axis is the kernel axis (the position in Opts); digit says which part of a split axis this is
    ("" before the split: then g c k t u l v, s i p u l v where an axis is scanned (loops, warps,
    copies, lanes), or w for a re-read of warps' partial results);
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


class Combine(Word):
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


@dataclass(frozen=True, slots=True)
class ReduceArg:
    """combine; axes: how many last axes it reduces (shaped values), 0 once it names ranges."""

    combine: Combine
    axes: int = 0


@dataclass(frozen=True, slots=True)
class ScanArg:
    """Element i of the result is elements 0 to i of x combined, in this order.

    In TENSOR along the last axis of x, whose shape the result has.  Later along ranges, outermost
    first, that stay free in the result: at an iteration it is `start` with the values of all
    iterations up to this one.
    reverse: from the last element down to this one; exclusive: without this one.
    """

    combine: Combine
    reverse: bool = False
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class IotaArg:
    """0, 1, ..., size - 1 as a vector of dtype."""

    size: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class GatherArg:
    """Where along each axis of x an element is read.

    dims: for each axis of x, j >= 0: it is walked by axis j of the result, which has its size;
    ~k: it is read at the value of index k.  Every index has the shape of the result and is used
    once.  A negative index counts from the end; one that lies outside reads the nearest element
    (of an empty axis: 0).
    Rows of x (V, D) at (N, D) indices: (~0, 1).  Along axis 1 of x (A, B): (0, ~0).
    """

    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScatterArg:
    """Where along each axis of the result an element is added.

    shape: of the result; dims: for each of its axes, j >= 0: it is walked by axis j of the values,
    which has its size; ~k: it is written at the value of index k.  Every index has the shape of
    the values and is used once.  Each element is the sum of the values that come to it, 0 of none.
    A negative index counts from the end; where one lies outside nothing is added.
    Floats are added in the order of the values, narrow ones in f32 and rounded once.
    """

    shape: tuple[int, ...]
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AccessArg:
    """A LOAD or STORE of `width` consecutive elements at once (a pair of them copies)."""

    width: int


@dataclass(frozen=True, slots=True)
class BasedArg:
    """An INDEX whose offset is ADD(base, displacement): unrolling makes the displacement constant.

    On a GPU, in LOOPS: the base gets a pointer.
    """


@dataclass(frozen=True, slots=True)
class ReportArg:
    """A STORE that reports: many iterations may give values, one is kept, the largest or any.

    In INDEXED and MAPPED; in LOOPS it is an ATOMIC under an IF (GPU), or a plain gated STORE.
    """


@dataclass(frozen=True, slots=True)
class StageArg:
    """Where a staged value lives: REG per thread, SHARED per block, CLUSTER per cluster; size in
    elements per value.

    exchange: other threads read it, so a barrier stands after the fill (and before the next one).
    blocks: of a cluster, in whose CLUSTER memory each has an equal part; 1 elsewhere.

    Of an operand of a product (`passes/tile_product.py`): name, for reading; layout: where its
    elements lie, and then write and read are places in rows x k, row-major; depth: tiles that are
    there at once; engine: what copies it, None for loads and stores; box: the view of memory that
    BULK copies take, of which one copy moves a slab of the layout; origin: what of a copy's
    coordinates is constant, where that is not 0 everywhere.
    """

    space: AddrSpace
    size: int
    exchange: bool = False
    blocks: int = 1
    name: str = ""
    layout: OperandTile | None = None
    depth: int = 1
    engine: Engine | None = None
    box: TensorMapArg | None = None
    origin: tuple[int, ...] = ()


ALL_LANES = 0xFFFFFFFF


class ShuffleMode(Word):
    """Which lane gives: XOR lane ^ by; UP lane - by; DOWN lane + by; INDEX the second source % 32.

    UP and DOWN give a lane its own value where the other would be outside the warp.
    """

    XOR = auto()
    UP = auto()
    DOWN = auto()
    INDEX = auto()


@dataclass(frozen=True, slots=True)
class ShuffleArg:
    """Lanes exchange values.  members: bit l says that lane l takes part; all of them must arrive,
    and only they (CUDA Programming Guide, warp shuffle functions)."""

    by: int = 0
    mode: ShuffleMode = ShuffleMode.XOR
    members: int = ALL_LANES


class Vote(Word):
    """ANY and ALL give bool, BALLOT a u32 with the bit of each lane whose condition holds."""

    ANY = auto()
    ALL = auto()
    BALLOT = auto()


@dataclass(frozen=True, slots=True)
class VoteArg:
    """A vote of the member lanes."""

    vote: Vote
    members: int = ALL_LANES


@dataclass(frozen=True, slots=True)
class WarpReduceArg:
    """i32 and u32: ADD, MIN, MAX; u32 also AND, OR, XOR (PTX ISA, redux.sync)."""

    combine: Combine
    members: int = ALL_LANES


class Atomic(Word):
    """What an ATOMIC does with the old value and its operand; integers wrap.

    CAS stores if the old bits are those of compare: NaN equals itself, 0.0 is not -0.0.
    """

    ADD = auto()
    MIN = auto()
    MAX = auto()
    AND = auto()
    OR = auto()
    XOR = auto()
    EXCHANGE = auto()
    CAS = auto()


@dataclass(frozen=True, slots=True)
class AtomicArg:
    """A relaxed atomic of the device (GLOBAL) or the block (SHARED).  It orders nothing."""

    atomic: Atomic


class BarrierScope(Word):
    """BLOCK: all its threads.  WARP: the member lanes.  NAMED: `threads` threads, by number.

    CLUSTER: all threads of the cluster's blocks; what they did before is seen after it.
    CLUSTER_ARRIVE, CLUSTER_WAIT: the same in two steps, that a block has started: each thread says
    so and goes on; then it waits until all have.  It hands nothing over.  Before it no block may
    touch what another one holds.
    """

    BLOCK = auto()
    WARP = auto()
    NAMED = auto()
    CLUSTER = auto()
    CLUSTER_ARRIVE = auto()
    CLUSTER_WAIT = auto()


@dataclass(frozen=True, slots=True)
class BarrierArg:
    """Who meets.  A NAMED barrier has its number (index, 1 to 15) as first source, and waits for
    `threads` threads, whole warps (PTX ISA, bar.sync)."""

    scope: BarrierScope = BarrierScope.BLOCK
    threads: int = 0
    members: int = ALL_LANES


@dataclass(frozen=True, slots=True)
class RoleArg:
    """Warps first ... first + warps - 1 of the block do what is inside.

    registers: what setmaxnreg leaves each of their threads, 0 for no change; grow: they get more
    than they were launched with (PTX ISA, setmaxnreg: whole warpgroups, a multiple of 8).
    """

    name: str
    first: int
    warps: int
    registers: int = 0
    grow: bool = False


class Engine(Word):
    """What works on its own after a thread has asked it to.

    CP_ASYNC: a thread's 4, 8 or 16 bytes.  BULK: a box, by the tensor memory accelerator.
    WGMMA: a warpgroup's MMA.  CLUSTER: a value on its way into another block's shared memory.
    """

    CP_ASYNC = auto()
    BULK = auto()
    WGMMA = auto()
    CLUSTER = auto()


@dataclass(frozen=True, slots=True)
class CopyArg:
    """An asynchronous copy between GLOBAL and SHARED memory.

    CP_ASYNC: (to SHARED INDEX, from GLOBAL INDEX[, gate]), `width` elements of 4, 8 or 16 bytes in
    all; zeros where the gate is false.
    BULK into SHARED: (to SHARED INDEX, TENSORMAP, mbarrier INDEX, coordinate...): the box of the
    map at these coordinates (elements, outermost first, may lie outside: zeros), its bytes count
    at the mbarrier.  One thread asks.
    BULK into GLOBAL: (TENSORMAP, from SHARED INDEX, coordinate...); what lies outside is not
    written.  One thread asks.
    CLUSTER: (to CLUSTER INDEX, value, mbarrier INDEX[, gate]): one value of 4 or 8 bytes, which
    count at the mbarrier, of that place, of the block that holds the element (PTX ISA, st.async).
    Who waits there sees the value: no barrier of the cluster is needed.
    """

    engine: Engine
    width: int = 1


@dataclass(frozen=True, slots=True)
class TensorMapArg:
    """How a bulk copy sees a parameter.

    shape: sizes, outermost first; strides: elements between neighbours of each axis but the last,
    which is contiguous; box: what one copy moves; swizzle: bytes of the pattern in SHARED memory
    (0, 32, 64, 128).  Rules: `uopc.layouts`.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0


@dataclass(frozen=True, slots=True)
class WaitArg:
    """Until at most `pending` newest groups are unfinished; read: BULK stores have only read."""

    engine: Engine
    pending: int = 0
    read: bool = False


class Fence(Word):
    """PROXY_ASYNC: ordinary and asynchronous accesses of SHARED memory.  MBAR_INIT: fresh mbarriers
    become visible to BULK copies.  WGMMA: registers that the next MMAs use.  BLOCK, DEVICE: earlier
    writes are seen before later ones (__threadfence_block, __threadfence)."""

    PROXY_ASYNC = auto()
    MBAR_INIT = auto()
    WGMMA = auto()
    BLOCK = auto()
    DEVICE = auto()


@dataclass(frozen=True, slots=True)
class MatrixArg:
    """1, 2 or 4 tiles of 8 rows of 16 bytes; transposed on the way (elements of 16 bits)."""

    tiles: int = 4
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class DescriptorArg:
    """A wgmma operand in SHARED memory: the canonical layout that its rows and columns follow.

    leading, stride: bytes between core matrices along k (or m, n) and across; swizzle: bytes;
    transposed: m (or n) is contiguous instead of k (PTX ISA, wgmma, matrix descriptor).
    """

    leading: int
    stride: int
    swizzle: int = 0
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class PrintArg:
    """A line that each thread prints: `format`, with {} for each of the values, in order."""

    format: str


@dataclass(frozen=True, slots=True)
class LaunchArg:
    """What a SINK tells the renderers beside its ranges.

    lanes: axes whose LOCAL digits are threadIdx.x, .y, .z, fastest first; the others follow, last
    axis first.  grid: the same for blockIdx.  blocks_per_sm: second number of the launch bounds, 0
    leaves it out.  early: loads that wait for nothing are issued first.  streaming: what only one
    block loads it loads once, which a renderer may tell the caches.
    """

    lanes: tuple[int, ...] = ()
    grid: tuple[int, ...] = ()
    blocks_per_sm: int = 0
    early: bool = True
    streaming: bool = False


#: barriers of a cluster's blocks
OF_CLUSTERS = frozenset(
    (BarrierScope.CLUSTER, BarrierScope.CLUSTER_ARRIVE, BarrierScope.CLUSTER_WAIT)
)
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
DEAR = (
    frozenset((Ops.LOAD, Ops.ATOMIC, Ops.SHUFFLE, Ops.VOTE, Ops.WARP_REDUCE, Ops.DIV, Ops.SQRT))
    | TRANSCENDENTAL
)
#: what opens a scope that an END closes
SCOPES = frozenset((Ops.RANGE, Ops.IF, Ops.ROLE))
#: values that lanes of a warp make together
WARP_VALUES = frozenset((Ops.SHUFFLE, Ops.VOTE, Ops.WARP_REDUCE))
#: effects that linearize puts in order; an ATOMIC is also a value
EFFECTS = frozenset(
    (
        *(Ops.STORE, Ops.ATOMIC, Ops.BARRIER, Ops.COPY, Ops.COMMIT, Ops.WAITG, Ops.FENCE),
        *(Ops.MBAR_INIT, Ops.ARRIVE, Ops.WAIT, Ops.LDMATRIX, Ops.STMATRIX, Ops.MMA),
        *(Ops.PRINTF, Ops.ASSERT),
    )
)
