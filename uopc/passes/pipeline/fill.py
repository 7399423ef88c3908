"""How a tile of an operand comes to shared memory: stores, copies of each thread, or boxes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from uopc.dtype import AddrSpace
from uopc.layouts import K_MAJOR, OperandTile
from uopc.passes.operands import contiguous_along, is_view, neighbours, places_along, runs
from uopc.passes.pipeline.writer import Writer, coordinates, form_of, place_in_tile
from uopc.passes.tile_product import turns_by_copies, zero_outside
from uopc.passes.walk import replace
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, memory, toposort
from uopc.uop.ops import AxisType, Engine, Ops, StageArg

WIDEST_BYTES = 16
COPY_BYTES = (16, 8, 4)  # of one cp.async (PTX ISA, cp.async)
#: vectors of a line, and lines, that neighbouring threads bring: one after another, or, turned by
#: copies of single elements, so that whole sectors come and each lane writes to a bank of its own
IN_LINE, TURNED = (1, 1), (8, 4)
#: of one operand that a thread holds on its way to shared memory
HELD_BYTES = 64


def fill(w: Writer, stage: UOp, slot: UOp, step: UOp, thread: UOp, threads: int) -> None:
    """`threads` threads bring a tile to its place; this is number `thread` of them."""
    arg: StageArg = stage.arg
    r, c = coordinates(stage)
    now = {w.step: step} if w.step.op is Ops.RANGE else {}
    value = ix.substitute(stage.src[0], now)
    engine = arg.engine if is_view(value) else None  # of a tile that is all outside there is none
    share = _Share.of(value, r, c, form_of(stage), threads, engine)
    first = ix.scale(slot, arg.size)

    def place(copy: UOp, e: UOp) -> UOp:
        return w.memory[arg.name].index(ix.add(first, share.place(copy, thread, e)))

    def at(copy: UOp, e: UOp) -> UOp:
        row, k = share.at(copy, thread, e)
        return ix.substitute(value, {r: row, c: k})

    if share.copied:
        copy = w.range(share.each)
        whole = share.inside(copy, thread)
        with w.loops(copy), ExitStack() as guard:
            if whole is not ix.TRUE:
                guard.enter_context(w.c.when(whole))
            load = at(copy, ix.ZERO)
            w.c.copy_async(place(copy, ix.ZERO), load.src[0], share.width, *load.src[1:2])
        return
    at_once = min(share.each, max(1, HELD_BYTES // (share.width * value.dtype.itemsize)))
    batches = w.range(-(-share.each // at_once), AxisType.LOOP, "k")
    name = f"next_{arg.name}"
    held = w.alloc(AddrSpace.REG, value.dtype, at_once * share.width, name)
    with w.loops(batches):
        copy, v = w.range(at_once), w.range(share.width, digit="v")
        number = ix.add(ix.scale(batches, at_once), copy)
        element = zero_outside(at(number, v), share.inside(number, thread))
        register = held.index(ix.add(ix.scale(copy, share.width), v))
        w.store_each(register, _here(w, element), copy, v)
        copy, v = w.range(at_once), w.range(share.width, digit="v")
        number = ix.add(ix.scale(batches, at_once), copy)
        register = held.index(ix.add(ix.scale(copy, share.width), v))
        inside = share.inside(number, thread)
        w.store_each(place(number, v), w.c.load(register), copy, v, gate=inside)


def _here(w: Writer, value: UOp) -> UOp:
    """A value whose LOADs are done here, not before the scope that is open."""
    memories = {memory(u.src[0]) for u in toposort(value) if u.op is Ops.LOAD}
    return replace(value, {m: w.c.now(m) for m in memories}) if w.c.done else value


def copy_box(w: Writer, stage: UOp, slot: UOp, step: UOp, full: UOp) -> None:
    """One thread asks for a tile, slab by slab."""
    arg, tile = stage.arg, form_of(stage).tile
    r, c = coordinates(stage)
    load = stage.src[0]
    offset = ix.substitute(load.src[0].src[1], {x: ix.ZERO for x in (r, c) if x.op is Ops.RANGE})
    now = {w.step: step} if w.step.op is Ops.RANGE else {}
    *outer, inner = (ix.substitute(x, now) for x in _start_of_box(w, stage, offset))
    view = UOp(Ops.TENSORMAP, (memory(load.src[0]),), arg.box)
    first = ix.scale(slot, arg.size)
    for slab in range(tile.slabs):
        to = ix.add(first, ix.index(slab * tile.rows * tile.pitch))
        at = ix.add(inner, ix.index(slab * tile.slab_columns))
        w.c.bulk_load(w.memory[arg.name].index(to), view, full, *outer, at)


def _start_of_box(w: Writer, stage: UOp, offset: UOp) -> list[UOp]:
    """The coordinates of a tile's first element.

    What the tile of D says of them and what the tile of k says are found apart: each alone stays
    inside of memory, so that its coordinates are digits of its offset; their sum may be outside.
    """
    arg, strides = stage.arg, stage.arg.box.strides
    of_k = {x: ix.ZERO for x in (w.step, w.part) if x.op is Ops.RANGE}
    of_d = {x: ix.ZERO for x in free(offset) if x not in of_k}
    _, constant = ix.affine(offset)
    rest = ix.sub(offset, ix.index(constant))
    at = places_along(ix.substitute(rest, of_k), strides)
    along_k = ix.substitute(rest, of_d)
    if arg.origin:
        parts = places_along(along_k, strides)
        return [
            ix.add(ix.index(first), ix.add(x, y))
            for first, x, y in zip(arg.origin, at, parts, strict=True)
        ]
    axis, unit = (-1, 1) if form_of(stage).major == K_MAJOR else (-2, strides[-1])
    at[axis] = ix.add(at[axis], ix.div(along_k, unit))
    return at


@dataclass(frozen=True)
class _Share:
    """What each thread brings of a tile: `each` vectors of `width` elements.

    Neighbouring threads bring neighbouring vectors of a line; lines are along k or along m (n), as
    the operand lies in memory.  copied: by cp.async.  block: vectors of a line, and lines, that 32
    neighbouring threads bring.
    """

    form: OperandTile
    along_k: bool
    width: int
    threads: int
    copied: bool
    block: tuple[int, int]

    @classmethod
    def of(
        cls, value: UOp, r: UOp, c: UOp, form: OperandTile, threads: int, engine: Engine | None
    ) -> _Share:
        along_k = contiguous_along(value, r, c) == K_MAJOR
        along, length = (c, form.k) if along_k else (r, form.rows)
        straight = along_k == (form.major == K_MAJOR)
        width = _width(value, along, length)
        if engine is Engine.CP_ASYNC:
            wide = width if straight and _whole(value.src[0].src[1], along, width) else 1
            if wide * value.dtype.itemsize in COPY_BYTES and _gated_as_one(value, along, wide):
                turns = not straight and turns_by_copies(form.rows, form.k, value.dtype.itemsize)
                return cls(form, along_k, wide, threads, True, TURNED if turns else IN_LINE)
        return cls(form, along_k, width, threads, False, IN_LINE)

    @property
    def _vectors(self) -> int:
        """Of one line."""
        return (self.form.k if self.along_k else self.form.rows) // self.width

    @property
    def _count(self) -> int:
        return self.form.rows * self.form.k // self.width

    @property
    def each(self) -> int:
        return -(-self._count // self.threads)

    def inside(self, copy: UOp, thread: UOp) -> UOp:
        """Has the thread such a vector to bring?"""
        return ix.below(ix.add(ix.scale(copy, self.threads), thread), self._count)

    def at(self, copy: UOp, thread: UOp, e: UOp) -> tuple[UOp, UOp]:
        """(row, k) of an element of a vector."""
        across, down = self.block
        number = ix.add(ix.scale(copy, self.threads), thread)
        rest, near = ix.div(number, across * down), ix.mod(number, across * down)
        blocks = self._vectors // across
        line = ix.add(ix.scale(ix.div(rest, blocks), down), ix.div(near, across))
        vector = ix.add(ix.scale(ix.mod(rest, blocks), across), ix.mod(near, across))
        place = ix.add(ix.scale(vector, self.width), e)
        return (line, place) if self.along_k else (place, line)

    def place(self, copy: UOp, thread: UOp, e: UOp) -> UOp:
        """Where it goes: a vector along the tile's own rows lies as its first element does."""
        if self.along_k == (self.form.major == K_MAJOR):
            return ix.add(place_in_tile(self.form, *self.at(copy, thread, ix.ZERO)), e)
        return place_in_tile(self.form, *self.at(copy, thread, e))


def _width(value: UOp, along: UOp, length: int) -> int:
    """Elements of the widest vector along a side that is proved to be one access everywhere."""
    loads = [u for u in toposort(value) if u.op is Ops.LOAD]
    item = max((u.dtype.itemsize for u in (value, *loads)), default=WIDEST_BYTES)
    width = max(1, WIDEST_BYTES // item)
    offsets = [x for u in loads if runs(x := u.src[0].src[1], along, 2)]
    while width > 1 and (length % width or not offsets or not _aligned(offsets, along, width)):
        width //= 2
    return width


def _aligned(offsets: Sequence[UOp], along: UOp, width: int) -> bool:
    return all(_whole(x, along, width) for x in offsets)


def _whole(place: UOp, along: UOp, width: int) -> bool:
    """Does every vector begin at a multiple of its width, and lie in one piece?"""
    if not runs(place, along, width):
        return False
    return ix.divides(width, neighbours(place, along, width)[0])


def _gated_as_one(value: UOp, along: UOp, width: int) -> bool:
    """Are all elements of a vector inside, or none?"""
    gates = ix.conjuncts(value.src[1]) if len(value.src) > 1 else []
    return all(_uniform(g, along, width) for g in gates if along in free(g))


def _uniform(gate: UOp, along: UOp, width: int) -> bool:
    """Is a gate the same for all elements of a vector, as a limit between vectors is?"""
    first, *others = neighbours(gate, along, width)
    if all(x is first for x in others):
        return True
    if gate.op is not Ops.LT:
        return False
    low, high = gate.src
    place, limit = (low, high) if high.op is Ops.CONST else (high, ix.add(low, ix.ONE))
    between = limit.op is Ops.CONST and ix.divides(width, limit)
    return between and _whole(place, along, width)
