"""Random graphs of stage TENSOR: views, products, reductions, gathers, scatters, assignments.

Values are small integers in f64, so that every order of summation gives the same bits.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uopc.dtype import DType, dtypes
from uopc.uop.node import Shape, UOp, buffer, prod
from uopc.uop.ops import Ops

Array = np.ndarray[Any, np.dtype[Any]]
_SHAPES: tuple[Shape, ...] = ((4, 6), (24,), (6, 4), (2, 3, 4), (4, 4), (6,), (4,), (1, 6), (8, 3))


@dataclass
class Graph:
    """A growing graph: its leaves, what was made, the handles that assignments rebind."""

    rng: random.Random
    leaves: list[UOp] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    values: list[UOp] = field(default_factory=list)
    handles: list[UOp] = field(default_factory=list)

    def leaf(self, shape: Shape, dtype: DType = dtypes.f64, high: int = 4) -> UOp:
        u = buffer(len(self.leaves), dtype, shape)
        numbers = [
            self.rng.randrange(-3 if dtype is dtypes.f64 else 0, high) for _ in range(prod(shape))
        ]
        self.leaves.append(u)
        self.arrays.append(np.asarray(numbers, dtype.numpy).reshape(shape))
        return u


def random_graph(seed: int, steps: int = 14) -> tuple[Graph, list[UOp], list[UOp]]:
    """(graph, results asked for, leaves and versions that are kept)."""
    g = Graph(random.Random(seed))
    rng = g.rng
    for _ in range(rng.randint(2, 4)):
        x = g.leaf(rng.choice(_SHAPES))
        g.values.append(x)
        g.handles.append(x)
    for _ in range(rng.randint(3, steps)):
        made = _STEPS[rng.randrange(len(_STEPS))](g)
        if made is not None and prod(made.shape) <= 400 and len(made.shape) <= 5:
            g.values.append(made)
    asked = rng.sample(g.values, min(len(g.values), rng.randint(1, 3))) + [g.values[-1]]
    asked += [h for h in g.handles if h.op is Ops.ASSIGN]  # the last versions are always wanted
    roots = [u for u in dict.fromkeys(asked) if u.op is not Ops.BUFFER and prod(u.shape)]
    kept = [u for u in g.leaves if rng.random() < 0.1]
    return g, roots, kept


def _pick(g: Graph, shape: Shape | None = None) -> UOp:
    """A value; often a recent one; of a shape where that is asked for."""
    rng = g.rng
    if shape is not None:
        same = [u for u in g.values if u.shape == shape]
        if same and rng.random() < 0.8:
            return rng.choice(same)
        return g.leaf(shape)
    recent = g.values[-4:] if rng.random() < 0.6 else g.values
    return rng.choice(recent)


def _unary(g: Graph) -> UOp:
    x = _pick(g)
    k = g.rng.randrange(4)
    if k == 0:
        return x * 2.0
    if k == 1:
        return x.maximum(0.0)
    return x + 1.0 if k == 2 else -x


def _small(x: UOp) -> UOp:
    """Kept small: sums of products of sums would leave the integers of f64."""
    return x.maximum(-50.0).minimum(50.0)


def _binary(g: Graph) -> UOp:
    x = _pick(g)
    y = _pick(g, x.shape)
    k = g.rng.randrange(4)
    if k == 0:
        return x + y
    if k == 1:
        return _small(x * y)
    return x.maximum(y) if k == 2 else (x < y).where(x, y)


def _broadcast(g: Graph) -> UOp:
    """A reduction that is put back beside its source."""
    x = _pick(g)
    if not x.shape:
        return x + 1.0
    r = x.reduce(g.rng.choice((Ops.ADD, Ops.MAX)), 1)
    back = _small(r).reshape((*r.shape, 1)).expand(x.shape)
    return x + back if g.rng.random() < 0.5 else x.maximum(back)


def _reduce(g: Graph) -> UOp | None:
    x = _pick(g)
    if not x.shape:
        return None
    n = g.rng.randint(1, len(x.shape))
    axes = list(range(len(x.shape)))
    g.rng.shuffle(axes)
    return _small(x.permute(axes).reduce(g.rng.choice((Ops.ADD, Ops.MAX)), n))


def _reshape(g: Graph) -> UOp:
    x = _pick(g)
    n = prod(x.shape)
    same = [s for s in (*_SHAPES, (2, 12), (3, 2, 4), (12, 2)) if prod(s) == n]
    return x.reshape(g.rng.choice(same)) if same else x.reshape((n,))


def _permute(g: Graph) -> UOp:
    x = _pick(g)
    axes = list(range(len(x.shape)))
    g.rng.shuffle(axes)
    return x.permute(axes)


def _window(g: Graph) -> UOp | None:
    x = _pick(g)
    if not x.shape:
        return None
    k = g.rng.randrange(3)
    if k == 0:
        return x.flip([g.rng.randrange(len(x.shape))])
    if k == 1:
        bounds = []
        for n in x.shape:
            b = g.rng.randrange(n)
            bounds.append((b, g.rng.randint(b + 1, n)))
        return x.shrink(bounds)
    return x.pad([(g.rng.randrange(2), g.rng.randrange(2)) for _ in x.shape])


def _product(g: Graph) -> UOp | None:
    x = _pick(g)
    if len(x.shape) != 2:
        return None
    m, k = x.shape
    n = g.rng.choice((2, 3, 5))
    y = _pick(g, (k, n))
    a = x.reshape((m, 1, k)).expand((m, n, k))
    b = y.permute((1, 0)).reshape((1, n, k)).expand((m, n, k))
    return _small((a * b).reduce(Ops.ADD, 1))


def _gather(g: Graph) -> UOp | None:
    x = _pick(g)
    if not x.shape:
        return None
    axis = g.rng.randrange(len(x.shape))
    n = g.rng.choice((2, 3, 7))
    index = g.leaf((n,), dtypes.i64, x.shape[axis])
    shape = tuple(n if i == axis else s for i, s in enumerate(x.shape))
    wide = index.reshape([n if i == axis else 1 for i in range(len(shape))]).expand(shape)
    return x.gather([~0 if i == axis else i for i in range(len(shape))], wide)


def _scatter(g: Graph) -> UOp | None:
    x = _pick(g)
    if not x.shape:
        return None
    axis = g.rng.randrange(len(x.shape))
    n = g.rng.choice((2, 5))
    index = g.leaf((x.shape[axis],), dtypes.i64, n)
    wide = index.reshape([s if i == axis else 1 for i, s in enumerate(x.shape)]).expand(x.shape)
    shape = tuple(n if i == axis else s for i, s in enumerate(x.shape))
    return _small(x.scatter(shape, [~0 if i == axis else i for i in range(len(shape))], wide))


def _assign(g: Graph) -> UOp | None:
    k = g.rng.randrange(len(g.handles))
    old = g.handles[k]
    value = _pick(g, old.shape)
    if g.rng.random() < 0.5:
        value = old + value if g.rng.random() < 0.7 else value
    elif g.rng.random() < 0.3 and len(old.shape) == 2 and old.shape[0] == old.shape[1]:
        value = old.permute((1, 0))
    g.handles[k] = new = old.assign(_small(value))
    return new


def _set(g: Graph) -> UOp | None:
    """x[a:b] = value, along the first axis."""
    k = g.rng.randrange(len(g.handles))
    old = g.handles[k]
    n = old.shape[0]
    b = g.rng.randrange(n)
    e = g.rng.randint(b + 1, n)
    part = _pick(g, (e - b, *old.shape[1:]))
    pads = [(b, n - e), *((0, 0) for _ in old.shape[1:])]
    inside = UOp.const(1.0, dtypes.f64).reshape((1,) * len(old.shape)).expand(part.shape).pad(pads)
    g.handles[k] = new = old.assign((inside < 0.5).where(old, part.pad(pads)))
    return new


_STEPS = (
    *(_unary, _binary, _binary, _broadcast, _broadcast, _reduce, _reduce, _reshape, _reshape),
    *(_permute, _window, _product, _product, _gather, _scatter, _assign, _assign, _set),
)
