"""Operands of a planned product, written to memory first.  INDEXED -> several INDEXED.

Here because: on logical axes, before `tile_product`, like `pack` on a CPU: each kernel gets its own
Opts.
Before: STORE(out[m, n], REDUCE(a[m, k] * b[k, n], k))         b with rows of 1023 elements of bf16
After:  STORE(written[k, n], n < 1023 ? b[k, n] : 0)             rows of 1024
        STORE(out[m, n], REDUCE(a[m, k] * written[k, n], k), n < 1023)

Tensor copies want rows whose pitch is a multiple of 16 bytes, some instructions want operands that
are contiguous along k, and what is more than a view would be evaluated for every tile of the other
operand.  Whatever the operand is, it is evaluated once for each of its elements.

Rows get zeros at their ends.  Their axis becomes a whole number of 16 bytes in the product too, so
that no vector of it is partly outside: sums get some zeros, and of further rows and columns of the
product nothing is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from uopc.layouts import K_MAJOR
from uopc.passes.find_products import Product, Ranges, find_product, places
from uopc.passes.operands import contiguous_along, narrow
from uopc.passes.share import share
from uopc.passes.tile_product import form_of_tile, gated, zero_outside
from uopc.plan import OPERANDS, Plan
from uopc.symbolic import index as ix
from uopc.uop.node import UOp, derive, inherit, prod, toposort
from uopc.uop.ops import AxisType, Ops, ParamArg, RangeArg

WIDEST_BYTES, LINE_BYTES = 16, 128
#: rows begin on a line where memory grows by this part at most
WORTH_A_LINE = 16


def write_operands(root: UOp, plan: Plan, slot: int) -> tuple[list[UOp], UOp, list[UOp]]:
    """(kernels that write operands, the product that reads them, their buffers from `slot` on).

    Raises UsageError where the kernel is no product, or an operand is not of the atom's type.
    """
    product = find_product(root)
    names = [_named(name, plan) for name in plan.written]
    written = [_Written.of(product, plan, name, slot + n) for n, name in enumerate(names)]
    rest = _reading(root, product, plan, written)
    return [w.kernel() for w in written], rest, [w.buffer for w in written]


def _named(name: str, plan: Plan) -> str:
    """The plan's name of a product's operand, and the other way round."""
    return OPERANDS[1 - OPERANDS.index(name)] if plan.swap else name


@dataclass(frozen=True)
class _Written:
    """An operand in memory: batches of rows by k, or of k by rows.

    name: "a" or "b" of the product; value: over its ranges; batch, outer, inner: those, as they
    lie.
    """

    name: str
    value: UOp
    batch: Ranges
    outer: Ranges
    inner: Ranges
    along_k: bool
    slot: int

    @classmethod
    def of(cls, product: Product, plan: Plan, name: str, slot: int) -> _Written:
        asked, is_a = _named(name, plan), name == OPERANDS[0]
        value, rows = (product.a, product.m) if is_a else (product.b, product.n)
        of = plan.reads(asked)
        value = narrow(value, of)
        along = contiguous_along(value, rows[-1], product.k[-1])
        form = form_of_tile(plan.block_rows(asked), plan.block_k, value.dtype, of, along)
        along_k = dict(plan.major).get(asked, form.major) == K_MAJOR
        outer, inner = (rows, product.k) if along_k else (product.k, rows)
        return cls(name, value, product.batch, outer, inner, along_k, slot)

    @property
    def length(self) -> int:
        """Elements of a row that the product reads: zeros fill its last 16 bytes."""
        return _round_up(_size(self.inner), self._unit)

    @property
    def pitch(self) -> int:
        """Elements from one row to the next."""
        line = _round_up(self.length, self._unit * (LINE_BYTES // WIDEST_BYTES))
        return line if (line - self.length) * WORTH_A_LINE <= self.length else self.length

    @property
    def _unit(self) -> int:
        return max(1, WIDEST_BYTES // self.value.dtype.itemsize)

    @property
    def buffer(self) -> UOp:
        size = _size(self.batch) * _size(self.outer) * self.pitch
        return UOp(Ops.BUFFER, (), ParamArg(self.slot, self.value.dtype, (size,)))

    def at(self, batch: UOp, outer: UOp, inner: UOp) -> UOp:
        row = ix.flat(((batch, _size(self.batch)), (outer, _size(self.outer))))
        return UOp(Ops.INDEX, (self.buffer, ix.add(ix.scale(row, self.pitch), inner)))

    def kernel(self) -> UOp:
        """The kernel that writes it.  Where rows have no pad, the operand's own axes stay apart."""
        size, outer = _size(self.inner), (*self.batch, *self.outer)
        inner = [self.pitch] if self.pitch > size else [r.arg.size for r in self.inner]
        closed = [
            UOp(Ops.RANGE, (), RangeArg(n, length, AxisType.LOOP))
            for n, length in enumerate((*(r.arg.size for r in outer), *inner))
        ]
        row, within = closed[: len(outer)], closed[len(outer) :]
        place = ix.flat((r, r.arg.size) for r in within)
        table = dict(zip(outer, row, strict=True))
        if self.pitch > size:
            table |= places(self.inner, place)
        else:
            table |= dict(zip(self.inner, within, strict=True))
        value = zero_outside(ix.substitute(self.value, table), ix.below(place, size))
        number = ix.flat((r, r.arg.size) for r in row)
        element = UOp(Ops.INDEX, (self.buffer, ix.add(ix.scale(number, self.pitch), place)))
        store = inherit(UOp(Ops.STORE, (element, value)), self.value)
        return share(UOp(Ops.SINK, (UOp(Ops.END, (store, *closed)),)), given=True)


def _reading(root: UOp, product: Product, plan: Plan, written: list[_Written]) -> UOp:
    """The product over one range for each of batch, m, n and k, which reads what was written."""
    of = {w.name: w for w in written}
    by_axis = dict(zip("zmnk", (product.batch, product.m, product.n, product.k), strict=True))
    longest = {axis: _size(ranges) for axis, ranges in by_axis.items()}
    for w in written:
        axis = "k" if w.along_k else _own(w.name)
        longest[axis] = max(longest[axis], w.length)
    flat = {
        axis: UOp(Ops.RANGE, (), RangeArg(n, size, by_axis[axis][0].arg.kind))
        if size > 1
        else ix.ZERO
        for n, (axis, size) in enumerate(longest.items())
    }
    table = {r: p for axis, x in by_axis.items() for r, p in places(x, flat[axis]).items()}
    inside = {axis: ix.below(flat[axis], _size(ranges)) for axis, ranges in by_axis.items()}

    def operand(name: str, value: UOp) -> UOp:
        if name in of:
            w, rows = of[name], flat[_own(name)]
            at = (rows, flat["k"]) if w.along_k else (flat["k"], rows)
            load = inherit(UOp(Ops.LOAD, (w.at(flat["z"], *at),)), value)
            new = load if w.along_k else gated(load, inside["k"])
        else:
            own = ix.substitute(narrow(value, plan.reads(_named(name, plan))), table)
            new = zero_outside(own, inside["k"])
        same = value.dtype is new.dtype
        return new if same else inherit(UOp(Ops.CAST, (new,), value.dtype), value)

    times = product.total.src[0]
    new = {x: operand(name, x) for name, x in zip(OPERANDS, (product.a, product.b), strict=True)}
    value = derive(times, tuple([new[x] for x in times.src]))
    stored = ix.conj(inside["m"], inside["n"])
    memo: dict[UOp, UOp] = {**table, product.total: derive(product.total, (value, flat["k"]))}
    closed = tuple(r for axis in "zmn" if (r := flat[axis]).op is Ops.RANGE)
    for u in toposort(root):
        if u in memo:
            continue
        src = tuple([memo[s] for s in u.src])
        if u.op is Ops.LOAD and product.total not in toposort(u):
            memo[u] = gated(ix.remake(u, src), stored)
        elif u.op is Ops.STORE:
            gate = ix.conj(stored, *src[2:])
            memo[u] = derive(u, src[:2] if gate is ix.TRUE else (*src[:2], gate))
        elif u.op is Ops.END:
            memo[u] = derive(u, (src[0], *closed))
        else:
            memo[u] = u if src == u.src else ix.remake(u, src)
    return share(memo[root])


def _own(name: str) -> str:
    """The axis of an operand's rows."""
    return "m" if name == OPERANDS[0] else "n"


def _size(ranges: Ranges) -> int:
    return prod(r.arg.size for r in ranges)


def _round_up(n: int, unit: int) -> int:
    return -(-n // unit) * unit
