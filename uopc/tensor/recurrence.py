"""Derivatives of running sums, products and extremes.

Those of products and extremes are recurrences from the end of a row, h[j] = a[j] + c[j] * h[j+1]:
- y[i] = x[0] * ... * x[i] changes by x[j] as y[j-1] * h[j] with a = g and c[j] = x[j+1].  Nothing
  is divided, so that zeros, infinities and what would underflow are no special cases.
- What comes to the elements whose extreme is x[j] adds up there: a = g, and c[j] is 1 where element
  j+1 is no new extreme, else 0, a choice: an infinity beyond it stays there.

A row is cut into blocks of BLOCK elements: within one, each element adds up what comes after it;
the first ones of all blocks follow the same recurrence; what comes from the next block is added.
"""

from __future__ import annotations

from uopc.dtype import dtypes
from uopc.uop.node import UOp
from uopc.uop.ops import Combine, Ops, ScanArg

BLOCK = 32


def of_scan(u: UOp, g: UOp) -> UOp:
    """The gradient of what a SCAN goes along, from that of the SCAN."""
    arg: ScanArg = u.arg
    if arg.combine is Combine.ADD:
        return g.scan(Ops.ADD, not arg.reverse, arg.exclusive)
    wide = dtypes.f64 if u.dtype is dtypes.f64 else dtypes.f32
    x, g = u.src[0].cast(wide), g.cast(wide)
    last = len(u.shape) - 1
    if arg.reverse:
        x, g = x.flip((last,)), g.flip((last,))
    if arg.exclusive:
        g = _next(g)
    if arg.combine is Combine.MUL:
        before = x.scan(Ops.MUL, exclusive=True)
        found = before * _from_the_end(g, _next(x), choose=False)
    else:
        extreme = x.scan(arg.combine)
        new = x.eq(extreme) | x.ne(x)
        stays = (~_next(new.cast(dtypes.i32)).cast(dtypes.bool)).cast(wide)
        found = new.where(_from_the_end(g, stays, choose=True), 0.0)
    found = found.flip((last,)) if arg.reverse else found
    return found.cast(u.dtype)


def _next(x: UOp) -> UOp:
    """The element after each along the last axis; 0 after the last one."""
    *kept, n = x.shape
    whole = tuple((0, m) for m in kept)
    return x.shrink((*whole, (min(1, n), n))).pad((*((0, 0) for _ in kept), (0, min(1, n))))


def _from_the_end(a: UOp, c: UOp, choose: bool) -> UOp:
    """h[j] = a[j] + c[j] * h[j + 1] along the last axis; choose: c is 0 or 1, and picks."""
    *kept, n = a.shape
    if n <= BLOCK:
        return _within(a, c, choose)
    blocks = -(-n // BLOCK)
    missing = (*((0, 0) for _ in kept), (0, blocks * BLOCK - n))
    a, c = (x.pad(missing).reshape((*kept, blocks, BLOCK)) for x in (a, c))
    inside, through = _within(a, c, choose), c.scan(Ops.MUL, reverse=True)
    first = (*((0, m) for m in kept), (0, blocks), (0, 1))
    heads = [x.shrink(first).reshape((*kept, blocks)) for x in (inside, through)]
    after = _next(_from_the_end(heads[0], heads[1], choose))
    after = after.reshape((*kept, blocks, 1)).expand(inside.shape)
    more = through.ne(0.0).where(after, 0.0) if choose else through * after
    whole = tuple((0, m) for m in kept)
    return (inside + more).reshape((*kept, blocks * BLOCK)).shrink((*whole, (0, n)))


def _within(a: UOp, c: UOp, choose: bool) -> UOp:
    """The same where every element adds up what comes after it."""
    *kept, n = a.shape
    square = (*kept, n, n)
    ones = (1,) * len(kept)
    j = UOp.arange(n).reshape((*ones, n, 1)).expand(square)
    i = UOp.arange(n).reshape((*ones, 1, n)).expand(square)
    a, c = (x.reshape((*kept, 1, n)).expand(square) for x in (a, c))
    between = (i < j).where(1.0, c).scan(Ops.MUL, exclusive=True)
    value = between.ne(0.0).where(a, 0.0) if choose else a * between
    return (i < j).where(0.0, value).reduce(Ops.ADD)
