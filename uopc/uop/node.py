"""The node: `UOp(op, src, arg)`, frozen and hash-consed, and the operators that build graphs.

Same fields, same object: nodes are compared by identity (`==`), and `.eq`, `.ne`, `<` build nodes.
dtype, shape and free ranges are computed when a node is built, so that a wrong graph fails on the
user's own line; every other fact is a free function in `uopc/uop/facts.py`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any, TypeAlias

from uopc.dtype import AddrSpace, DType, Kind, dtypes, from_bits, to_bits
from uopc.errors import UsageError
from uopc.uop.infer import INFER, Shape, check_reduced, memory, prod, tuple_of
from uopc.uop.ops import (
    ALL_LANES,
    WHOLE_KERNEL,
    Atomic,
    AtomicArg,
    AxisType,
    Combine,
    ConstArg,
    GatherArg,
    IotaArg,
    LaunchArg,
    Ops,
    ParamArg,
    RangeArg,
    ReduceArg,
    ScanArg,
    ScatterArg,
    ShuffleArg,
    ShuffleMode,
    Vote,
    VoteArg,
    WarpReduceArg,
)
from uopc.uop.origin import ORIGINS, Origin, here, user_frame, where_from

Scalar: TypeAlias = "UOp | bool | int | float"

_NO_RANGES: frozenset[UOp] = frozenset()
_lock = threading.RLock()  # re-entrant: a collection inside the lock may run _forget


class _Ref(weakref.ref["UOp"]):
    """A weak reference that knows its key."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


_table: dict[tuple[Any, ...], _Ref] = {}


def _forget(ref: weakref.ref[UOp]) -> None:
    with _lock:
        if _table.get(ref.key) is ref:  # type: ignore[attr-defined]  # only a _Ref comes here
            del _table[ref.key]


class UOp:
    """One node: an op, its sources and a record.  See `Ops` for what each op takes.

    Attributes: op, src, arg; dtype of the value (void for effects); shape, () for scalars.
    """

    __slots__ = (
        *("op", "src", "arg", "dtype", "shape", "origins"),
        *("_free", "_bounds", "_affine", "_key", "_order", "__weakref__"),
    )
    op: Ops
    src: tuple[UOp, ...]
    arg: Any
    dtype: DType
    shape: Shape
    origins: tuple[Origin, ...]
    _free: frozenset[UOp]
    _bounds: Any
    _affine: Any
    _key: Any
    _order: Any

    def __new__(cls, op: Ops, src: tuple[UOp, ...] = (), arg: Any = None) -> UOp:
        key = (op, src, arg)
        ref = _table.get(key)
        if ref is not None and (found := ref()) is not None:
            if (place := user_frame(2)) and place[0] not in found.origins[:1]:
                found.origins = (*place, *(o for o in found.origins if o != place[0]))[:ORIGINS]
            return found
        dtype, shape = INFER[op](src, arg)
        u = object.__new__(cls)
        u.op, u.src, u.arg, u.dtype, u.shape = op, src, arg, dtype, shape
        u._free = _free_scopes(u)
        u._bounds = u._affine = u._key = u._order = None
        u.origins = user_frame(2)
        with _lock:
            ref = _table.get(key)
            if ref is not None and (found := ref()) is not None:
                return found
            new = _Ref(u, _forget)
            new.key = key
            _table[key] = new
        return u

    def __init_subclass__(cls) -> None:
        raise TypeError("UOp has no subclasses: an op is a member of Ops")

    def __reduce__(self) -> Any:
        from uopc.uop.text import parse, show  # the one use against the order of imports: pickling

        return (parse, (show(self),))

    def __repr__(self) -> str:
        from uopc.uop.text import show  # printing reads the node; the node prints for convenience

        return show(self)

    # ---- arithmetic: a Python scalar takes the other operand's dtype
    def __add__(self, other: Scalar) -> UOp:
        return alu(Ops.ADD, self, other)

    def __radd__(self, other: Scalar) -> UOp:
        return alu(Ops.ADD, other, self)

    def __sub__(self, other: Scalar) -> UOp:
        return alu(Ops.SUB, self, other)

    def __rsub__(self, other: Scalar) -> UOp:
        return alu(Ops.SUB, other, self)

    def __mul__(self, other: Scalar) -> UOp:
        return alu(Ops.MUL, self, other)

    def __rmul__(self, other: Scalar) -> UOp:
        return alu(Ops.MUL, other, self)

    def __truediv__(self, other: Scalar) -> UOp:
        return alu(Ops.DIV, self, other)

    def __rtruediv__(self, other: Scalar) -> UOp:
        return alu(Ops.DIV, other, self)

    def __floordiv__(self, other: Scalar) -> UOp:
        return alu(Ops.IDIV, self, other)

    def __rfloordiv__(self, other: Scalar) -> UOp:
        return alu(Ops.IDIV, other, self)

    def __mod__(self, other: Scalar) -> UOp:
        return alu(Ops.MOD, self, other)

    def __rmod__(self, other: Scalar) -> UOp:
        return alu(Ops.MOD, other, self)

    def __and__(self, other: Scalar) -> UOp:
        return alu(Ops.AND, self, other)

    def __or__(self, other: Scalar) -> UOp:
        return alu(Ops.OR, self, other)

    def __xor__(self, other: Scalar) -> UOp:
        return alu(Ops.XOR, self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lshift__(self, other: Scalar) -> UOp:
        return alu(Ops.SHL, self, other)

    def __rshift__(self, other: Scalar) -> UOp:
        return alu(Ops.SHR, self, other)

    def __neg__(self) -> UOp:
        return alu(Ops.NEG, self)

    def __invert__(self) -> UOp:
        return alu(Ops.NOT, self)

    def __lt__(self, other: Scalar) -> UOp:
        return alu(Ops.LT, self, other)

    def __gt__(self, other: Scalar) -> UOp:
        return alu(Ops.LT, other, self)

    def __le__(self, other: Scalar) -> UOp:
        """self < other or self == other: false where either is NaN."""
        return alu(Ops.OR, alu(Ops.LT, self, other), alu(Ops.EQ, self, other))

    def __ge__(self, other: Scalar) -> UOp:
        return alu(Ops.OR, alu(Ops.LT, other, self), alu(Ops.EQ, self, other))

    def eq(self, other: Scalar) -> UOp:
        """Elementwise equality (`==` is identity of nodes)."""
        return alu(Ops.EQ, self, other)

    def ne(self, other: Scalar) -> UOp:
        return alu(Ops.NE, self, other)

    def __bool__(self) -> bool:
        raise UsageError(
            f"a UOp has no truth value ({self.op} at {where_from(self)}): "
            "compare nodes with `is`, build a choice with .where(x, y)"
        )

    def where(self, x: Scalar, y: Scalar) -> UOp:
        """x where self (bool) is true, else y."""
        return alu(Ops.WHERE, self, x, y)

    def maximum(self, other: Scalar) -> UOp:
        """The larger; NaN wins, -0 < +0."""
        return alu(Ops.MAX, self, other)

    def minimum(self, other: Scalar) -> UOp:
        return alu(Ops.MIN, self, other)

    def fma(self, b: Scalar, c: Scalar) -> UOp:
        """self * b + c with one rounding."""
        return alu(Ops.FMA, self, b, c)

    def cast(self, dtype: DType) -> UOp:
        """The value in another dtype: floats to integers toward zero, saturating, NaN to 0."""
        return self if dtype is self.dtype else UOp(Ops.CAST, (self,), dtype)

    def bitcast(self, dtype: DType) -> UOp:
        """The same bits read as another dtype of equal size."""
        return self if dtype is self.dtype else UOp(Ops.BITCAST, (self,), dtype)

    def sqrt(self) -> UOp:
        return alu(Ops.SQRT, self)

    def exp(self) -> UOp:
        return alu(Ops.EXP, self)

    def exp2(self) -> UOp:
        return alu(Ops.EXP2, self)

    def log(self) -> UOp:
        return alu(Ops.LOG, self)

    def log2(self) -> UOp:
        return alu(Ops.LOG2, self)

    def sin(self) -> UOp:
        return alu(Ops.SIN, self)

    def cos(self) -> UOp:
        return alu(Ops.COS, self)

    def tan(self) -> UOp:
        return alu(Ops.TAN, self)

    def tanh(self) -> UOp:
        return alu(Ops.TANH, self)

    def erf(self) -> UOp:
        return alu(Ops.ERF, self)

    def trunc(self) -> UOp:
        return alu(Ops.TRUNC, self)

    def floor(self) -> UOp:
        return alu(Ops.FLOOR, self)

    def ceil(self) -> UOp:
        return alu(Ops.CEIL, self)

    def rint(self) -> UOp:
        """To the nearest integer, ties to even."""
        return alu(Ops.RINT, self)

    def recip(self) -> UOp:
        return alu(Ops.DIV, 1.0, self)

    # ---- movement
    def reshape(self, shape: Sequence[int]) -> UOp:
        """The same elements in row-major order; one -1 is what is left."""
        shape = tuple(int(n) for n in shape)
        if shape.count(-1) == 1:
            rest = prod(n for n in shape if n != -1)
            if rest == 0 or prod(self.shape) % rest:
                raise UsageError(f"reshape at {here()}: {shape} cannot hold shape {self.shape}")
            shape = tuple(prod(self.shape) // rest if n == -1 else n for n in shape)
        return self if shape == self.shape else UOp(Ops.RESHAPE, (self,), shape)

    def expand(self, shape: Sequence[int]) -> UOp:
        """Axes of size 1 repeated; new axes may be put in front."""
        shape = tuple(int(n) for n in shape)
        x = self
        if len(shape) > len(x.shape):
            x = x.reshape((1,) * (len(shape) - len(x.shape)) + x.shape)
        return x if shape == x.shape else UOp(Ops.EXPAND, (x,), shape)

    def permute(self, axes: Sequence[int]) -> UOp:
        """Axis i of the result is axis axes[i] of self."""
        axes = tuple(a + len(self.shape) if a < 0 else a for a in axes)
        return self if axes == tuple(range(len(self.shape))) else UOp(Ops.PERMUTE, (self,), axes)

    def shrink(self, bounds: Sequence[tuple[int, int]]) -> UOp:
        """Elements begin <= i < end along each axis."""
        bounds = tuple((int(b), int(e)) for b, e in bounds)
        return (
            self
            if bounds == tuple((0, n) for n in self.shape)
            else UOp(Ops.SHRINK, (self,), bounds)
        )

    def pad(self, pads: Sequence[tuple[int, int]], value: Scalar = 0) -> UOp:
        """(before, after) elements of `value` put around each axis."""
        pads = tuple((int(b), int(a)) for b, a in pads)
        if all(p == (0, 0) for p in pads) and len(pads) == len(self.shape):
            return self
        fill = value if isinstance(value, UOp) else UOp.const(value, self.dtype)
        return UOp(Ops.PAD, (self, fill), pads)

    def flip(self, axes: Sequence[int]) -> UOp:
        """Elements in reverse order along these axes."""
        axes = tuple(sorted(a + len(self.shape) if a < 0 else a for a in axes))
        return UOp(Ops.FLIP, (self,), axes) if axes else self

    # ---- elements at places that data names
    def gather(self, dims: Sequence[int], *index: UOp) -> UOp:
        """Axis a of self is walked by axis dims[a] of the result, or read at index k if that is ~k:
        see GatherArg.  Indices are integers of one shape, which the result has; scalars repeat."""
        shape = next((i.shape for i in index if i.shape), ())
        return UOp(Ops.GATHER, (self, *(_repeat(i, shape) for i in index)), GatherArg(tuple(dims)))

    def scatter(self, shape: Sequence[int], dims: Sequence[int], *index: UOp) -> UOp:
        """The sums of the elements of self at their places in zeros of `shape`, axis a of which is
        walked by axis dims[a] of self, or written at index k if that is ~k: see ScatterArg."""
        full = self.shape or next((i.shape for i in index if i.shape), ())
        src = [_repeat(x, full) for x in (self, *index)]
        return UOp(Ops.SCATTER, tuple(src), ScatterArg(tuple(shape), tuple(dims)))

    # ---- what tensors remember
    def assign(self, value: Scalar) -> UOp:
        """The next version of this BUFFER (or of its latest ASSIGN), with this value."""
        v = value if isinstance(value, UOp) else UOp.const(value, self.dtype)
        return UOp(Ops.ASSIGN, (self, _repeat(v, self.shape)))

    def detach(self) -> UOp:
        """The same value, through which no gradient passes."""
        return UOp(Ops.DETACH, (self,))

    def curve(self, name: str, *of: UOp) -> UOp:
        """The same value, which is the named function of these: gradients pass by its derivative
        there (`uopc/tensor/curves.py`), not through how self is computed."""
        return UOp(Ops.CURVE, (self, *of), name)

    # ---- reductions over the last n axes
    def reduce(self, op: Ops | Combine, n: int = 1) -> UOp:
        """Reduce the last n axes: shape (*kept,).  op: ADD, MUL, MAX, MIN, AND, OR or XOR."""
        combine = op if isinstance(op, Combine) else Combine.__members__.get(op.name)
        if combine is None or combine in (Combine.ARGMAX, Combine.ARGMIN):
            raise UsageError(
                f"reduce at {here()}: {op!r} does not reduce; use ADD, MUL, MAX, MIN, AND, OR, XOR"
            )
        return UOp(Ops.REDUCE, (self,), ReduceArg(combine, n))

    def scan(self, op: Ops | Combine, reverse: bool = False, exclusive: bool = False) -> UOp:
        """Element i: elements 0 to i of the last axis combined.  Shape kept.

        op: ADD, MUL, MAX or MIN; reverse: elements i to the last; exclusive: without element i.
        """
        combine = op if isinstance(op, Combine) else Combine[op.name]
        return UOp(Ops.SCAN, (self,), ScanArg(combine, reverse, exclusive))

    def argmax(self, n: int = 1) -> UOp:
        """Flat position over the last n axes of the first largest element, NaN largest; i32, or i64
        where the positions need it.  Shape (*kept,)."""
        return self._arg(Combine.ARGMAX, n)

    def argmin(self, n: int = 1) -> UOp:
        """As argmax, for the first smallest element, NaN smallest."""
        return self._arg(Combine.ARGMIN, n)

    def _arg(self, combine: Combine, n: int) -> UOp:
        check_reduced(self, n, combine)
        last = self.shape[len(self.shape) - n :]
        count = prod(last)
        position = (
            UOp.arange(count, dtypes.i32 if count < 2**31 else dtypes.i64)
            .reshape(last)
            .expand(self.shape)
        )
        both = UOp(Ops.REDUCE, (UOp(Ops.TUPLE, (self, position)),), ReduceArg(combine, n))
        return UOp(Ops.ITEM, (both,), 1)

    def item(self, k: int) -> UOp:
        """Value k of a TUPLE, or of its REDUCE."""
        return UOp(Ops.ITEM, (self,), k)

    # ---- loop IR
    def index(self, *where: Scalar) -> UOp:
        """The element of a memory at a flat offset, or at one index per axis (row-major)."""
        if self.op not in (Ops.BUFFER, Ops.ALLOC, Ops.AFTER, Ops.SEGMENT):
            raise UsageError(f"index at {here()}: only memories are indexed, not {self.op}")
        parts = [w if isinstance(w, UOp) else UOp.const(w, dtypes.index) for w in where]
        shape = self.shape
        if len(parts) > 1:
            if len(parts) != len(shape):
                raise UsageError(f"index at {here()}: {len(parts)} indices for shape {shape}")
            offset = parts[0]
            for part, size in zip(parts[1:], shape[1:], strict=True):
                offset = offset * size + part
            parts = [offset]
        return UOp(Ops.INDEX, (self, *parts))

    def segment(self, which: Scalar) -> UOp:
        """Memory number `which` of this bundle."""
        w = which if isinstance(which, UOp) else UOp.const(which, dtypes.index)
        return UOp(Ops.SEGMENT, (self, w))

    def load(self, gate: UOp | None = None, other: Scalar | None = None) -> UOp:
        """Read an INDEX; where gate is false memory is not touched and the value is `other` (0)."""
        if gate is None:
            return UOp(Ops.LOAD, (self,))
        alt = (
            other
            if isinstance(other, UOp)
            else UOp.const(0 if other is None else other, self.dtype)
        )
        return UOp(Ops.LOAD, (self, gate, alt))

    def store(self, value: Scalar, gate: UOp | None = None) -> UOp:
        """Write an INDEX (an effect); nothing where gate is false."""
        v = value if isinstance(value, UOp) else UOp.const(value, self.dtype)
        return UOp(Ops.STORE, (self, v) if gate is None else (self, v, gate))

    def after(self, *what: UOp) -> UOp:
        """This memory or value, seen after the effects, once per iteration of the ranges."""
        return UOp(Ops.AFTER, (self, *what)) if what else self

    def end(self, *scopes: UOp) -> UOp:
        """This effect, for every value of the ranges, where the IFs hold (outermost first)."""
        return UOp(Ops.END, (self, *scopes)) if scopes else self

    def barrier(self, *more: UOp) -> UOp:
        """Every thread of the block waits until all have done these effects."""
        return UOp(Ops.BARRIER, (self, *more))

    def atomic(self, atomic: Atomic, value: Scalar, compare: Scalar | None = None) -> UOp:
        """Read, change and write an INDEX in one step; the value is the old one (an effect too).

        Equal ATOMICs are one node, hence one step: put `.after(...)` between two of them."""
        operands = (value,) if compare is None else (value, compare)
        src = (x if isinstance(x, UOp) else UOp.const(x, self.dtype) for x in operands)
        return UOp(Ops.ATOMIC, (self, *src), AtomicArg(atomic))

    # ---- lanes of a warp together
    def shuffle(
        self,
        by: int = 0,
        mode: ShuffleMode = ShuffleMode.XOR,
        lane: UOp | None = None,
        members: int = ALL_LANES,
    ) -> UOp:
        """The value of another lane: see ShuffleMode.  lane: which one, where mode is INDEX."""
        src = (self,) if lane is None else (self, lane)
        return UOp(Ops.SHUFFLE, src, ShuffleArg(by, mode, members))

    def vote(self, vote: Vote, members: int = ALL_LANES) -> UOp:
        """Does this bool hold for ANY or ALL lanes, or the BALLOT: a bit a lane."""
        return UOp(Ops.VOTE, (self,), VoteArg(vote, members))

    def warp_reduce(self, combine: Combine, members: int = ALL_LANES) -> UOp:
        """This integer of all lanes combined, in all lanes."""
        return UOp(Ops.WARP_REDUCE, (self,), WarpReduceArg(combine, members))

    # ---- graphs
    def toposort(self) -> list[UOp]:
        """Every node once, sources before users."""
        return toposort(self)

    def substitute(self, table: dict[UOp, UOp]) -> UOp:
        """The graph with nodes replaced; what mentions none of them stays the same node."""
        memo = dict(table)
        for u in toposort(self):
            if u not in memo:
                src = tuple([memo[s] for s in u.src])
                memo[u] = u if src == u.src else derive(u, src)
        return memo[self]

    @property
    def value(self) -> int | float | bool:
        """The Python number of a CONST."""
        return from_bits(self.arg.bits, self.arg.dtype)

    @staticmethod
    def const(
        value: bool | int | float, dtype: DType | None = None, shape: Sequence[int] = ()
    ) -> UOp:
        """A constant; alone it is bool, i32 or f32.  Integers beyond the dtype are an error."""
        if dtype is None:
            dtype = (
                dtypes.bool
                if isinstance(value, bool)
                else dtypes.i32
                if isinstance(value, int)
                else dtypes.f32
            )
        if not dtype.is_float:
            if isinstance(value, float) and not value.is_integer():
                raise UsageError(
                    f"constant at {here()}: {value!r} is not a whole number, {dtype} holds those"
                )
            if dtype.kind in (Kind.INT, Kind.UINT) and not dtype.min <= value <= dtype.max:
                raise UsageError(
                    f"constant at {here()}: {value!r} does not fit {dtype} "
                    f"({dtype.min} to {dtype.max}); cast first"
                )
        u = UOp(Ops.CONST, (), ConstArg(dtype, to_bits(value, dtype)))
        return u.expand(tuple(shape)) if shape else u

    @staticmethod
    def arange(n: int, dtype: DType = dtypes.i32) -> UOp:
        """0, 1, ..., n - 1.  Shape (n,)."""
        return UOp(Ops.IOTA, (), IotaArg(n, dtype))


# ---- building blocks
def alu(op: Ops, *operands: Scalar) -> UOp:
    """An elementwise node; Python scalars take the dtype of the first UOp among the operands that
    count (for WHERE the two choices)."""
    like = next(
        (x for x in (operands[1:] if op is Ops.WHERE else operands) if isinstance(x, UOp)), None
    )
    dtype = None if like is None else like.dtype
    if dtype is None and op is Ops.WHERE:
        two = operands[1:]
        dtype = dtypes.f32 if any(isinstance(x, float) for x in two) else None
    return UOp(op, tuple([x if isinstance(x, UOp) else UOp.const(x, dtype) for x in operands]))


def _repeat(u: UOp, shape: Shape) -> UOp:
    """A scalar as an array; anything else as it is."""
    return u.expand(shape) if shape and not u.shape else u


def range_(
    size: int, idx: int, kind: AxisType = AxisType.LOOP, start: int = 0, step: int = 1
) -> UOp:
    """A loop variable of kernel axis idx.  Loops of one kernel have different idx."""
    return UOp(Ops.RANGE, (), RangeArg(idx, size, kind, "", 0, start, step))


def rank_(size: int, idx: int) -> UOp:
    """The rank of a block in its cluster of `size` blocks, which are blocks of kernel axis idx."""
    return UOp(Ops.RANGE, (), RangeArg(idx, size, AxisType.GLOBAL, "c"))


def sink(*effects: UOp, launch: LaunchArg | None = None) -> UOp:
    """The kernel that does these effects."""
    return UOp(Ops.SINK, effects, launch)


def buffer(slot: int, dtype: DType, shape: Sequence[int]) -> UOp:
    """Parameter `slot` of a kernel: memory of this shape, row-major and contiguous."""
    return UOp(Ops.BUFFER, (), ParamArg(slot, dtype, tuple(shape)))


def bundle(slot: int, dtype: DType, count: int, length: int) -> UOp:
    """Parameter `slot` of a kernel: `count` memories, wherever they lie, of up to `length` elements
    each."""
    return UOp(Ops.BUFFER, (), ParamArg(slot, dtype, (count, length), bundle=True))


def derive(u: UOp, src: tuple[UOp, ...], arg: Any = ...) -> UOp:
    """The node like u with other sources; it inherits where the user wrote u."""
    return inherit(UOp(u.op, src, u.arg if arg is ... else arg), u)


def inherit(new: UOp, old: UOp) -> UOp:
    """Pass on the user's file and line."""
    if old.origins:
        new.origins = old.origins
    return new


def toposort(*roots: UOp) -> list[UOp]:
    """Every node below the roots once, sources before users, left to right.  Cached per root."""
    if len(roots) == 1:
        root = roots[0]
        if root._order is None:
            root._order = _toposort(roots)[:-1]  # without the root: no reference to itself
        return [*root._order, root]
    return _toposort(roots)


def _toposort(roots: Sequence[UOp]) -> list[UOp]:
    seen: set[UOp] = set()
    out: list[UOp] = []
    stack: list[UOp | None] = list(reversed(roots))
    while stack:
        u = stack.pop()
        if u is None:  # the sources of the node below are done
            done = stack.pop()
            assert done is not None
            out.append(done)
        elif u not in seen:
            seen.add(u)
            if u.src:
                stack += (u, None)
                stack += u.src[::-1]
            else:
                out.append(u)
    return out


def closed_ranges(u: UOp) -> tuple[UOp, ...]:
    """The ranges that a closer ends: those of REDUCE, END and STAGE."""
    if u.op in (Ops.REDUCE, Ops.END):
        return u.src[1:]
    return u.src[4:] if u.op is Ops.STAGE else ()


def _free_scopes(u: UOp) -> frozenset[UOp]:
    """Ranges, IFs and ROLEs that must be open where u is evaluated."""
    if u.op is Ops.RANGE:
        return frozenset((u,))
    free = _NO_RANGES
    if (
        u.op is Ops.STAGE
    ):  # value, write address and gate see the closed ranges, the read address is outside
        inside = u.src[0]._free | u.src[1]._free | u.src[3]._free
        return (inside - frozenset(u.src[4:])) | u.src[2]._free
    for s in u.src:
        f = s._free
        if f is not free:
            free = f if not free else free if not f else free | f
    if free and u.op in (Ops.REDUCE, Ops.END):
        free = free - frozenset(u.src[1:])
    return free | {u} if u.op in (Ops.IF, Ops.ROLE) else free


def addrspace(u: UOp) -> AddrSpace:
    """The address space of the memory under an INDEX or a version."""
    space = memory(u).arg.addrspace
    assert isinstance(space, AddrSpace)
    return space


def is_rank(u: UOp) -> bool:
    """Is this the range that counts the blocks of a cluster?"""
    return u.op is Ops.RANGE and u.arg.kind is AxisType.GLOBAL and u.arg.digit == "c"


def is_part(u: UOp) -> bool:
    """Is this the range that counts the blocks that make parts of the same sums?"""
    return u.op is Ops.RANGE and u.arg.kind is AxisType.GLOBAL and u.arg.digit == "b"


__all__ = [
    "WHOLE_KERNEL",
    "Origin",
    "Scalar",
    "Shape",
    "UOp",
    "addrspace",
    "alu",
    "buffer",
    "bundle",
    "closed_ranges",
    "derive",
    "here",
    "inherit",
    "is_part",
    "is_rank",
    "memory",
    "prod",
    "range_",
    "rank_",
    "sink",
    "toposort",
    "tuple_of",
    "where_from",
]
