"""Kernels with one formula become one launch: an optimiser updates all parameters alike.

Here because: after bodies are known; before the memory plan, which counts lifetimes in launches.
Before: twenty kernels v[:] = a * v + b * g * g, of twenty sizes
After:  one kernel over the chunks of twenty arrays (`uopc/passes/segments.py`)

A body is *flat* if it is elementwise and every memory is n elements long, read in order, or has one
element: then rank and sizes leave it.  Launches with equal flat bodies and no path between them are
contracted, with the order kept topological (`order.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from uopc.kernel import KernelBody, Output
from uopc.schedule.normalise import leaf_buffer, rebuilt
from uopc.schedule.order import Order, Placed
from uopc.uop.infer import prod
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import ELEMENTWISE, Ops

#: elements of the arrays of a flat body: any number does
LENGTH = 32


@dataclass(eq=False)
class Batch(Placed):
    """Launches, by number, that become one."""

    members: list[int]


def batches(
    bodies: Sequence[KernelBody], needs: Sequence[frozenset[int]]
) -> list[tuple[list[int], KernelBody | None]]:
    """Launches in order: (the kernels of each, its flat body where they are several).

    bodies: in order; needs: the kernels that stand before each.
    """
    order = Order()
    of: list[Batch] = []
    latest: dict[Hashable, Batch] = {}
    flats = [flat(b) for b in bodies]
    for k, before in enumerate(needs):
        mine = Batch([k])
        of.append(mine)
        for n in before:
            if of[n] is not mine:
                mine.needs(of[n])
        order.append(mine)
        body = flats[k]
        if body is None:
            continue
        key = _key(body)
        other = latest.get(key)
        if other is not None and other not in mine.before:
            later = order.between(other, mine)
            if later is not None:
                order.contract(other, mine, later)
                other.members.append(k)
                of[k] = other
                continue
        latest[key] = mine
    out: list[tuple[list[int], KernelBody | None]] = []
    for node in order.nodes():
        assert isinstance(node, Batch)
        several = len(node.members) > 1
        out.append((node.members, flats[node.members[0]] if several else None))
    return out


def flat(body: KernelBody) -> KernelBody | None:
    """The body over arrays of LENGTH elements; None where it is not flat."""
    if body.errors is not None:
        return None
    n = max(prod(o.value.shape) for o in body.outputs)
    if n < 2 or any(prod(o.value.shape) != n for o in body.outputs):
        return None
    new: dict[UOp, UOp] = {}
    for u in toposort(*[o.value for o in body.outputs], *[o.memory for o in body.outputs]):
        made = _flattened(u, n, new)
        if made is None:
            return None
        new[u] = made
    outputs = tuple([Output(_long(new[o.value]), new[o.memory]) for o in body.outputs])
    if any(o.memory.shape != (LENGTH,) for o in outputs):
        return None
    return KernelBody(outputs, (LENGTH,), {o.value: (0,) for o in outputs})


def _flattened(u: UOp, n: int, new: dict[UOp, UOp]) -> UOp | None:
    """u as a value of LENGTH elements, or of one (shape (1,)), or a constant."""
    size = prod(u.shape)
    if u.op is Ops.CONST:
        return u
    if size not in (1, n):
        return None
    if u.op is Ops.BUFFER:
        return leaf_buffer(u.arg.slot, u.dtype, (LENGTH if size == n else 1,))
    if u.op is Ops.RESHAPE:
        return new[u.src[0]]
    if u.op is Ops.EXPAND:
        inner = new[u.src[0]]
        if prod(u.src[0].shape) == size:
            return inner
        return inner.expand((LENGTH,)) if inner.shape == (1,) else inner
    if u.op not in ELEMENTWISE:
        return None
    src = tuple([new[s] for s in u.src])
    shapes = {s.shape for s in src if s.shape}
    if len(shapes) > 1:
        return None
    return rebuilt(u, src)


def _long(value: UOp) -> UOp:
    """A value of every element, where it is the same for all of them."""
    return value if value.shape == (LENGTH,) else value.reshape((1,)).expand((LENGTH,))


def _key(body: KernelBody) -> Hashable:
    return tuple([(o.value, o.memory) for o in body.outputs])
