"""Random graphs of stage TENSOR, as programs make them: views, products, updates, gradients.

Values are small whole numbers, so that every order of summation gives the same bits; only the
gradient of a tie of several maxima is not whole (`Case.exact`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from uopc.dtype import DType, dtypes
from uopc.schedule.normalise import canonical, structure
from uopc.tensor.gradient import gradients
from uopc.uop.node import Shape, UOp, buffer, prod, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import Ops
from uopc.uop.oracle.tensor import evaluate

_SHAPES: tuple[Shape, ...] = (
    *((4, 6), (24,), (6, 4), (2, 3, 4), (4, 4), (6,), (4,), (8, 3)),
    *((1, 6), (1,), (3, 1, 4), (0, 4), ()),
)
_RESHAPED: tuple[Shape, ...] = (*_SHAPES, (2, 12), (3, 2, 4), (12, 2), (4, 1, 6), (1, 1))
_HOME = (dtypes.f64, dtypes.f64, dtypes.f64, dtypes.f32, dtypes.i32, dtypes.bf16, dtypes.f16)
_OTHER = (dtypes.f64, dtypes.f32, dtypes.i32, dtypes.i64, dtypes.bf16, dtypes.u8)
SMALL = 50  # what values are clamped to
LARGEST = 64  # no value is larger: so many times itself, summed, is exact in f32
MOST_ELEMENTS = 400


@dataclass(frozen=True)
class Case:
    """What somebody asks for.

    arrays: the contents of each leaf, by slot; kept: leaves whose contents are still wanted
    afterwards; in_memory: values that were computed before, and the leaf that holds each; exact:
    every order of its sums gives the same bits.
    """

    roots: tuple[UOp, ...]
    kept: frozenset[UOp]
    arrays: tuple[Array, ...]
    in_memory: dict[UOp, UOp]
    exact: bool

    def canonical(self) -> CanonicalCase:
        """The same as the scheduler takes it, with the oracle's numbers."""
        known = self.in_memory.get
        _, leaves = structure(self.roots, known, self.kept)
        roots, new = canonical(self.roots, known, leaves)
        arrays = tuple([self.arrays[u.arg.slot] for u in leaves])
        order = toposort(*roots)
        values = dict(zip(order, evaluated(order, arrays), strict=True))
        return CanonicalCase(
            tuple(roots),
            frozenset(new[u] for u in self.kept if u in new),
            arrays,
            tuple([values[r] for r in roots]),
            self.exact,
            any(strays(u, [values[s] for s in u.src[1:]]) for u in _read(roots)),
        )


@dataclass(frozen=True)
class CanonicalCase:
    """Roots over numbered leaves; kept leaves; the leaves' contents; what the roots are; whether
    that is exact; whether some index is out of range."""

    roots: tuple[UOp, ...]
    kept: frozenset[UOp]
    arrays: tuple[Array, ...]
    wanted: tuple[Array, ...]
    exact: bool = True
    reports: bool = False

    def values(self) -> list[UOp]:
        """Every node that the roots are made of."""
        return _read(self.roots)


def evaluated(values: Sequence[UOp], arrays: Sequence[Array]) -> tuple[Array, ...]:
    """What values over leaves are, by the oracle."""
    read = {u.arg.slot: arrays[u.arg.slot] for u in toposort(*values) if u.op is Ops.BUFFER}
    return tuple(evaluate(list(values), read))


def _read(roots: Sequence[UOp]) -> list[UOp]:
    """What values are made of; not the contents that a new version replaces unread."""
    found = dict.fromkeys(roots)
    stack = list(roots)
    while stack:
        u = stack.pop()
        for s in u.src[1:] if u.op is Ops.ASSIGN else u.src:
            if s not in found:
                found[s] = None
                stack.append(s)
    return list(found)


def strays(u: UOp, indices: Sequence[Array]) -> bool:
    """Does an index of u name nothing?  indices: what its operands after the first are."""
    if u.op not in (Ops.GATHER, Ops.SCATTER):
        return False
    sizes = u.src[0].shape if u.op is Ops.GATHER else u.shape
    named = [(n, indices[~d]) for d, n in zip(u.arg.dims, sizes, strict=True) if d < 0]
    return any(bool(np.any((at < -n) | (at >= n))) for n, at in named)


@dataclass
class Graph:
    """A growing graph.

    values: what was made, of any data dtype; masks: of bool; handles: the last version of each
    leaf; bound: the largest magnitude that a value can have.
    """

    rng: random.Random
    dtype: DType
    arrays: list[Array] = field(default_factory=list)
    values: list[UOp] = field(default_factory=list)
    masks: list[UOp] = field(default_factory=list)
    handles: list[UOp] = field(default_factory=list)
    bound: dict[UOp, int] = field(default_factory=dict)

    def chance(self, percent: int) -> bool:
        return self.rng.randrange(100) < percent

    # ---- leaves
    def leaf(self, shape: Shape, dtype: DType | None = None) -> UOp:
        """A memory with small numbers; a shape of no axes is a view of one element."""
        dtype = dtype or self.dtype
        low = 0 if dtype.min == 0 else -3
        u = self.memory([self.rng.randrange(low, 4) for _ in range(prod(shape))], shape, dtype)
        self.bound[u] = 3
        return u

    def index(self, shape: Shape, n: int) -> UOp:
        """A memory with indices of an axis of n, of which some count from the end."""
        low = -n if self.chance(20) else 0
        high = n if self.chance(90) else n + 2
        dtype = self.rng.choice((dtypes.i64, dtypes.i64, dtypes.i32))
        numbers = [self.rng.randrange(low, max(high, low + 1)) for _ in range(prod(shape))]
        return self.memory(numbers, shape, dtype)

    def memory(self, numbers: list[int], shape: Shape, dtype: DType) -> UOp:
        u = buffer(len(self.arrays), dtype, shape or (1,))
        self.arrays.append(np.asarray(numbers).astype(dtype.numpy).reshape(shape or (1,)))
        return u.reshape(shape)

    # ---- values
    def pick(self) -> UOp:
        """A value; often a recent one."""
        return self.rng.choice(self.values[-4:] if self.chance(60) else self.values)

    def like(self, shape: Shape, dtype: DType) -> UOp:
        """A value of this shape and dtype."""
        same = [u for u in self.values if u.shape == shape]
        if not same or self.chance(20):
            return self.leaf(shape, dtype)
        return self.cast(self.rng.choice(same), dtype)

    def cast(self, x: UOp, dtype: DType) -> UOp:
        bound = self.bound[x]
        if dtype.min == 0 and x.dtype.min != 0:
            x = x.maximum(0)
        return self.known(x.cast(dtype), bound)

    def known(self, u: UOp, bound: int) -> UOp:
        """u, clamped where it may be large."""
        if bound > LARGEST:
            low = 0 if u.dtype.min == 0 else -SMALL
            u, bound = u.maximum(low).minimum(SMALL), SMALL
        self.bound[u] = max(bound, self.bound.get(u, 0))
        return u

    def keep(self, u: UOp) -> None:
        if prod(u.shape) <= MOST_ELEMENTS and len(u.shape) <= 5:
            self.values.append(u)


Step = Callable[[Graph], "UOp | None"]


def random_case(seed: int, steps: int = 14) -> Case:
    """A graph with up to `steps` values, and what is asked of it."""
    rng = random.Random(seed)
    g = Graph(rng, rng.choice(_HOME))
    for _ in range(rng.randint(2, 4)):
        x = g.leaf(rng.choice(_SHAPES))
        g.values.append(x)
        if x.op is Ops.BUFFER and prod(x.shape):
            g.handles.append(x)
    few = rng.sample(_STEPS, rng.randint(4, len(_STEPS)))  # each graph has its own character
    for _ in range(rng.randint(max(3, steps // 4), steps)):
        made = rng.choice(few)(g)
        if made is not None:
            g.keep(made)
    asked = rng.sample(g.values, min(len(g.values), rng.randint(1, 3))) + [g.values[-1]]
    asked += rng.sample(g.masks, min(len(g.masks), 1))
    exact = True
    if g.dtype is dtypes.f64 and g.chance(40):
        asked += _trained(g)
        exact = False
    return _case(g, asked, exact)


def _case(g: Graph, asked: list[UOp], exact: bool) -> Case:
    rng = g.rng
    asked += [h for h in g.handles if h.op is Ops.ASSIGN]  # the last versions are always wanted
    roots = [u for u in dict.fromkeys(asked) if u.op is not Ops.BUFFER and prod(u.shape)]
    order = toposort(*roots)
    in_memory: dict[UOp, UOp] = {}
    whole = evaluated(order, g.arrays)
    if g.chance(20):
        inner = [u for u in g.values if u in set(order) and u.src and u.op not in _NAMES]
        inner = [u for u in inner if u not in roots and prod(u.shape)]
        for u in rng.sample(inner, min(len(inner), 2)):
            value = whole[order.index(u)]
            in_memory[u] = buffer(len(g.arrays), u.dtype, u.shape or (1,)).reshape(u.shape)
            g.arrays.append(value.reshape(u.shape or (1,)))
    kept = [u for u in order if u.op is Ops.BUFFER and g.chance(10)]
    return Case(tuple(roots), frozenset(kept), tuple(g.arrays), in_memory, exact)


_NAMES = (Ops.ASSIGN, Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.DETACH)


# ---- elementwise
def _unary(g: Graph) -> UOp:
    x = g.pick()
    bound = g.bound[x]
    k = g.rng.randrange(4)
    if k == 0:
        return g.known(x * 2, 2 * bound)
    if k == 1:
        return g.known(x.maximum(0), bound)
    if k == 2 or x.dtype.min == 0:
        return g.known(x + 1, bound + 1)
    return g.known(0 - x, bound)


def _binary(g: Graph) -> UOp:
    x = g.pick()
    y = g.like(x.shape, x.dtype)
    a, b = g.bound[x], g.bound[y]
    k = g.rng.randrange(4)
    if k == 0:
        return g.known(x + y, a + b)
    if k == 1:
        return g.known(x * y, a * b)
    if k == 2:
        return g.known(x.maximum(y), max(a, b))
    mask = x < y
    g.masks.append(mask)
    return g.known(mask.where(x, y), max(a, b))


def _with_itself(g: Graph) -> UOp | None:
    """A value read along two axes: an outer sum, or beside its transpose."""
    x = g.pick()
    bound = 2 * g.bound[x]
    if len(x.shape) == 1:
        n = x.shape[0]
        both = (n, n)
        return g.known(x.reshape((n, 1)).expand(both) + x.reshape((1, n)).expand(both), bound)
    if len(x.shape) == 2 and x.shape[0] == x.shape[1]:
        return g.known(x + x.permute((1, 0)), bound)
    return None


def _where(g: Graph) -> UOp | None:
    if not g.masks:
        return None
    mask = g.rng.choice(g.masks)
    x = g.like(mask.shape, g.dtype)
    return g.known(mask.where(x, 0), g.bound[x])


def _cast(g: Graph) -> UOp:
    return g.cast(g.pick(), g.rng.choice(_OTHER))


def _chain(g: Graph) -> UOp:
    """Many operations in a row."""
    x = g.pick()
    bound = g.bound[x]
    for _ in range(g.rng.randint(5, 30)):
        x = g.known(x.maximum(1) if g.chance(50) else x + 1, bound + 1)
        bound = g.bound[x]
    return x


def _wide(g: Graph) -> UOp:
    """A sum of many leaves."""
    x = g.pick()
    bound = g.bound[x]
    if prod(x.shape) > 50:
        return x
    for _ in range(g.rng.randint(4, 30)):
        x, bound = x + g.leaf(x.shape, x.dtype), bound + 3
    return g.known(x, bound)


# ---- reductions
def _reduced(g: Graph, x: UOp, n: int) -> UOp:
    many = prod(x.shape[len(x.shape) - n :])
    if not many or g.chance(66):
        return g.known(x.reduce(Ops.ADD, n), g.bound[x] * many)
    return g.known(x.reduce(Ops.MAX, n), g.bound[x])


def _reduce(g: Graph) -> UOp | None:
    x = g.pick()
    if not x.shape:
        return None
    axes = list(range(len(x.shape)))
    g.rng.shuffle(axes)
    if g.chance(10) and x.shape[axes[-1]]:
        return g.known(x.permute(axes).argmax(1).cast(x.dtype), LARGEST)
    return _reduced(g, g.known(x.permute(axes), g.bound[x]), g.rng.randint(1, len(axes)))


def _beside(g: Graph) -> UOp | None:
    """A reduction that is put back beside its source."""
    x = g.pick()
    if not x.shape or not prod(x.shape):
        return None
    r = _reduced(g, x, 1)
    back = r.reshape((*r.shape, 1)).expand(x.shape)
    bound = g.bound[x] + g.bound[r]
    return g.known(x + back, bound) if g.chance(50) else g.known(x.maximum(back), bound)


def _rows_and_columns(g: Graph) -> UOp | None:
    """Rows less their maximum, and the sums of the columns of that."""
    x = g.pick()
    if len(x.shape) != 2 or not prod(x.shape) or x.dtype.min == 0:
        return None
    d = x - x.reduce(Ops.MAX, 1).reshape((x.shape[0], 1)).expand(x.shape)
    d = g.known(d, 2 * g.bound[x])
    g.keep(d)
    return _reduced(g, g.known(d.permute((1, 0)), g.bound[d]), 1)


def _product(g: Graph) -> UOp | None:
    x = g.pick()
    if len(x.shape) not in (2, 3) or not prod(x.shape):
        return None
    *batch, m, k = x.shape
    n = g.rng.choice((1, 2, 3, 5))
    y = g.like((k, n), x.dtype)
    whole = (*batch, m, n, k)
    a = x.reshape((*batch, m, 1, k)).expand(whole)
    b = y.permute((1, 0)).reshape((*(1 for _ in batch), 1, n, k)).expand(whole)
    return g.known((a * b).reduce(Ops.ADD, 1), LARGEST * LARGEST)


# ---- views
def _reshape(g: Graph) -> UOp:
    x = g.pick()
    same = [s for s in _RESHAPED if prod(s) == prod(x.shape)]
    return g.known(x.reshape(g.rng.choice([*same, (prod(x.shape),)])), g.bound[x])


def _permute(g: Graph) -> UOp:
    x = g.pick()
    axes = list(range(len(x.shape)))
    g.rng.shuffle(axes)
    return g.known(x.permute(axes), g.bound[x])


def _window(g: Graph) -> UOp | None:
    x = g.pick()
    if not x.shape:
        return None
    k = g.rng.randrange(3)
    if k == 0:
        return g.known(x.flip([g.rng.randrange(len(x.shape))]), g.bound[x])
    if k == 1:
        bounds = []
        for n in x.shape:
            b = g.rng.randrange(n) if n else 0
            bounds.append(
                (b, g.rng.randint(b, n) if g.chance(4) else g.rng.randint(min(b + 1, n), n))
            )
        return g.known(x.shrink(bounds), g.bound[x])
    pads = [(g.rng.randrange(2), g.rng.randrange(2)) for _ in x.shape]
    return g.known(x.pad(pads, g.rng.randrange(2)), g.bound[x] + 1)


def _diagonal(g: Graph) -> UOp | None:
    """The diagonal of a square: every n + 1st element."""
    x = g.pick()
    if len(x.shape) != 2 or x.shape[0] != x.shape[1] or not prod(x.shape):
        return None
    n = x.shape[0]
    long = x.reshape((n * n,)).pad([(0, n)]).reshape((n, n + 1))
    return g.known(long.shrink([(0, n), (0, 1)]).reshape((n,)), g.bound[x])


def _counted(g: Graph) -> UOp:
    """A value and the number of its place."""
    x = g.pick()
    if not x.shape:
        return x
    n = x.shape[-1]
    return g.known(
        x + UOp.arange(n, x.dtype).reshape((*(1 for _ in x.shape[1:]), n)).expand(x.shape),
        g.bound[x] + n,
    )


# ---- places that values name
def _named(g: Graph, shape: Shape, n: int) -> UOp:
    """Indices of an axis of n: a memory, or computed."""
    if n and g.chance(20):
        x = g.like(shape, dtypes.i32)
        return x.maximum(0).minimum(n - 1)
    return g.index(shape, n)


def _gather(g: Graph) -> UOp | None:
    """Rows along an axis."""
    x = g.pick()
    if not x.shape:
        return None
    axis = g.rng.randrange(len(x.shape))
    n = g.rng.choice((2, 3, 7))
    shape = tuple([n if i == axis else s for i, s in enumerate(x.shape)])
    one = [n if i == axis else 1 for i in range(len(shape))]
    index = _named(g, (n,), x.shape[axis]).reshape(one).expand(shape)
    return g.known(x.gather([~0 if i == axis else i for i in range(len(shape))], index), g.bound[x])


def _choose(g: Graph) -> UOp | None:
    """One element of each row, or of each pair of indices."""
    x = g.pick()
    if len(x.shape) != 2:
        return None
    m, n = x.shape
    if g.chance(70):
        return g.known(x.gather((0, ~0), _named(g, (m,), n)), g.bound[x])
    return g.known(x.gather((~0, ~1), _named(g, (3,), m), _named(g, (3,), n)), g.bound[x])


def _scatter(g: Graph) -> UOp | None:
    x = g.pick()
    if not x.shape:
        return None
    axis = g.rng.randrange(len(x.shape))
    n = g.rng.choice((2, 5))
    one = [s if i == axis else 1 for i, s in enumerate(x.shape)]
    index = _named(g, (x.shape[axis],), n).reshape(one).expand(x.shape)
    shape = tuple([n if i == axis else s for i, s in enumerate(x.shape)])
    made = x.scatter(shape, [~0 if i == axis else i for i in range(len(shape))], index)
    return g.known(made, g.bound[x] * max(1, x.shape[axis]))


# ---- updates
def _updated(g: Graph, k: int, value: UOp) -> UOp:
    old = g.handles[k]
    bound = g.bound[value]
    g.handles[k] = new = g.known(old.assign(value), bound)
    g.bound[new] = bound
    return new


def _assign(g: Graph) -> UOp | None:
    if not g.handles:
        return None
    k = g.rng.randrange(len(g.handles))
    old = g.handles[k]
    x = g.like(old.shape, old.dtype)
    how = g.rng.randrange(4)
    if how < 2:
        x = g.known(old + x, g.bound[old] + g.bound[x])
    elif how == 2 and len(old.shape) == 2 and old.shape[0] == old.shape[1]:
        x = g.known(old.permute((1, 0)), g.bound[old])
    return _updated(g, k, x)


def _set(g: Graph) -> UOp | None:
    """x[a:b] = value, along the first axis."""
    if not g.handles:
        return None
    k = g.rng.randrange(len(g.handles))
    old = g.handles[k]
    n = old.shape[0]
    b = g.rng.randrange(n)
    e = g.rng.randint(b + 1, n)
    part = g.like((e - b, *old.shape[1:]), old.dtype)
    pads = [(b, n - e), *((0, 0) for _ in old.shape[1:])]
    inside = UOp.const(True, dtypes.bool).reshape((1,) * len(old.shape)).expand(part.shape)
    value = inside.pad(pads, False).where(part.pad(pads), old)
    return _updated(g, k, g.known(value, max(g.bound[part], g.bound[old])))


def _update_beside_reader(g: Graph) -> UOp | None:
    """Somebody reads the old contents, then an update of the same elements comes."""
    if not g.handles:
        return None
    k = g.rng.randrange(len(g.handles))
    old = g.handles[k]
    shift = g.rng.randrange(3)
    if shift == 0:
        reader = g.known(old + 1, g.bound[old] + 1)
    elif shift == 1:
        reader = _reduced(g, old, 1)
    else:
        reader = g.known(old.flip((0,)), g.bound[old])
    g.keep(reader)
    x = g.like(old.shape, old.dtype)
    if reader.shape == old.shape and g.chance(50):
        x = reader
    return _updated(g, k, g.known(x.maximum(old), max(g.bound[x], g.bound[old])))


def _swap(g: Graph) -> UOp | None:
    """Two memories change their contents."""
    if not g.handles:
        return None
    k = g.rng.randrange(len(g.handles))
    same = [
        j
        for j, h in enumerate(g.handles)
        if j != k and h.shape == g.handles[k].shape and h.dtype is g.handles[k].dtype
    ]
    if not same:
        return None
    a, b = g.handles[k], g.handles[same[0]]
    _updated(g, k, b)
    return _updated(g, same[0], a)


def _other_name(g: Graph) -> None:
    """A second tensor of the same elements: from now on each has its own versions."""
    if g.handles:
        g.handles.append(g.rng.choice(g.handles))


def _trained(g: Graph) -> list[UOp]:
    """Gradients of some values by some others, and updates with them."""
    rng = g.rng
    floats = [u for u in g.values if u.dtype is dtypes.f64 and prod(u.shape)]
    if not floats:
        return []
    outputs = rng.sample(floats, min(len(floats), rng.randint(1, 2)))
    seeds = [g.leaf(u.shape, u.dtype) for u in outputs]
    below = [u for u in toposort(*outputs) if u.op is Ops.BUFFER and u.dtype is dtypes.f64]
    wrt = list(dict.fromkeys(rng.sample(below, min(len(below), 3)) + [rng.choice(floats)]))
    found = gradients(outputs, seeds, wrt)
    for k, h in enumerate(g.handles):
        for u, d in zip(wrt, found, strict=True):
            if h is u and g.chance(60):
                g.handles[k] = h.assign(h - d * 0.5)
    return [d for d in found if g.chance(70)]


_STEPS: tuple[Step, ...] = (
    *(_unary, _binary, _binary, _with_itself, _where, _cast, _chain, _wide),
    *(_reduce, _reduce, _beside, _beside, _rows_and_columns, _product, _product),
    *(_reshape, _reshape, _permute, _window, _window, _diagonal, _counted),
    *(
        _gather,
        _choose,
        _scatter,
        _assign,
        _assign,
        _set,
        _update_beside_reader,
        _swap,
        _other_name,
    ),
)
