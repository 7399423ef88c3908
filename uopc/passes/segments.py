"""A flat elementwise kernel becomes one over any number of arrays at once.  INDEXED -> INDEXED.

Here because: on logical axes, before Opts cut them.  An update of a hundred parameters is the same
formula over arrays that lie apart; one launch does it where each block finds out which of them it
works on.
Before: END(STORE(INDEX(p1, a0), LOAD(INDEX(p0, a0)) * LOAD(INDEX(p2, 0))), a0)
After:  END(STORE(INDEX(SEGMENT(p1, a0), a1), LOAD(INDEX(SEGMENT(p0, a0), a1), a1 < n, 0)
        * LOAD(INDEX(p2, 0)), a1 < n), a0, a1)  with n = LOAD(INDEX(p3, a0))

The arrays are cut into chunks of `length` elements, the last of each array into what is left: a
bundle has a memory for each chunk.  So blocks know nothing of arrays, a chunk begins where the
first of its array does modulo `length` elements, and wide accesses stay possible.  Sizes are data;
the text depends on `length` alone, the launch on `count`, which may be larger than what is used:
chunks that are not there have no elements.  Tables for given arrays: `uopc/runtime/segments.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.opts import Opts
from uopc.passes.share import axes_of
from uopc.symbolic import index as ix
from uopc.uop.node import UOp, buffer, bundle, derive, prod, range_, toposort, where_from
from uopc.uop.ops import ELEMENTWISE, Ops

#: elements of a chunk: few blocks for small arrays, few chunks for large ones
USUAL_LENGTH = 4096
BLOCK_THREADS = 256
WIDEST_BYTES = 16
_TAKEN = ELEMENTWISE | {
    *(Ops.BUFFER, Ops.CONST, Ops.RANGE, Ops.INDEX, Ops.LOAD, Ops.STORE, Ops.END, Ops.SINK)
}


@dataclass(frozen=True)
class Segmented:
    """A kernel over chunks of arrays.

    Attributes: root, in INDEXED; chunks, slots whose parameters are bundles of chunks; own, slots
    that are bundles of one element for each chunk; lengths, the slot of the elements that each
    chunk has, i32 of shape (count,); count of chunks at most; length, their most elements.
    """

    root: UOp
    chunks: tuple[int, ...]
    own: tuple[int, ...]
    lengths: int
    count: int
    length: int


def segments(
    root: UOp, count: int, own: Collection[int] = (), length: int = USUAL_LENGTH
) -> Segmented:
    """The kernel that does what `root` does to one array of some size to any number of arrays.

    Parameters
    ----------
    root: over one axis; each memory has its size and is accessed at its index, or has one element.
        A memory may be read and written.
    count: of chunks at most.
    own: slots of memories of one element that each array has its own of; others all share.
    length: elements of a chunk, a multiple of 16.

    Raises UsageError for any other kernel.
    """
    axis = _axis(root)
    if count < 1 or length < WIDEST_BYTES or length % WIDEST_BYTES:
        raise UsageError(
            f"segments: {count} chunks of {length} elements; there is one at least, of a multiple "
            f"of {WIDEST_BYTES} elements"
        )
    order = toposort(root)
    slots = {u.arg.slot for u in order if u.op is Ops.BUFFER}
    chunk, element = range_(count, 0), range_(length, 1)
    sizes = buffer(1 + max(slots), dtypes.i32, (count,))
    size = sizes.index(chunk).load()
    inside = UOp(Ops.LT, (element.cast(dtypes.i32), size))
    whole, single = _bundles(order, axis, frozenset(own), count, length)
    memo: dict[UOp, UOp] = {axis: element}
    for u in order:
        if u in memo or u.op is Ops.BUFFER:
            continue
        src = tuple([memo.get(s, s) for s in u.src])
        if u.op is Ops.INDEX:
            src = _place(u.src[0], src, whole, single, chunk)
        if u.op is Ops.LOAD and (gate := _gate(u, whole, single, inside, size)) is not ix.TRUE:
            other = src[2] if len(src) == 3 else UOp.const(0, u.dtype)
            src = (src[0], ix.conj(gate, *src[1:2]), other)
        elif u.op is Ops.STORE:
            src = (*src[:2], ix.conj(inside, *src[2:]))
        elif u.op is Ops.END:
            src = (src[0], chunk, element)
        memo[u] = u if src == u.src else derive(u, src)
    return Segmented(
        memo[root],
        tuple(sorted(m.arg.slot for m in whole)),
        tuple(sorted(m.arg.slot for m in single)),
        sizes.arg.slot,
        count,
        length,
    )


def segment_opts(kernel: Segmented, gpu: bool) -> Opts:
    """Opts whatever the sizes are: on a GPU a block walks a chunk in wide accesses, on a CPU a
    thread takes whole chunks."""
    if not gpu:
        return Opts(thread=0)
    order = toposort(kernel.root)
    bundles = [u for u in order if u.op is Ops.BUFFER and u.arg.slot in kernel.chunks]
    vector = max(1, WIDEST_BYTES // max(m.dtype.itemsize for m in bundles))
    threads = min(BLOCK_THREADS, kernel.length // vector)
    loop = -(-kernel.length // (threads * vector))
    return Opts(
        gpu=True, local={1: threads}, vector={1: vector}, loop={1: loop}, lanes=(1,), grid=(0,)
    )


# ---- what is taken
def _axis(root: UOp) -> UOp:
    """The one axis of a flat elementwise kernel.  Raises UsageError for any other kernel."""
    axes = axes_of(root)
    if len(axes) != 1:
        raise UsageError(
            f"segments takes kernels over one axis of two elements or more, this one has "
            f"{len(axes)} axes"
        )
    for u in toposort(root):
        if u.op not in _TAKEN:
            raise UsageError(
                f"segments takes elementwise kernels, this one has a {u.op} ({where_from(u)})"
            )
        if axes[0] in u.src and u.op not in (Ops.INDEX, Ops.END):
            raise UsageError(
                f"segments: the position of an element is part of its value ({u.op} at "
                f"{where_from(u)}), and there is no one position in several arrays"
            )
    return axes[0]


def _bundles(
    order: list[UOp], axis: UOp, own: frozenset[int], count: int, length: int
) -> tuple[dict[UOp, UOp], dict[UOp, UOp]]:
    """Memories that become bundles, of chunks and of single elements, and those bundles.

    Raises UsageError for an access that is neither at the axis nor of a single element.
    """
    whole: dict[UOp, UOp] = {}
    single: dict[UOp, UOp] = {}
    for u in order:
        if u.op is not Ops.INDEX:
            continue
        m, offset = u.src
        a = m.arg
        if offset is axis and a.shape == (axis.arg.size,):
            whole[m] = bundle(a.slot, a.dtype, count, length)
        elif offset is not ix.ZERO or prod(a.shape) != 1:
            raise UsageError(
                f"segments: slot {a.slot} has shape {a.shape} and is accessed at {offset.op} "
                f"({where_from(u)}); a memory is ({axis.arg.size},) and accessed at the axis, or "
                "has one element"
            )
        elif a.slot in own:
            single[m] = bundle(a.slot, a.dtype, count, 1)
    for u in order:
        if u.op is Ops.STORE and u.src[0].src[0] not in whole:
            raise UsageError(
                f"segments: slot {u.src[0].src[0].arg.slot} has one element and is written "
                f"({where_from(u)}), by every block; only what each array has of its own is"
            )
    if unknown := sorted(own - {m.arg.slot for m in single}):
        raise UsageError(f"segments: own names slots {unknown}, which are no memories of 1 element")
    return whole, single


# ---- what becomes of it
def _place(
    m: UOp, src: tuple[UOp, ...], whole: dict[UOp, UOp], single: dict[UOp, UOp], chunk: UOp
) -> tuple[UOp, ...]:
    """The sources of an INDEX, in the segment of a chunk."""
    of = whole.get(m, single.get(m))
    return src if of is None else (of.segment(chunk), *src[1:])


def _gate(load: UOp, whole: dict[UOp, UOp], single: dict[UOp, UOp], inside: UOp, size: UOp) -> UOp:
    """Where a LOAD finds something: inside a chunk; in any that is there; always."""
    m = load.src[0].src[0]
    if m in whole:
        return inside
    return UOp(Ops.LT, (UOp.const(0, dtypes.i32), size)) if m in single else ix.TRUE
