"""What becomes of the sums of a thread: the stored value at each of them.

Each thread stores its own, neighbours at once; or a warpgroup collects a chunk of D in shared
memory, by stmatrix, and one thread has it copied from there (a STAGE that tile_product has put
around the value).  Two chunks take turns: before a place is written again, its copy has read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as with_fields

from uopc import layouts
from uopc.dtype import AddrSpace, dtypes
from uopc.layouts import WARPGROUP
from uopc.layouts.fragment import REGISTER
from uopc.passes.operands import places_along
from uopc.passes.pipeline.writer import Writer, flat, form_of
from uopc.passes.walk import replace
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, inherit, memory, prod, toposort
from uopc.uop.ops import Engine, Fence, Ops

FIRST_BARRIER = 1  # of those with a number: 0 is the block's own


def store(w: Writer) -> None:
    """Everything that is stored, at the sums of this thread."""
    for stored in w.stores:
        if stored.src[1].op is Ops.STAGE:
            _by_boxes(w, stored)
        else:
            _by_registers(w, stored)


def wait_for_stores(w: Writer) -> None:
    """Tensor copies that a thread has asked for are done before it ends."""
    if any(stored.src[1].op is Ops.STAGE for stored in w.stores):
        with w.c.when(ix.below(w.member, 1)):
            w.c.wait_group(Engine.BULK)


def _by_registers(w: Writer, stored: UOp) -> None:
    now = w.fresh(w.digits)
    *outer, v = now.values() if now else [ix.ZERO]
    with w.loops(*outer):
        element, value, *gate = _at(w, stored, now, v).src
        w.store_each(element, value, v, gate=gate[0] if gate else ix.TRUE)


def _at(w: Writer, u: UOp, now: dict[UOp, UOp], v: UOp) -> UOp:
    """What is made of the sum at these digits; what it loads beside comes first, neighbours, which
    v numbers, at once."""
    total = ix.substitute(w.total, now)
    u = ix.substitute(u, now)
    table: dict[UOp, UOp] = {}
    for load in _loads_beside(u, total):
        along = [v] if v in free(load) else []
        apart = w.fresh(along)
        size = prod(r.arg.size for r in along)
        held = w.alloc(AddrSpace.REG, load.dtype, size, "beside")
        there = replace(ix.substitute(load, apart), table)
        value = inherit(w.c.load(*there.src), there)  # by those alone who store
        w.store_each(held.index(flat(along, apart)), value, *apart.values())
        table[load] = w.c.load(held.index(ix.flat((r, r.arg.size) for r in along)))
    table[total] = w.c.load(w.sums.index(flat(w.digits, now)))
    return replace(u, table)


def _loads_beside(stored: UOp, total: UOp) -> list[UOp]:
    """The LOADs of a stored value that the sum has no part in, those in places of others first."""
    within = set(toposort(total))
    above: set[UOp] = {total}
    found: list[UOp] = []
    for u in toposort(stored):
        if not above.isdisjoint(u.src):
            above.add(u)
        elif u.op is Ops.LOAD and u not in within:
            found.append(u)
    return found


def _by_boxes(w: Writer, stored: UOp) -> None:
    """Chunk by chunk: pairs of values to registers, these to shared memory, and a tensor copy."""
    stage, c = stored.src[1], w.c
    arg, tile = stage.arg, form_of(stage).tile
    assert w.atom is not None
    slabs, octets = w.atom.n // tile.columns, tile.columns // 8
    *repeats, half, v = w.fresh(w.digits).values()  # of wgmma: then columns in eights, rows, pairs
    slab, octet = w.range(slabs), w.range(octets)
    if w.atom.n > 8:
        repeats[-1] = ix.add(ix.scale(slab, octets), octet)
    now = dict(zip(w.digits, (*repeats, half, v), strict=True))
    around = repeats[: -1 if w.atom.n > 8 else None]
    chunks = slabs * prod(r.arg.size for r in around)
    chunk = ix.add(ix.scale(w.turn, chunks), ix.add(ix.scale(_number(around), slabs), slab))
    place = ix.add(ix.scale(w.group, arg.depth), ix.mod(chunk, arg.depth))
    memory_of_chunk = ix.scale(place, arg.size)
    barrier = ix.add(w.group, ix.index(FIRST_BARRIER))
    asks = ix.below(w.member, 1)
    with w.loops(*around, slab):
        with c.when(asks):
            c.wait_group(Engine.BULK, arg.depth - 1, read=True)
        c.named_barrier(barrier, WARPGROUP)
        pairs = w.alloc(AddrSpace.REG, dtypes.u32, 2 * octets, "pairs")
        with w.loops(octet, half):
            value = _at(w, stage.src[0], now, v)
            low, high = (
                ix.substitute(value, {v: ix.index(n)}).bitcast(dtypes.u16).cast(dtypes.u32)
                for n in (0, 1)
            )
            c.store(pairs.index(ix.add(ix.scale(octet, 2), half)), low | (high << 16))
        access = layouts.matrix_access(
            _first_columns(w.atom, tile.columns), 2, "column", store=True
        )
        assert access is not None
        group = w.range(access.groups)
        with w.loops(group):
            to = tile.index(*access.rows(w.member, group))
            c.stmatrix(
                w.memory[arg.name].index(ix.add(memory_of_chunk, to)),
                pairs.index(ix.scale(group, access.move.tiles)),
                access.move.tiles,
                access.move.transposed,
            )
        c.fence(Fence.PROXY_ASYNC)
        c.named_barrier(barrier, WARPGROUP)
        with c.when(asks):
            view = UOp(Ops.TENSORMAP, (memory(stored.src[0]),), arg.box)
            first = dict.fromkeys((*w.members, octet, half, v), ix.ZERO)
            inside = ix.substitute(ix.substitute(stage.src[1], now), first)
            at = _places_of_block(w, stored)
            row, column = ix.digits(inside, w.plan.block)
            rows = w.plan.rows or (w.plan.block_m,)
            for n, x in enumerate((*ix.digits(row, rows), column), len(at) - len(rows) - 1):
                at[n] = ix.add(at[n], x)
            c.bulk_store(view, w.memory[arg.name].index(memory_of_chunk), *at)
            c.commit(Engine.BULK)


def _places_of_block(w: Writer, stored: UOp) -> list[UOp]:
    """The coordinates of the first element of the block's tile."""
    threads = [r for r in (w.group, *w.members) if r.op is Ops.RANGE]
    offset = ix.substitute(stored.src[0].src[1], dict.fromkeys((*threads, *w.digits), ix.ZERO))
    box = stored.src[1].arg.box
    return places_along(offset, box.strides)


def _number(digits: Sequence[UOp]) -> UOp:
    """The row-major place of ranges."""
    return ix.flat((r, r.arg.size) for r in digits)


def _first_columns(atom: layouts.Atom, columns: int) -> layouts.Fragment:
    """How the warpgroup holds the first columns of an atom's accumulator."""
    whole = atom.accumulator.fragment
    assert whole is not None
    registers = whole.registers * columns // atom.n
    column = tuple(
        with_fields(d, size=columns // 8) if d.of == REGISTER and d.size == atom.n // 8 > 1 else d
        for d in whole.column
    )
    return with_fields(whole, registers=registers, column=column)
