"""What the closers of a MAPPED graph close, and the loops in which they stand.

A closer ends ranges: a REDUCE, a STAGE; the END of a STORE is one of the kernel itself.  A SCAN has
memories as they have, but ends none: its steps are a loop of whoever wants its result.  Serial
ranges make loops of one thread's text; UPCAST ones are unrolled and belong to one closer each.
"""

from __future__ import annotations

from uopc.uop.facts import free
from uopc.uop.node import UOp, closed_ranges
from uopc.uop.ops import SERIAL, AxisType, Ops

CLOSERS = frozenset((Ops.REDUCE, Ops.SCAN, Ops.STAGE))
_SERIAL = frozenset((AxisType.THREAD, *SERIAL))
#: loops that stand inside of others: tiles, and the steps of a scan, whose result each step needs
_INNER = {"t": 1, "s": 2, "i": 3}


def within(u: UOp) -> tuple[UOp, ...]:
    """What a closer evaluates where its ranges are open.  Who reads a STAGE evaluates the read
    address."""
    if u.op is Ops.STAGE:
        return u.src[0], u.src[1], u.src[3]
    return u.src[:2] if u.op is Ops.SCAN else u.src[:1]


def around(u: UOp) -> frozenset[UOp]:
    """The serial ranges that must be open where a closer stands."""
    ranges = free(u)
    if u.op is Ops.STAGE:
        ranges = frozenset().union(*(free(s) for s in within(u))).difference(closed_ranges(u))
    return frozenset(r for r in ranges if r.arg.kind in _SERIAL)


def serials(ranges: frozenset[UOp] | tuple[UOp, ...]) -> list[UOp]:
    """Loops of one thread's text, outermost first: CPU threads, loops, tiles."""
    mine = (r for r in ranges if r.arg.kind in _SERIAL)
    return sorted(
        mine,
        key=lambda r: (
            r.arg.kind is not AxisType.THREAD,
            _INNER.get(r.arg.digit, 0),
            r.arg.axis,
            r.arg.instance,
        ),
    )
