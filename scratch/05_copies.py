"""Four elements a thread, in three orders of the digits: what one access of a warp touches."""

from __future__ import annotations

from uopc.symbolic import index as ix
from uopc.uop import AxisType, UOp, range_

LANES, COPIES, BYTES, SECTOR = 32, 4, 4, 32
lane, copy = range_(LANES, 0, AxisType.LOCAL), range_(COPIES, 1, AxisType.UPCAST)


def show(name: str, offset: UOp, width: int) -> None:
    """Sectors of 32 bytes under one access; width: elements that a lane moves at once."""
    print(f"{name:34}", end="")
    moved, fetched = 0, 0
    for k in range(COPIES // width):
        first = [
            ix.substitute(offset, {lane: ix.index(x), copy: ix.index(k * width)}).arg.bits
            for x in range(LANES)
        ]
        touched = {(f + e) * BYTES // SECTOR for f in first for e in range(width)}
        moved += LANES * width * BYTES
        fetched += len(touched) * SECTOR
        if k == 0:
            print(f"lanes 0 1 2 start at {first[0]}, {first[1]}, {first[2]};", end=" ")
            print(f"{len(touched)} sectors an access,", end=" ")
    print(f"{moved} of {fetched} bytes wanted")


show("copies innermost: 4*lane + copy", lane * COPIES + copy, 1)
show("copies outside: 32*copy + lane", copy * LANES + lane, 1)
show("a vector: 4*lane, 16 bytes", lane * COPIES + copy, 4)
