"""What programs of tensors mean, in numpy: values with the behaviour of Tensor, and gradients.

A `Value` computes at once, on arrays, one step after the other: there is nothing to schedule, to
fuse or to overwrite, and a view is a copy.  Gradients follow a tape of rules made of the same
operations, so that gradients have gradients.  Whatever numpy would round in an order of its own is
refused (`Refused`): sums of floats are taken of small dyadic numbers only, where every order gives
the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias

import numpy as np

from uopc.dtype import DType, Kind, dtypes, from_numpy
from uopc.tensor import promote as rules
from uopc.uop.numbers import Array

Rule: TypeAlias = "Callable[[Value], Value]"
#: sums of multiples of 1/64 below this are exact in f32, whatever their order
_EXACT = 2.0**14


class Refused(Exception):  # noqa: N818  (no error: the program is one that numpy cannot judge)
    """This reference cannot say what the bits are."""


class Node:
    """A value on the tape.  parents: with what each gets of a gradient; leaf: whose value it is."""

    def __init__(self, array: Array, parents: Sequence[tuple[Node, Rule]] = ()) -> None:
        self.array = array
        self.parents = [(p, rule) for p, rule in parents if p.needs]
        self.leaf: Value | None = None

    @property
    def needs(self) -> bool:
        return self.leaf is not None or bool(self.parents)


class Value:
    """What stands for a Tensor: operations make new ones, an assignment gives it a new node."""

    grads_on: ClassVar[bool] = True
    __array_ufunc__ = None
    __hash__ = object.__hash__

    def __init__(self, data: Any, dtype: DType | None = None, requires_grad: bool = False) -> None:
        if not isinstance(data, np.ndarray):
            kind = dtype or (dtypes.f32 if np.size(data) == 0 else _default(data))
            data = np.asarray(data).astype(kind.numpy)
        elif dtype is not None:
            data = cast(data, dtype)
        self.node = Node(data)
        self.grad: Value | None = None
        if requires_grad:
            self.requires_grad_()

    @classmethod
    def of(cls, array: Array, *parents: tuple[Value, Rule]) -> Value:
        """The result of an operation."""
        made = object.__new__(cls)
        tape = [(p.node, rule) for p, rule in parents] if cls.grads_on else []
        made.node = Node(array, tape if from_numpy(array.dtype).is_float else [])
        made.grad = None
        return made

    def now(self) -> Value:
        """Its value now, for rules: it keeps the node when this one is assigned to."""
        made = object.__new__(type(self))
        made.node, made.grad = self.node, None
        return made

    # ---- what it is
    @property
    def array(self) -> Array:
        return self.node.array

    @property
    def dtype(self) -> DType:
        return from_numpy(self.array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def size(self) -> int:
        return self.array.size

    @property
    def requires_grad(self) -> bool:
        return self.node.needs

    @property
    def is_leaf(self) -> bool:
        return self.node.leaf is self or not self.node.needs

    def numpy(self) -> Array:
        return self.array

    # ---- history
    def requires_grad_(self, requires_grad: bool = True) -> Value:
        if requires_grad == self.requires_grad:
            return self
        if requires_grad and (not self.dtype.is_float or self.dtype.storage):
            raise Refused("no gradients of this dtype")
        if not requires_grad and not self.is_leaf:
            raise Refused("no leaf")
        self.node = Node(self.array)
        self.node.leaf = self if requires_grad else None
        return self

    def detach(self) -> Value:
        return Value.of(self.array)

    def clone(self) -> Value:
        return Value.of(self.array, (self, lambda g: g))

    def contiguous(self) -> Value:
        return self.clone()

    def realize(self) -> Value:
        return self

    def assign(self, value: Any) -> Value:
        """A new node for the same value."""
        new = value if isinstance(value, Value) else Value(_stored(value, self.dtype))
        _storable(new.dtype, self.dtype)
        new = new.cast(self.dtype).broadcast_to(self.shape)
        leaf = self.node.leaf is self
        if leaf and Value.grads_on:
            raise Refused("a leaf outside no_grad")
        if not Value.grads_on or leaf:
            new = new.detach()
        self.node = Node(new.array, [(new.node, lambda g: g)])
        if leaf:
            self.node.leaf = self
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        new = value if isinstance(value, Value) else Value(_stored(value, self.dtype))
        _storable(new.dtype, self.dtype)
        new = new.cast(self.dtype).now()
        if isinstance(key, Value) and key.dtype is dtypes.bool and not key.ndim:
            raise Refused("a mask without axes")
        where = np.arange(self.size).reshape(self.shape)
        named = where[_key(key)]
        if self.requires_grad and not self.is_leaf and named.size == self.size:
            raise Refused("nothing is left that a gradient could come to")
        spread = np.broadcast_to(np.arange(new.size).reshape(new.shape), named.shape)
        where[_key(key)] = -1 - spread
        old = self.now()
        made = np.where(where >= 0, _at(old.array, where), _at(new.array, -1 - where))
        result = Value.of(
            made.astype(self.array.dtype),
            (old, lambda g: g._taken_back(np.where(where >= 0, where, -1), old.shape)),
            (new, lambda g: g._taken_back(np.where(where < 0, -1 - where, -1), new.shape)),
        )
        if named.size or (isinstance(key, Value) and key.dtype is dtypes.bool and key.size):
            self.assign(result)  # how many elements a mask has nobody knows before

    # ---- elements by position
    def _moved(self, f: Callable[[Array, Any], Array], fill: Any = 0) -> Value:
        """A movement: f(array, fill) puts elements elsewhere and `fill` where there is none."""
        places = f(np.arange(self.size).reshape(self.shape), -1)
        if not isinstance(fill, int) or not 0 <= fill <= (1 if self.dtype is dtypes.bool else 9):
            raise Refused("a number that does not fit")
        old = self.now()
        made = np.ascontiguousarray(f(self.array, np.asarray(fill).astype(self.array.dtype)))
        return Value.of(
            made.reshape(places.shape), (self, lambda g: g._taken_back(places, old.shape))
        )

    def _taken_back(self, places: Array, shape: tuple[int, ...]) -> Value:
        """The transpose of reading at flat places: element i is the sum of what was read there."""
        out = np.zeros(math.prod(shape), np.float64)
        inside = places >= 0
        np.add.at(out, places[inside], self.array[inside].astype(np.float64))
        made = _exact(out).astype(self.array.dtype).reshape(shape)
        return Value.of(
            made, (self, lambda g: Value.where(Value(inside), g._read_at(places), g._zero()))
        )

    def _read_at(self, places: Array) -> Value:
        shape = self.shape
        return Value.of(_at(self.array, places), (self, lambda g: g._taken_back(places, shape)))

    def _zero(self) -> Value:
        return Value(np.zeros((), self.array.dtype))

    def __getitem__(self, key: Any) -> Value:
        return self._moved(lambda a, _: a[_key(key)])

    def __iter__(self) -> Iterator[Value]:
        return (self[i] for i in range(self.shape[0]))

    def take(self, indices: Any, axis: int) -> Value:
        if not self.ndim:
            raise Refused("no axes")
        return self._moved(lambda a, _: np.take(a, _key(indices), axis))

    def gather(self, axis: int, index: Value) -> Value:
        def f(a: Array, _: Any) -> Array:
            if index.ndim != a.ndim:
                raise Refused("other ranks")
            axes = axis % a.ndim
            sizes = tuple(
                slice(None) if d == axes else slice(0, n) for d, n in enumerate(index.shape)
            )
            return np.take_along_axis(a[sizes], index.array.astype(np.int64), axes)

        return self._moved(f)

    def take_along_axis(self, indices: Value, axis: int = -1) -> Value:
        return self._moved(lambda a, _: np.take_along_axis(a, indices.array.astype(np.int64), axis))

    def scatter_add(self, axis: int, index: Value, src: Value) -> Value:
        """Through the transpose of reading, added to this value."""
        if not index.ndim == src.ndim == self.ndim:
            raise Refused("other ranks")
        axes = axis % self.ndim
        grid = list(np.indices(index.shape))
        n = self.shape[axes]
        if np.any((index.array.astype(np.int64) < -n) | (index.array.astype(np.int64) >= n)):
            raise Refused("out of range")
        grid[axes] = index.array.astype(np.int64) % self.shape[axes]
        flat = np.ravel_multi_index(grid, self.shape) if index.size else index.array
        if src.dtype is not self.dtype or self.dtype is dtypes.bool or self.dtype.storage:
            raise Refused("a dtype that does not add")
        values = src[tuple(slice(0, n) for n in index.shape)]
        if not self.dtype.is_float:
            out = self.array.reshape(-1).copy()
            np.add.at(out, flat.reshape(-1), values.array.reshape(-1))
            return Value.of(out.reshape(self.shape))
        if self.size and float(np.max(np.abs(self.array))) > _EXACT:
            raise Refused("large")
        sums = (-values)._taken_back(flat.astype(np.int64), self.shape)
        _exact(self.array)
        return self - sums  # which keeps -0.0 where nothing is added

    def one_hot(self, num_classes: int) -> Value:
        if not self.dtype.is_data_int:
            raise Refused("no integers")
        return Value.of((self.array[..., None] == np.arange(num_classes)).astype(np.int64))

    # ---- movement
    def reshape(self, *shape: int) -> Value:
        return self._moved(lambda a, _: a.reshape(shape))

    def permute(self, *axes: int) -> Value:
        return self._moved(lambda a, _: a.transpose(axes))

    def transpose(self, a: int = -2, b: int = -1) -> Value:
        return self._moved(lambda x, _: np.swapaxes(x, a, b))

    @property
    def T(self) -> Value:  # noqa: N802
        return self.transpose()

    def expand(self, *shape: int) -> Value:
        return self.broadcast_to(shape)

    def broadcast_to(self, shape: tuple[int, ...]) -> Value:
        if shape == self.shape:
            return self.clone()
        return self._moved(lambda a, _: np.broadcast_to(a, shape))

    def squeeze(self, axis: int | None = None) -> Value:
        return self._moved(lambda a, _: np.squeeze(a, axis))

    def unsqueeze(self, axis: int) -> Value:
        return self._moved(lambda a, _: np.expand_dims(a, axis))

    def flip(self, axis: Any = None) -> Value:
        return self._moved(lambda a, _: np.flip(a, axis))

    def roll(self, shift: int, axis: int | None = None) -> Value:
        return self._moved(lambda a, _: np.roll(a, shift, axis))

    def pad(self, pads: Sequence[tuple[int, int]], value: Any = 0) -> Value:
        return self._moved(lambda a, fill: np.pad(a, pads, constant_values=fill), value)

    def shrink(self, bounds: Sequence[tuple[int, int]]) -> Value:
        return self[tuple(slice(b, e) for b, e in bounds)]

    def split(self, sizes: int, axis: int = 0) -> tuple[Value, ...]:
        n = self.shape[axis]
        cuts = [(i, min(i + sizes, n)) for i in range(0, n, sizes)] or [(0, 0)]
        return tuple(
            self._moved(lambda a, _, b=b, e=e: np.take(a, np.arange(b, e), axis))  # type: ignore[misc]
            for b, e in cuts
        )

    def repeat(self, repeats: int, axis: int) -> Value:
        if not self.ndim:
            raise Refused("no axes")
        return self._moved(lambda a, _: np.repeat(a, repeats, axis))

    def tile(self, *repeats: int) -> Value:
        return self._moved(lambda a, _: np.tile(a, repeats))

    def tril(self, diagonal: int = 0) -> Value:
        self._matrix()
        return self._moved(lambda a, fill: np.where(_below(a, diagonal), a, fill))

    def triu(self, diagonal: int = 0) -> Value:
        self._matrix()
        return self._moved(lambda a, fill: np.where(_below(a, diagonal - 1), fill, a))

    def _matrix(self) -> None:
        if self.ndim < 2:
            raise Refused("no matrix")

    def diagonal(self, offset: int = 0) -> Value:
        return self._moved(lambda a, _: np.diagonal(a, offset, -2, -1))

    @staticmethod
    def cat(parts: Sequence[Value], axis: int = 0) -> Value:
        return _joined(parts, lambda arrays: np.concatenate(arrays, axis))

    @staticmethod
    def stack(parts: Sequence[Value], axis: int = 0) -> Value:
        return _joined(parts, lambda arrays: np.stack(arrays, axis))

    # ---- elementwise
    def cast(self, dtype: DType) -> Value:
        before = self.dtype
        rule: list[tuple[Value, Rule]] = [(self, lambda g: g.cast(before))]
        return Value.of(cast(self.array, dtype), *(rule if before.is_float else []))

    def _pair(self, other: Any, floats: bool = False) -> tuple[Value, Value]:
        """Both operands in one dtype and shape."""
        if isinstance(other, Value):
            dtype = rules.promote(self.dtype, other.dtype)
        else:
            dtype = rules.weak_dtype(self.dtype, other)
        if floats and not dtype.is_float:
            dtype = dtypes.f32
        if dtype.storage:
            raise Refused("fp8 is storage")
        if not isinstance(other, Value):
            if not dtype.is_float and not dtype.min <= other <= dtype.max:
                raise Refused("a number that does not fit")
            other = Value(np.asarray(other).astype(dtype.numpy))
        a, b = self.cast(dtype), other.cast(dtype)
        shape = np.broadcast_shapes(a.shape, b.shape)
        return a.broadcast_to(shape).now(), b.broadcast_to(shape).now()

    def _plain(self, other: Any, f: Callable[[Array, Array], Any], floats: bool = False) -> Value:
        """An operation without gradients."""
        a, b = self._pair(other, floats)
        if a.requires_grad or b.requires_grad:
            made = np.asarray(f(a.array, b.array))
            if from_numpy(made.dtype).is_float:
                raise Refused("no rule")
            return Value.of(made)
        return Value.of(np.asarray(f(a.array, b.array)))

    def __add__(self, other: Any) -> Value:
        a, b = self._pair(other)
        if a.dtype is dtypes.bool:
            raise Refused("bools")
        return Value.of(a.array + b.array, (a, lambda g: g), (b, lambda g: g))

    def __sub__(self, other: Any) -> Value:
        a, b = self._pair(other)
        if a.dtype is dtypes.bool:
            raise Refused("bools")
        return Value.of(a.array - b.array, (a, lambda g: g), (b, lambda g: -g))

    def __mul__(self, other: Any) -> Value:
        a, b = self._pair(other)
        if a.dtype is dtypes.bool:
            raise Refused("bools")
        return Value.of(a.array * b.array, (a, lambda g: g * b), (b, lambda g: g * a))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Any) -> Value:
        a, b = self._pair(other)
        return b - a

    def __truediv__(self, other: Any) -> Value:
        return self._plain(other, np.divide, floats=True)

    def __rtruediv__(self, other: Any) -> Value:
        return self._plain(other, lambda a, b: np.divide(b, a), floats=True)

    def __floordiv__(self, other: Any) -> Value:
        return self._plain(other, _floor_divide)

    def __mod__(self, other: Any) -> Value:
        return self._plain(other, _remainder)

    def __pow__(self, n: int) -> Value:
        if self.dtype is dtypes.bool or self.dtype.is_float:
            raise Refused("powers of floats round")
        return Value.of(np.power(self.array, np.asarray(n, self.array.dtype)))

    def __neg__(self) -> Value:
        if self.dtype is dtypes.bool or self.dtype.storage:
            raise Refused("bools, or fp8")
        return Value.of(np.negative(self.array), (self, lambda g: -g))

    def square(self) -> Value:
        return self * self

    def abs(self) -> Value:
        if self.dtype.is_float:
            return self.maximum(-self)
        return Value.of(np.abs(self.array))

    def maximum(self, other: Any) -> Value:
        return self._extreme(other, largest=True)

    def minimum(self, other: Any) -> Value:
        return self._extreme(other, largest=False)

    def _extreme(self, other: Any, largest: bool) -> Value:
        a, b = self._pair(other)
        if a.requires_grad and b.requires_grad and np.any(np.isnan(a.array) | np.isnan(b.array)):
            raise Refused("who gets the gradient of NaN")
        made = _extreme(a.array, b.array, largest)
        if not isinstance(other, Value):  # a constant takes ties
            moved = Value(made != b.array)
            return Value.of(made, (a, lambda g: Value.where(moved, g, g._zero())))
        tie = Value(a.array == b.array)
        first = Value((a.array > b.array) if largest else (a.array < b.array))
        return Value.of(
            made,
            (a, lambda g: Value.where(tie, g * 0.5, Value.where(first, g, g._zero()))),
            (b, lambda g: Value.where(tie, g * 0.5, Value.where(first, g._zero(), g))),
        )

    def relu(self) -> Value:
        if self.dtype is dtypes.bool:
            raise Refused("bools")
        return self.maximum(0)

    def clamp(self, low: Any, high: Any) -> Value:
        return self.maximum(low).minimum(high)

    @staticmethod
    def where(condition: Value, x: Any, y: Any) -> Value:
        if condition.dtype is not dtypes.bool:
            raise Refused("no condition")
        if isinstance(x, Value):
            a, b = x._pair(y)
        elif isinstance(y, Value):
            b, a = y._pair(x)
        else:
            raise Refused("two numbers")
        shape = np.broadcast_shapes(a.shape, condition.shape)
        a, b, c = a.broadcast_to(shape), b.broadcast_to(shape), condition.now()
        return Value.of(
            np.where(c.array, a.array, b.array),
            (a, lambda g: Value.where(c, g, g._zero())),
            (b, lambda g: Value.where(c, g._zero(), g)),
        )

    def masked_fill(self, mask: Value, value: Any) -> Value:
        return Value.where(mask, value, self)

    def __iadd__(self, other: Any) -> Value:
        return self.assign(self + other)

    def __isub__(self, other: Any) -> Value:
        return self.assign(self - other)

    def __imul__(self, other: Any) -> Value:
        return self.assign(self * other)

    def _compared(self, other: Any, f: Callable[[Array, Array], Any]) -> Value:
        a, b = self._pair(other)
        return Value.of(np.asarray(f(a.array, b.array)))

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return self._compared(other, np.equal)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return self._compared(other, np.not_equal)

    def __lt__(self, other: Any) -> Value:
        return self._compared(other, np.less)

    def __le__(self, other: Any) -> Value:
        return self._compared(other, np.less_equal)

    def __gt__(self, other: Any) -> Value:
        return self._compared(other, np.greater)

    def __ge__(self, other: Any) -> Value:
        return self._compared(other, np.greater_equal)

    def _bits(self, other: Any, f: Callable[[Array, Array], Any]) -> Value:
        a, b = self._pair(other)
        if a.dtype.is_float:
            raise Refused("bits of floats")
        return Value.of(np.asarray(f(a.array, b.array)))

    def __and__(self, other: Any) -> Value:
        return self._bits(other, np.bitwise_and)

    def __or__(self, other: Any) -> Value:
        return self._bits(other, np.bitwise_or)

    def __xor__(self, other: Any) -> Value:
        return self._bits(other, np.bitwise_xor)

    def __invert__(self) -> Value:
        if self.dtype.is_float:
            raise Refused("bits of floats")
        return Value.of(np.invert(self.array))

    def __lshift__(self, other: Any) -> Value:
        return self._bits(other, lambda a, n: _shifted(a, n, left=True))

    def __rshift__(self, other: Any) -> Value:
        return self._bits(other, lambda a, n: _shifted(a, n, left=False))

    def _of_floats(self, f: Callable[[Array], Any]) -> Value:
        """A function that numpy rounds as everybody does."""
        if self.dtype.storage:
            raise Refused("fp8 is storage")
        x = self if self.dtype.is_float else self.cast(dtypes.f32)
        if x.requires_grad:
            raise Refused("no rule")
        return Value.of(np.asarray(f(_wide(x.array))).astype(x.array.dtype))

    def sqrt(self) -> Value:
        return self._of_floats(np.sqrt)

    def reciprocal(self) -> Value:
        return self._of_floats(lambda a: np.ones((), a.dtype) / a)

    def _rounded(self, f: Callable[[Array], Any]) -> Value:
        if self.dtype.storage:
            raise Refused("fp8 is storage")
        if not self.dtype.is_float:
            return self.detach()
        return Value.of(np.asarray(f(_wide(self.array))).astype(self.array.dtype))

    def floor(self) -> Value:
        return self._rounded(np.floor)

    def ceil(self) -> Value:
        return self._rounded(np.ceil)

    def trunc(self) -> Value:
        return self._rounded(np.trunc)

    def round(self) -> Value:
        return self._rounded(np.rint)

    def sign(self) -> Value:
        if self.dtype is dtypes.bool or self.dtype.storage:
            raise Refused("bools, or fp8")
        return Value.of(np.sign(_wide(self.array)).astype(self.array.dtype))

    def isnan(self) -> Value:
        self._has(None)
        return Value.of(np.isnan(_wide(self.array)))

    def isinf(self) -> Value:
        self._has(None)
        return Value.of(np.isinf(_wide(self.array)))

    def isfinite(self) -> Value:
        self._has(None)
        return Value.of(np.isfinite(_wide(self.array)))

    def signbit(self) -> Value:
        self._has(None)
        return Value.of(np.signbit(_wide(self.array)) if self.dtype.is_float else self.array < 0)

    def logical_not(self) -> Value:
        if self.dtype.storage:
            raise Refused("fp8 is storage")
        return Value.of(self.array == 0)

    # ---- reductions
    def sum(self, axis: Any = None, keepdim: bool = False) -> Value:
        self._has(None)
        if not self.dtype.is_float:
            to = np.uint64 if self.dtype is dtypes.u64 else np.int64
            return Value.of(np.asarray(np.sum(self.array.astype(to), axis, keepdims=keepdim)))
        total = _exact_sum(self.array, axis, keepdim).astype(self.array.dtype)
        shape, kept = self.shape, np.sum(np.zeros(self.shape), axis, keepdims=True).shape
        return Value.of(total, (self, lambda g: g.reshape(*kept).broadcast_to(shape)))

    def mean(self, axis: Any = None, keepdim: bool = False) -> Value:
        if self.requires_grad:
            raise Refused("no rule")
        total = self.sum(axis, keepdim)
        count = self.size // max(total.size, 1) if total.size else 1
        wide = total.array if self.dtype is dtypes.f64 else total.array.astype(np.float32)
        if self.dtype.is_float and self.dtype.bits < 32:
            wide = _exact_sum(self.array, axis, keepdim).astype(np.float32)
        made = wide / wide.dtype.type(count)
        return Value.of(np.asarray(made.astype(self.dtype.numpy if self.dtype.is_float else "f4")))

    def prod(self, axis: Any = None, keepdim: bool = False) -> Value:
        if self.dtype.is_float:
            raise Refused("products round")
        to = np.uint64 if self.dtype is dtypes.u64 else np.int64
        return Value.of(np.asarray(np.prod(self.array.astype(to), axis, keepdims=keepdim)))

    def max(self, axis: Any = None, keepdim: bool = False) -> Value:
        return self._best(axis, keepdim, largest=True)

    def min(self, axis: Any = None, keepdim: bool = False) -> Value:
        return self._best(axis, keepdim, largest=False)

    def _best(self, axis: Any, keepdim: bool, largest: bool) -> Value:
        if self.dtype.storage:
            raise Refused("fp8 is storage")
        if self.requires_grad and np.any(np.isnan(self.array)):
            raise Refused("who gets the gradient of NaN")
        axes = tuple(range(self.ndim)) if axis is None else np.atleast_1d(axis)
        best = self.array
        for a in sorted(int(a) % self.ndim for a in axes):
            best = _along(best, a, largest)
        hit = Value(self.array == best)
        count = Value(np.sum(hit.array, tuple(int(a) for a in axes), keepdims=True))
        kept, shape = best.shape, self.shape

        def rule(g: Value) -> Value:
            share = Value.of(
                g.reshape(*kept).array / count.array.astype(g.array.dtype),
                (g, lambda h: h.reshape(*kept)._shared(count).reshape(*g.shape)),
            )
            return Value.where(hit, share.broadcast_to(shape), g._zero())

        made = best if keepdim else best.reshape(self.sum_shape(axis))
        return Value.of(np.ascontiguousarray(made).reshape(made.shape), (self, rule))

    def _shared(self, count: Value) -> Value:
        return Value.of(
            self.array / count.array.astype(self.array.dtype), (self, lambda g: g._shared(count))
        )

    def sum_shape(self, axis: Any) -> tuple[int, ...]:
        return np.asarray(np.sum(np.zeros(self.shape), axis)).shape

    def any(self, axis: Any = None, keepdim: bool = False) -> Value:
        return Value.of(np.asarray(np.any(self.array != 0, axis, keepdims=keepdim)))

    def all(self, axis: Any = None, keepdim: bool = False) -> Value:
        return Value.of(np.asarray(np.all(self.array != 0, axis, keepdims=keepdim)))

    def _has(self, axis: int | None) -> None:
        if (axis is not None and not self.ndim) or self.dtype.storage:
            raise Refused("no axes, or fp8")

    def argmax(self, axis: int | None = None, keepdim: bool = False) -> Value:
        self._has(axis)
        return Value.of(np.asarray(np.argmax(_wide(self.array), axis, keepdims=keepdim)))

    def argmin(self, axis: int | None = None, keepdim: bool = False) -> Value:
        self._has(axis)
        return Value.of(np.asarray(np.argmin(_wide(self.array), axis, keepdims=keepdim)))

    def cumsum(self, axis: int) -> Value:
        if not self.ndim:
            raise Refused("no axes")
        if not self.dtype.is_float:
            to = np.uint64 if self.dtype is dtypes.u64 else np.int64
            return Value.of(np.cumsum(self.array.astype(to), axis))
        _exact_sum(self.array, axis, True)
        made = np.cumsum(self.array.astype(np.float64), axis).astype(self.array.dtype)
        made = np.where(made == 0, np.zeros((), made.dtype), made)  # sums start from +0
        return Value.of(made, (self, lambda g: g.flip(axis).cumsum(axis).flip(axis)))

    # ---- products
    def matmul(self, other: Value) -> Value:
        a, b = self.now(), other.now()
        dtype = rules.promote(a.dtype, b.dtype)
        if dtype.storage:
            raise Refused("fp8 is storage")
        a, b = a.cast(dtype), b.cast(dtype)
        if dtype is dtypes.bool:
            return Value.of(np.asarray(a.array @ b.array))
        if not dtype.is_float:
            with np.errstate(all="ignore"):
                return Value.of(np.asarray(a.array @ b.array))
        if (a.ndim != 2 or b.ndim != 2) and dtype.bits < 32:
            return (a.cast(dtypes.f32) @ b.cast(dtypes.f32)).cast(dtype)
        if a.ndim != 2 or b.ndim != 2:
            left = a if a.ndim > 1 else a.unsqueeze(0)
            right = b if b.ndim > 1 else b.unsqueeze(-1)
            full = (left.unsqueeze(-1) * right.unsqueeze(-3)).sum(-2)
            full = full if b.ndim > 1 else full.squeeze(-1)
            return full if a.ndim > 1 else full.squeeze(-2 if b.ndim > 1 else -1)
        size = np.abs(a.array.astype(np.float64)) @ np.abs(b.array.astype(np.float64))
        _exact(a.array), _exact(b.array), _exact(size)
        made = (a.array.astype(np.float64) @ b.array.astype(np.float64)).astype(dtype.numpy)
        return Value.of(
            made + np.zeros((), made.dtype), (a, lambda g: g @ b.T), (b, lambda g: a.T @ g)
        )

    __matmul__ = matmul

    # ---- gradients
    def backward(self) -> None:
        if not self.requires_grad or self.size != 1:
            raise Refused("no loss")
        with no_grad():
            come = _backward([self], None)
        for node, g in come.items():
            if (leaf := node.leaf) is not None and leaf.requires_grad:
                _tame(g.array)
                leaf.grad = g.detach() if leaf.grad is None else (leaf.grad + g).detach()


def grad(output: Value, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Gradients of one number by values."""
    if not output.requires_grad or output.size != 1:
        raise Refused("no loss")
    come = _backward([output], {v.node for v in inputs})
    out = []
    for v in inputs:
        found = [g for node, g in come.items() if node is v.node or node.leaf is v]
        if not found:
            raise Refused("an input is not used")
        total = found[0]
        for g in found[1:]:
            total = total + g
        _tame(total.array)
        out.append(total if Value.grads_on else total.detach())
    return tuple(out)


def _backward(outputs: Sequence[Value], wanted: set[Node] | None) -> dict[Node, Value]:
    """What comes to each node that is a leaf, or wanted."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [(o.node, False) for o in outputs]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(p, False) for p, _ in node.parents]
    come = {o.node: Value(np.ones(o.shape, o.array.dtype)) for o in outputs}
    for node in reversed(order):
        if node not in come:
            continue
        g = come[node]
        _tame(g.array)
        if from_numpy(node.array.dtype).storage:
            raise Refused("gradients of fp8 are f32")
        for parent, rule in node.parents:
            part = rule(g)
            come[parent] = come[parent] + part if parent in come else part
    return {n: g for n, g in come.items() if n.leaf is not None or (wanted and n in wanted)}


@contextmanager
def no_grad() -> Iterator[None]:
    before, Value.grads_on = Value.grads_on, False
    try:
        yield
    finally:
        Value.grads_on = before


# ---- numbers
def cast(array: Array, to: DType) -> Array:
    """As the book's appendix A says."""
    source = from_numpy(array.dtype)
    if source is to:
        return array
    if to is dtypes.bool:
        return np.asarray(_wide(array) != 0)
    if not source.is_float or to.is_float:
        if to.storage:
            wide = array.astype(np.float32)
            limit = float(np.asarray(448.0 if to is dtypes.f8e4m3 else 57344.0))
            return np.clip(wide, -limit, limit).astype(to.numpy)
        narrow = to.is_float and to.bits < 32
        return (array.astype(np.float32) if narrow else array).astype(to.numpy)
    x = np.trunc(np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=1e300, neginf=-1e300))
    low, high = float(to.min), float(to.max)
    inside = np.clip(x, low, np.nextafter(high, 0) if to.bits == 64 else high).astype(to.numpy)
    inside = np.where(x >= high, np.asarray(to.max, to.numpy), inside)
    return np.where(x <= low, np.asarray(to.min, to.numpy), inside)


def _wide(a: Array) -> Array:
    """Narrow floats as f32, where numpy has all functions."""
    return a.astype(np.float32) if a.dtype.itemsize < 4 and a.dtype.kind not in "biu" else a


def _default(data: Any) -> DType:
    first = np.asarray(data).reshape(-1)[0].item()
    return rules.default_of(first)


def _stored(value: Any, dtype: DType) -> Array:
    """A number in the dtype of what it is stored in."""
    if isinstance(value, np.ndarray):
        return value
    if not dtype.is_float and not (value == int(value) and dtype.min <= value <= dtype.max):
        raise Refused("a number that does not fit")
    return np.asarray(value).astype(dtype.numpy)


def _storable(source: DType, to: DType) -> None:
    """Within floats, within integers, or where nothing is lost by kind."""
    same_kind = (source.is_float and to.is_float) or (source.is_int and to.is_int)
    wider = source.kind is Kind.BOOL or (to.is_float and source.is_int)
    if not same_kind and source is not to and (not wider or to.storage or source.storage):
        raise Refused("does not go in by itself")


def _key(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(_key(k) for k in key)
    return key.array if isinstance(key, Value) else key


def _at(array: Array, places: Array) -> Array:
    """Elements at flat places; those below 0 are any."""
    flat = array.reshape(-1)
    if not flat.size:
        return np.zeros(places.shape, array.dtype)
    return np.asarray(flat[np.clip(places, 0, flat.size - 1)])


def _joined(parts: Sequence[Value], f: Callable[[Sequence[Array]], Array]) -> Value:
    dtype = parts[0].dtype
    for p in parts[1:]:
        dtype = rules.promote(dtype, p.dtype)
    values = [p.cast(dtype).now() for p in parts]
    where = f([np.full(v.shape, n) for n, v in enumerate(values)])
    places = f([np.arange(v.size).reshape(v.shape) for v in values])
    rules_of: list[tuple[Value, Rule]] = []
    for n, v in enumerate(values):
        at = np.where(where == n, places, -1)
        rules_of.append((v, lambda g, at=at, v=v: g._taken_back(at, v.shape)))  # type: ignore[misc]
    return Value.of(f([v.array for v in values]), *rules_of)


def _below(a: Array, diagonal: int) -> Array:
    """Where the last two axes are on a diagonal or below it."""
    return np.tri(a.shape[-2], a.shape[-1], diagonal, dtype=bool)


def _floor_divide(a: Array, b: Array) -> Array:
    if a.dtype.kind in "biu":
        if a.dtype.kind == "b":
            raise Refused("bools")
        return np.floor_divide(a, b)
    _tame(a), _tame(b)
    if not np.all(b):
        raise Refused("floats by zero")
    return np.asarray(np.floor_divide(_wide(a), _wide(b))).astype(a.dtype)


def _remainder(a: Array, b: Array) -> Array:
    if a.dtype.kind == "b":
        raise Refused("bools")
    if a.dtype.kind in "iu":
        return np.asarray(np.remainder(a, b))
    raise Refused("floats")


def _shifted(a: Array, n: Array, left: bool) -> Array:
    if a.dtype.kind == "b":
        raise Refused("bools")
    bits = a.dtype.itemsize * 8
    inside = (n >= 0) & (n < bits)
    if left:
        return np.where(inside, a << np.where(inside, n, 0), np.zeros((), a.dtype))
    moved = a >> np.where(inside, n, np.asarray(bits - 1, n.dtype))
    return moved if a.dtype.kind == "i" else np.where(inside, moved, np.zeros((), a.dtype))


def _extreme(a: Array, b: Array, largest: bool) -> Array:
    if a.dtype.kind in "biu":
        return np.maximum(a, b) if largest else np.minimum(a, b)
    first = np.where(a == b, np.signbit(_wide(a)) != largest, (a > b) if largest else (a < b))
    chosen = np.where(first, a, b)
    return np.where(np.isnan(_wide(a)) | np.isnan(_wide(b)), np.asarray(np.nan, a.dtype), chosen)


def _along(a: Array, axis: int, largest: bool) -> Array:
    if a.shape[axis] == 0:
        raise Refused("the largest of nothing")
    parts = np.split(a, a.shape[axis], axis)
    best = parts[0]
    for part in parts[1:]:
        best = _extreme(best, part, largest)
    return best


def _exact(a: Array) -> Array:
    """The array, if sums of its elements are exact in any order."""
    wide = a.astype(np.float64)
    if not np.all(np.abs(wide) <= _EXACT) or not np.all(wide * 64 == np.rint(wide * 64)):
        raise Refused("sums of these round")
    return a


def _tame(a: Array) -> Array:
    return _exact(a) if a.dtype.kind not in "biu" else a


def _exact_sum(a: Array, axis: Any, keepdim: bool) -> Array:
    if axis == () or not a.ndim:
        return a  # over no axes nothing is added, not even +0
    _exact(a)
    wide = a.astype(np.float64)
    _exact(np.asarray(np.sum(np.abs(wide), axis, keepdims=keepdim)))
    return np.asarray(np.sum(wide, axis, keepdims=keepdim)) + 0.0
