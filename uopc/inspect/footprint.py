"""Which bytes of a memory an access reaches in all, each once: of a whole launch, or of one block.

Counted from the sum that an index is: every range adds a step times its values.  Steps that the
bytes reached so far bridge make one longer run; a step that is longer than that makes copies of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from uopc.symbolic import index as ix
from uopc.uop.facts import bounds, free
from uopc.uop.node import UOp
from uopc.uop.ops import AxisType, Ops


def footprint(offset: UOp, itemsize: int, width_bytes: int, piece: int = 1) -> int:
    """Bytes of the pieces that the values of an offset reach, each piece once.

    offset: in elements of `itemsize` bytes; width_bytes: of an access; piece: what memory moves at
    least, 1 for the bytes themselves.  An upper bound: guards are not looked at, pieces are taken
    to begin where runs do, and copies that lie in each other are counted apart.
    """
    terms, _ = ix.affine(offset)
    steps = [(abs(step) * itemsize * _step(term), _values(term)) for term, step in terms.items()]
    run, copies = _runs(steps, width_bytes, piece)
    lo, hi = bounds(offset)
    span = (hi - lo) * itemsize + width_bytes
    return min(_whole(span, piece), copies * _whole(run, piece))


def of_one_block(offset: UOp) -> UOp:
    """The offset of the first block: what does not depend on the others' numbers."""
    blocks = [r for r in free(offset) if r.op is Ops.RANGE and r.arg.kind is AxisType.GLOBAL]
    return ix.substitute(offset, {r: ix.index(r.arg.start) for r in blocks})


def _step(term: UOp) -> int:
    """By how much a term of a sum differs from one value to the next, at least."""
    return abs(term.arg.step) if term.op is Ops.RANGE else 1


def _values(term: UOp) -> int:
    """How many values a term of a sum takes at most."""
    if term.op is Ops.RANGE:
        size: int = term.arg.size
        return size
    lo, hi = bounds(term)
    return hi - lo + 1


def _runs(steps: Iterable[tuple[int, int]], width: int, piece: int) -> tuple[int, int]:
    """(bytes of a run without gaps, how many runs there are)."""
    run, copies, step, count = width, 1, 0, 1
    for size, values in sorted(steps):
        if count == copies == 1 and size <= max(run, piece):
            run += (values - 1) * size
        elif count > 1 and size % step == 0 and size <= step * count:
            count += (values - 1) * size // step
        else:
            copies *= count
            step, count = size, values
    return run, copies * count


def _whole(size: int, piece: int) -> int:
    return -(-size // piece) * piece
