"""The node: `UOp(op, src, arg)`, frozen and hash-consed, and the operators that build graphs.

Same fields, same object: nodes are compared by identity (`==`), and `.eq`, `.ne`, `<` build nodes.
dtype, shape and free ranges are computed when a node is built, so that a wrong graph fails on the
user's own line; every other fact is a free function in `uopc/uop/facts.py`.
"""

from __future__ import annotations

import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from uopc.dtype import AddrSpace, DType, Kind, dtypes, from_bits, to_bits
from uopc.errors import UsageError
from uopc.uop.ops import (
    BINARY,
    COMPARE,
    UNARY_FLOAT,
    WHOLE_KERNEL,
    AxisType,
    Combine,
    ConstArg,
    IotaArg,
    LaunchArg,
    Ops,
    ParamArg,
    RangeArg,
    ReduceArg,
)

Shape: TypeAlias = tuple[int, ...]
Scalar: TypeAlias = "UOp | bool | int | float"
Origin: TypeAlias = tuple[str, int]

#: places that a node remembers: equal nodes are one, wherever the user wrote them
ORIGINS = 3
_PACKAGE = str(Path(__file__).resolve().parents[1]) + "/"
_HERE = __file__
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
            if (place := _user_frame(2)) and place[0] not in found.origins[:1]:
                found.origins = (*place, *(o for o in found.origins if o != place[0]))[:ORIGINS]
            return found
        dtype, shape = _INFER[op](src, arg)
        u = object.__new__(cls)
        u.op, u.src, u.arg, u.dtype, u.shape = op, src, arg, dtype, shape
        u._free = _free_ranges(u)
        u._bounds = u._affine = u._key = u._order = None
        u.origins = _user_frame(2)
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

    # ---- reductions over the last n axes
    def reduce(self, op: Ops | Combine, n: int = 1) -> UOp:
        """Reduce the last n axes: shape (*kept,).  op: ADD, MUL, MAX, MIN, AND, OR or XOR."""
        combine = op if isinstance(op, Combine) else Combine.__members__.get(op.name)
        if combine is None or combine in (Combine.ARGMAX, Combine.ARGMIN):
            raise UsageError(
                f"reduce at {here()}: {op!r} does not reduce; use ADD, MUL, MAX, MIN, AND, OR, XOR"
            )
        return UOp(Ops.REDUCE, (self,), ReduceArg(combine, n))

    def argmax(self, n: int = 1) -> UOp:
        """Flat position over the last n axes of the first largest element, NaN largest; i32, or i64
        where the positions need it.  Shape (*kept,)."""
        return self._arg(Combine.ARGMAX, n)

    def argmin(self, n: int = 1) -> UOp:
        """As argmax, for the first smallest element, NaN smallest."""
        return self._arg(Combine.ARGMIN, n)

    def _arg(self, combine: Combine, n: int) -> UOp:
        _check_reduced(self, n, combine)
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
        if self.op not in (Ops.BUFFER, Ops.ALLOC, Ops.AFTER):
            raise UsageError(f"index at {here()}: only memories are indexed, not {self.op}")
        parts = [w if isinstance(w, UOp) else UOp.const(w, dtypes.index) for w in where]
        shape = memory(self).arg.shape
        if len(parts) > 1:
            if len(parts) != len(shape):
                raise UsageError(f"index at {here()}: {len(parts)} indices for shape {shape}")
            offset = parts[0]
            for part, size in zip(parts[1:], shape[1:], strict=True):
                offset = offset * size + part
            parts = [offset]
        return UOp(Ops.INDEX, (self, *parts))

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

    def end(self, *ranges: UOp) -> UOp:
        """This effect, repeated for every value of the ranges (outermost first)."""
        return UOp(Ops.END, (self, *ranges)) if ranges else self

    def barrier(self, *more: UOp) -> UOp:
        """Every thread of the block waits until all have done these effects."""
        return UOp(Ops.BARRIER, (self, *more))

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
def prod(xs: Iterable[int]) -> int:
    """The product; 1 for nothing."""
    return math.prod(xs)


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


def range_(
    size: int, idx: int, kind: AxisType = AxisType.LOOP, start: int = 0, step: int = 1
) -> UOp:
    """A loop variable of kernel axis idx.  Loops of one kernel have different idx."""
    return UOp(Ops.RANGE, (), RangeArg(idx, size, kind, "", 0, start, step))


def sink(*effects: UOp, launch: LaunchArg | None = None) -> UOp:
    """The kernel that does these effects."""
    return UOp(Ops.SINK, effects, launch)


def buffer(slot: int, dtype: DType, shape: Sequence[int]) -> UOp:
    """Parameter `slot` of a kernel: memory of this shape, row-major and contiguous."""
    return UOp(Ops.BUFFER, (), ParamArg(slot, dtype, tuple(shape)))


def memory(u: UOp) -> UOp:
    """The BUFFER or ALLOC that an INDEX, or a version of it, stands for."""
    while u.op in (Ops.AFTER, Ops.INDEX):
        u = u.src[0]
    return u


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


# ---- the user's file and line
def _user_frame(depth: int) -> tuple[Origin, ...]:
    """The line outside uopc that called this module; () where a pass of ours did."""
    frame = sys._getframe(depth)
    while frame is not None and frame.f_code.co_filename == _HERE:
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None or frame.f_code.co_filename.startswith(_PACKAGE):
        return ()
    return ((frame.f_code.co_filename, frame.f_lineno),)


def here() -> str:
    """file:line of the user's call, for messages raised while a node is built."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def where_from(u: UOp) -> str:
    """file:line where the user wrote a node (the last place, where several share it)."""
    if not u.origins:
        return "generated"
    file, line = u.origins[0]
    return f"{Path(file).name}:{line}"


# ---- dtype and shape of a new node, and what is wrong with it
Inferred: TypeAlias = tuple[DType, Shape]


def _fail(what: str, message: str) -> UsageError:
    return UsageError(f"{what} at {here()}: {message}")


def _same_shape(op: Ops, src: tuple[UOp, ...]) -> Shape:
    """The common shape; scalars (shape ()) go with any."""
    shape = src[0].shape
    for s in src[1:]:
        if s.shape != shape:
            if not shape:
                shape = s.shape
            elif s.shape:
                shapes = " and ".join(str(x.shape) for x in src)
                raise _fail(
                    op.name, f"shapes differ: {shapes}. Reshape and expand one to the other."
                )
    return shape


def _binary(op: Ops) -> Callable[[tuple[UOp, ...], Any], Inferred]:
    def infer(src: tuple[UOp, ...], arg: Any) -> Inferred:
        a, b = src
        dtype = a.dtype
        if dtype is not b.dtype:
            raise _fail(op.name, f"dtypes differ: {a.dtype} and {b.dtype}. Cast one of them.")
        if op in COMPARE:
            if dtype.storage or dtype is dtypes.void:
                raise _fail(op.name, f"{dtype} is not compared; cast to f32 first")
            return dtypes.bool, _same_shape(op, src) if a.shape != b.shape else a.shape
        if op is Ops.DIV:
            ok = dtype.is_float
        elif op in (Ops.IDIV, Ops.MOD):
            ok = dtype.is_int
        elif op in (Ops.SHL, Ops.SHR):
            ok = dtype.is_data_int
        elif op in (Ops.AND, Ops.OR, Ops.XOR):
            ok = dtype.is_data_int or dtype is dtypes.bool
        elif op in (Ops.MAX, Ops.MIN):
            ok = dtype is not dtypes.void
        else:
            ok = dtype.is_float or dtype.is_int
        if not ok or dtype.storage:
            hint = {Ops.DIV: " (// divides integers)", Ops.IDIV: " (/ divides floats)"}.get(op, "")
            hint = " (fp8 is storage: cast to f32)" if dtype.storage else hint
            raise _fail(op.name, f"not defined for {dtype}{hint}")
        return dtype, a.shape if a.shape == b.shape else _same_shape(op, src)

    return infer


def _unary(op: Ops) -> Callable[[tuple[UOp, ...], Any], Inferred]:
    def infer(src: tuple[UOp, ...], arg: Any) -> Inferred:
        (a,) = src
        d = a.dtype
        if op is Ops.NEG:
            ok = d.is_float or d.is_int
        elif op is Ops.NOT:
            ok = d.is_data_int or d is dtypes.bool
        else:
            ok = d.is_float
        if not ok or d.storage:
            raise _fail(
                op.name,
                f"not defined for {d}" + (" (fp8 is storage: cast to f32)" if d.storage else ""),
            )
        return d, a.shape

    return infer


def _cast(src: tuple[UOp, ...], arg: DType) -> Inferred:
    if not isinstance(arg, DType) or arg is dtypes.void or src[0].dtype is dtypes.void:
        raise _fail("CAST", f"cannot cast {src[0].dtype} to {arg}")
    return arg, src[0].shape


def _bitcast(src: tuple[UOp, ...], arg: DType) -> Inferred:
    if arg.bits != src[0].dtype.bits or dtypes.index in (arg, src[0].dtype):
        raise _fail("BITCAST", f"{src[0].dtype} and {arg} differ in size")
    return arg, src[0].shape


def _where(src: tuple[UOp, ...], arg: Any) -> Inferred:
    condition, x, y = src
    if condition.dtype is not dtypes.bool:
        raise _fail(
            "WHERE", f"the condition is {condition.dtype}, not bool. Compare it with .ne(0)."
        )
    if x.dtype is not y.dtype:
        raise _fail("WHERE", f"dtypes differ: {x.dtype} and {y.dtype}. Cast one of them.")
    return x.dtype, _same_shape(Ops.WHERE, src)


def _fma(src: tuple[UOp, ...], arg: Any) -> Inferred:
    a = src[0]
    if not a.dtype.is_float or a.dtype.storage or any(s.dtype is not a.dtype for s in src):
        raise _fail(
            "FMA", f"wants three floats of one dtype, got {', '.join(str(s.dtype) for s in src)}"
        )
    return a.dtype, _same_shape(Ops.FMA, src)


def _buffer(src: tuple[UOp, ...], arg: ParamArg) -> Inferred:
    if arg.dtype in (dtypes.void, dtypes.index):
        raise _fail("BUFFER", f"memory holds data, not {arg.dtype}")
    if any(n < 0 for n in arg.shape):
        raise _fail("BUFFER", f"a size is negative in shape {arg.shape}")
    return arg.dtype, arg.shape


def _index(src: tuple[UOp, ...], arg: Any) -> Inferred:
    if len(src) != 2 or src[1].dtype is not dtypes.index:
        got = src[1].dtype if len(src) > 1 else "nothing"
        raise _fail(
            "INDEX",
            f"wants (memory, offset of dtype index), got {got}. Cast with .cast(dtypes.index).",
        )
    return memory(src[0]).dtype, ()


def _load(src: tuple[UOp, ...], arg: Any) -> Inferred:
    if src[0].op is not Ops.INDEX or len(src) not in (1, 3):
        raise _fail(
            "LOAD",
            "wants an INDEX, or an INDEX, a gate and another value; "
            f"got {src[0].op}, {len(src)} sources",
        )
    if len(src) == 3 and (src[1].dtype is not dtypes.bool or src[2].dtype is not src[0].dtype):
        raise _fail(
            "LOAD",
            f"gate {src[1].dtype} must be bool and the other value {src[2].dtype} "
            f"must be {src[0].dtype}",
        )
    return src[0].dtype, ()


def _store(src: tuple[UOp, ...], arg: Any) -> Inferred:
    if src[0].op is not Ops.INDEX or len(src) not in (2, 3):
        raise _fail(
            "STORE",
            f"wants an INDEX, a value and perhaps a gate; got {src[0].op}, {len(src)} sources",
        )
    if src[1].dtype is not src[0].dtype:
        raise _fail(
            "STORE", f"the value is {src[1].dtype}, the memory {src[0].dtype}. Cast the value."
        )
    if len(src) == 3 and src[2].dtype is not dtypes.bool:
        raise _fail("STORE", f"the gate is {src[2].dtype}, not bool")
    return dtypes.void, ()


def _like_first(src: tuple[UOp, ...], arg: Any) -> Inferred:
    return src[0].dtype, src[0].shape


def _range(src: tuple[UOp, ...], arg: RangeArg) -> Inferred:
    if arg.size < 0 or arg.step == 0:
        raise _fail("RANGE", f"size {arg.size} must not be negative, step {arg.step} not zero")
    return dtypes.index, ()


def _end(src: tuple[UOp, ...], arg: Any) -> Inferred:
    if any(r.op is not Ops.RANGE for r in src[1:]):
        raise _fail("END", f"closes ranges, got {', '.join(r.op.name for r in src[1:])}")
    return dtypes.void, ()


def _void(src: tuple[UOp, ...], arg: Any) -> Inferred:
    return dtypes.void, ()


def _reshape(src: tuple[UOp, ...], arg: Shape) -> Inferred:
    if any(n < 0 for n in arg) or prod(arg) != prod(src[0].shape):
        raise _fail(
            "RESHAPE",
            f"{arg} has {prod(arg)} elements, shape {src[0].shape} has {prod(src[0].shape)}",
        )
    return src[0].dtype, arg


def _expand(src: tuple[UOp, ...], arg: Shape) -> Inferred:
    old = src[0].shape
    if len(old) != len(arg) or any(a != b and a != 1 for a, b in zip(old, arg, strict=True)):
        raise _fail("EXPAND", f"shape {old} cannot become {arg}: only axes of size 1 repeat")
    return src[0].dtype, arg


def _permute(src: tuple[UOp, ...], arg: tuple[int, ...]) -> Inferred:
    if sorted(arg) != list(range(len(src[0].shape))):
        raise _fail(
            "PERMUTE", f"{arg} is no order of the {len(src[0].shape)} axes of shape {src[0].shape}"
        )
    return src[0].dtype, tuple(src[0].shape[a] for a in arg)


def _shrink(src: tuple[UOp, ...], arg: tuple[tuple[int, int], ...]) -> Inferred:
    shape = src[0].shape
    if len(arg) != len(shape) or any(
        not 0 <= b <= e <= n for (b, e), n in zip(arg, shape, strict=True)
    ):
        raise _fail("SHRINK", f"{arg} does not lie inside shape {shape}")
    return src[0].dtype, tuple(e - b for b, e in arg)


def _pad(src: tuple[UOp, ...], arg: tuple[tuple[int, int], ...]) -> Inferred:
    x, value = src
    if len(arg) != len(x.shape) or any(b < 0 or a < 0 for b, a in arg):
        raise _fail("PAD", f"{arg} must give two sizes >= 0 for each axis of shape {x.shape}")
    if value.dtype is not x.dtype or value.shape:
        raise _fail(
            "PAD", f"the value is {value.dtype} of shape {value.shape}, must be a scalar {x.dtype}"
        )
    return x.dtype, tuple(b + n + a for n, (b, a) in zip(x.shape, arg, strict=True))


def _flip(src: tuple[UOp, ...], arg: tuple[int, ...]) -> Inferred:
    if len(set(arg)) != len(arg) or any(not 0 <= a < len(src[0].shape) for a in arg):
        raise _fail("FLIP", f"{arg} are not different axes of shape {src[0].shape}")
    return src[0].dtype, src[0].shape


def _check_reduced(x: UOp, n: int, combine: Combine) -> None:
    if not 0 < n <= len(x.shape):
        raise _fail("REDUCE", f"cannot reduce the last {n} axes of shape {x.shape}")
    if prod(x.shape[len(x.shape) - n :]) == 0 and combine not in (
        Combine.ADD,
        Combine.MUL,
        Combine.OR,
        Combine.XOR,
    ):
        raise _fail(
            "REDUCE", f"{combine!r} of no elements has no value (shape {x.shape}, last {n} axes)"
        )


def _reduce(src: tuple[UOp, ...], arg: ReduceArg) -> Inferred:
    x, tupled = src[0], arg.combine in (Combine.ARGMAX, Combine.ARGMIN)
    if tupled != (tuple_of(x) is not None):
        raise _fail(
            "REDUCE", f"{arg.combine!r} reduces {'a TUPLE' if tupled else 'one value'}, got {x.op}"
        )
    bits = arg.combine in (Combine.AND, Combine.OR, Combine.XOR)
    if not tupled and ((bits and x.dtype.is_float) or x.dtype.storage or x.dtype is dtypes.void):
        raise _fail("REDUCE", f"{arg.combine!r} is not defined for {x.dtype}")
    if x.dtype is dtypes.bool and arg.combine in (Combine.ADD, Combine.MUL):
        raise _fail("REDUCE", f"{arg.combine!r} of bool: cast to an integer first")
    if arg.axes:
        _check_reduced(x, arg.axes, arg.combine)
        return x.dtype, x.shape[: len(x.shape) - arg.axes]
    if any(r.op is not Ops.RANGE for r in src[1:]):
        raise _fail("REDUCE", "without a number of axes it closes ranges")
    return x.dtype, x.shape


def _tuple(src: tuple[UOp, ...], arg: Any) -> Inferred:
    return dtypes.void, _same_shape(Ops.TUPLE, src)


def _item(src: tuple[UOp, ...], arg: int) -> Inferred:
    t = tuple_of(src[0])
    if t is None or not 0 <= arg < len(t.src):
        raise _fail("ITEM", f"{src[0].op} has no value {arg}")
    return t.src[arg].dtype, src[0].shape


def tuple_of(u: UOp) -> UOp | None:
    """The TUPLE whose values a node carries (through REDUCE, STAGE, SHUFFLE), or None."""
    while u.op in (Ops.REDUCE, Ops.STAGE, Ops.SHUFFLE):
        u = u.src[0]
    return u if u.op is Ops.TUPLE else None


_INFER: dict[Ops, Callable[[tuple[UOp, ...], Any], Inferred]] = {
    **{op: _binary(op) for op in BINARY},
    **{op: _unary(op) for op in (*UNARY_FLOAT, Ops.NEG, Ops.NOT)},
    Ops.CAST: _cast,
    Ops.BITCAST: _bitcast,
    Ops.WHERE: _where,
    Ops.FMA: _fma,
    Ops.CONST: lambda src, arg: (arg.dtype, ()),
    Ops.BUFFER: _buffer,
    Ops.ALLOC: _buffer,
    Ops.INDEX: _index,
    Ops.LOAD: _load,
    Ops.STORE: _store,
    Ops.AFTER: _like_first,
    Ops.RANGE: _range,
    Ops.END: _end,
    Ops.BARRIER: _void,
    Ops.SINK: _void,
    Ops.RESHAPE: _reshape,
    Ops.EXPAND: _expand,
    Ops.PERMUTE: _permute,
    Ops.SHRINK: _shrink,
    Ops.PAD: _pad,
    Ops.FLIP: _flip,
    Ops.IOTA: lambda src, arg: (arg.dtype, (arg.size,)),
    Ops.REDUCE: _reduce,
    Ops.TUPLE: _tuple,
    Ops.ITEM: _item,
    Ops.STAGE: _like_first,
    Ops.SHUFFLE: _like_first,
}


def closed_ranges(u: UOp) -> tuple[UOp, ...]:
    """The ranges that a closer ends: those of REDUCE, END and STAGE."""
    if u.op in (Ops.REDUCE, Ops.END):
        return u.src[1:]
    return u.src[4:] if u.op is Ops.STAGE else ()


def _free_ranges(u: UOp) -> frozenset[UOp]:
    """Ranges that must be open where u is evaluated."""
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
    return free


def addrspace(u: UOp) -> AddrSpace:
    """The address space of the memory under an INDEX or a version."""
    space = memory(u).arg.addrspace
    assert isinstance(space, AddrSpace)
    return space


__all__ = [
    "WHOLE_KERNEL",
    "Origin",
    "Scalar",
    "Shape",
    "UOp",
    "addrspace",
    "alu",
    "buffer",
    "closed_ranges",
    "derive",
    "here",
    "inherit",
    "memory",
    "prod",
    "range_",
    "sink",
    "toposort",
    "tuple_of",
    "where_from",
]
