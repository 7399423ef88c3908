"""The canonical form of an index is worth what Python says, for every value of its ranges."""

from __future__ import annotations

import random
from itertools import product

from uopc.symbolic import index as ix
from uopc.uop import Ops, UOp, range_
from uopc.uop.text import index_text

SIZES = (6, 4, 5)
ranges = [range_(n, axis) for axis, n in enumerate(SIZES)]
pick = random.Random(0)


def some_index(depth: int) -> UOp:
    """A random expression, built as a user would write it: nothing is simplified."""
    if depth == 0:
        return pick.choice(ranges)
    a, n = some_index(depth - 1), ix.index(pick.choice([-12, -4, 1, 2, 3, 4, 6, 12]))
    op = pick.choice([Ops.ADD, Ops.SUB, Ops.MUL, Ops.IDIV, Ops.MOD])
    sums = (Ops.ADD, Ops.SUB)
    return UOp(op, (a, some_index(depth - 1) if op in sums and pick.random() < 0.5 else n))


def canonical(u: UOp) -> UOp:
    """The same index through the constructors of `uopc/symbolic/index.py`."""
    return ix.remake(u, tuple(canonical(s) for s in u.src)) if u.src else u


source = "def index(r0, r1, r2): return {}"
forms: set[UOp] = set()
nodes = [0, 0]
for _ in range(300):
    raw = some_index(3)
    done = canonical(raw)
    made = []
    for u in (raw, done):
        scope: dict[str, object] = {}
        exec(source.format(index_text(u, limit=100_000)), scope)  # the text is Python's too
        made.append(scope["index"])
    for at in product(*[range(n) for n in SIZES]):
        before, after = (f(*at) for f in made)  # type: ignore[operator]  # made by exec
        assert before == after, (index_text(raw), index_text(done), at, before, after)
    nodes = [n + len(u.toposort()) for n, u in zip(nodes, (raw, done), strict=True)]
    forms.add(done)
print(f"300 random indices, {300 * 6 * 4 * 5} values: all equal")
print(f"nodes: {nodes[0]} as written, {nodes[1]} canonical; {len(forms)} different indices")
