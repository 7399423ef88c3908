"""A transposed copy, counted: sectors of global memory, and turns of the banks of shared memory.

Lane numbers are put into the index of every access of warp 0, for all of its register copies.  Of
global memory counts what moves, in sectors of 32 bytes, beside what is wanted.  Shared memory gives
one word of each of its 32 banks in a turn: counted are turns, beside those that the bytes need.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeAlias
from unittest import mock

from uopc.dtype import AddrSpace, DType, dtypes
from uopc.gpu import gpu_lower
from uopc.kernel import Launch
from uopc.opts import Opts
from uopc.passes.bind import bind
from uopc.passes.turn import Tile
from uopc.symbolic import index as ix
from uopc.uop import Ops, UOp, buffer, memory, toposort
from uopc.uop.facts import free

WARP, SECTOR_BYTES, BANK_BYTES, LINE_BYTES = 32, 32, 4, 128


def thread(launch: Launch, lane: int) -> dict[UOp, UOp]:
    """The thread ranges of a lane of warp 0, as numbers."""
    numbers = {}
    for axis in launch.block_axes:
        numbers[axis.range] = ix.index(lane % axis.range.arg.size)
        lane //= axis.range.arg.size
    return numbers


def requests(launch: Launch, access: UOp) -> Iterator[list[int]]:
    """For each register copy of an access, the bytes at which the lanes of warp 0 begin."""
    offset, size = access.src[0].src[1], access.src[0].dtype.itemsize
    lanes = [thread(launch, lane) for lane in range(WARP)]
    blocks = [r for r in free(offset) if r not in lanes[0] and r.arg.digit == "g"]
    copies = [r for r in free(offset) if r not in lanes[0] and r.arg.digit != "g"]
    for at in itertools.product(*(range(r.arg.size) for r in copies)):
        here = dict.fromkeys(blocks, ix.ZERO) | dict(zip(copies, map(ix.index, at), strict=True))
        yield [ix.substitute(offset, here | lane).arg.bits * size for lane in lanes]


def sectors(starts: list[int], width: int) -> int:
    return len({byte // SECTOR_BYTES for s in starts for byte in range(s, s + width)})


def turns(starts: list[int], width: int) -> int:
    """128 bytes at a time: the lanes that want them, by how many want the busiest bank."""
    at_once, total = min(WARP, LINE_BYTES // max(width, BANK_BYTES)), 0
    for first in range(0, WARP, at_once):
        words = {
            (s + byte) // BANK_BYTES
            for s in starts[first : first + at_once]
            for byte in range(0, width, min(width, BANK_BYTES))
        }
        total += max(Counter(word % 32 for word in words).values())
    return total


def counted(kernel: UOp) -> str:
    launch = bind(kernel)
    found = Counter[str]()
    for u in toposort(kernel):
        if u.op not in (Ops.LOAD, Ops.STORE):
            continue
        width = u.src[0].dtype.itemsize * (u.arg.width if u.arg else 1)
        m = memory(u.src[0])
        for starts in requests(launch, u):
            if m.op is Ops.BUFFER:
                found["sectors"] += sectors(starts, width)
                found["wanted"] += width * WARP // SECTOR_BYTES
            elif m.arg.addrspace is AddrSpace.SHARED:
                found[f"{u.op}"] += turns(starts, width)
                found[f"{u.op} needs"] += max(1, width * WARP // LINE_BYTES)
    moved = f"{found['sectors']:5} sectors for {found['wanted']:4}"
    if not found["STORE"]:
        return moved
    ways = (f"{found[x]:4} turns for {found[x + ' needs']:3}" for x in ("STORE", "LOAD"))
    return moved + "   filled in {}   read in {}".format(*ways)


def rows_in_order(tile: Tile, row: UOp, column: UOp) -> UOp:
    return ix.add(ix.scale(row, tile.columns), column)


def rows_padded(tile: Tile, row: UOp, column: UOp) -> UOp:
    return ix.add(ix.scale(row, tile.columns + 1), column)


N = 1024
Index: TypeAlias = Callable[[Tile, UOp, UOp], UOp]
Size: TypeAlias = Callable[[Tile], int]
SIZE: Size = vars(Tile)["size"].fget
LAYOUTS: dict[str, tuple[Index, Size]] = {
    "rows in order": (rows_in_order, lambda tile: tile.rows * tile.columns),
    "rows one longer": (rows_padded, lambda tile: tile.rows * (tile.columns + 1)),
    "lines rotated": (Tile.index, SIZE),
}


def wide(vector: int) -> Opts:
    """16 x 16 lanes of 16 bytes, on both sides."""
    return Opts(
        gpu=True,
        local={0: 16, 1: 16},
        upcast={0: vector},
        vector={1: vector},
        turn={0: vector, 1: vector},
        lanes=(1, 0),
        grid=(1, 0),
    )


def one_by_one(turned: bool) -> Opts:
    """32 x 8 lanes of one element, four times."""
    return Opts(
        gpu=True,
        local={0: 8, 1: 32},
        upcast={0: 4},
        turn={0: 1} if turned else {},
        lanes=(1, 0),
        grid=(1, 0),
    )


def transposed(dtype: DType, opts: Opts) -> UOp:
    x = buffer(0, dtype, (N, N)).permute((1, 0))
    return gpu_lower(x, buffer(1, dtype, (N * N,)), opts)


CASES = {
    "f32, one by one": (dtypes.f32, one_by_one(turned=True)),
    "f32, 16 bytes a lane": (dtypes.f32, wide(4)),
    "bf16, 16 bytes a lane": (dtypes.bf16, wide(8)),
}

if __name__ == "__main__":
    print(f"f32, no tile\n  {'':16}{counted(transposed(dtypes.f32, one_by_one(turned=False)))}")
    for name, (dtype, opts) in CASES.items():
        print(name)
        for layout, (index, size) in LAYOUTS.items():
            with mock.patch.multiple(Tile, index=index, size=property(size)):
                kernel = transposed(dtype, opts)
            print(f"  {layout:16}{counted(kernel)}")
