"""Turns that the banks of shared memory take for the tiles of a product, as they lie and in order.

Lane numbers are put into the index of every access of warp 0 to shared memory, for each of its
register copies: stores and copies that fill a tile, loads and ldmatrix that read it.  Shared memory
gives one word of each of its 32 banks in a turn.  Beside the turns stand those that as many bytes
need.  In order: the same accesses without pads and swizzles.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np

from uopc.dtype import AddrSpace, DType, dtypes
from uopc.gpu import gpu_lower
from uopc.kernel import Launch
from uopc.layouts import SharedTile
from uopc.opts import Opts
from uopc.passes.bind import bind
from uopc.plan import CP_ASYNC, FMA, Plan
from uopc.uop import AxisType, Ops, UOp, buffer, memory, toposort
from uopc.uop.facts import free

WARP, LINE_BYTES, BANK_BYTES = 32, 128, 4
M, N, K = 128, 128, 128
BF16 = "mma.m16n8k16.bf16"
PLANS: dict[str, tuple[DType, Plan]] = {
    "fma": (dtypes.f32, Plan(FMA, 64, 64, 16, 2, 1)),
    "mma.sync, 32 of k": (dtypes.bf16, Plan(BF16, 64, 64, 32, 2, 2, depth=2, copy=CP_ASYNC)),
    "mma.sync, 64 of k": (dtypes.bf16, Plan(BF16, 64, 64, 64, 2, 2, depth=2, copy=CP_ASYNC)),
}
#: op -> which way it goes, its source that is in shared memory
WAYS = {
    Ops.STORE: ("filled", 0),
    Ops.COPY: ("filled", 0),
    Ops.LOAD: ("read", 0),
    Ops.LDMATRIX: ("read", 1),
}
VALUES: dict[Ops, Callable[..., Any]] = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.IDIV: np.floor_divide,
    Ops.MOD: np.mod,
    Ops.XOR: np.bitwise_xor,
}


def product(dtype: DType) -> UOp:
    """C = A B, both as numpy lays them out."""
    a = buffer(0, dtype, (M, K)).reshape((M, 1, K)).expand((M, N, K))
    b = buffer(1, dtype, (K, N)).permute((1, 0)).reshape((1, N, K)).expand((M, N, K))
    return (a.cast(dtypes.f32) * b.cast(dtypes.f32)).reduce(Ops.ADD)


def accesses(kernel: UOp) -> Iterator[tuple[str, UOp, int]]:
    """(way, index, bytes of a lane) of what touches shared memory."""
    for u in toposort(kernel):
        if u.op not in WAYS:
            continue
        way, place = WAYS[u.op]
        index = u.src[place]
        m = memory(index)
        if m.op is Ops.ALLOC and m.arg.addrspace is AddrSpace.SHARED:
            elements = u.arg.width if u.op is not Ops.LDMATRIX and u.arg else 1
            yield way, index, 16 if u.op is Ops.LDMATRIX else index.dtype.itemsize * elements


def starts(launch: Launch, index: UOp) -> Iterator[list[int]]:
    """For each register copy, the bytes at which the lanes of warp 0 begin, in the first step."""
    lane = next(a.range for a in launch.block_axes if a.range.arg.kind is AxisType.LANE)
    copies = [r for r in free(index.src[1]) if r.arg.kind is AxisType.UPCAST]
    for at in itertools.product(*(range(r.arg.size) for r in copies)):
        known = dict(zip(copies, at, strict=True)) | {lane: np.arange(WARP)}
        for u in toposort(index.src[1]):
            if u.op is Ops.CONST:
                known[u] = u.arg.bits
            elif u.op is Ops.RANGE:
                known.setdefault(u, 0)
            else:
                known[u] = VALUES[u.op](*(known[s] for s in u.src))
        begins = np.broadcast_to(known[index.src[1]], (WARP,)) * index.dtype.itemsize
        yield [int(x) for x in begins]


def turns(begins: Sequence[int], width: int) -> int:
    """128 bytes at a time: the lanes that want them, by how many words the busiest bank gives."""
    at_once, total = min(WARP, LINE_BYTES // max(width, BANK_BYTES)), 0
    for first in range(0, WARP, at_once):
        words = {
            (begin + byte) // BANK_BYTES
            for begin in begins[first : first + at_once]
            for byte in range(0, width, min(width, BANK_BYTES))
        }
        total += max(Counter(word % 32 for word in words).values())
    return total


def counted(dtype: DType, plan: Plan) -> dict[str, tuple[int, int]]:
    """way -> (turns, those that the bytes need)."""
    kernel = gpu_lower(product(dtype), buffer(2, dtypes.f32, (M * N,)), Opts(gpu=True, plan=plan))
    launch = bind(kernel)
    found = {"filled": (0, 0), "read": (0, 0)}
    for way, index, width in accesses(kernel):
        for begins in starts(launch, index):
            taken, needed = found[way]
            found[way] = taken + turns(begins, width), needed + width * WARP // LINE_BYTES
    return found


def line(layout: str, dtype: DType, plan: Plan) -> str:
    ways = (
        f"{way} in {taken:4} turns for {needed:4}"
        for way, (taken, needed) in counted(dtype, plan).items()
    )
    return "   ".join((f"  {layout:12}", *ways))


if __name__ == "__main__":
    plain: dict[str, Any] = {
        "index": SharedTile.linear,
        "pitch": property(lambda tile: tile.slab_columns),
    }
    for name, (dtype, plan) in PLANS.items():
        print(name)
        print(line("as they lie", dtype, plan))
        with mock.patch.multiple(SharedTile, **plain):
            print(line("in order", dtype, plan))
