"""Registers that are proven to be written before they are read.

They need no checks at run time, and none lives longer than the part of the text that does both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from uopc import layouts
from uopc.dtype import AddrSpace, dtypes
from uopc.kernel import Declare, Do, Item, ProgramTree, Scope
from uopc.render.operands import operands
from uopc.uop.facts import bounds
from uopc.uop.node import UOp, memory, prod, toposort
from uopc.uop.numbers import Array, array_of, compute
from uopc.uop.ops import ELEMENTWISE, IN_THREAD, Ops

_MOST_VALUES = 4096  # of an index that is followed through its loops


def unproven_registers(program: ProgramTree) -> set[UOp]:
    """REG memories of which an element may be read before it is written."""
    proof = _Proof()
    proof.walk(program.items)
    return proof.unproven


def written_first(m: UOp, items: Sequence[Item]) -> bool:
    """Do these items write whatever they read of registers, so that nothing from before counts?"""
    proof = _Proof(writes={m: []}, depth={m: 0})
    proof.walk(items)
    return m not in proof.unproven


@dataclass
class _Written:
    index: UOp
    count: int
    scopes: tuple[UOp, ...]


@dataclass
class _Proof:
    """Walks a tree in its order and remembers ungated writes with the scopes around them."""

    unproven: set[UOp] = field(default_factory=set)
    writes: dict[UOp, list[_Written]] = field(default_factory=dict)
    depth: dict[UOp, int] = field(default_factory=dict)  # scopes around a declaration

    def walk(self, items: Sequence[Item]) -> None:
        stack: list[tuple[Item, tuple[UOp, ...]]] = [(i, ()) for i in reversed(items)]
        while stack:
            item, scopes = stack.pop()
            if isinstance(item, Scope):
                inner = (*scopes, item.opener)
                self._reads(item.opener, scopes)
                stack.extend((i, inner) for i in reversed(item.items))
            elif isinstance(item, Declare):
                self.writes.setdefault(item.alloc, [])
                self.depth.setdefault(item.alloc, len(scopes))
            else:
                u = item.effect if isinstance(item, Do) else item.value
                self._reads(u, scopes)
                self._write(u, scopes)

    def _reads(self, u: UOp, scopes: tuple[UOp, ...]) -> None:
        for index, count in _register_reads(u):
            m = memory(index)
            if m not in self.unproven and not self._is_written(m, index, count, scopes):
                self.unproven.add(m)

    def _write(self, u: UOp, scopes: tuple[UOp, ...]) -> None:
        if u.op is Ops.STORE and len(u.src) == 2:
            self._add(u.src[0], 1 if u.arg is None else u.arg.width, scopes)
        elif u.op is Ops.LDMATRIX:
            self._add(u.src[0], u.arg.tiles, scopes)
        elif u.op is Ops.MMA:
            self._add(u.src[0], layouts.ATOMS[u.arg].accumulator.registers, scopes)

    def _add(self, index: UOp, count: int, scopes: tuple[UOp, ...]) -> None:
        m = memory(index)
        if m in self.writes:
            self.writes[m].append(_Written(index.src[1], count, scopes))

    def _is_written(self, m: UOp, index: UOp, count: int, scopes: tuple[UOp, ...]) -> bool:
        offset = index.src[1]
        covered: set[int] = set()
        for write in self.writes.get(m, ()):
            shared = _common(write.scopes, scopes)
            own = write.scopes[shared:]
            if any(s.op is not Ops.RANGE for s in own):
                continue
            if write.index is offset and write.count >= count:
                return True
            around = set(write.scopes[self.depth[m] : shared])
            values = None if _ranges(write.index) & around else _values(write.index)
            if values is not None:
                covered.update(v + k for v in values for k in range(write.count))
        wanted = _values(offset)
        return wanted is not None and all(v + k in covered for v in wanted for k in range(count))


def _register_reads(u: UOp) -> Iterator[tuple[UOp, int]]:
    """(INDEX, elements) of each read of registers in the text of a node."""
    stack, seen = list(operands(u)), set()
    if u.op is Ops.LOAD:
        stack.append(u)
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        if x.op is Ops.LOAD and _in_registers(x.src[0]):
            yield x.src[0], 1 if x.arg is None else x.arg.width
        stack.extend(operands(x))
    if u.op is Ops.STMATRIX:
        yield u.src[1], u.arg.tiles
    elif u.op is Ops.MMA:
        atom = layouts.ATOMS[u.arg]
        if not (len(u.src) == 4 and bounds(u.src[3]) == (0, 0)) and not _may_start_anew(u):
            yield u.src[0], atom.accumulator.registers
        for source, operand in zip(u.src[1:3], (atom.a, atom.b), strict=True):
            if source.op is Ops.INDEX:
                yield source, operand.registers


def _may_start_anew(u: UOp) -> bool:
    """An MMA with a predicate: whether it reads its accumulator is known when it runs."""
    return len(u.src) == 4 and bounds(u.src[3]) != (1, 1)


def _in_registers(index: UOp) -> bool:
    return memory(index).arg.addrspace is AddrSpace.REG


def _common(a: tuple[UOp, ...], b: tuple[UOp, ...]) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[n] is b[n]:
        n += 1
    return n


def _ranges(index: UOp) -> set[UOp]:
    return {u for u in toposort(index) if u.op is Ops.RANGE}


def _values(index: UOp) -> Iterable[int] | None:
    """All values of an index over its loops; None where it depends on anything else."""
    order = toposort(index)
    ranges = [u for u in order if u.op is Ops.RANGE]
    if any(r.arg.kind not in IN_THREAD for r in ranges):
        return None
    if prod(r.arg.size for r in ranges) > _MOST_VALUES:
        return None
    grid = np.meshgrid(*(np.arange(r.arg.size) for r in ranges), indexing="ij")
    known: dict[UOp, Array] = {
        r: r.arg.start + r.arg.step * g.reshape(-1) for r, g in zip(ranges, grid, strict=True)
    }
    for u in order:
        if u.op is Ops.CONST:
            known[u] = array_of(u.arg)
        elif u.op in ELEMENTWISE and u.dtype in (dtypes.index, dtypes.bool):
            known[u] = compute(u.op, u.src[-1].dtype, [known[s] for s in u.src], u.arg)
        elif u.op is not Ops.RANGE:
            return None
    return [int(v) for v in np.asarray(known[index]).reshape(-1)]


__all__ = ["unproven_registers", "written_first"]
