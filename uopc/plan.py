"""How the blocks of a GPU work on one matrix product: a record, part of Opts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from uopc.errors import UsageError
from uopc.layouts import (
    K_MAJOR,
    MN_MAJOR,
    WARP,
    WARPGROUP,
    Atom,
    Fragment,
    Operand,
    atom_named,
)
from uopc.layouts.fragment import REGISTER, THREAD, digits

#: the atom that is no instruction of tensor cores: fused multiply-adds of ordinary arithmetic
FMA = "fma"
#: how an operand reaches shared memory: by loads and stores, by copies of 16 bytes that all threads
#: ask for, or by tensor copies (TMA) that one thread asks for
REGISTERS, CP_ASYNC, BULK = "registers", "cp.async", "bulk"
COPIES = (REGISTERS, CP_ASYNC, BULK)
STORES = (REGISTERS, BULK)
#: in which order a thread adds to its sums, of which follows what registers ptxas chooses: row by
#: row, row by row the columns of even registers before the odd ones, or column by column
ROWS, PARITIES, COLUMNS = "rows", "parities", "columns"
ORDERS = (ROWS, PARITIES, COLUMNS)
#: the names of a product's operands: rows of the first are m, of the second n
OPERANDS = ("a", "b")
#: neighbours that a thread of FMA holds along both axes: 16 bytes of f32
NEIGHBOURS = 4
#: what one loop body of FMA has at most: its instructions stay in the cache, and ptxas in patience
MOST_UNROLLED, MOST_IN_A_BODY = 16, 2048
#: shown whatever they are
_SHOWN = ("atom", "block_m", "block_n", "block_k", "warps_m", "warps_n")
#: registers of an SM, of which all threads that are there have an equal part
REGISTERS_OF_SM = 1 << 16


@dataclass(frozen=True)
class Plan:
    """A block makes block_m x block_n of D, and has block_k of k of both operands in shared memory.

    Parameters
    ----------
    atom: "fma", or the name of an instruction of tensor cores in `uopc.layouts.ATOMS`.
    block_m, block_n, block_k: sizes of the block's tile, in elements.
    warps_m, warps_n: warps of a block along m and n, with wgmma warpgroups; each has an equal part
        of the tile.
    lanes_m: of the 32 lanes of a warp, those along m ("fma" alone).
    depth: tiles of k that are in shared memory or on their way at once.
    copy: "registers", "cp.async" or "bulk"; an operand that cannot be copied so, since it is more
        than a view or lies otherwise, is evaluated and stored.  With "bulk" and tensor cores
        a warpgroup more does nothing but bring tiles; with "fma" the first thread asks for them,
        and views that TMA cannot bring come by cp.async.
    group: rows of tiles that follow each other before the next column, so that they share what L2
        holds.
    rows: of a tile along each axis of m, block_m of them in all, where m has several: a box of an
        image.  (): along all of them as if they were one.
    blocks: of the grid, which go on with further tiles; 0: one block for each tile.  With
        copy="bulk" and tensor cores alone.
    store: how D leaves: by "registers", each thread its sums, or by "bulk", tensor copies out of
        shared memory, where D has 16 bits and the atom is wgmma; else by registers too.
    splits: blocks that share a tile of D, each with a part of k, whole tiles of it.  The last one
        to come adds up the parts, in their order.
    swap: the product is made as its transpose, b * a: block_m then goes along the columns of the
        result and block_n along its rows, as suits results of few rows and atoms of many.
    warps_k: slices of every tile's k, each with warps_m * warps_n warps of its own, whose sums are
        added up at the end ("fma" alone).
    unroll_k: steps of k in one loop body, 0 for as many as fit ("fma" alone).
    order: "rows", "parities" or "columns": in which a thread adds to its sums ("fma" alone).
        ptxas chooses registers by it, and two operands of one bank cost a cycle.
    blocks_per_sm: blocks that an SM has at once, whose threads share its registers; 0: ptxas
        chooses how many registers a thread has.
    promote: the sums of each tile of k are added to the others by ordinary additions (wgmma alone):
        of 8-bit floats tensor cores keep fewer bits than f32 has.
    written: operands, "a" along block_m and "b" along block_n, that kernels of their own write to
        memory first (`passes/write_operands.py`): what is dear to evaluate, or lies as no wide copy
        can read it.
    major: {operand: "K" or "MN"} of written ones: along what they lie contiguous; left out, as
        their tiles lie in shared memory.
    """

    atom: str = FMA
    block_m: int = 128
    block_n: int = 128
    block_k: int = 16
    warps_m: int = 2
    warps_n: int = 4
    lanes_m: int = 4
    depth: int = 1
    copy: str = REGISTERS
    group: int = 8
    blocks: int = 0
    store: str = REGISTERS
    splits: int = 1
    swap: bool = False
    warps_k: int = 1
    unroll_k: int = 0
    order: str = ROWS
    blocks_per_sm: int = 0
    promote: bool = False
    rows: tuple[int, ...] = ()
    written: tuple[str, ...] = ()
    major: Mapping[str, str] | tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        pairs = self.major.items() if isinstance(self.major, Mapping) else self.major
        object.__setattr__(self, "major", tuple(sorted((name, along) for name, along in pairs)))
        object.__setattr__(self, "written", tuple(sorted(self.written)))
        object.__setattr__(self, "rows", tuple(self.rows))
        if fault := self._fault():
            raise UsageError(f"{self}: {fault}")

    def __repr__(self) -> str:
        """As it could be written: what is as usual is left out."""
        given = [
            f"{f.name}={getattr(self, f.name)!r}"
            for f in fields(self)
            if f.name in _SHOWN or getattr(self, f.name) != f.default
        ]
        return f"Plan({', '.join(given)})"

    def _fault(self) -> str:
        """What is wrong whatever the product is, or ""."""
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                return f"{name} is {getattr(self, name)}; it is at least {least}"
        if self.rows and math.prod(self.rows) != self.block_m:
            return f"rows are {self.rows}; their product is block_m, {self.block_m}"
        if self.copy not in COPIES:
            return f"copy is {self.copy!r}; there are {', '.join(map(repr, COPIES))}"
        if self.store not in STORES:
            return f"store is {self.store!r}; there are {', '.join(map(repr, STORES))}"
        if self.order not in ORDERS:
            return f"order is {self.order!r}; there are {', '.join(map(repr, ORDERS))}"
        if not self.roles and (self.blocks or self.store == BULK):
            return "blocks and store='bulk' go with copy='bulk' and tensor cores"
        if self.blocks < 0 or (self.blocks and self.splits > 1):
            return f"blocks is {self.blocks}; it is at least 0, and 0 where splits is above 1"
        if fault := self._fault_of_written():
            return fault
        if self.roles and self.consumers % WARPGROUP:
            return (
                f"{self.consumers} threads multiply; with copy='bulk' they are whole warpgroups "
                f"of {WARPGROUP}"
            )
        if self.roles and self.blocks_per_sm > 1:
            return (
                f"blocks_per_sm is {self.blocks_per_sm}; with warps that only copy, one block has "
                "the registers of an SM"
            )
        if self.inline and self.depth < 2:
            return (
                f"depth is {self.depth}; with copy='bulk' 'fma' multiplies one tile while others "
                "come: it is at least 2"
            )
        if self.atom != FMA and atom_named(self.atom).accumulator.packing > 1:
            return f"atom {self.atom} sums in 16 bits; choose one that sums in f32"
        if self.atom == FMA and WARP % self.lanes_m:
            return f"lanes_m is {self.lanes_m}; it divides {WARP}"
        if self.atom != FMA and (self.warps_k > 1 or self.unroll_k or self.order != ROWS):
            return (
                f"warps_k is {self.warps_k}, unroll_k {self.unroll_k} and order {self.order!r}; "
                "they are for 'fma'. Leave them out"
            )
        (m, n, k), (down, across) = self.least_tile, (self.warps_m, self.warps_n)
        units = (("block_m", m * down), ("block_n", n * across), ("block_k", k * self.warps_k))
        for name, unit in units:
            if getattr(self, name) % unit:
                return f"{name} is {getattr(self, name)}; it is a multiple of {unit}"
        if self.unroll_k and self.slice_k % self.unroll_k:
            return f"unroll_k is {self.unroll_k}; it divides the {self.slice_k} steps of a tile"
        if self.threads > 1024:
            return f"it has {self.threads} threads a block, the limit is 1024"
        if self.promote and (self.group_threads == WARP or self.atom.endswith(".registers")):
            return f"promote is for wgmma with both operands in shared memory, not {self.atom}"
        if (held := self.held.registers * (1 + self.promote)) > self.most_held:
            return (
                f"a thread holds {held} sums, the limit is {self.most_held}. Lower "
                "block_m or block_n, or share them among more warps_m or warps_n"
                + " (or lower blocks_per_sm)"
                * (self.blocks_per_sm > 1)
            )
        return ""

    def _fault_of_written(self) -> str:
        majors, names = (K_MAJOR, MN_MAJOR), " and ".join(map(repr, OPERANDS))
        for name in self.written:
            if name not in OPERANDS or self.written.count(name) > 1:
                return f"written is {self.written}; it names {names}, each once at most"
        for name, along in dict(self.major).items():
            if name not in self.written:
                return f"major names {name!r}, which is not written. Name it in written too"
            if along not in majors:
                return f"major of {name!r} is {along!r}; there are {', '.join(map(repr, majors))}"
        return ""

    @property
    def tensor_core(self) -> Atom | None:
        """The instruction, or None for FMA."""
        return None if self.atom == FMA else atom_named(self.atom)

    @property
    def least_tile(self) -> tuple[int, int, int]:
        """(m, n, k) of the smallest tile of a warp."""
        if (atom := self.tensor_core) is not None:
            return atom.m, atom.n, atom.k
        return self.lanes_m * NEIGHBOURS, WARP // self.lanes_m * NEIGHBOURS, 1

    def reads(self, name: str) -> Operand | None:
        """What the instruction takes for an operand, or None for FMA."""
        if (atom := self.tensor_core) is None:
            return None
        return atom.a if name == OPERANDS[0] else atom.b

    def block_rows(self, name: str) -> int:
        """Rows of an operand's tile."""
        return self.block_m if name == OPERANDS[0] else self.block_n

    @property
    def group_threads(self) -> int:
        """Threads that multiply together: a warp, or a warpgroup."""
        return WARP if (atom := self.tensor_core) is None else atom.threads

    @property
    def groups(self) -> int:
        """Such groups in a block."""
        return self.warps_m * self.warps_n * self.warps_k

    @property
    def consumers(self) -> int:
        """Threads of a block that multiply."""
        return self.group_threads * self.groups

    @property
    def roles(self) -> bool:
        """Do some warps only copy, and the others only multiply?"""
        return self.copy == BULK and self.atom != FMA

    @property
    def inline(self) -> bool:
        """Does a thread that multiplies ask for boxes?"""
        return self.copy == BULK and self.atom == FMA

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.consumers + WARPGROUP * self.roles

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of D that a block makes."""
        return self.block_m, self.block_n

    @property
    def warp_m(self) -> int:
        """Rows of D that a warp makes."""
        return self.block_m // self.warps_m

    @property
    def warp_n(self) -> int:
        """Columns of D that a warp makes."""
        return self.block_n // self.warps_n

    @property
    def slice_k(self) -> int:
        """Of a tile's k, what a warp multiplies."""
        return self.block_k // self.warps_k

    @property
    def unrolled(self) -> int:
        """Steps of k in one loop body."""
        if self.unroll_k:
            return self.unroll_k
        most = max(1, min(MOST_UNROLLED, MOST_IN_A_BODY // self.held.registers))
        return next(n for n in range(most, 0, -1) if self.slice_k % n == 0)

    @property
    def most_held(self) -> int:
        """Sums that a thread has room for: three quarters of its registers, operands and addresses
        want the others."""
        if self.roles:
            return MOST_HELD
        threads = self.threads * max(1, self.blocks_per_sm)
        return min(MOST_HELD, REGISTERS_OF_SM // threads * 3 // 4)

    @property
    def held(self) -> Fragment:
        """How the lanes of a warp hold its part of D."""
        m, n, _ = self.least_tile
        if (atom := self.tensor_core) is not None:
            assert atom.accumulator.fragment is not None
            return atom.accumulator.fragment.repeat(self.warp_m // m, self.warp_n // n)
        lanes_n = WARP // self.lanes_m
        columns = self.warp_n // lanes_n
        return Fragment(
            self.warp_m // self.lanes_m * columns,
            WARP,
            digits(
                (REGISTER, columns, NEIGHBOURS, 1),
                (THREAD, lanes_n, self.lanes_m, NEIGHBOURS),
                (REGISTER, NEIGHBOURS * columns, self.warp_m // m, m),
            ),
            digits(
                (REGISTER, 1, NEIGHBOURS, 1),
                (THREAD, 1, lanes_n, NEIGHBOURS),
                (REGISTER, NEIGHBOURS, self.warp_n // n, n),
            ),
        )


#: sums of a thread that may have 255 registers
MOST_HELD = 128 + 64
_LEAST = dict(
    **dict(block_m=1, block_n=1, block_k=1, warps_m=1, warps_n=1, lanes_m=1, depth=1, group=1),
    **dict(splits=1, warps_k=1, unroll_k=0, blocks_per_sm=0),
)
