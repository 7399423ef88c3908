"""Where does an element of a value come from?  Movement ops on indices that are only told apart.

Grouping asks one thing of an index: is it an axis of the reader, as it is?  So an entry is the
number of an axis of the reader's domain (plain), `ZERO` for an axis of one element, or the set of
axes that some arithmetic depends on: an offset, a quotient, a value.  No expressions are built.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from uopc.uop.infer import Shape, prod
from uopc.uop.node import UOp
from uopc.uop.ops import MOVEMENT, Ops

Entry: TypeAlias = "int | frozenset[int]"
Index: TypeAlias = tuple[Entry, ...]

#: the entry of an axis of one element
ZERO = -1
#: ops that only say which element is read; GATHER says it by values
VIEWS = MOVEMENT | {Ops.GATHER, Ops.DETACH}


def own(shape: Sequence[int]) -> Index:
    """The index of a value at its own axes."""
    return tuple([ZERO if n == 1 else j for j, n in enumerate(shape)])


def axes_in(index: Iterable[Entry]) -> frozenset[int]:
    """The axes of the domain that an index depends on."""
    out: set[int] = set()
    for e in index:
        if isinstance(e, int):
            if e >= 0:
                out.add(e)
        else:
            out |= e
    return frozenset(out)


def is_plain(index: Index, shape: Shape) -> bool:
    """Is every axis of more than one element an axis of the reader, and no two the same?"""
    seen: set[int] = set()
    for e, n in zip(index, shape, strict=True):
        if n == 1:
            continue
        if not isinstance(e, int) or e < 0 or e in seen:
            return False
        seen.add(e)
    return True


def runs(old: Shape, new: Shape) -> list[tuple[range, range]]:
    """Matching runs of axes of two shapes of one size: each pair has equal products."""
    out: list[tuple[range, range]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        i0, j0, a, b = i, j, 1, 1
        if i < len(old):
            a, i = old[i], i + 1
        if j < len(new):
            b, j = new[j], j + 1
        while a != b:
            if a < b:
                a, i = a * old[i], i + 1
            else:
                b, j = b * new[j], j + 1
        out.append((range(i0, i), range(j0, j)))
    return out


def source(u: UOp, at: Index) -> Index:
    """The index into the first source of a view for its element `at`."""
    op, x = u.op, u.src[0].shape
    if op is Ops.DETACH:
        return at
    if op is Ops.RESHAPE:
        return _reshape(u.shape, x, at)
    if op is Ops.EXPAND:
        return tuple([ZERO if n == 1 else e for e, n in zip(at, x, strict=True)])
    if op is Ops.PERMUTE:
        out: list[Entry] = [ZERO] * len(at)
        for place, axis in enumerate(u.arg):
            out[axis] = at[place]
        return tuple(out)
    if op is Ops.SHRINK:
        return tuple(
            [
                e if (b, end) == (0, n) else _some(e)
                for e, (b, end), n in zip(at, u.arg, x, strict=True)
            ]
        )
    if op is Ops.PAD:
        return tuple([e if p == (0, 0) else _some(e) for e, p in zip(at, u.arg, strict=True)])
    if op is Ops.FLIP:
        return tuple([_some(e) if a in u.arg and e != ZERO else e for a, e in enumerate(at)])
    assert op is Ops.GATHER, op
    by_value = axes_in(at)
    return tuple(
        [
            ZERO if n == 1 else at[d] if d >= 0 else by_value
            for d, n in zip(u.arg.dims, x, strict=True)
        ]
    )


def _some(e: Entry) -> frozenset[int]:
    """Arithmetic over what an entry depends on."""
    if isinstance(e, frozenset):
        return e
    return frozenset((e,)) if e >= 0 else frozenset()


@functools.lru_cache(maxsize=1 << 14)  # layers repeat one another
def _reshape(new: Shape, old: Shape, at: Index) -> Index:
    if prod(old) == 0:
        return (frozenset(),) * len(old)
    out: list[Entry] = []
    for into, of in runs(old, new):
        mine = [at[j] for j in of if new[j] != 1]
        sizes = [old[i] for i in into]
        if len(mine) <= 1 and sum(n != 1 for n in sizes) <= 1:
            out += [ZERO if n == 1 else mine[0] for n in sizes]
        else:
            mixed = axes_in(mine)
            out += [ZERO if n == 1 else mixed for n in sizes]
    return tuple(out)
