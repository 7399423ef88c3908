"""What atoms make of the tiles in shared memory: mma.sync of fragments, or wgmma.

What ordinary arithmetic makes of them: `arithmetic.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uopc import layouts
from uopc.dtype import AddrSpace, dtypes
from uopc.errors import UsageError
from uopc.layouts import K_MAJOR, MN_MAJOR
from uopc.passes.pipeline.writer import Writer, flat, form_of, index_of
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, prod
from uopc.uop.ops import DescriptorArg, Engine, Fence, Ops


def multiply(w: Writer, slot: UOp) -> None:
    """One tile of k: operands to registers, then every sum of the thread."""
    value = w.total.src[0]
    if w.by_wgmma:
        _by_wgmma(w, value, slot)
        return
    with w.loops(w.inner):
        _by_atoms(w, value, slot)


def _by_atoms(w: Writer, value: UOp, slot: UOp) -> None:
    atom = layouts.atom_named(value.arg)
    a, b = value.src
    repeats = [[r for r in w.digits if r in free(u.src[2])] for u in (a, b)]
    held = [
        _fragments(w, u, operand, outer, slot)
        for u, operand, outer in zip((a, b), (atom.a, atom.b), repeats, strict=True)
    ]
    outer = [r for r in w.digits if any(r in x for x in repeats)]
    now = w.fresh(outer)
    with w.loops(*now.values()):
        at = w.sums.index(ix.scale(flat(outer, now), atom.accumulator.registers))
        parts = (
            registers.index(ix.scale(flat(mine, now), o.registers))
            for registers, mine, o in zip(held, repeats, (atom.a, atom.b), strict=True)
        )
        w.c.mma(atom.name, at, *parts)


def _by_wgmma(w: Writer, value: UOp, slot: UOp) -> None:
    """All MMAs of a tile are in flight at once; then their sums are ours again."""
    atom = layouts.atom_named(value.arg)
    if atom.a.fragment is not None:
        _by_wgmma_of_registers(w, value, slot)
        return
    outer = [r for r in w.digits if any(r in free(u.src[2]) for u in value.src)]
    now = w.fresh([*outer, *([w.inner] if w.inner.op is Ops.RANGE else [])])
    a, b = (_operand(w, u, slot, now) for u in value.src)
    sums, before = (w.sums, w.step) if w.part_sums is None else (w.part_sums, ix.ZERO)
    w.c.fence(Fence.WGMMA, sums)
    with w.loops(*now.values()):
        at = sums.index(ix.scale(flat(outer, now), atom.accumulator.registers))
        keep = ix.at_least(ix.add(before, now.get(w.inner, ix.ZERO)), 1)
        w.c.mma(atom.name, at, a, b, keep)
    w.c.commit(Engine.WGMMA)
    w.c.wait_group(Engine.WGMMA, 0, sums)
    if sums is not w.sums:
        r = w.range(sums.arg.shape[0])
        with w.loops(r):
            whole = w.sums.index(r)
            w.c.store(whole, w.c.load(whole) + w.c.load(sums.index(r)))


def _by_wgmma_of_registers(w: Writer, value: UOp, slot: UOp) -> None:
    """The same with A in registers: its fragments of one step of k are read while those of the one
    before are multiplied, so each step has registers of its own."""
    atom = layouts.atom_named(value.arg)
    of_a, of_b = value.src
    outer = [r for r in w.digits if any(r in free(u.src[2]) for u in value.src)]
    down = [r for r in outer if r in free(of_a.src[2])]
    parts: list[UOp] = []
    for step in range(w.inner.arg.size if w.inner.op is Ops.RANGE else 1):
        inside = {w.inner: ix.index(step)} if w.inner.op is Ops.RANGE else {}
        a, b = (ix.substitute(u, inside) for u in (of_a, of_b))
        held = _fragments(w, a, atom.a, down, slot)
        now = w.fresh(outer)
        at_b = _operand(w, b, slot, now)
        w.c.fence(Fence.WGMMA, *([] if parts else [w.sums]), held)
        parts.append(held)
        with w.loops(*now.values()):
            at = w.sums.index(ix.scale(flat(outer, now), atom.accumulator.registers))
            keep = ix.at_least(ix.add(w.step, ix.index(step)), 1)
            part = held.index(ix.scale(flat(down, now), atom.a.registers))
            w.c.mma(atom.name, at, part, at_b, keep)
    w.c.commit(Engine.WGMMA)
    w.c.wait_group(Engine.WGMMA, 0, w.sums, *parts)


def _operand(w: Writer, stage: UOp, slot: UOp, now: Mapping[UOp, UOp]) -> UOp:
    """The descriptor of an operand: where the tile's begins, and how far on this MMA's does."""
    arg, form = stage.arg, form_of(stage)
    tile = form.tile

    def begins(digits: Mapping[UOp, UOp]) -> UOp:
        row, k = ix.digits(ix.substitute(stage.src[2], dict(digits)), (form.rows, form.k))
        return ix.canonical(
            index_of(tile.linear(*((row, k) if form.major == K_MAJOR else (k, row))))
        )

    first = begins(dict.fromkeys(now, ix.ZERO))
    canonical = layouts.operand_descriptor(tile, form.major)
    shape = (canonical.leading, canonical.stride, canonical.swizzle)
    start = w.c.descriptor(
        w.memory[arg.name].index(ix.add(ix.scale(slot, arg.size), first)),
        DescriptorArg(*shape, form.major == MN_MAJOR),
    )
    on = ix.sub(begins(now), first)
    units = ix.div(ix.scale(on, tile.element_bytes), 16)
    return start + units.cast(dtypes.u64)


def _registers(w: Writer, stage: UOp, operand: layouts.Operand, count: int) -> UOp:
    """Memory for so many registers of an operand's fragments."""
    packed = operand.packing > 1 or operand.type == "tf32"
    dtype = dtypes.u32 if packed else operand.dtype
    return w.alloc(AddrSpace.REG, dtype, count, f"{stage.arg.name}_part")


def _fragments(
    w: Writer, stage: UOp, operand: layouts.Operand, repeats: Sequence[UOp], slot: UOp
) -> UOp:
    """Registers with the fragments of all atoms along one side of the warp's tile."""
    count = prod(r.arg.size for r in repeats)
    held = _registers(w, stage, operand, count * operand.registers)
    _bring(w, stage, operand, repeats, slot, held, ix.ZERO)
    return held


def _bring(
    w: Writer,
    stage: UOp,
    operand: layouts.Operand,
    repeats: Sequence[UOp],
    slot: UOp,
    held: UOp,
    first: UOp,
) -> None:
    """Fill them from the first one on: by ldmatrix, or by loads of what fills a register each."""
    arg, form = stage.arg, form_of(stage)
    is_a = arg.name == "a"
    assert operand.fragment is not None
    count = prod(r.arg.size for r in repeats)
    fragment = operand.fragment.repeat(**{"rows" if is_a else "columns": count})
    start = ix.substitute(stage.src[2], dict.fromkeys(repeats, ix.ZERO))
    row, k = ix.digits(start, (form.rows, form.k))

    def element(place: tuple[UOp | int, UOp | int]) -> UOp:
        down, deep = place if is_a else place[::-1]
        at = form.index(ix.add(row, index_of(down)), ix.add(k, index_of(deep)))
        return w.memory[arg.name].index(ix.add(ix.scale(slot, arg.size), at))

    along = "row" if (form.major == K_MAJOR) != is_a else "column"
    access = layouts.matrix_access(fragment, operand.element_bytes, along)
    if access is not None:
        group = w.range(access.groups)
        with w.loops(group):
            w.c.ldmatrix(
                held.index(ix.add(first, ix.scale(group, access.move.tiles))),
                element(access.rows(w.member, group)),
                access.move.tiles,
                access.move.transposed,
            )
        return
    if operand.packing > 1:
        raise UsageError(f"Opts.plan: no ldmatrix brings {stage.dtype} as it lies in {form}")
    r = w.range(fragment.registers)
    value = w.c.load(element(fragment(w.member, r)))
    bits = value if held.dtype is value.dtype else value.bitcast(held.dtype)
    w.store_each(held.index(ix.add(first, r)), bits, r)
