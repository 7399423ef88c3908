"""`Tensor`: a lazy array with gradients on one device.

A tensor is a graph of UOps; nothing runs until its elements are asked for.  What can be done with
it stands in the files whose classes are its bases.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from uopc.dtype import DType, dtypes, from_numpy
from uopc.errors import UsageError
from uopc.runtime.buffer import Buffer
from uopc.tensor import storage, watch
from uopc.tensor.backward import Backward, check_gradient, copied, remember
from uopc.tensor.base import Base, Operand, fresh, memory_of, naming, note, wrap
from uopc.tensor.elementwise import Elementwise
from uopc.tensor.engine import base_of, explain, read, realize, to_host
from uopc.tensor.indexing import Indexing
from uopc.tensor.mode import grad_enabled
from uopc.tensor.movement import Movement
from uopc.tensor.products import Products
from uopc.tensor.promote import check_data, default_of, fitting, number_of
from uopc.tensor.reduce import Reductions
from uopc.uop.node import here
from uopc.uop.numbers import cast as cast_array

#: repr shows the elements of tensors that are known and no larger
_SHOWN = 1000


class Tensor(Reductions, Movement, Indexing, Products, Elementwise, Backward):
    """A lazy array of one dtype on one device.

    Tensor(data, dtype=None, device=None, requires_grad=False) copies a numpy array, a number, or
    (nested) lists of them.  dtype: None keeps a numpy array's; Python's numbers become bool, i32
    (i64 or u64 where one needs it) or f32.  device: None is `default_device()`.

    Raises UsageError for a dtype that uopc has not, ragged lists, an integer that dtype cannot
    hold, and requires_grad of what is no float.
    """

    __slots__ = ()
    __array_ufunc__ = None  # numpy's operators leave the work to ours
    __hash__ = object.__hash__  # by identity: == is elementwise

    def __init__(
        self,
        data: Any,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> None:
        place = storage.device_named(device)
        array = _array(data, dtype)
        made = from_numpy(array.dtype)
        if requires_grad:
            check_gradient(made)
        self._u = storage.place(place, made, array.shape)
        held = memory_of(self._u)
        assert held is not None
        storage.put(held, memory := Buffer.from_numpy(place, array))
        if watch.current is not None:
            watch.current.constant(array, memory)
        self.device, self._needs, self.grad = place, requires_grad, None
        note(self)
        if requires_grad:
            remember(self)

    def __init_subclass__(cls) -> None:
        raise TypeError("Tensor has no subclasses: results would be of the subclass")

    # ---- memory
    def realize(self) -> Self:
        """Compute its elements now; itself."""
        realize(self)
        return self

    def explain(self) -> str:
        """The kernels that it would be computed by, with reasons: see `uopc.tensor.explain`."""
        return explain(self)

    def contiguous(self) -> Self:
        """The same value; its elements have a memory of their own once they are computed.  (Views
        need no copy to be computed with.)"""
        return wrap(self._u, self)

    def detach(self) -> Self:
        """The same value, through which no gradient passes."""
        if not self.requires_grad:
            return fresh(type(self), self._u, self.device)
        return fresh(type(self), self._u.detach(), self.device)

    def clone(self) -> Self:
        """The same value as a tensor of its own; gradients pass."""
        return wrap(self._u, self)

    def assign(self, value: Operand) -> Self:
        """Give it a new value, in place where the memory allows it; itself.

        value: a tensor of its device, or a number; it is broadcast to the shape and cast within
        floats or within integers.  Other tensors, views of it among them, keep their values.
        Raises UsageError for other dtypes and shapes; for a leaf that requires a gradient, outside
        `no_grad`.
        """
        self._rebind(value, "assign")
        return self

    def _rebind(self, value: Operand, what: str) -> None:
        """A new version: see `assign`."""
        if watch.current is not None:
            watch.current.versioned(self)
        u = fitting(value, self, what)
        needs = isinstance(value, Base) and value.requires_grad and grad_enabled()
        leaf = self.requires_grad and self.is_leaf
        if leaf and (needs or grad_enabled()):
            raise UsageError(
                f"{what} at {here()}: this tensor is a leaf that requires a gradient, and its "
                "history would be lost. Assign inside `with no_grad():`."
            )
        if (isinstance(value, Base) and value.requires_grad and not needs) or leaf:
            u = u.detach()
        old = memory_of(self._u)
        if old is not None and (leaf or not self.requires_grad):
            u = old.assign(u.reshape(old.shape)).reshape(self.shape)
        with naming:
            self._u, self._needs = u, leaf or needs
            if leaf:
                remember(self)

    # ---- devices
    def to(self, device: str | None) -> Self:
        """The same value on a device; itself where it lives there.  None: the default device.

        A view is gathered where it is, before the copy.  Gradients come back the same way.
        Raises UsageError for an unknown device, DeviceError for one that is missing.
        """
        place = storage.device_named(device)
        if place == self.device:
            return self
        moved = storage.place(place, self.dtype, self.shape)
        held = memory_of(moved)
        assert held is not None
        with storage.turn:
            read(self).copy_to(storage.memory(held))
        result = fresh(type(self), moved, place, self.requires_grad and grad_enabled())
        if result.requires_grad:
            copied(result, self)
        return result

    def cpu(self) -> Self:
        """On the device "cpu": native kernels."""
        return self.to("cpu")

    def cuda(self) -> Self:
        """On the device "cuda"."""
        return self.to("cuda")

    # ---- to numpy and Python: the host sees copies
    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Its elements as a numpy array of its own, from any device.

        Raises IndexError where an index was out of range on the way.
        """
        return to_host(self)

    def __array__(
        self, dtype: Any = None, copy: bool | None = None
    ) -> np.ndarray[Any, np.dtype[Any]]:
        """For numpy's functions.  Raises UsageError on cuda: a copy from there is made by
        `.numpy()`, so that it can be seen."""
        if copy is False:
            raise ValueError("a Tensor gives numpy a copy of its elements; copy=False cannot hold")
        if self.device == "cuda":
            raise UsageError(
                f"numpy wants a tensor that lives on cuda (shape {self.shape}) at {here()}. "
                "Pass .numpy() of it, which copies."
            )
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def item(self) -> bool | int | float:
        """Its only element.  Raises UsageError where it has more, or none."""
        if self.size != 1:
            raise UsageError(
                f"item at {here()}: wants one element, shape {self.shape} has {self.size}"
            )
        return _number(self.numpy().reshape(()), self.dtype)

    def tolist(self) -> Any:
        """Its elements as nested lists of Python numbers; a number where it has no axes."""
        array = self.numpy()
        if self.ndim == 0:
            return _number(array, self.dtype)
        return (array.astype(np.float64) if self.dtype.is_float else array).tolist()

    def __bool__(self) -> bool:
        if self.size != 1:
            raise UsageError(
                f"the truth of a tensor of shape {self.shape} at {here()}: of which element? "
                "Use .any() or .all()."
            )
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_int or self.ndim:
            raise TypeError(
                f"only an integer without axes is an index, got {self.dtype} {self.shape}"
            )
        return int(self.item())

    def __format__(self, spec: str) -> str:
        """Its only element by a format such as .3f; without one as `repr` shows it."""
        return format(self.item(), spec) if spec else repr(self)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a tensor without axes has no len()")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        """Its parts along the first axis."""
        if not self.ndim:
            raise TypeError("a tensor without axes is not iterable")
        rest = [(0, n) for n in self.shape[1:]]
        for i in range(self.shape[0]):
            part = self._u.shrink([(i, i + 1), *rest]).reshape(self.shape[1:])
            yield wrap(part, self)

    def __repr__(self) -> str:
        """Values where they are known: printing computes nothing."""
        grad = ", requires_grad=True" if self.requires_grad else ""
        about = f"dtype={self.dtype}, device={self.device}{grad}"
        held = storage.located(base_of(self._u))
        known = held is not None and storage.has_memory(held) and watch.current is None
        if not known or self.size > _SHOWN:
            lazy = "" if known else ", not computed yet"
            return f"Tensor(shape={self.shape}, {about}{lazy})"
        text = np.array2string(to_host(self), separator=", ", prefix="Tensor(", threshold=_SHOWN)
        return f"Tensor({text}, {about})"

    # ---- copies by copy and pickle: of the value, not of what it was computed from
    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles its elements and its device.  Raises UsageError for a computed tensor that
        requires a gradient."""
        self._check_copied("pickle")
        about = self.shape, self.dtype.name, self.device, self.requires_grad
        return _unpickled, (self.numpy().tobytes(), *about)

    def __deepcopy__(self, memo: Any) -> Self:
        """A tensor of its own, a leaf where this one is, with a copy of its gradient.  Raises
        UsageError for a computed tensor that requires a gradient."""
        self._check_copied("copy")
        made = fresh(type(self), self._u.detach() if self.requires_grad else self._u, self.device)
        if self.requires_grad:
            made.requires_grad_()
        if self.grad is not None:
            made.grad = fresh(type(self), self.grad._u, self.grad.device)
        return made

    def __copy__(self) -> Self:
        return self.__deepcopy__({})

    def _check_copied(self, what: str) -> None:
        if not self.is_leaf:
            raise UsageError(
                f"{what} at {here()}: a tensor (shape {self.shape}) that was computed from leaves "
                "would lose its history. Use .detach(), or .clone() to go on with it."
            )


def _unpickled(
    elements: bytes, shape: tuple[int, ...], dtype: str, device: str, requires_grad: bool
) -> Tensor:
    array = np.frombuffer(elements, getattr(dtypes, dtype).numpy).reshape(shape)
    return Tensor(array, device=device, requires_grad=requires_grad)


# ---- data from outside
def _number(array: np.ndarray[Any, np.dtype[Any]], dtype: DType) -> bool | int | float:
    value = array[()]
    return float(value) if dtype.is_float else bool(value) if dtype is dtypes.bool else int(value)


def _array(data: Any, dtype: DType | None) -> np.ndarray[Any, np.dtype[Any]]:
    """The data as a numpy array of a dtype that uopc has, contiguous."""
    if isinstance(data, Base):
        raise UsageError(f"Tensor at {here()}: of a Tensor? Use .clone(), .to() or .cast().")
    if dtype is not None:
        check_data(dtype)
    if isinstance(data, (np.ndarray, np.generic)) or hasattr(data, "__array__"):
        array = np.asarray(data)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        given = from_numpy(array.dtype)
    else:
        array, given = _of_numbers(data, dtype)
    if dtype is not None and dtype is not given:
        array = cast_array(array, given, dtype)
    return np.ascontiguousarray(array).reshape(array.shape)


def _of_numbers(data: Any, dtype: DType | None) -> tuple[np.ndarray[Any, np.dtype[Any]], DType]:
    """Python's numbers, perhaps in lists, and the dtype that they have by themselves."""
    first = _first(data)
    if isinstance(first, Base):
        raise UsageError(
            f"Tensor at {here()}: of a list of Tensors? stack(...) or cat(...) joins them where "
            "they are, and gradients pass."
        )
    try:
        array = np.asarray(data)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"Tensor at {here()}: lists of numbers of equal lengths: {error}"
        ) from None
    if isinstance(first, np.generic):
        return array, from_numpy(array.dtype)
    if array.size == 0:
        return array.astype(np.float32), dtypes.f32
    if array.dtype.kind == "b":
        return array, dtypes.bool
    if array.dtype.kind == "f" and not _only_integers(data, array):
        return (array, dtypes.f64) if dtype else (array.astype(np.float32), dtypes.f32)
    if array.dtype.kind not in "iuOf":
        number_of(first, "Tensor")
    return _integers(np.asarray(data, object), dtype)


def _first(data: Any) -> Any:
    while isinstance(data, (list, tuple, range)) and len(data):
        data = data[0]
    return data


def _only_integers(data: Any, array: np.ndarray[Any, np.dtype[Any]]) -> bool:
    """Integers that numpy made floats of, because no dtype of its own holds them all."""
    if not np.any(np.abs(array) >= 2.0**53):
        return False
    return all(isinstance(x, int) for x in np.asarray(data, object).reshape(-1))


def _integers(
    numbers: np.ndarray[Any, np.dtype[Any]], dtype: DType | None
) -> tuple[np.ndarray[Any, np.dtype[Any]], DType]:
    """Python integers of any size, in the dtype that was asked for or the first that holds them."""
    flat = numbers.reshape(-1).tolist()
    for x in flat:
        number_of(x, "Tensor")
    low, high = min(flat), max(flat)
    if dtype is not None and (dtype.is_float or dtype is dtypes.bool):
        return np.asarray(numbers, np.float64), dtypes.f64
    found = dtype or next(
        (
            d
            for d in (default_of(low), default_of(high), dtypes.i64, dtypes.u64)
            if d.min <= low and high <= d.max
        ),
        dtypes.u64,
    )
    if not found.min <= low or not high <= found.max:
        wrong = low if low < found.min else high
        raise UsageError(
            f"Tensor at {here()}: {wrong} does not fit {found} ({found.min} to {found.max})"
        )
    return numbers.astype(found.numpy), found
