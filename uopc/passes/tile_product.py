"""A product in tiles: who computes which element, and what is staged for it.  INDEXED -> MAPPED.

Here because: in place of `split`, whose digits belong to one thread and one axis each.  Nothing has
an order yet: a STAGE says what is in shared memory, and a DOT, or a MUL, what is made of it.
Before: STORE(out[m, n], f(REDUCE(a[m, k] * b[n, k], k)))
After:  A = STAGE(SHARED, a[bm*128 + r, t*16 + c], write (r, c), read (row, kk); r, c)    B alike
        STORE(out[x, y], f(REDUCE(A * B, t, kk)))                 or DOT(A, B; atom) with an atom

t counts tiles of k, kk what is inside of one, and where blocks or warps share a sum, more ranges of
the REDUCE count those; x and y are the place of one of the sums that a lane of a warp holds: the
digits of `Plan.held`.  Outside of a and b, a stage holds 0, so that no guard stands where sums are
added up.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from uopc.dtype import AddrSpace, DType
from uopc.errors import UsageError
from uopc.layouts import (
    K_MAJOR,
    MN_MAJOR,
    SWIZZLES,
    WARP,
    Operand,
    OperandTile,
    SharedTile,
    tma_fault,
)
from uopc.layouts.fragment import REGISTER, THREAD, Digit
from uopc.passes.find_products import Product, Ranges, find_product, places
from uopc.passes.operands import (
    Folded,
    contiguous_along,
    folded_map,
    is_view,
    is_zero,
    narrow,
)
from uopc.plan import BULK, CP_ASYNC, Plan
from uopc.symbolic import index as ix
from uopc.uop.node import UOp, derive, inherit, prod, toposort
from uopc.uop.ops import AxisType, Engine, LaunchArg, Ops, RangeArg, StageArg, TensorMapArg

WIDEST_BYTES = 16
LINE_BYTES = 128
#: chunks of D of one group that are in shared memory at once
STORED_AT_ONCE = 2
#: of a block, on the GPUs that have most (CUDA Programming Guide, compute capability 9.0 and 10.0)
MOST_SHARED_BYTES = 227 << 10


def tile_product(root: UOp, plan: Plan) -> UOp:
    """MAPPED graph of a product under a plan.  Raises UsageError where the two do not fit."""
    product = find_product(root)
    return _Tiling(root, product.swapped if plan.swap else product, plan).mapped()


class _Tiling:
    """One product under one plan, and the ranges of its kernel."""

    def __init__(self, root: UOp, product: Product, plan: Plan) -> None:
        self.root, self.product, self.plan = root, product, plan
        self._axes: Iterator[int] = itertools.count()
        batches, self.rows, self.columns, self.depth = product.sizes
        if plan.rows and len(plan.rows) != len(product.m):
            raise UsageError(
                f"Opts.plan: rows has {len(plan.rows)} sizes, {plan.rows}; m has {len(product.m)} "
                f"axes, of {', '.join(str(r.arg.size) for r in product.m)}"
            )
        self.m = _Side(product.m, plan.rows or (plan.block_m,))
        self.n = _Side(product.n, (plan.block_n,))
        tiles_m, tiles_n = prod(self.m.tiles), prod(self.n.tiles)
        tiles_k = -(-self.depth // plan.block_k)
        tiles = tiles_m * tiles_n
        if plan.blocks:
            whole = self._range(batches * tiles, AxisType.GLOBAL, "g")
            self.blocks: tuple[UOp, ...] = (whole,)
            self.tile, self.batch = ix.mod(whole, tiles), ix.div(whole, tiles)
        else:
            self.tile = self._range(tiles, AxisType.GLOBAL, "g")
            self.batch = self._range(batches, AxisType.GLOBAL, "g")
            self.blocks = (self.tile, self.batch)
        grouped = plan.group_threads > WARP
        kind = AxisType.WARPGROUP if grouped else AxisType.WARP
        self.slice = self._range(plan.warps_k, AxisType.WARP, "p")
        self.group = self._range(plan.groups // plan.warps_k, kind, "p")
        warp = self._range(plan.group_threads // WARP, AxisType.WARP, "p")
        lane = self._range(WARP, AxisType.LANE, "l")
        self.threads = (self.group, warp, lane)
        self.member = ix.add(ix.scale(warp, WARP), lane)
        steps = -(-tiles_k // plan.splits)
        self.step = self._range(steps, AxisType.REDUCE, "k")
        self.tile_m, self.tile_n = _raster(self.tile, tiles_m, tiles_n, plan.group)
        self.group_row = ix.scale(ix.div(self.group, plan.warps_n), plan.warp_m)
        self.group_column = ix.scale(ix.mod(self.group, plan.warps_n), plan.warp_n)
        registers = {d for d in (*plan.held.row, *plan.held.column) if d.of == REGISTER}
        outermost = sorted(registers, key=lambda d: -d.divide)
        self.digits = {d: self._digit(d) for d in outermost}
        self.part = self._range(-(-tiles_k // steps), AxisType.GLOBAL, "b")
        self.tile_of_k = ix.add(ix.scale(self.part, steps), self.step)

    def _range(self, size: int, kind: AxisType, digit: str = "") -> UOp:
        axis = next(self._axes)
        return ix.ZERO if size == 1 else UOp(Ops.RANGE, (), RangeArg(axis, size, kind, digit))

    def _digit(self, d: Digit) -> UOp:
        """The range of a digit of what a lane holds; the innermost are neighbours in memory."""
        return self._range(d.size, AxisType.UPCAST, "v" if d.divide == 1 else "u")

    # ---- the whole
    def mapped(self) -> UOp:
        product, plan = self.product, self.plan
        row = ix.add(self.group_row, self._held(plan.held.row))
        column = ix.add(self.group_column, self._held(plan.held.column))
        at_row, row_inside = self.m.at(self.tile_m, row)
        at_column, column_inside = self.n.at(self.tile_n, column)
        at = {**places(product.batch, self.batch), **at_row, **at_column}
        inside = ix.conj(row_inside, column_inside)
        memo: dict[UOp, UOp] = {**at, product.total: self._sum(row, column)}
        closed = (*self.blocks, *self.threads, *self.digits.values())
        closed = tuple(r for r in closed if r.op is Ops.RANGE)
        for u in toposort(self.root):
            if u in memo:
                continue
            src = tuple([memo.get(s, s) for s in u.src])
            if u.op is Ops.LOAD and product.total not in toposort(u):
                memo[u] = gated(derive(u, src), inside)
            elif u.op is Ops.STORE:
                gate = ix.conj(inside, *src[2:])
                new = (src[0], self._stored(u, src[1], row, column))
                memo[u] = derive(u, new if gate is ix.TRUE else (*new, gate))
            elif u.op is Ops.END:
                memo[u] = derive(u, (src[0], *closed))
            elif u.op is Ops.SINK:
                launch = LaunchArg(
                    grid=tuple(range(len(self.blocks))), blocks_per_sm=plan.blocks_per_sm
                )
                memo[u] = derive(u, src, launch)
            else:
                memo[u] = u if src == u.src else ix.remake(u, src)
        return memo[self.root]

    def _stored(self, store: UOp, value: UOp, row: UOp, column: UOp) -> UOp:
        """The value that is stored, or the STAGE out of which tensor copies bring it, chunks of 64
        rows by a slab."""
        atom, plan = self.plan.tensor_core, self.plan
        if plan.store != BULK or value.dtype.itemsize != 2:
            return value
        if atom is None or atom.engine != "wgmma":
            return value
        slab = next((n for n in (64, 32, 16) if atom.n % n == 0), 0)
        if not slab:
            return value
        form = OperandTile(SharedTile(atom.m, slab, 2, swizzle=2 * slab), K_MAJOR)
        box = self._box_of_result(store, form)
        if box is None:
            return value
        name = f"d{store.src[0].src[0].arg.slot}_"
        ring = (name, form, STORED_AT_ONCE, Engine.BULK, box)
        arg = StageArg(AddrSpace.SHARED, form.tile.size, True, 1, *ring)
        at = ix.flat(((row, plan.block_m), (column, plan.block_n)))
        return UOp(Ops.STAGE, (value, at, at, ix.TRUE), arg)

    def _box_of_result(self, store: UOp, form: OperandTile) -> TensorMapArg | None:
        """What a tensor copy writes of D: a chunk of rows by a slab of columns."""
        product = self.product
        if len(self.m.rows) > 1:
            rows = _chunk(self.m.rows, form.rows)
            if rows is None or len(store.src) > 2 or len(product.n) > 1:
                return None
            cut = dict.fromkeys(product.batch, 1) | dict(zip(product.m, rows, strict=True))
            folded = folded_map(store, cut | {product.n[0]: form.k}, form.tile.swizzle)
            if folded is None or not folded.has_in_order((*product.m, product.n[0])):
                return None
            return None if any(folded.origin) else folded.map
        z, r, c = (self._range(n, AxisType.LOOP) for n in product.sizes[:3])
        table = {
            **places(product.batch, z),
            **places(product.m, r),
            **places(product.n, c),
        }
        gate = tuple(ix.substitute(g, table) for g in store.src[2:])
        limits = _limits(gate, (r, self.rows), (c, self.columns))
        if limits is None:
            return None
        offset = ix.substitute(store.src[0].src[1], table)
        return _box(offset, z, r, c, form, (product.sizes[0], *limits))

    def _held(self, digits: tuple[Digit, ...]) -> UOp:
        """One coordinate of the sums that a lane holds."""
        at = ix.ZERO
        for d in digits:
            part = ix.mod(ix.div(self.member, d.divide), d.size)
            at = ix.add(at, ix.scale(part if d.of == THREAD else self.digits[d], d.scale))
        return at

    def _sum(self, row: UOp, column: UOp) -> UOp:
        """The REDUCE over tiles of k and what is inside of them."""
        plan, product = self.plan, self.product
        atom = plan.tensor_core
        if atom is not None and atom.accumulator.dtype is not product.total.dtype:
            raise UsageError(
                f"Opts.plan: the atom sums in {atom.accumulator.dtype}, the kernel in "
                f"{product.total.dtype}. Choose another atom, or cast the operands to "
                f"{atom.accumulator.dtype}"
            )
        inner = self._range(plan.slice_k // (atom.k if atom else 1), AxisType.UPCAST, "u")
        a = self._stage("a", product.a, self.m, self.tile_m)
        b = self._stage("b", product.b, self.n, self.tile_n)
        if atom is None:
            k = ix.add(ix.scale(self.slice, plan.slice_k), inner)
            value = a.read(row, k) * b.read(column, k)
        else:
            k = ix.scale(inner, atom.k)
            down, across = (
                self._repeats(plan.held.row, atom.m),
                self._repeats(plan.held.column, atom.n),
            )
            value = UOp(
                Ops.DOT,
                (
                    a.read(ix.add(self.group_row, down), k),
                    b.read(ix.add(self.group_column, across), k),
                ),
                atom.name,
            )
        _check_room(plan, a.bytes, b.bytes, value.dtype.itemsize)
        closed = (self.part, self.slice, self.step, inner)
        ranges = tuple(r for r in closed if r.op is Ops.RANGE)
        if not ranges:  # one atom has all of k: what a REDUCE closes is named, be it of one step
            ranges = (UOp(Ops.RANGE, (), RangeArg(next(self._axes), 1, AxisType.REDUCE, "k")),)
        return derive(product.total, (value, *ranges))

    def _repeats(self, digits: tuple[Digit, ...], size: int) -> UOp:
        """Where the atom begins that a sum is of, along one side of the warp's tile."""
        at = ix.ZERO
        for d in digits:
            if d.of == REGISTER and d.scale >= size:
                at = ix.add(at, ix.scale(self.digits[d], d.scale))
        return at

    # ---- operands
    def _stage(self, name: str, operand: UOp, side: _Side, tile: UOp) -> _Staged:
        plan, of = self.plan, self.plan.reads(name)
        operand = narrow(operand, of)
        rows = plan.block_rows(name)
        r, c = (self._range(n, AxisType.LOOP, "k") for n in (rows, plan.block_k))
        z = ix.add(ix.scale(self.tile_of_k, plan.block_k), c)
        at, inside = side.at(tile, r)
        table = {**places(self.product.batch, self.batch), **at, **places(self.product.k, z)}
        plain = ix.substitute(operand, table)
        value = zero_outside(plain, ix.conj(inside, ix.below(z, self.depth)))
        along = contiguous_along(value, r, c)
        form = form_of_tile(rows, plan.block_k, value.dtype, of, along)
        engine, box = None, None
        origin: tuple[int, ...] = ()
        if plan.copy == BULK and is_view(plain):
            if len(side.rows) > 1:
                folded = self._folded_box(operand, side, form)
                if folded is not None:
                    box, origin = folded.map, folded.origin
            else:
                box = self._plain_box(operand, plain, table, side, form, r, c, z)
        if box is not None:
            engine = Engine.BULK
        elif (plan.copy == CP_ASYNC or plan.inline) and is_view(value):
            engine = Engine.CP_ASYNC
        return _Staged(name, value, r, c, form, plan.depth, engine, box, origin)

    def _plain_box(
        self,
        operand: UOp,
        plain: UOp,
        table: dict[UOp, UOp],
        side: _Side,
        form: OperandTile,
        r: UOp,
        c: UOp,
        z: UOp,
    ) -> TensorMapArg | None:
        """Of rows by k: both are one axis in memory."""
        (size,) = side.sizes
        x = ix.add(ix.scale(self.tile_m if side is self.m else self.tile_n, side.rows[0]), r)
        limits = _limits(plain.src[1:], (x, size), (z, self.depth))
        if limits is None:
            return None
        batch = self._range(self.product.sizes[0], AxisType.LOOP)
        whole = {**table, **places(self.product.batch, batch)}
        offset = ix.substitute(operand, whole).src[0].src[1]
        return _box(offset, batch, r, c, form, (self.product.sizes[0], *limits))

    def _folded_box(self, operand: UOp, side: _Side, form: OperandTile) -> Folded | None:
        """Of several axes of rows, and one of those of k: an image under a kernel's window."""
        product, plan = self.product, self.plan
        if form.major != K_MAJOR or product.k[-1].arg.size % plan.block_k:
            return None
        cut = dict.fromkeys((*product.batch, *product.k), 1) | side.cut
        cut[product.k[-1]] = form.tile.slab_columns
        folded = folded_map(operand, cut, form.tile.swizzle)
        return folded if folded is not None and folded.has_in_order(side.ranges) else None


@dataclass(frozen=True)
class _Staged:
    """An operand's tile in shared memory: `value` at (r, c)."""

    name: str
    value: UOp
    r: UOp
    c: UOp
    form: OperandTile
    depth: int
    engine: Engine | None
    box: TensorMapArg | None
    origin: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Of all tiles that are there at once."""
        return self.depth * self.form.tile.size_bytes

    def read(self, row: UOp, k: UOp) -> UOp:
        """The STAGE as it is read at (row, k)."""
        form = self.form
        size = form.tile.size
        ring = (self.name, form, self.depth, self.engine, self.box, self.origin)
        arg = StageArg(AddrSpace.SHARED, size, True, 1, *ring)
        write, read = (
            ix.flat(((i, form.rows), (j, form.k))) for i, j in ((self.r, self.c), (row, k))
        )
        ranges = tuple(r for r in (self.r, self.c) if r.op is Ops.RANGE)
        return UOp(Ops.STAGE, (self.value, write, read, ix.TRUE, *ranges), arg)


@dataclass(frozen=True)
class _Side:
    """Rows, or columns, of D: their ranges, and rows of a tile along each of them, or along all of
    them as one axis."""

    ranges: Ranges
    rows: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements along what tiles cut."""
        each = tuple(r.arg.size for r in self.ranges)
        return each if len(self.rows) > 1 else (prod(each),)

    @property
    def tiles(self) -> tuple[int, ...]:
        return tuple(-(-n // rows) for n, rows in zip(self.sizes, self.rows, strict=True))

    @property
    def cut(self) -> dict[UOp, int]:
        """Rows of a tile along each range."""
        return dict(zip(self.ranges, self.rows, strict=True))

    def at(self, tile: UOp, row: UOp) -> tuple[dict[UOp, UOp], UOp]:
        """(each range's place, whether that is inside) of a row of a tile."""
        where = [
            ix.add(ix.scale(t, rows), r)
            for t, rows, r in zip(
                ix.digits(tile, self.tiles), self.rows, ix.digits(row, self.rows), strict=True
            )
        ]
        inside = ix.conj(*(ix.below(x, n) for x, n in zip(where, self.sizes, strict=True)))
        if len(self.rows) > 1:
            return dict(zip(self.ranges, where, strict=True)), inside
        return places(self.ranges, where[0]), inside


def _raster(tile: UOp, rows: int, columns: int, group: int) -> tuple[UOp, UOp]:
    """(row, column) of a tile: `group` rows of tiles go down column by column, then the next."""
    group = min(group, rows)
    while rows % group:
        group -= 1
    run = ix.div(tile, group * columns)
    within = ix.mod(tile, group * columns)
    return ix.add(ix.scale(run, group), ix.mod(within, group)), ix.div(within, group)


def _check_room(plan: Plan, a: int, b: int, sum_bytes: int) -> None:
    """Raises UsageError where no GPU has so much shared memory; a target may have less."""
    added = (plan.warps_k - 1) * plan.block_m * plan.block_n * sum_bytes
    apart = 0 if added <= max(a, b) else added
    if a + b + apart > MOST_SHARED_BYTES:
        sums = f" and {apart} for sums of slices" * bool(apart)
        raise UsageError(
            f"Opts.plan: {plan.depth} tiles of both operands take {a + b} bytes of shared memory"
            f"{sums}, the limit is {MOST_SHARED_BYTES}. Lower depth (now {plan.depth}), block_k "
            f"(now {plan.block_k}), block_m or block_n (now {plan.block_m} and {plan.block_n})"
        )


def gated(load: UOp, inside: UOp) -> UOp:
    """A LOAD under one more gate; 0 outside."""
    if inside is ix.TRUE:
        return load
    other = load.src[2] if len(load.src) == 3 else UOp.const(0, load.dtype)
    return derive(load, (load.src[0], ix.conj(inside, *load.src[1:2]), other))


def zero_outside(value: UOp, inside: UOp) -> UOp:
    """A value that is 0, and loads nothing, where `inside` does not hold."""
    if inside is ix.TRUE:
        return value
    memo: dict[UOp, UOp] = {}
    for u in toposort(value):
        src = tuple([memo[s] for s in u.src])
        new = u if src == u.src else ix.remake(u, src)
        memo[u] = gated(new, inside) if u.op is Ops.LOAD else new
    new = memo[value]
    if is_view(new) and is_zero(new.src[2]):
        return new
    return inherit(UOp(Ops.WHERE, (inside, new, UOp.const(0, new.dtype))), value)


def _limits(
    guard: tuple[UOp, ...], x: tuple[UOp, int], z: tuple[UOp, int]
) -> tuple[int, int] | None:
    """How long an access is along two positions of these sizes, where its gate (and what a LOAD
    gives elsewhere, which is to be 0) are nothing but limits of them."""
    gates = ix.conjuncts(guard[0]) if guard else []
    if not all(map(is_zero, guard[1:])):
        return None
    limits = [[g for g in gates if g is _limit(at, g)] for at, _ in (x, z)]
    if len(limits[0]) + len(limits[1]) < len(gates):
        return None
    rows, k = (
        min([size, *(g.src[1].arg.bits for g in mine)])
        for mine, (_, size) in zip(limits, (x, z), strict=True)
    )
    return rows, k


def _limit(at: UOp, like: UOp) -> UOp | None:
    """`at` below the constant that another comparison has."""
    if like.op is not Ops.LT or like.src[1].op is not Ops.CONST:
        return None
    return ix.below(at, like.src[1].arg.bits)


def _box(
    offset: UOp, batch: UOp, r: UOp, c: UOp, form: OperandTile, sizes: tuple[int, int, int]
) -> TensorMapArg | None:
    """What a tensor copy moves of an operand: (batches,) rows and k as they lie in memory, one slab
    of the tile; None where tensor copies cannot."""
    item, tile = form.tile.element_bytes, form.tile
    steps = [ix.coefficient(offset, x) if x.op is Ops.RANGE else 0 for x in (batch, r, c)]
    step = [x for x in steps if x is not None]
    if len(step) < len(steps) or ix.affine(offset)[1]:
        return None
    order = (0, 1, 2) if form.major == K_MAJOR else (0, 2, 1)
    shape, strides = ([x[n] for n in order] for x in (sizes, step))
    box = [1, tile.rows, tile.slab_columns]
    if not strides[0]:
        shape, strides, box = shape[1:], strides[1:], box[1:]
    *outer, inner = strides
    if inner != 1 or tma_fault(shape, outer, box, item, tile.swizzle):
        return None
    return TensorMapArg(tuple(shape), tuple(outer), tuple(box), tile.swizzle)


def _chunk(rows: tuple[int, ...], count: int) -> tuple[int, ...] | None:
    """A box of `count` rows that follow each other in a tile's; None where they are no box."""
    found: list[int] = []
    for n in reversed(rows):
        found.append(min(n, count))
        if count % found[-1] or n % found[-1]:
            return None
        count //= found[-1]
    return tuple(reversed(found)) if count == 1 else None


def turns_by_copies(rows: int, k: int, element_bytes: int) -> bool:
    """Can copies of single elements turn a tile whose lines lie along k, each lane another bank?
    Lanes have 8 elements along k, and 4 lines (`fill`)."""
    return element_bytes in (4, 8) and not (rows * element_bytes % LINE_BYTES or k % 8)


def form_of_tile(rows: int, k: int, dtype: DType, of: Operand | None, along: str) -> OperandTile:
    """How a tile lies: for FMA lanes read neighbours along m (n), and what comes along k is spread
    over the banks by a swizzle, or else a pad; ldmatrix and wgmma take both of 16-bit elements, and
    of others rows that are contiguous along k; registers of their own take elements of 32 bits one
    by one."""
    item = dtype.itemsize
    if of is None:
        if along == K_MAJOR and turns_by_copies(rows, k, item):
            return OperandTile(SharedTile(k, rows, item, swizzle=LINE_BYTES), MN_MAJOR)
        pad = WIDEST_BYTES // item if along == K_MAJOR else 0
        return OperandTile(SharedTile(k, rows, item, pad=pad), MN_MAJOR)
    line = min(rows * item, LINE_BYTES)
    either_way = item == 2 or (item == 4 and of.fragment is not None)
    if along == MN_MAJOR and either_way and line in SWIZZLES and rows * item % line == 0:
        return OperandTile(SharedTile(k, rows, item, swizzle=line), MN_MAJOR)
    row_bytes = k * item
    if row_bytes not in (32, 64) and row_bytes % LINE_BYTES:
        raise UsageError(
            f"Opts.plan: block_k={k} makes rows of {row_bytes} bytes; with an atom they have 32, "
            "64 or a multiple of 128"
        )
    return OperandTile(SharedTile(rows, k, item, swizzle=min(row_bytes, LINE_BYTES)), K_MAJOR)
