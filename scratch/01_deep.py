"""20,000 nodes in a row: a walk that recurses stops at Python's limit, ours does not."""

from __future__ import annotations

from uopc.dtype import dtypes
from uopc.uop import UOp, buffer, toposort
from uopc.uop.text import parse, show


def depth(u: UOp) -> int:
    """The longest way from u to a leaf, as one would write it first."""
    return 1 + max((depth(s) for s in u.src), default=0)


def depth_without_recursion(u: UOp) -> int:
    found: dict[UOp, int] = {}
    for x in toposort(u):
        found[x] = 1 + max((found[s] for s in x.src), default=0)
    return found[u]


y = buffer(0, dtypes.f32, ())
for i in range(10_000):
    y = (y + float(i)) * y  # y twice: as a tree this has more than 2**10000 nodes
try:
    print("recursion:", depth(y))
except RecursionError as error:
    print("recursion:", type(error).__name__)
print("loop:", depth_without_recursion(y), "of", len(toposort(y)), "nodes")
text = show(y)
print("text:", text.count("\n") + 1, "lines; the same node again:", parse(text) is y)
