"""Reverse-mode differentiation of a graph of stage TENSOR: a graph in, a graph out.

There is no tape.  `gradients` walks the nodes backwards, each once, and gives every operand what
the table in `derivatives.py` says.  The result is more nodes of the same kind, so a backward pass
is scheduled with the forward pass, fuses with it, and can be differentiated again.

Where the gradient comes from several users, it is their sum; where the sum is taken matters.
Equal EXPANDs are one node, so one EXPAND of an activation may feed three products.  Summed at the
EXPAND, its gradient would be one REDUCE over `a*b + c*d + e*f`, which is no product of matrices any
more.  So what comes to an EXPAND, or to RESHAPEs and PERMUTEs on top of one, passes through one by
one, and is summed below it:

    x -> EXPAND -> (MUL by b, MUL by d)     dx = REDUCE(da * b) + REDUCE(dc * d)
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

from uopc.errors import UsageError
from uopc.tensor.derivatives import DERIVATIVES, Partial, carrier, repeated, sum_over
from uopc.uop.node import UOp, here, inherit, toposort, tuple_of
from uopc.uop.ops import MOVEMENT, Ops

Edge: TypeAlias = tuple[UOp, Partial]  # an operand that a gradient reaches, and what it gets
_RELABELS = frozenset((Ops.RESHAPE, Ops.PERMUTE))


def gradients(outputs: Sequence[UOp], seeds: Sequence[UOp], wrt: Sequence[UOp]) -> list[UOp]:
    """The gradient of sum(sum(seed * output)) by each node of wrt, of its shape and dtype.

    outputs, seeds: float nodes of stage TENSOR, pairwise of one shape and dtype.
    wrt: any float nodes, leaves or not; zeros where no output depends on one.
    Raises UsageError where a seed does not fit.
    """
    found = arrivals(outputs, seeds, wrt)
    return [found[w] if w in found else UOp.const(0, w.dtype, w.shape) for w in wrt]


def arrivals(outputs: Sequence[UOp], seeds: Sequence[UOp], wrt: Iterable[UOp]) -> dict[UOp, UOp]:
    """As `gradients`, of those nodes of wrt that a gradient comes to."""
    wanted = dict.fromkeys(wrt)  # in this order
    walk = _Walk(toposort(*outputs), wanted.keys())
    for output, seed in zip(outputs, seeds, strict=True):
        if (output.dtype, output.shape) != (seed.dtype, seed.shape):
            raise UsageError(
                f"gradient at {here()}: the output is {output.dtype} of shape {output.shape}, the "
                f"gradient given for it {seed.dtype} of shape {seed.shape}. Cast it, or give it "
                "that shape."
            )
        walk.give(output, seed.cast(carrier(output.dtype)))
    walk.run()
    return walk.totals()


def depends(output: UOp, wrt: Collection[UOp]) -> bool:
    """Whether a gradient comes from the output to one of these nodes."""
    return output in _reached(toposort(output), wrt)


def _reached(order: Sequence[UOp], wanted: Collection[UOp]) -> frozenset[UOp]:
    found: set[UOp] = set()
    for u in order:
        if u in wanted or any(x in found for x, _ in edges(u)):
            found.add(u)
    return frozenset(found)


def edges(u: UOp) -> Iterator[Edge]:
    """Where the gradient of u goes on to: floats, by the table."""
    if u.dtype.is_float:
        for x, partial in zip(_operands(u), DERIVATIVES[u.op], strict=False):
            if partial is not None and x.dtype.is_float:
                yield x, partial


def _operands(u: UOp) -> tuple[UOp, ...]:
    """The sources; of an ITEM the value in the TUPLE that it stands for."""
    if u.op is not Ops.ITEM:
        return u.src
    both = tuple_of(u.src[0])
    assert both is not None
    return (both.src[u.arg],)


class _Walk:
    """One backward pass.

    sums: what has come to a node, added up; parts: what has come to a view that repeats, one by one
    (see the top of the file).
    """

    def __init__(self, order: Sequence[UOp], wanted: Collection[UOp]) -> None:
        self.order = order
        self.wanted = wanted
        self.reached = _reached(order, wanted)
        self.repeats = _that_repeat(order)
        self.sums: dict[UOp, UOp] = {}
        self.parts: dict[UOp, list[UOp]] = {}

    def give(self, u: UOp, g: UOp) -> None:
        if u not in self.reached:
            return
        if u in self.repeats:
            self.parts.setdefault(u, []).append(g)
        else:
            self.sums[u] = self.sums[u] + g if u in self.sums else g

    def run(self) -> None:
        for u in reversed(self.order):
            for g in self._come_to(u):
                for x, partial in edges(u):
                    if x in self.reached:
                        self.give(x, _contribution(u, g, x, partial))

    def _come_to(self, u: UOp) -> list[UOp]:
        """Taken out, so that a long graph keeps few gradients, where nobody asked for u's."""
        keep = u in self.wanted
        if u in self.repeats:
            return self.parts.get(u, []) if keep else self.parts.pop(u, [])
        g = self.sums.get(u) if keep else self.sums.pop(u, None)
        return [] if g is None else [g]

    def totals(self) -> dict[UOp, UOp]:
        """What has come to the nodes that were asked for, in their dtype."""
        come = {w: self._come_to(w) for w in self.wanted}
        return {w: functools.reduce(UOp.__add__, g).cast(w.dtype) for w, g in come.items() if g}


def _that_repeat(order: Sequence[UOp]) -> frozenset[UOp]:
    """EXPANDs, and the views that relabel one."""
    found: set[UOp] = set()
    for u in order:
        if u.op is Ops.EXPAND or (u.op in _RELABELS and u.src[0] in found):
            found.add(u)
    return frozenset(found)


def _contribution(u: UOp, g: UOp, x: UOp, partial: Partial) -> UOp:
    """What x gets from u: in x's shape, and known by the user's line of u."""
    d = partial(u, g)
    if d.op in MOVEMENT and d.op is not Ops.PAD and (one := repeated(d.src[0])) is not None:
        d = one.expand(d.shape)  # copies of a constant, however they are moved
    if not x.shape and d.shape:  # it was repeated along every axis
        d = sum_over(d, tuple(range(len(d.shape))))
    if u.origins:
        _credit(d, u, g)
    return d


def _credit(d: UOp, u: UOp, g: UOp) -> None:
    """Say of the nodes between d and what it is made of that they were written where u was."""
    stack = [d]
    while stack:
        node = stack.pop()
        if not node.origins and node is not g and node not in u.src:
            inherit(node, u)
            stack += node.src
