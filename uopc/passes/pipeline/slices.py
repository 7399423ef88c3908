"""Warps that each multiply a slice of every tile's k: their sums become those of the first slice.

Here because: tiles have been read by then, so that the sums can have their memory.
Before: sums of each slice
After:  others store theirs; BARRIER; IF slice 0: sums += those of slice 1; += those of slice 2; ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from uopc.dtype import AddrSpace
from uopc.passes.pipeline.writer import Writer
from uopc.symbolic import index as ix
from uopc.uop.node import UOp
from uopc.uop.ops import AxisType

#: neighbours of a thread that go together
AT_ONCE = 4
#: the barrier of the slice that has the sums
OF_FIRST_SLICE = ix.index(1)


@contextmanager
def sums_of_slices(w: Writer) -> Iterator[Callable[[], UOp]]:
    """Inside, a thread has sums of all slices; gives the barrier of the threads that are there."""
    slices = w.plan.warps_k
    if slices == 1:
        yield w.c.barrier
        return
    vectors, threads = w.sums.arg.shape[0] // AT_ONCE, w.holders
    memory = _room(w, (slices - 1) * vectors * threads * AT_ONCE)

    def place(slice_: UOp, vector: UOp, e: UOp) -> UOp:
        """Of the second slice and those after it, so that neighbours are those of other threads."""
        parts = ((slice_, slices - 1), (vector, vectors), (w.of_slice, threads), (e, AT_ONCE))
        return memory.index(ix.flat(parts))

    def sums(vector: UOp, e: UOp) -> UOp:
        return w.sums.index(ix.add(ix.scale(vector, AT_ONCE), e))

    w.c.barrier()  # all tiles have been read
    with w.c.when(ix.at_least(w.slice, 1)):
        vector, v = w.range(vectors), w.range(AT_ONCE, digit="v")
        to = place(ix.sub(w.slice, ix.ONE), vector, v)
        w.store_each(to, w.c.load(sums(vector, v)), vector, v)
    w.c.barrier()
    with w.c.when(ix.below(w.slice, 1)):
        other, vector = w.range(slices - 1, AxisType.LOOP, "k"), w.range(vectors)
        with w.loops(other, vector):
            part = w.alloc(AddrSpace.REG, w.total.dtype, AT_ONCE, "part")
            v = w.range(AT_ONCE, digit="v")
            w.store_each(part.index(v), w.c.load(place(other, vector, v)), v)
            e = w.range(AT_ONCE)
            total = w.c.load(sums(vector, e)) + w.c.load(part.index(e))
            w.store_each(sums(vector, e), total, e)
        yield lambda: w.c.named_barrier(OF_FIRST_SLICE, threads)


def _room(w: Writer, size: int) -> UOp:
    """The larger of the operands' memories where it has room; else one more."""
    largest = max(w.memory.values(), key=lambda m: m.arg.shape[0])
    if largest.arg.shape[0] >= size and largest.dtype is w.total.dtype:
        return largest
    return w.alloc(AddrSpace.SHARED, w.total.dtype, size, "slices")
