"""What every tensor is made of, and `wrap`, which makes the tensor of a result.

Below the files of methods: `Base` has the slots, each of those files a class of methods derived
from it, and `core.Tensor` is all of them together.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any, Self, TypeAlias, TypeVar
from weakref import ref

import numpy as np

from uopc.dtype import DType
from uopc.errors import UsageError
from uopc.tensor.mode import grad_enabled
from uopc.uop.node import Shape, UOp, here, prod
from uopc.uop.ops import Ops

#: what an operator takes beside a tensor: numbers of Python and numpy are weak, see promote.py
Operand: TypeAlias = "Base | bool | int | float | np.number[Any] | np.bool_"
T = TypeVar("T", bound="Base")


class Base:
    """The state of a tensor.

    Attributes
    ----------
    device: "cpu", "emulated" or "cuda": where it lives.
    grad: its gradient, None before a `backward`.

    `_u` is the graph of its value.  A leaf's is a BUFFER, or an ASSIGN to one (reshaped, if it has
    no axes).
    """

    __slots__ = ("__weakref__", "_needs", "_u", "device", "grad")
    _u: UOp
    device: str
    _needs: bool
    grad: Self | None

    @property
    def requires_grad(self) -> bool:
        """Whether `backward` works out what it does to the result."""
        return self._needs

    @property
    def shape(self) -> Shape:
        """Its size along each axis."""
        return self._u.shape

    @property
    def dtype(self) -> DType:
        """The dtype of its elements."""
        return self._u.dtype

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self._u.shape)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return prod(self._u.shape)


#: every tensor that somebody holds, by identity (a WeakSet would ask whether tensors are equal), in
#: the order in which they were made: schedules depend on it
_live: dict[ref[Base], None] = {}

#: held where a tensor's graph is exchanged for another
naming = threading.Lock()


def note(tensor: Base) -> None:
    """Count a new tensor among those that are held.  From any thread: dicts change in one step."""
    _live[ref(tensor, _live.pop)] = None


def everyone() -> list[Base]:
    """Every tensor that somebody holds: an update must not change what they stand for."""
    return [t for r in list(_live) if (t := r()) is not None]


def wrap(u: UOp, first: T, *more: Base) -> T:
    """The tensor of a value that was computed from these tensors.

    It needs a gradient if one of them does, unless in `no_grad`; only floats have gradients.
    Raises UsageError where they live on different devices.
    """
    needs = first.requires_grad
    for other in more:
        if other.device != first.device:
            raise UsageError(
                f"tensors on two devices at {here()}: {first.device} (shape {first.shape}) and "
                f"{other.device} (shape {other.shape}). Move one: .to({first.device!r})"
            )
        needs = needs or other.requires_grad
    if needs and not grad_enabled():
        u, needs = u.detach(), False
    return fresh(type(first), u, first.device, needs and u.dtype.is_float)


def fresh(kind: type[T], u: UOp, device: str, requires_grad: bool = False) -> T:
    """A tensor of this graph; nothing is checked."""
    made = object.__new__(kind)
    made._u, made.device, made._needs, made.grad = u, device, requires_grad, None
    note(made)
    return made


def memory_of(u: UOp) -> UOp | None:
    """The BUFFER or ASSIGN whose elements, in order, this value is; None where it is another."""
    while u.op is Ops.RESHAPE:
        u = u.src[0]
    return u if u.op in (Ops.BUFFER, Ops.ASSIGN) else None


# ---- arguments that many methods take
def axis_of(axis: int, ndim: int, what: str) -> int:
    """axis counted from the front.  Raises UsageError where there is no such axis."""
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise UsageError(f"{what} at {here()}: an axis is an integer, got {axis!r}")
    if not -ndim <= axis < ndim:
        has = f"axes {-ndim} to {ndim - 1}" if ndim else "no axes"
        raise UsageError(
            f"{what} at {here()}: there is no axis {axis}; {ndim} dimensions have {has}"
        )
    return int(axis) % ndim


def axes_of(axis: int | Iterable[int] | None, ndim: int, what: str) -> tuple[int, ...]:
    """Different axes counted from the front, in the given order; None: all of them.

    Raises UsageError where one is not there, or there twice.
    """
    if axis is None:
        return tuple(range(ndim))
    given: Iterable[Any] = axis if isinstance(axis, Iterable) else (axis,)
    axes = tuple(axis_of(a, ndim, what) for a in given)
    if len(set(axes)) != len(axes):
        raise UsageError(f"{what} at {here()}: axes {axis} of {ndim} name one twice")
    return axes


def shape_of(shape: tuple[Any, ...], what: str) -> Shape:
    """The sizes in f(2, 3) or f((2, 3)).  Raises UsageError where one is no integer."""
    given: Sequence[Any] = shape
    if len(shape) == 1 and isinstance(shape[0], Iterable):
        given = tuple(shape[0])
    for n in given:
        if isinstance(n, bool) or not hasattr(n, "__index__"):
            raise UsageError(f"{what} at {here()}: a shape is integers, got {n!r} in {given}")
    return tuple(int(n) for n in given)
