"""What warps ask of memory, one thread after another in plain Python: what fast counts are held to.

Every block, every turn of every loop and every lane is walked; addresses are numbers, and sectors
and words are members of sets.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from uopc.dtype import AddrSpace, dtypes
from uopc.inspect.sites import Site
from uopc.inspect.warps import Counts
from uopc.kernel import Launch
from uopc.uop.node import UOp
from uopc.uop.ops import Ops

_VALUES: dict[Ops, Callable[..., int]] = {
    Ops.ADD: lambda a, b: a + b,
    Ops.SUB: lambda a, b: a - b,
    Ops.MUL: lambda a, b: a * b,
    Ops.IDIV: lambda a, b: a // b if b else 0,
    Ops.MOD: lambda a, b: a % b if b else 0,
    Ops.LT: lambda a, b: a < b,
    Ops.EQ: lambda a, b: a == b,
    Ops.NE: lambda a, b: a != b,
    Ops.AND: lambda a, b: a & b,
    Ops.OR: lambda a, b: a | b,
    Ops.XOR: lambda a, b: a ^ b,
    Ops.MAX: max,
    Ops.MIN: min,
    Ops.WHERE: lambda c, a, b: a if c else b,
}


def value(u: UOp, numbers: Mapping[UOp, int]) -> int:
    """An integer or a condition; numbers: of each range."""
    if u in numbers:
        return numbers[u]
    if u.op is Ops.CONST:
        bits: int = u.arg.bits
        return bits
    if u.op is Ops.NOT and u.dtype is dtypes.bool:
        return not value(u.src[0], numbers)
    return _VALUES[u.op](*(value(s, numbers) for s in u.src))


@dataclass(frozen=True)
class Request:
    """The byte offsets of the active lanes of a warp, by lane."""

    lanes: Mapping[int, int]
    width: int


def requests(site: Site, launch: Launch) -> Iterator[Request]:
    """Every request of a launch that has an active lane."""
    warps: dict[tuple[object, ...], dict[int, int]] = defaultdict(dict)
    itemsize = site.element.dtype.itemsize
    turns = [_values(r) for r in site.loops]
    for block in itertools.product(*map(range, launch.grid)):
        for thread in range(launch.threads):
            x, y, _ = launch.block
            place = (thread % x, thread // x % y, thread // (x * y))
            warp = thread // 32
            if any(not first <= warp < first + count for first, count in site.warps):
                continue
            numbers = {
                a.range: at[a.dim] // a.stride % a.range.arg.size
                for axes, at in ((launch.grid_axes, block), (launch.block_axes, place))
                for a in axes
            }
            for turn in itertools.product(*turns):
                here = numbers | dict(zip(site.loops, turn, strict=True))
                if all(value(c, here) for c in site.conditions):
                    lanes = warps[block, warp, turn]
                    lanes[thread % 32] = value(site.offset, here) * itemsize
    for lanes in warps.values():
        yield Request(lanes, site.width_bytes)


def _values(r: UOp) -> range:
    return range(r.arg.start, r.arg.start + r.arg.size * r.arg.step, r.arg.step)


def counts(site: Site, launch: Launch) -> Counts:
    """What `uopc.inspect.warps.count` says of one access, the slow way."""
    total = Counts()
    for r in requests(site, launch):
        total = total.plus(_counted(site, r))
    return total


def _counted(site: Site, r: Request) -> Counts:
    pieces = {b // 32 for at in r.lanes.values() for b in (at, at + r.width - 1)}
    least = math.ceil(len(set(r.lanes.values())) * r.width / 32)
    if site.space is AddrSpace.GLOBAL:
        return Counts(1, len(r.lanes), len(pieces), least)
    taken, best = wavefronts(r, site.op == "LOAD")
    return Counts(1, len(r.lanes), 0, 0, taken, best)


def wavefronts(r: Request, plain_load: bool) -> tuple[int, int]:
    """(passes of shared memory, those without conflicts): lanes go in groups of 128 bytes."""
    group = min(32, 128 // max(4, r.width))
    if plain_load and group < 32 and any(_alike(r.lanes, apart) for apart in (1, 2)):
        group *= 2
    taken = best = 0
    for first in range(0, 32, group):
        mine = [at for lane, at in r.lanes.items() if first <= lane < first + group]
        words = {at // 4 + n for at in mine for n in range(max(1, r.width // 4))}
        banks = [word % 32 for word in words]
        taken += max((banks.count(b) for b in banks), default=0)
        best += bool(mine)
    return taken, best


def _alike(lanes: Mapping[int, int], apart: int) -> bool:
    return all(lanes.get(lane ^ apart, at) == at for lane, at in lanes.items())
