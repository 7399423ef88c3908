"""Staged operands, their ring and its barriers.  MAPPED -> LOOPS, for kernels of a plan.

Here because: in place of `effects`, once `tile_product` has said what is staged where.
Before: STORE(out[x, y], REDUCE(A * B, t, kk))        A, B = STAGE(SHARED, ...; depth 3, cp.async)
After:  fill tiles 0 and 1
        LOOP t: wait for tile t; BARRIER; fill tile t + 2; for kk: registers from A, B; sums += a*b
        out[x, y] = sums

Each stage has writers and readers, and two edges between them.  *Publish*: what was copied is
there before it is read.  *Recycle*: what was read is not overwritten before.  With one tile at a
time both are a BARRIER of their own.  With more, a BARRIER a tile is both: what it publishes was
asked for depth - 1 tiles ago, and what may be overwritten after it was read before it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from uopc import layouts
from uopc.dtype import AddrSpace, DType, dtypes
from uopc.errors import UsageError
from uopc.layouts import K_MAJOR, MN_MAJOR, WARP, WARPGROUP, Fragment, OperandTile
from uopc.passes.effects import FUSED
from uopc.passes.tile_product import contiguous_along, zero_outside
from uopc.passes.walk import replace
from uopc.plan import Plan
from uopc.symbolic import index as ix
from uopc.uop.cursor import Cursor
from uopc.uop.facts import free
from uopc.uop.node import Scalar, UOp, derive, memory, prod, toposort
from uopc.uop.ops import (
    AxisType,
    DescriptorArg,
    Engine,
    Fence,
    LaunchArg,
    Ops,
    ParamArg,
    RangeArg,
    StageArg,
)

WIDEST_BYTES = 16
COPY_BYTES = (16, 8, 4)  # of one cp.async (PTX ISA, cp.async)
#: of one operand that a thread holds on its way to shared memory
HELD_BYTES = 64
#: registers of an SM, and what setmaxnreg may leave a thread (PTX ISA, setmaxnreg)
REGISTERS_OF_SM = 1 << 16
MOST_REGISTERS, FEW_REGISTERS, FEWEST_REGISTERS = 240, 40, 32


def pipeline(root: UOp, plan: Plan) -> UOp:
    """LOOPS kernel of a product that `tile_product` has mapped."""
    made = _Pipeline(root, plan)
    return made.apart() if plan.roles else made.together()


class _Pipeline:
    """One kernel: its memories, and the cursor that writes its effects in order."""

    def __init__(self, root: UOp, plan: Plan) -> None:
        producers = _group_with_producers(root, plan) if plan.roles else None
        if producers is not None:
            root = replace(root, dict.fromkeys(_of_kind(root, producers.arg.kind), producers))
        order = toposort(root)
        self.root, self.plan, self.atom = root, plan, plan.tensor_core
        self.total = next(u for u in order if u.op is Ops.REDUCE)
        ranges = [u for u in order if u.op is Ops.RANGE]
        found = {r.arg.kind: r for r in ranges}
        if producers is not None:
            found[producers.arg.kind] = producers
        group, warp, lane = (
            found.get(kind, ix.ZERO) for kind in (AxisType.WARPGROUP, AxisType.WARP, AxisType.LANE)
        )
        #: of a thread among those that multiply together, and in the block
        self.member = lane if plan.group_threads == WARP else ix.add(ix.scale(warp, WARP), lane)
        self.thread = ix.add(ix.scale(group, WARPGROUP), ix.add(ix.scale(warp, WARP), lane))
        self.step, self.inner = self._closed()
        self.steps = self.step.arg.size if self.step.op is Ops.RANGE else 1
        (self.end, *_) = root.src
        self.digits = [r for r in self.end.src[1:] if r.arg.kind is AxisType.UPCAST]
        self._slots: dict[AddrSpace, Iterator[int]] = {}
        self._axes = itertools.count(1 + max(r.arg.axis for r in ranges))
        stages = {u.arg.name: u for u in order if u.op is Ops.STAGE}
        self.stages = list(stages.values())
        self.memory = {
            name: self._alloc(AddrSpace.SHARED, u.dtype, u.arg.depth * u.arg.size, name)
            for name, u in stages.items()
        }
        size = prod(r.arg.size for r in self.digits)
        self.sums = self._alloc(AddrSpace.REG, self.total.dtype, size, "sum")
        self.c = Cursor()

    def _closed(self) -> tuple[UOp, UOp]:
        """(the range of tiles of k, the one inside of a tile) that the sum closes."""
        closed = self.total.src[1:]
        step = next((r for r in closed if r.arg.kind is AxisType.REDUCE), ix.ZERO)
        return step, next((r for r in closed if r is not step), ix.ZERO)

    def _alloc(self, space: AddrSpace, dtype: DType, size: int, name: str) -> UOp:
        slot = next(self._slots.setdefault(space, itertools.count()))
        return UOp(Ops.ALLOC, (), ParamArg(slot, dtype, (size,), space, name))

    def _range(self, size: int, kind: AxisType = AxisType.UPCAST, digit: str = "u") -> UOp:
        axis = next(self._axes)
        return ix.ZERO if size == 1 else UOp(Ops.RANGE, (), RangeArg(axis, size, kind, digit))

    def _store_each(self, to: UOp, value: Scalar, *ranges: UOp, gate: UOp = ix.TRUE) -> None:
        """A STORE for every value of those that are ranges."""
        real = [r for r in ranges if r.op is Ops.RANGE]
        self.c.store_each(to, value, real, None if gate is ix.TRUE else gate)

    def _loops(self, *ranges: UOp) -> ExitStack:
        """Everything inside, for every value of those that are ranges."""
        stack = ExitStack()
        if real := [r for r in ranges if r.op is Ops.RANGE]:
            stack.enter_context(self.c.loop(*real))
        return stack

    # ---- all threads copy, and all multiply
    def together(self) -> UOp:
        """A BARRIER, or two, for each tile of k."""
        depth = self.plan.depth
        self._start_sums()
        if depth == 1:
            with self._loops(self.step):
                if self.steps > 1:  # what was read is not overwritten before all have read it
                    self.c.barrier()
                self._fill(ix.ZERO, self.step)
                self._commit()
                self._publish(0)
                self._multiply(ix.ZERO)
        else:
            for early in map(ix.index, range(depth - 1)):
                if early.arg.bits < self.steps:
                    self._fill(early, early)
                self._commit()
            with self._loops(self.step):
                self._publish(depth - 2)
                following = ix.add(self.step, ix.index(depth - 1))
                if self.steps >= depth:
                    with self.c.when(ix.below(following, self.steps)):
                        self._fill(ix.mod(following, depth), following)
                self._commit()
                self._multiply(ix.mod(self.step, depth))
        return self._finished()

    def _publish(self, pending: int) -> None:
        """The oldest tile is there, for all threads."""
        if self._copies:
            self.c.wait_group(Engine.CP_ASYNC, pending)
        if self._by_wgmma:
            self.c.fence(Fence.PROXY_ASYNC)
        self.c.barrier()

    @property
    def _by_wgmma(self) -> bool:
        return self.atom is not None and self.atom.engine == "wgmma"

    @property
    def _copies(self) -> bool:
        return any(u.arg.engine is Engine.CP_ASYNC for u in self.stages)

    def _commit(self) -> None:
        if self._copies:
            self.c.commit(Engine.CP_ASYNC)

    def _fill(self, slot: UOp, step: UOp) -> None:
        """All threads bring the tiles of one step to their places."""
        for stage in self.stages:
            self._fill_one(stage, slot, step, self.thread, self.plan.threads)

    # ---- some warps copy, the others multiply
    def apart(self) -> UOp:
        """Two roles that hand tiles over: `full` says that a tile is there, `empty` that it was
        read."""
        plan, c, depth = self.plan, self.c, self.plan.depth
        full, empty = (
            self._alloc(AddrSpace.MBARRIER, dtypes.u64, depth, name) for name in ("full", "empty")
        )
        boxes = [u for u in self.stages if u.arg.engine is Engine.BULK]
        others = [u for u in self.stages if u.arg.engine is not Engine.BULK]
        with c.when(ix.below(self.thread, 1)):
            for n in range(depth):
                c.init(full.index(n), bool(boxes) + WARPGROUP * bool(others))
                c.init(empty.index(n), plan.groups)
            if boxes:
                c.fence(Fence.MBAR_INIT)
        c.barrier()
        first, fewer, more = plan.consumers // WARP, *_registers_of_roles(plan)
        with c.role("consumer", 0, first, more, grow=True):
            self._start_sums()
            with self._loops(self.step):
                slot, parity = _ring(self.step, depth)
                c.wait(full.index(slot), parity)
                self._multiply(slot)
                if not self._by_wgmma:  # an ordinary read, and then a copy over it
                    c.fence(Fence.PROXY_ASYNC)
                    c.syncwarp()
                with c.when(ix.below(self.member, 1)):
                    c.arrive(empty.index(slot))
            for end in self.root.src:
                self._store(end)
        thread = ix.mod(self.thread, WARPGROUP)
        step = self._fresh([self.step], AxisType.LOOP)[self.step] if self.steps > 1 else ix.ZERO
        alone = ix.below(thread, 1)
        with c.role("producer", first, 4, fewer), ExitStack() as inside:
            if not others:
                inside.enter_context(c.when(alone))
            inside.enter_context(self._loops(step))
            slot, parity = _ring(step, depth)
            c.wait(empty.index(slot), ix.sub(ix.index(1), parity))
            for stage in others:
                self._fill_one(stage, slot, step, thread, WARPGROUP)
            if others:
                if self._by_wgmma:
                    c.fence(Fence.PROXY_ASYNC)
                c.arrive(full.index(slot))
            if boxes:
                with ExitStack() as one:
                    if others:
                        one.enter_context(c.when(alone))
                    c.arrive(full.index(slot), sum(_form(u).tile.size_bytes for u in boxes))
                    for stage in boxes:
                        self._copy_box(stage, slot, step, full.index(slot))
        launch: LaunchArg = self.root.arg
        sink = c.sink(launch)
        return derive(self.root, sink.src, dataclasses.replace(launch, blocks_per_sm=1))

    def _copy_box(self, stage: UOp, slot: UOp, step: UOp, full: UOp) -> None:
        """One thread asks for a tile, slab by slab."""
        arg, tile = stage.arg, _form(stage).tile
        r, c = _coordinates(stage)
        load = stage.src[0]
        now = {
            x: y for x, y in ((r, ix.ZERO), (c, ix.ZERO), (self.step, step)) if x.op is Ops.RANGE
        }
        *outer, inner = _places_along(ix.substitute(load.src[0].src[1], now), arg.box.strides)
        view = UOp(Ops.TENSORMAP, (memory(load.src[0]),), arg.box)
        first = ix.scale(slot, arg.size)
        for slab in range(tile.slabs):
            to = ix.add(first, ix.index(slab * tile.rows * tile.pitch))
            at = ix.add(inner, ix.index(slab * tile.slab_columns))
            self.c.bulk_load(self.memory[arg.name].index(to), view, full, *outer, at)

    # ---- what both have
    def _start_sums(self) -> None:
        if not self._by_wgmma:  # which starts from zero by itself
            r = self._range(self.sums.arg.shape[0])
            self._store_each(self.sums.index(r), 0, r)

    def _finished(self) -> UOp:
        """The kernel, once its sums are stored."""
        for end in self.root.src:
            self._store(end)
        launch: LaunchArg = self.root.arg
        return derive(self.root, self.c.sink(launch).src, launch)

    # ---- filling a tile
    def _fill_one(self, stage: UOp, slot: UOp, step: UOp, thread: UOp, threads: int) -> None:
        """`threads` threads bring a tile to its place; this is number `thread` of them."""
        arg: StageArg = stage.arg
        r, c = _coordinates(stage)
        now = {self.step: step} if self.step.op is Ops.RANGE else {}
        value = ix.substitute(stage.src[0], now)
        share = _Share.of(value, r, c, _form(stage), threads, arg.engine)
        first = ix.scale(slot, arg.size)

        def place(copy: UOp, e: UOp) -> UOp:
            return self.memory[arg.name].index(ix.add(first, share.place(copy, thread, e)))

        def at(copy: UOp, e: UOp) -> UOp:
            row, k = share.at(copy, thread, e)
            return ix.substitute(value, {r: row, c: k})

        if share.copied:
            copy = self._range(share.each)
            whole = share.inside(copy, thread)
            with self._loops(copy), ExitStack() as guard:
                if whole is not ix.TRUE:
                    guard.enter_context(self.c.when(whole))
                load = at(copy, ix.ZERO)
                self.c.copy_async(place(copy, ix.ZERO), load.src[0], share.width, *load.src[1:2])
            return
        at_once = min(share.each, max(1, HELD_BYTES // (share.width * value.dtype.itemsize)))
        batches = self._range(-(-share.each // at_once), AxisType.LOOP, "k")
        name = f"next_{arg.name}"
        held = self._alloc(AddrSpace.REG, value.dtype, at_once * share.width, name)
        with self._loops(batches):
            copy, v = self._range(at_once), self._range(share.width, digit="v")
            number = ix.add(ix.scale(batches, at_once), copy)
            element = zero_outside(at(number, v), share.inside(number, thread))
            register = held.index(ix.add(ix.scale(copy, share.width), v))
            self._store_each(register, self._here(element), copy, v)
            copy, v = self._range(at_once), self._range(share.width, digit="v")
            number = ix.add(ix.scale(batches, at_once), copy)
            register = held.index(ix.add(ix.scale(copy, share.width), v))
            inside = share.inside(number, thread)
            self._store_each(place(number, v), self.c.load(register), copy, v, gate=inside)

    def _here(self, value: UOp) -> UOp:
        """A value whose LOADs are done here, not before the scope that is open."""
        memories = {memory(u.src[0]) for u in toposort(value) if u.op is Ops.LOAD}
        return replace(value, {m: self.c.now(m) for m in memories}) if self.c.done else value

    # ---- multiplying what is there
    def _multiply(self, slot: UOp) -> None:
        """One tile of k: operands to registers, then every sum of the thread."""
        value = self.total.src[0]
        if self._by_wgmma:
            self._multiply_by_wgmma(value, slot)
            return
        with self._loops(self.inner):
            if value.op is Ops.DOT:
                self._multiply_by_atoms(value, slot)
            else:
                self._multiply_by_arithmetic(value, slot)

    def _multiply_by_arithmetic(self, value: UOp, slot: UOp) -> None:
        held = [self._registers_of(u, slot) for u in value.src]
        now = self._fresh(self.digits)
        with self._loops(*now.values()):
            place = self.sums.index(_flat(self.digits, now))
            a, b = (self.c.load(registers.index(_flat(digits, now))) for registers, digits in held)
            sum_ = self.c.load(place)
            fused = value.dtype in FUSED
            self.c.store(place, a.fma(b, sum_) if fused else sum_ + a * b)

    def _registers_of(self, stage: UOp, slot: UOp) -> tuple[UOp, list[UOp]]:
        """(registers with what one step of k wants of an operand, the digits that number them)."""
        arg, form = stage.arg, _form(stage)
        digits = [r for r in self.digits if r in free(stage.src[2])]
        size = prod(r.arg.size for r in digits)
        held = self._alloc(AddrSpace.REG, stage.dtype, size, f"{arg.name}_part")
        now = self._fresh(digits)
        if digits:  # neighbours at once
            last = digits[-1]
            now[last] = self._range(last.arg.size, digit="v")
        row, k = ix.digits(ix.substitute(stage.src[2], now), (form.rows, form.k))
        place = ix.add(ix.scale(slot, arg.size), form.index(row, k))
        element = self.c.load(self.memory[arg.name].index(place))
        self._store_each(held.index(_flat(digits, now)), element, *now.values())
        return held, digits

    def _fresh(self, digits: Sequence[UOp], kind: AxisType = AxisType.UPCAST) -> dict[UOp, UOp]:
        """Ranges of the same sizes, for another loop."""
        return {r: self._range(r.arg.size, kind, r.arg.digit) for r in digits}

    def _multiply_by_atoms(self, value: UOp, slot: UOp) -> None:
        atom = layouts.atom_named(value.arg)
        a, b = value.src
        repeats = [[r for r in self.digits if r in free(u.src[2])] for u in (a, b)]
        held = [
            self._fragments(u, operand, outer, slot)
            for u, operand, outer in zip((a, b), (atom.a, atom.b), repeats, strict=True)
        ]
        outer = [r for r in self.digits if any(r in x for x in repeats)]
        now = self._fresh(outer)
        with self._loops(*now.values()):
            at = self.sums.index(ix.scale(_flat(outer, now), atom.accumulator.registers))
            parts = (
                registers.index(ix.scale(_flat(mine, now), o.registers))
                for registers, mine, o in zip(held, repeats, (atom.a, atom.b), strict=True)
            )
            self.c.mma(atom.name, at, *parts)

    def _multiply_by_wgmma(self, value: UOp, slot: UOp) -> None:
        """All MMAs of a tile are in flight at once; then their sums are ours again."""
        atom = layouts.atom_named(value.arg)
        outer = [r for r in self.digits if any(r in free(u.src[2]) for u in value.src)]
        loops = [*outer, *([self.inner] if self.inner.op is Ops.RANGE else [])]
        now = self._fresh(loops)
        a, b = (self._operand(u, slot, now) for u in value.src)
        self.c.fence(Fence.WGMMA, self.sums)
        with self._loops(*now.values()):
            at = self.sums.index(ix.scale(_flat(outer, now), atom.accumulator.registers))
            inner = now.get(self.inner, ix.ZERO)
            keep = ix.at_least(ix.add(self.step, inner), 1)
            self.c.mma(atom.name, at, a, b, keep)
        self.c.commit(Engine.WGMMA)
        self.c.wait_group(Engine.WGMMA, 0, self.sums)

    def _operand(self, stage: UOp, slot: UOp, now: Mapping[UOp, UOp]) -> UOp:
        """The descriptor of an operand: where the tile's begins, and how far on this MMA's does."""
        arg, form = stage.arg, _form(stage)
        tile = form.tile

        def begins(digits: Mapping[UOp, UOp]) -> UOp:
            row, k = ix.digits(ix.substitute(stage.src[2], dict(digits)), (form.rows, form.k))
            return _index(tile.linear(*((row, k) if form.major == K_MAJOR else (k, row))))

        first = begins(dict.fromkeys(now, ix.ZERO))
        canonical = layouts.operand_descriptor(tile, form.major)
        shape = (canonical.leading, canonical.stride, canonical.swizzle)
        start = self.c.descriptor(
            self.memory[arg.name].index(ix.add(ix.scale(slot, arg.size), first)),
            DescriptorArg(*shape, form.major == MN_MAJOR),
        )
        on = ix.sub(begins(now), first)
        units = ix.div(ix.scale(on, tile.element_bytes), 16)
        return start + units.cast(dtypes.u64)

    def _fragments(
        self, stage: UOp, operand: layouts.Operand, repeats: Sequence[UOp], slot: UOp
    ) -> UOp:
        """Registers with the fragments of all atoms along one side of the warp's tile."""
        arg, form = stage.arg, _form(stage)
        count = prod(r.arg.size for r in repeats)
        is_a = arg.name == "a"
        assert operand.fragment is not None
        fragment = operand.fragment.repeat(**{"rows" if is_a else "columns": count})
        packed = operand.packing > 1 or operand.type == "tf32"
        dtype = dtypes.u32 if packed else operand.dtype
        held = self._alloc(AddrSpace.REG, dtype, count * operand.registers, f"{arg.name}_part")
        start = ix.substitute(stage.src[2], dict.fromkeys(repeats, ix.ZERO))
        first_row, first_k = ix.digits(start, (form.rows, form.k))
        along = "row" if (form.major == K_MAJOR) != is_a else "column"
        access = layouts.matrix_access(fragment, operand.element_bytes, along)
        if access is None:
            self._fragments_by_loads(stage, fragment, held, first_row, first_k, slot)
            return held
        group = self._range(access.groups)
        row, column = access.rows(self.member, group)
        down, deep = (row, column) if is_a else (column, row)
        place = form.index(ix.add(first_row, _index(down)), ix.add(first_k, _index(deep)))
        with self._loops(group):
            self.c.ldmatrix(
                held.index(ix.scale(group, access.move.tiles)),
                self.memory[arg.name].index(ix.add(ix.scale(slot, arg.size), place)),
                access.move.tiles,
                access.move.transposed,
            )
        return held

    def _fragments_by_loads(
        self, stage: UOp, fragment: Fragment, held: UOp, row: UOp, k: UOp, slot: UOp
    ) -> None:
        """Elements that fill a register each, one by one."""
        arg, form = stage.arg, _form(stage)
        if arg.layout.tile.element_bytes < 4:
            raise UsageError(f"Opts.plan: no ldmatrix brings {stage.dtype} as it lies in {form}")
        r = self._range(fragment.registers)
        down, deep = fragment(self.member, r) if arg.name == "a" else fragment(self.member, r)[::-1]
        place = form.index(ix.add(row, _index(down)), ix.add(k, _index(deep)))
        source = self.memory[arg.name].index(ix.add(ix.scale(slot, arg.size), place))
        self._store_each(held.index(r), self.c.load(source), r)

    # ---- what becomes of the sums
    def _store(self, end: UOp) -> None:
        """The stored value, at each sum of the thread; what it loads comes first, neighbours at
        once."""
        now = self._fresh(self.digits)
        *outer, v = now.values() if now else [ix.ZERO]
        with self._loops(*outer):
            total = ix.substitute(self.total, now)
            store = ix.substitute(end.src[0], now)
            table: dict[UOp, UOp] = {}
            for load in _loads_beside(store, total):
                along = [v] if v in free(load) else []
                apart = self._fresh(along)
                size = prod(r.arg.size for r in along)
                held = self._alloc(AddrSpace.REG, load.dtype, size, "beside")
                value = replace(ix.substitute(load, apart), table)
                self._store_each(held.index(_flat(along, apart)), value, *apart.values())
                table[load] = self.c.load(held.index(ix.flat((r, r.arg.size) for r in along)))
            table[total] = self.c.load(self.sums.index(_flat(self.digits, now)))
            element, value, *gate = replace(store, table).src
            self._store_each(element, value, v, gate=gate[0] if gate else ix.TRUE)


def _loads_beside(store: UOp, total: UOp) -> list[UOp]:
    """The LOADs of a stored value that the sum has no part in, those in places of others first."""
    within = set(toposort(total))
    above: set[UOp] = {total}
    found: list[UOp] = []
    for u in toposort(store):
        if not above.isdisjoint(u.src):
            above.add(u)
        elif u.op is Ops.LOAD and u not in within:
            found.append(u)
    return found


@dataclass(frozen=True)
class _Share:
    """What each thread brings of a tile: `each` vectors of `width` elements.

    Neighbouring threads bring neighbouring vectors of a line; lines are along k or along m (n), as
    the operand lies in memory.  copied: by cp.async.
    """

    form: OperandTile
    along_k: bool
    width: int
    threads: int
    copied: bool

    @classmethod
    def of(
        cls, value: UOp, r: UOp, c: UOp, form: OperandTile, threads: int, engine: Engine | None
    ) -> _Share:
        along_k = contiguous_along(value, r, c) == K_MAJOR
        along, length = (c, form.k) if along_k else (r, form.rows)
        straight = along_k == (form.major == K_MAJOR)
        width = _width(value, along, length)
        if engine is Engine.CP_ASYNC:
            wide = width if straight else 1
            if wide * value.dtype.itemsize in COPY_BYTES and _gated_as_one(value, along, wide):
                return cls(form, along_k, wide, threads, True)
        return cls(form, along_k, width, threads, False)

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
        number = ix.add(ix.scale(copy, self.threads), thread)
        line = ix.div(number, self._vectors)
        place = ix.add(ix.scale(ix.mod(number, self._vectors), self.width), e)
        return (line, place) if self.along_k else (place, line)

    def place(self, copy: UOp, thread: UOp, e: UOp) -> UOp:
        """Where it goes: a vector along the tile's own rows lies as its first element does."""
        if self.along_k == (self.form.major == K_MAJOR):
            return ix.add(_index(self.form.index(*self.at(copy, thread, ix.ZERO))), e)
        return _index(self.form.index(*self.at(copy, thread, e)))


def _width(value: UOp, along: UOp, length: int) -> int:
    """Elements of the widest vector along a side that is proved to be one access everywhere."""
    loads = [u for u in toposort(value) if u.op is Ops.LOAD]
    item = max((u.dtype.itemsize for u in (value, *loads)), default=WIDEST_BYTES)
    width = max(1, WIDEST_BYTES // item)
    offsets = [u.src[0].src[1] for u in loads]
    offsets = [x for x in offsets if ix.coefficient(x, along) == 1]
    while width > 1 and (length % width or not offsets or not _aligned(offsets, along, width)):
        width //= 2
    return width


def _aligned(offsets: Sequence[UOp], along: UOp, width: int) -> bool:
    each = {along: ix.scale(along, width)}
    return all(ix.divides(width, ix.substitute(x, each)) for x in offsets)


def _gated_as_one(value: UOp, along: UOp, width: int) -> bool:
    """Are all elements of a vector inside, or none?"""
    if len(value.src) == 1 or width == 1:
        return True
    first, last = (
        ix.substitute(value.src[1], {along: ix.add(ix.scale(along, width), ix.index(e))})
        for e in (0, width - 1)
    )
    return first is last


def _of_kind(root: UOp, kind: AxisType) -> list[UOp]:
    return [u for u in toposort(root) if u.op is Ops.RANGE and u.arg.kind is kind]


def _group_with_producers(root: UOp, plan: Plan) -> UOp:
    """The range of those that multiply together, with a warpgroup more, which copies."""
    kind = AxisType.WARPGROUP if plan.group_threads > WARP else AxisType.WARP
    known = _of_kind(root, kind)
    axes = [u.arg.axis for u in toposort(root) if u.op is Ops.RANGE]
    axis = known[0].arg.axis if known else 1 + max(axes)
    return UOp(Ops.RANGE, (), RangeArg(axis, plan.threads // plan.group_threads, kind, "p"))


def _ring(step: UOp, depth: int) -> tuple[UOp, UOp]:
    """(place in the ring, parity of the round) of a tile."""
    return ix.mod(step, depth), ix.mod(ix.div(step, depth), 2)


def _registers_of_roles(plan: Plan) -> tuple[int, int]:
    """(registers of a thread that copies, of one that multiplies): what a block has is shared out
    anew, in steps of 8 (PTX ISA, setmaxnreg)."""
    most = min(MOST_REGISTERS, REGISTERS_OF_SM // plan.threads // 8 * 8)
    groups = plan.consumers // WARPGROUP
    fewer = FEWEST_REGISTERS if groups > 2 else FEW_REGISTERS
    more = (most * (groups + 1) - fewer) // groups // 8 * 8
    return fewer, min(MOST_REGISTERS, more)


def _places_along(offset: UOp, strides: Sequence[int]) -> list[UOp]:
    """The coordinates of a place in memory along axes of these strides, outermost first, and a
    contiguous one."""
    terms, constant = ix.affine(offset)
    at: list[dict[UOp, int]] = [{} for _ in (*strides, 1)]
    for term, c in terms.items():
        n = next((n for n, stride in enumerate(strides) if c % stride == 0), len(strides))
        at[n][term] = c // (*strides, 1)[n]
    assert not constant
    return [ix.from_affine(terms, 0) for terms in at]


def _form(stage: UOp) -> OperandTile:
    form: OperandTile = stage.arg.layout
    return form


def _coordinates(stage: UOp) -> tuple[UOp, UOp]:
    """The ranges of rows and of k of a staged tile."""
    form, ranges = _form(stage), list(stage.src[4:])
    r = ranges.pop(0) if form.rows > 1 else ix.ZERO
    return r, ranges.pop(0) if form.k > 1 else ix.ZERO


def _flat(digits: Sequence[UOp], now: Mapping[UOp, UOp]) -> UOp:
    """The row-major place of digits as they are now."""
    return ix.flat((now[r], r.arg.size) for r in digits)


def _index(x: UOp | int) -> UOp:
    return ix.index(x) if isinstance(x, int) else x
