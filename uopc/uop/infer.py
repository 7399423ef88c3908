"""dtype and shape of a new node, and what is wrong with it; what an operand is at bottom.

Called while a node is built, so that the error carries the user's own line.  Each function takes
the sources and the argument of its ops and returns (dtype, shape), or raises UsageError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.layouts.atom import atom_named
from uopc.uop.ops import (
    BINARY,
    COMPARE,
    ELEMENTWISE,
    SCOPES,
    UNARY_FLOAT,
    Atomic,
    AtomicArg,
    Combine,
    GatherArg,
    Ops,
    ParamArg,
    PrintArg,
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
from uopc.uop.origin import here

if TYPE_CHECKING:
    from uopc.uop.node import UOp

Shape: TypeAlias = tuple[int, ...]


def prod(xs: Iterable[int]) -> int:
    """The product; 1 for nothing."""
    return math.prod(xs)


def memory(u: UOp) -> UOp:
    """The BUFFER or ALLOC that an INDEX, a SEGMENT, or a version of it, stands for."""
    while u.op in (Ops.AFTER, Ops.INDEX, Ops.SEGMENT):
        u = u.src[0]
    return u


def segment(u: UOp) -> UOp | None:
    """The SEGMENT that an INDEX is in, or that a version is of; None outside of bundles."""
    while u.op in (Ops.AFTER, Ops.INDEX):
        u = u.src[0]
    return u if u.op is Ops.SEGMENT else None


def described(operand: UOp) -> UOp | None:
    """The DESCRIPTOR that a wgmma operand is made from by arithmetic; one of several alike.

    None where there is none, or where they differ in layout.  What merely comes before (AFTER) is
    not looked at.
    """
    found: list[UOp] = []
    stack, seen = [operand], {operand}
    while stack:
        u = stack.pop()
        if u.op is Ops.DESCRIPTOR:
            found.append(u)
        more = u.src[:1] if u.op is Ops.AFTER else u.src if u.op in ELEMENTWISE else ()
        stack += [s for s in more if s not in seen]
        seen.update(more)
    alike = len({(u.arg, u.src[0].dtype) for u in found}) == 1
    return found[0] if alike else None


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
        elif op is Ops.XOR:  # of indices too: swizzled addresses
            ok = dtype.is_int or dtype is dtypes.bool
        elif op in (Ops.AND, Ops.OR):
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
    if arg.bundle and len(arg.shape) != 2:
        raise _fail("BUFFER", f"a bundle has (memories, elements of each), this is {arg.shape}")
    return arg.dtype, arg.shape


def _index(src: tuple[UOp, ...], arg: Any) -> Inferred:
    if len(src) != 2 or src[1].dtype is not dtypes.index:
        got = src[1].dtype if len(src) > 1 else "nothing"
        raise _fail(
            "INDEX",
            f"wants (memory, offset of dtype index), got {got}. Cast with .cast(dtypes.index).",
        )
    m = memory(src[0])
    if m.op is Ops.BUFFER and m.arg.bundle and segment(src[0]) is None:
        raise _fail("INDEX", "the memory is a bundle: index one of its segments, .segment(which)")
    return m.dtype, ()


def _segment(src: tuple[UOp, ...], arg: Any) -> Inferred:
    bundle = memory(src[0])
    if bundle.op is not Ops.BUFFER or not bundle.arg.bundle or segment(src[0]) is not None:
        raise _fail("SEGMENT", f"only a bundle has segments, this is {src[0].op}")
    if len(src) != 2 or src[1].dtype is not dtypes.index:
        got = src[1].dtype if len(src) > 1 else "nothing"
        raise _fail("SEGMENT", f"wants (bundle, which of dtype index), got {got}")
    return bundle.dtype, bundle.shape[1:]


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
    if any(r.op not in SCOPES for r in src[1:]):
        got = ", ".join(r.op.name for r in src[1:])
        raise _fail("END", f"closes ranges, IFs and ROLEs, got {got}")
    return dtypes.void, ()


def _if(src: tuple[UOp, ...], arg: Any) -> Inferred:
    if not src or src[0].dtype is not dtypes.bool:
        raise _fail("IF", f"the condition is {src[0].dtype if src else 'missing'}, not bool")
    return dtypes.void, ()


# ---- warps, atomics, people
#: dtypes of each atomic in CUDA (Programming Guide, atomic functions), f16 and bf16 left out; what
#: CUDA has for one sign only is the same bits for the other
ATOMIC_DTYPES = {
    Atomic.ADD: (dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64, dtypes.f32, dtypes.f64),
    **dict.fromkeys((Atomic.MIN, Atomic.MAX), (dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64)),
    **dict.fromkeys(
        (Atomic.AND, Atomic.OR, Atomic.XOR),
        (dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64),
    ),
    Atomic.EXCHANGE: (dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64, dtypes.f32, dtypes.f64),
    Atomic.CAS: (dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64, dtypes.f32, dtypes.f64),
}
_REDUX = {
    dtypes.i32: (Combine.ADD, Combine.MIN, Combine.MAX),
    dtypes.u32: (
        *(Combine.ADD, Combine.MIN, Combine.MAX),
        *(Combine.AND, Combine.OR, Combine.XOR),
    ),
}


def _atomic(src: tuple[UOp, ...], arg: AtomicArg) -> Inferred:
    wants = 3 if arg.atomic is Atomic.CAS else 2
    if len(src) != wants or src[0].op is not Ops.INDEX:
        what = "an INDEX, a value and what it is compared with" if wants == 3 else "(INDEX, value)"
        raise _fail("ATOMIC", f"{arg.atomic} wants {what}; got {len(src)} sources")
    d = src[0].dtype
    if d not in ATOMIC_DTYPES[arg.atomic]:
        has = ", ".join(str(x) for x in ATOMIC_DTYPES[arg.atomic])
        raise _fail("ATOMIC", f"{arg.atomic} is not defined for {d}; it is for {has}")
    if any(s.dtype is not d for s in src[1:]):
        got = ", ".join(str(s.dtype) for s in src[1:])
        raise _fail("ATOMIC", f"the memory is {d}, the operands are {got}. Cast them.")
    return d, ()


def _shuffle(src: tuple[UOp, ...], arg: ShuffleArg) -> Inferred:
    by_lane = arg.mode is ShuffleMode.INDEX
    if len(src) != 1 + by_lane or (by_lane and not src[1].dtype.is_int):
        wants = "a value and an integer lane" if by_lane else "one value"
        got = ", ".join(str(s.dtype) for s in src) or "nothing"
        raise _fail("SHUFFLE", f"{arg.mode} wants {wants}, got {got}")
    return src[0].dtype, src[0].shape


def _vote(src: tuple[UOp, ...], arg: VoteArg) -> Inferred:
    if len(src) != 1 or src[0].dtype is not dtypes.bool:
        raise _fail("VOTE", f"lanes vote with a bool, got {src[0].dtype if src else 'nothing'}")
    return (dtypes.u32 if arg.vote is Vote.BALLOT else dtypes.bool), src[0].shape


def _warp_reduce(src: tuple[UOp, ...], arg: WarpReduceArg) -> Inferred:
    (x,) = src
    d = x.dtype
    if arg.combine not in _REDUX.get(d, ()):
        raise _fail(
            "WARP_REDUCE",
            f"{arg.combine} of {d}: redux.sync has ADD, MIN, MAX of i32 and u32, and AND, OR, XOR "
            "of u32. Use SHUFFLEs for the others.",
        )
    return d, x.shape


def _printf(src: tuple[UOp, ...], arg: PrintArg) -> Inferred:
    count = arg.format.count("{}")
    got = next((n for n, s in enumerate(src[:count]) if s.dtype is dtypes.void), len(src))
    if got < count:
        raise _fail("PRINTF", f"{arg.format!r} shows {count} values, got {got}")
    return dtypes.void, ()


def _assert(src: tuple[UOp, ...], arg: str) -> Inferred:
    if not src or src[0].dtype is not dtypes.bool:
        raise _fail("ASSERT", f"the condition is {src[0].dtype if src else 'missing'}, not bool")
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


# ---- elements at places that data names
def _gather(src: tuple[UOp, ...], arg: GatherArg) -> Inferred:
    x, indices = src[0], src[1:]
    shape = indices[0].shape if indices else ()
    _check_indices("GATHER", indices, shape)
    _check_dims("GATHER", arg.dims, x.shape, "x", shape, "the result", len(indices))
    return x.dtype, shape


def _scatter(src: tuple[UOp, ...], arg: ScatterArg) -> Inferred:
    values, indices = src[0], src[1:]
    d = values.dtype
    if d.storage or not (d.is_float or d.is_data_int):
        raise _fail("SCATTER", f"it adds, which {d} has not: cast the values first")
    if any(n < 0 for n in arg.shape):
        raise _fail("SCATTER", f"a size is negative in shape {arg.shape}")
    _check_indices("SCATTER", indices, values.shape)
    _check_dims(
        "SCATTER", arg.dims, arg.shape, "the result", values.shape, "the values", len(indices)
    )
    return d, arg.shape


def _check_indices(what: str, indices: tuple[UOp, ...], shape: Shape) -> None:
    if not indices:
        raise _fail(what, "wants at least one index; without one use PERMUTE")
    for k, index in enumerate(indices):
        if not index.dtype.is_data_int:
            raise _fail(what, f"index {k} is {index.dtype}, must be an integer such as i32 or i64")
        if index.shape != shape:
            raise _fail(
                what,
                f"index {k} has shape {index.shape}, must have {shape}. Reshape and expand it.",
            )


def _check_dims(
    what: str, dims: tuple[int, ...], sizes: Shape, of: str, walked: Shape, by: str, count: int
) -> None:
    """dims says for each axis of `sizes` which axis of `walked`, or which of the indices, it is."""
    if len(dims) != len(sizes):
        raise _fail(what, f"dims {dims} has {len(dims)} numbers, {of} has shape {sizes}")
    for axis, (j, size) in enumerate(zip(dims, sizes, strict=True)):
        if j >= len(walked) or (j >= 0 and walked[j] != size):
            other = f"of size {walked[j]}" if j < len(walked) else f"not there in shape {walked}"
            raise _fail(
                what,
                f"axis {axis} of {of} has size {size} and is walked by axis {j} of {by}, {other}",
            )
    if sorted(~j for j in dims if j < 0) != list(range(count)):
        raise _fail(what, f"dims {dims} must name each of the {count} indices once (index k is ~k)")
    if len(set(dims)) != len(dims):
        raise _fail(what, f"dims {dims} walks two axes of {of} by one of {by}")


def _assign(src: tuple[UOp, ...], arg: Any) -> Inferred:
    old, value = src
    if old.op not in (Ops.BUFFER, Ops.ASSIGN):
        raise _fail("ASSIGN", f"a BUFFER or its latest ASSIGN gets a new version, got {old.op}")
    if (old.dtype, old.shape) != (value.dtype, value.shape):
        raise _fail(
            "ASSIGN",
            f"the value is {value.dtype} of shape {value.shape}, the memory {old.dtype} of shape "
            f"{old.shape}. Cast, reshape or expand the value.",
        )
    return old.dtype, old.shape


def check_reduced(x: UOp, n: int, combine: Combine) -> None:
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
        check_reduced(x, arg.axes, arg.combine)
        return x.dtype, x.shape[: len(x.shape) - arg.axes]
    if any(r.op is not Ops.RANGE for r in src[1:]):
        raise _fail("REDUCE", "without a number of axes it closes ranges")
    return x.dtype, x.shape


def _scan(src: tuple[UOp, ...], arg: ScanArg) -> Inferred:
    x, *more = src
    if arg.combine not in (Combine.ADD, Combine.MUL, Combine.MAX, Combine.MIN):
        raise _fail("SCAN", f"{arg.combine!r} is not scanned; ADD, MUL, MAX and MIN are")
    sums = arg.combine in (Combine.ADD, Combine.MUL)
    if x.dtype.storage or x.dtype is dtypes.void or (sums and x.dtype is dtypes.bool):
        hint = ": cast to an integer first" if x.dtype is dtypes.bool else ""
        raise _fail("SCAN", f"{arg.combine!r} is not defined for {x.dtype}{hint}")
    if not more:
        if not x.shape:
            raise _fail("SCAN", "goes along the last axis of x, which has none")
    elif more[0].dtype is not x.dtype or any(r.op is not Ops.RANGE for r in more[1:]):
        raise _fail("SCAN", f"wants x, where it starts ({x.dtype}), and the ranges it goes along")
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


INFER: dict[Ops, Callable[[tuple[UOp, ...], Any], Inferred]] = {
    **{op: _binary(op) for op in BINARY},
    **{op: _unary(op) for op in (*UNARY_FLOAT, Ops.NEG, Ops.NOT)},
    Ops.CAST: _cast,
    Ops.BITCAST: _bitcast,
    Ops.WHERE: _where,
    Ops.FMA: _fma,
    Ops.CONST: lambda src, arg: (arg.dtype, ()),
    Ops.BUFFER: _buffer,
    Ops.ALLOC: _buffer,
    Ops.SEGMENT: _segment,
    Ops.INDEX: _index,
    Ops.LOAD: _load,
    Ops.STORE: _store,
    Ops.AFTER: _like_first,
    Ops.RANGE: _range,
    Ops.IF: _if,
    Ops.END: _end,
    **dict.fromkeys(
        (
            *(Ops.ROLE, Ops.BARRIER, Ops.SINK, Ops.COPY, Ops.COMMIT, Ops.WAITG, Ops.FENCE),
            *(Ops.MBAR_INIT, Ops.ARRIVE, Ops.WAIT, Ops.LDMATRIX, Ops.STMATRIX, Ops.MMA),
        ),
        _void,
    ),
    Ops.ATOMIC: _atomic,
    Ops.TENSORMAP: _like_first,
    Ops.DESCRIPTOR: lambda src, arg: (dtypes.u64, ()),
    Ops.DOT: lambda src, arg: (atom_named(arg).accumulator.dtype, ()),
    Ops.PRINTF: _printf,
    Ops.ASSERT: _assert,
    Ops.RESHAPE: _reshape,
    Ops.EXPAND: _expand,
    Ops.PERMUTE: _permute,
    Ops.SHRINK: _shrink,
    Ops.PAD: _pad,
    Ops.FLIP: _flip,
    Ops.IOTA: lambda src, arg: (arg.dtype, (arg.size,)),
    Ops.GATHER: _gather,
    Ops.SCATTER: _scatter,
    Ops.ASSIGN: _assign,
    Ops.DETACH: _like_first,
    Ops.CURVE: _like_first,
    Ops.REDUCE: _reduce,
    Ops.SCAN: _scan,
    Ops.TUPLE: _tuple,
    Ops.ITEM: _item,
    Ops.STAGE: _like_first,
    Ops.SHUFFLE: _shuffle,
    Ops.VOTE: _vote,
    Ops.WARP_REDUCE: _warp_reduce,
}
