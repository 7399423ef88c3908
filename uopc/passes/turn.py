"""Accesses that are contiguous along the wrong axis go through a tile in shared memory.
MAPPED -> MAPPED.

Here because: after `split` (digits are known), before `materialise`, which keeps what a tile is
filled with in registers.  With lanes along x, `Opts.turn = {y: n}` and a LOAD contiguous along y:
Before: LOAD(p0, 777*x + y)
After:  STAGE(SHARED, LOAD(p0, 777*x' + y'), write (y', x'), read (y, x)), read again by STAGE(REG)

x and y are made of the kernel's digits, x' and y' of the turned ones: the lanes of x walk y and the
lanes of y walk x, so that neighbours load neighbours and afterwards store neighbours.  Both cover
the same tile, upcast * local * vector of each axis:

    kernel's   x = (u*LX + lx)*VX + v      y = (u*LY + ly)*VY + v
    turned     y = (u*LX + lx)*TY + v      x = (u*LY + ly)*TX + v      turn = {y: TY, x: TX}

A STORE that is contiguous along y is turned in the same way, the other way round: its value is
written to the tile by the kernel's digits and read, and stored, by the turned ones.  Guards are the
accesses' own; whatever lies outside fills its place with something, so every thread meets the
barrier.  How a tile lies in shared memory, and why no bank is asked twice: `Tile`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from uopc.dtype import AddrSpace
from uopc.errors import UsageError
from uopc.kernel import UNASKED, Fired
from uopc.opts import Opts
from uopc.passes.bind import hardware_ranges
from uopc.passes.cooperate import upcasts
from uopc.passes.share import is_report
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, derive, inherit, memory, prod, toposort
from uopc.uop.ops import AxisType, Ops, RangeArg, StageArg

#: bytes that the 32 banks give at once, and of one bank (CUDA Programming Guide, shared memory)
LINE_BYTES = 128
BANK_BYTES = 4


@dataclass(frozen=True)
class Tile:
    """Rows of elements in shared memory, whose lines of 128 bytes are rotated by their number.

    rows, columns: its size.  item_bytes: of an element.  lanes: neighbouring threads that write
    `block` rows each, one below the other; unit: columns that one of them writes at once; read:
    columns that are read at once.

    Of a warp's request 128 bytes are served at a time, one word of each bank: 32 lanes of up to 4
    bytes, 16 of 8, or 8 of 16.  Those that write stand in rows `block` apart, in one column or, if
    fewer lanes than these walk rows, in a few neighbouring ones.  What such neighbours write of one
    row is a chunk: 128 / lanes bytes, but a bank, and what is written or read at once, at least
    (where that is more, lanes that write wait for each other).  Row after row, chunk q
    stands at place (q + r // block) % n of its line, of n chunks: another place for each lane.
    (Rows that share a line rotate together: block is then a multiple of their number.)
    Those that read walk rows, and a rotation asks the same banks once each.
    tests/passes/test_turn.py counts that for the sizes of elements and digits in use.
    """

    rows: int
    columns: int
    item_bytes: int
    lanes: int
    block: int
    unit: int
    read: int

    @property
    def chunk(self) -> int:
        """Elements of a chunk."""
        one_each = -(-LINE_BYTES // self.lanes)
        at_once = min(16, max(self.unit, self.read) * self.item_bytes)
        size = _power_from(max(at_once, self.unit * self.item_bytes, BANK_BYTES, one_each))
        return max(1, min(min(size, LINE_BYTES) // self.item_bytes, _power_from(self.columns)))

    @property
    def places(self) -> int:
        """Chunks of one line."""
        return max(1, LINE_BYTES // (self.chunk * self.item_bytes))

    @property
    def row_chunks(self) -> int:
        """Chunks of one row: whole lines, or a part of one that divides it."""
        n = -(-self.columns // self.chunk)
        whole = -(-n // self.places) * self.places
        return whole if n > self.places else min(whole, _power_from(n))

    @property
    def size(self) -> int:
        chunks = self.rows * self.row_chunks
        return -(-chunks // self.places) * self.places * self.chunk

    def index(self, row: UOp, column: UOp) -> UOp:
        """Where an element lies."""
        chunk = ix.add(ix.scale(row, self.row_chunks), ix.div(column, self.chunk))
        together = max(1, self.places // self.row_chunks)  # rows of one line
        turns = ix.div(row, -(-self.block // together) * together)
        place = ix.mod(ix.add(ix.mod(chunk, self.places), turns), self.places)
        line = ix.scale(ix.div(chunk, self.places), self.places)
        return ix.add(ix.scale(ix.add(line, place), self.chunk), ix.mod(column, self.chunk))


def _power_from(n: int) -> int:
    """The smallest power of two >= n."""
    return 1 << max(0, n - 1).bit_length()


@dataclass(frozen=True)
class _Digits:
    """One way to walk a tile: where a thread is along both axes, and the copies that it walks."""

    x: UOp
    y: UOp
    copies: frozenset[UOp]


def turn(root: UOp, opts: Opts, fired: Fired = UNASKED) -> UOp:
    """MAPPED graph whose accesses along the turned axis go through tiles.

    Raises UsageError where the turned digits do not make up the same tile.
    """
    if not opts.turn:
        return root
    x, y = opts.turned_axes()
    axes = {u.arg.axis for u in toposort(root) if u.op is Ops.RANGE}
    if not axes.issuperset((x, y)):
        return root  # an axis that was simplified away moves nothing
    return _Turn(root, opts, x, y).run(fired)


class _Turn:
    """One graph and the two ways to walk its tiles."""

    def __init__(self, root: UOp, opts: Opts, x: int, y: int) -> None:
        self.root, self.x, self.y = root, x, y
        self.order = toposort(root)
        self.lanes = hardware_ranges(root, AxisType.LOCAL)
        self.blocks = dict(opts.turn)
        self.vector = {a: dict(opts.vector).get(a, 1) for a in (self.x, self.y)}
        self.digits = {a: self._digits(a) for a in (self.x, self.y)}
        self.tile = {a: prod(d.arg.size for d in self.digits[a]) for a in self.digits}
        self.lanes_of = {a: self._size(self._lane(a)) for a in self.digits}
        plain = {a: _walked(self.digits[a]) for a in self.digits}
        copies = (d for a in plain for d in self.digits[a] if d.arg.kind is AxisType.UPCAST)
        self.plain = _Digits(plain[self.x], plain[self.y], frozenset(copies))
        self.turned, self.table = self._turned()
        stored = {memory(u.src[0]) for u in self.order if u.op is Ops.STORE}
        loaded = {memory(u.src[0]) for u in self.order if u.op is Ops.LOAD}
        self.in_place = stored & loaded

    # ---- digits
    def _digits(self, axis: int) -> list[UOp]:
        """The digits of an axis in the tile, outermost first."""
        mine = [
            u
            for u in self.order
            if u.op is Ops.RANGE and u.arg.axis == axis and u.arg.digit in ("u", "l", "v")
        ]
        return sorted(mine, key=lambda d: "ulv".index(d.arg.digit))

    def _lane(self, axis: int) -> UOp | None:
        return next((d for d in self.digits[axis] if d.arg.digit == "l"), None)

    @staticmethod
    def _size(r: UOp | None) -> int:
        return 1 if r is None else int(r.arg.size)

    def _turned(self) -> tuple[_Digits, dict[UOp, UOp]]:
        """The turned way, and what each digit of the kernel is in it."""
        walked: dict[int, list[UOp]] = {}
        for axis, other in ((self.x, self.y), (self.y, self.x)):
            n, lane = self.blocks.get(axis, 1), self._lane(other)
            step = n * self._size(lane)
            copies, rest = divmod(self.tile[axis], step)
            if rest or not copies:
                raise UsageError(
                    f"Opts.turn: a tile has {self.tile[axis]} elements of axis {axis}, and the "
                    f"{self._size(lane)} lanes of axis {other} with {n} each walk {step} of them. "
                    "Make the tile a multiple of that with Opts.upcast, local or vector."
                )
            sizes = ((copies, "u"), (0, "l"), (n, "v"))
            made = [lane if d == "l" else _copy(axis, size, d) for size, d in sizes]
            walked[axis] = [d for d in made if d is not None]
        table: dict[UOp, UOp] = {}
        for axis, ranges in walked.items():
            sizes_ = [d.arg.size for d in self.digits[axis]]
            table |= zip(self.digits[axis], ix.digits(_walked(ranges), sizes_), strict=True)
        every = (d for ranges in walked.values() for d in ranges)
        copies_ = frozenset(d for d in every if d.arg.kind is AxisType.UPCAST)
        x, y = _walked(walked[self.x]), _walked(walked[self.y])
        return _Digits(x, y, copies_), table

    # ---- which accesses
    def _is_turned(self, access: UOp) -> bool:
        """Is an access contiguous along y, moved by x in larger steps, and of no memory that is
        both read and written?"""
        if memory(access.src[0]) in self.in_place:
            return False
        offset = access.src[0].src[1]
        strides = [_stride(offset, self.digits[a]) for a in (self.x, self.y)]
        return strides[0] not in (None, 0, 1) and strides[1] == 1

    # ---- the graph
    def run(self, fired: Fired) -> UOp:
        memo: dict[UOp, UOp] = {}
        for u in self.order:
            src = tuple([memo[s] for s in u.src])
            if u.op is Ops.LOAD and self._is_turned(u):
                memo[u] = self._load(u)
                fired.add("turn-load")
            elif u.op is Ops.END and self._stores_turned(u):
                memo[u] = self._store(u, src[0])
                fired.add("turn-store")
            else:
                memo[u] = u if src == u.src else ix.remake(u, src)
        return memo[self.root]

    def _load(self, u: UOp) -> UOp:
        """What the kernel's digits read of a tile that the turned ones fill."""
        n, unit = self.blocks[self.y], self.blocks.get(self.x, 1)
        tile = self._tile(u, self.y, self.x, n, unit, self.vector[self.x])
        value = ix.substitute(u, self.table)
        staged, outer = self._stage(value, tile, u, self.turned, self.plain, by_rows=True)
        return self._in_registers(staged, u, outer)

    def _stores_turned(self, end: UOp) -> bool:
        store = end.src[0]
        return store.op is Ops.STORE and not is_report(end) and self._is_turned(store)

    def _store(self, end: UOp, new: UOp) -> UOp:
        """A STORE by the turned digits of what the kernel's have filled a tile with."""
        store, value = end.src[0], new.src[1]
        used = free(value)
        if all(used.intersection(self.digits[a]) for a in (self.x, self.y)):
            block, unit = self.vector[self.x], self.vector[self.y]
            tile = self._tile(value, self.x, self.y, block, unit, self.blocks[self.y])
            value, outer = self._stage(value, tile, store, self.plain, self.turned, by_rows=False)
            value = self._in_registers(value, store, outer)
        else:  # it is the same for all lanes that change places
            value = ix.substitute(value, self.table)
        element, *gate = (ix.substitute(s, self.table) for s in (new.src[0], *new.src[2:]))
        kept = [r for r in end.src[1:] if r not in self.plain.copies]
        mine = derive(store, (element, value, *gate))
        return derive(end, (mine, *kept, *upcasts(self.turned.copies)))

    # ---- tiles
    def _tile(self, value: UOp, rows: int, columns: int, block: int, unit: int, read: int) -> Tile:
        lanes, item = self.lanes_of[self.x], value.dtype.itemsize
        return Tile(self.tile[rows], self.tile[columns], item, lanes, block, unit, read)

    def _stage(
        self, value: UOp, tile: Tile, like: UOp, fill: _Digits, read: _Digits, by_rows: bool
    ) -> tuple[UOp, frozenset[UOp]]:
        """A value that goes through a tile, and the other copies that have a tile each.

        by_rows: are rows along y?  Lanes that do not change the value leave the fill to the first.
        """
        mine = frozenset((*self.digits[self.x], *self.digits[self.y]))
        used = free(value)
        lanes = [x for x in reversed(self.lanes) if x in used and x not in mine]
        others = [r for r in upcasts(used) if r not in fill.copies]
        absent = [ix.below(x, 1) for x in self.lanes if x not in used]
        outer = ix.flat((r, r.arg.size) for r in (*lanes, *others))

        def at(d: _Digits) -> UOp:
            where = tile.index(*((d.y, d.x) if by_rows else (d.x, d.y)))
            return ix.add(ix.scale(outer, tile.size), where)

        size = tile.size * prod(r.arg.size for r in (*lanes, *others))
        arg = StageArg(AddrSpace.SHARED, size, exchange=True)
        ranges = upcasts(fill.copies | frozenset(others))
        stage = UOp(Ops.STAGE, (value, at(fill), at(read), ix.conj(*absent), *ranges), arg)
        return inherit(stage, like), frozenset(others)

    @staticmethod
    def _in_registers(staged: UOp, like: UOp, others: frozenset[UOp]) -> UOp:
        """What is read of a tile, in registers: only so it is read in wide accesses."""
        copies = upcasts(free(staged))
        if not any(r.arg.digit == "v" for r in copies):
            return staged
        at = ix.flat((r, r.arg.size) for r in copies)
        arg = StageArg(AddrSpace.REG, prod(r.arg.size for r in copies))
        return inherit(UOp(Ops.STAGE, (staged, at, at, ix.TRUE, *copies), arg), like)


def _copy(axis: int, size: int, digit: str) -> UOp | None:
    """A range of register copies; None where there is one only."""
    return UOp(Ops.RANGE, (), RangeArg(axis, size, AxisType.UPCAST, digit)) if size > 1 else None


def _walked(ranges: Iterable[UOp]) -> UOp:
    return ix.flat((r, r.arg.size) for r in ranges)


def _stride(offset: UOp, digits: list[UOp]) -> int | None:
    """Elements from one place along an axis to the next; None where that is no one number."""
    found: set[int] = set()
    place = 1
    for d in reversed(digits):
        c = ix.coefficient(offset, d)
        if c is None or c % place:
            return None
        found.add(c // place)
        place *= d.arg.size
    return found.pop() if len(found) == 1 else None
