"""What a thread does, whatever its share: loads, reductions and stores of a kernel, condensed.

A unit is a LOAD of memory, a REDUCE, or the STOREs that close the same axes.  It knows the axes
that it varies with, the operations between it and the units below, and how its memory is laid out.
A cost under digits (`choose/cost.py`) is a sum over units; the graph is walked only here, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from uopc.choose.facts import WIDEST_BYTES, KernelFacts
from uopc.dtype import AddrSpace, dtypes
from uopc.passes.effects import FUSED
from uopc.passes.share import is_report
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, addrspace, toposort
from uopc.uop.ops import ELEMENTWISE, TRANSCENDENTAL, Combine, Ops

Axes = int  # a set: bit a for axis a

#: instructions of an element; what is not named is one
COSTS = {
    **dict.fromkeys(TRANSCENDENTAL, 12),
    **{Ops.DIV: 16, Ops.SQRT: 16, Ops.IDIV: 16, Ops.MOD: 16, Ops.NEG: 0},
}
WIDE_INTEGER = 3  # instructions of an operation on 64 bits, or on an element that is looked up
FAR = 1 << 20  # stride in bytes of what is looked up along an axis: another line each time


@dataclass(frozen=True)
class Memory:
    """How an access moves: bytes per step of each axis, and elements of the widest proved vector
    along each axis that it is contiguous in."""

    itemsize: int
    strides: Mapping[int, int]
    widths: Mapping[int, int]
    axes: Axes


@dataclass(eq=False)
class Unit:
    """A LOAD, a REDUCE, or STOREs that close the same axes.

    free: axes that its result varies with (for STOREs none).  closed: axes that it goes over.
    below: units that it evaluates.  work: (axes, instructions) of one evaluation of what lies
    between.  memories: what it loads or stores.  values: that a REDUCE carries.  words: registers
    of one value.  fused: is a product added with one instruction?  rare: is it loaded only where
    other loaded values say so?
    """

    op: Ops
    free: Axes
    closed: Axes
    below: tuple[Unit, ...]
    work: tuple[tuple[Axes, int], ...]
    memories: tuple[Memory, ...] = ()
    values: int = 1
    words: int = 1
    fused: bool = False
    rare: bool = False

    @property
    def closed_axes(self) -> tuple[int, ...]:
        """The axes of `closed`."""
        return tuple(a for a in range(self.closed.bit_length()) if self.closed >> a & 1)


@dataclass(frozen=True)
class Work:
    """The units of a kernel, those below first."""

    units: tuple[Unit, ...]
    outputs: tuple[Unit, ...]


def work_of(facts: KernelFacts) -> Work:
    """The condensed graph of a kernel.  Reports of stray indices are left out."""
    units: dict[UOp, Unit] = {}
    order = toposort(facts.root)
    for u in order:
        if u.op is Ops.LOAD and addrspace(u.src[0]) is AddrSpace.GLOBAL:
            below, work = _between(u.src, units)
            units[u] = Unit(
                *(Ops.LOAD, _axes(u), 0, below, work if below else ()),
                memories=(_memory(u.src[0]),),
                words=max(1, u.dtype.itemsize // 4),
                rare=any(x.op is Ops.LOAD for x in toposort(*u.src[1:2])),
            )
        elif u.op is Ops.REDUCE:
            closed = _set(u.src[1:])
            below, work = _between(u.src[:1], units)
            value = u.src[0]
            parts = value.src if value.op is Ops.TUPLE else (value,)
            fused = u.arg.combine is Combine.ADD and value.op is Ops.MUL and value.dtype in FUSED
            units[u] = Unit(
                *(Ops.REDUCE, _axes(u), closed, below, work),
                values=len(parts),
                words=max(1, parts[0].dtype.itemsize // 4),
                fused=fused,
            )
    outputs = tuple(_outputs(facts.root, units))
    return Work((*units.values(), *outputs), outputs)


def _outputs(root: UOp, units: dict[UOp, Unit]) -> Iterable[Unit]:
    """A unit for the STOREs that close the same axes."""
    groups: dict[Axes, list[UOp]] = {}
    for e in root.src:
        if not is_report(e):
            store, ranges = (e.src[0], e.src[1:]) if e.op is Ops.END else (e, ())
            groups.setdefault(_set(ranges), []).append(store)
    for closed, stores in groups.items():
        below, work = _between([s for store in stores for s in store.src], units)
        memories = tuple([_memory(s.src[0]) for s in stores])
        yield Unit(Ops.STORE, 0, closed, below, work, memories)


def _between(
    sources: Iterable[UOp], units: dict[UOp, Unit]
) -> tuple[tuple[Unit, ...], tuple[tuple[Axes, int], ...]]:
    """The units right below, and the instructions on the way to them, by axes."""
    below: dict[Unit, None] = {}
    work: dict[Axes, int] = {}
    stack, seen = list(sources), set()
    while stack:
        u = stack.pop()
        if u in seen:
            continue
        seen.add(u)
        if u in units:
            below[units[u]] = None
            continue
        if u.op in ELEMENTWISE and u.dtype is not dtypes.index:
            wide = u.dtype.is_int and u.dtype.itemsize == 8
            each = WIDE_INTEGER if wide else COSTS.get(u.op, 1)
            work[_axes(u)] = work.get(_axes(u), 0) + each
        stack += u.src
    return tuple(below), tuple(work.items())


def _memory(element: UOp) -> Memory:
    offset, itemsize = element.src[1], element.dtype.itemsize
    strides, widths = {}, {}
    for r in free(offset):
        step = ix.coefficient(offset, r)
        base = ix.substitute(offset, {r: ix.ZERO})
        if step == 1:
            width = WIDEST_BYTES // itemsize
            while width > 1 and not ix.divides(width, base):
                width //= 2
            widths[r.arg.axis] = width
        elif step is None:
            step = _first_step(ix.substitute(offset, {r: ix.index(1)}), base)
        strides[r.arg.axis] = FAR if step is None else abs(step) * itemsize
    return Memory(itemsize, strides, widths, _axes(element))


def _first_step(second: UOp, first: UOp) -> int | None:
    """How far apart the first elements along an axis are, where that is one number: an axis that is
    two for some access walks the inner one of them."""
    terms, constant = ix.affine(ix.sub(second, first))
    return None if terms else constant


def _axes(u: UOp) -> Axes:
    return _set(free(u))


def _set(ranges: Iterable[UOp]) -> Axes:
    return sum({1 << r.arg.axis for r in ranges})
