"""Two walks that passes share: nodes replaced, and recursion without Python's stack."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from uopc.symbolic.index import remake
from uopc.uop.node import UOp, toposort


def replace(root: UOp, table: dict[UOp, UOp]) -> UOp:
    """The graph with whole nodes replaced."""
    memo = dict(table)
    for u in toposort(root):
        if u not in memo:
            src = tuple([memo[s] for s in u.src])
            memo[u] = u if src == u.src else remake(u, src)
    return memo[root]


def recurse(
    visit: Callable[[Any], Generator[Any, UOp, UOp]], start: Any, memo: dict[Any, UOp]
) -> UOp:
    """Run a recursive generator: `x = yield request` visits another request first.  Memoised."""
    if start in memo:
        return memo[start]
    stack = [(start, visit(start))]
    value: UOp | None = None
    while stack:
        request, running = stack[-1]
        try:
            asked = running.send(value)  # type: ignore[arg-type]  # a generator starts with None
        except StopIteration as done:
            value = memo[request] = done.value
            stack.pop()
            continue
        value = memo.get(asked)
        if value is None:
            stack.append((asked, visit(asked)))
    assert value is not None
    return value
