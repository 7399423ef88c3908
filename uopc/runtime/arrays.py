"""What a kernel may be called with: every argument is checked against the Source's parameters.

A kernel knows flat memory of an exact element count, so shapes may differ but sizes may not.  All
checks come before the first byte moves: nothing is written past a buffer's end, and no written
array shares bytes with another, since kernels are compiled with `restrict`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from uopc.dtype import DType, Kind, from_numpy
from uopc.errors import UsageError
from uopc.kernel import Param

#: Bytes that a device pointer must be a multiple of: the widest access of one thread (CUDA C++
#: Programming Guide, "Device Memory Accesses").  Allocations are aligned to 256, views may not be.
DEVICE_ALIGNMENT = 16
_DLPACK_CPU = 1  # kDLCPU of dlpack.h


@dataclass(frozen=True)
class DeviceArray:
    """Memory on a GPU: an address, not a copy.

    Attributes: pointer; shape in elements; device, its ordinal; contiguous in C order; writable;
    owner, the object that keeps the memory alive.
    """

    pointer: int
    shape: tuple[int, ...]
    dtype: DType
    device: int = 0
    contiguous: bool = True
    writable: bool = True
    owner: object = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """So that CuPy, Numba and PyTorch take it without a copy (bf16 and fp8 excepted)."""
        return {
            "shape": self.shape,
            "typestr": self.dtype.numpy.str,
            "data": (self.pointer, not self.writable),
            "strides": None,
            "version": 3,
        }


HostArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Bound: TypeAlias = HostArray | DeviceArray


def check_arguments(
    name: str, params: Sequence[Param], arguments: Sequence[Any], on_device: bool = False
) -> list[Bound]:
    """The arguments as arrays of the parameters' dtypes, ready to be passed in slot order.

    Scalars become 0-d arrays.  on_device: DeviceArrays are allowed.  Raises UsageError that names
    kernel and argument, what was expected, what came, and what to do.
    """
    if len(arguments) != len(params):
        kinds = ", ".join(f"{i}: {_describe(p)}" for i, p in enumerate(params))
        raise UsageError(
            f"kernel {name} takes {len(params)} arguments ({kinds}), got {len(arguments)}."
        )
    bound = [
        _check_one(f"kernel {name}, argument {i}", p, a, on_device)
        for i, (p, a) in enumerate(zip(params, arguments, strict=True))
    ]
    _check_overlaps(name, params, bound)
    return bound


def address(array: Bound) -> int:
    """Where an array's first element is."""
    if isinstance(array, DeviceArray):
        return array.pointer
    return int(array.__array_interface__["data"][0])


def no_work(params: Sequence[Param], grid: Sequence[int]) -> bool:
    """True where a launch could write nothing: no blocks, or only empty outputs."""
    written = [p for p in params if p.written]
    return 0 in grid or (bool(written) and all(p.size == 0 for p in written))


def device_array(interface: Any, owner: object, device: int = 0) -> DeviceArray:
    """The DeviceArray that a `__cuda_array_interface__` describes (version 2 or 3).

    Raises UsageError for a dtype that uopc has not.  Source: Numba documentation, "CUDA Array
    Interface (Version 3)".
    """
    shape = tuple(int(n) for n in interface["shape"])
    dtype = from_numpy(np.dtype(interface["typestr"]))
    pointer, readonly = interface["data"]
    contiguous = is_contiguous(shape, interface.get("strides"), dtype.itemsize)
    return DeviceArray(int(pointer), shape, dtype, device, contiguous, not readonly, owner)


def is_contiguous(shape: Sequence[int], strides: Sequence[int] | None, unit: int) -> bool:
    """Whether elements lie in C order without gaps; strides and `unit`, one element, alike."""
    if strides is None or 0 in shape:
        return True
    step = unit
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and stride != step:
            return False
        step *= n
    return True


def _describe(p: Param) -> str:
    return f"{p.dtype} scalar" if p.scalar else f"{p.dtype}[{p.size}]{' written' * p.written}"


def _check_one(where: str, p: Param, value: Any, on_device: bool) -> Bound:
    if p.scalar:
        return _scalar(where, p, value)
    if isinstance(value, DeviceArray) or not isinstance(value, np.ndarray):
        value = value if isinstance(value, DeviceArray) else _foreign(where, p, value)
    if isinstance(value, DeviceArray):
        if not on_device:
            raise UsageError(
                f"{where} is in GPU memory, the kernel runs on the CPU. Copy it to the host first."
            )
        return _check_device(where, p, value)
    array: HostArray = value
    if array.dtype != p.dtype.numpy:
        fix = f"Convert it with .astype({_spelling(p.dtype)})."
        raise UsageError(f"{where}: expected {p.dtype}, got {array.dtype}. {fix}")
    _check_size(where, p, array.size, array.shape)
    flags = array.flags
    if not flags.c_contiguous:
        fix = "Pass np.ascontiguousarray of it" + (" and copy the result back." * p.written or ".")
        raise UsageError(
            f"{where} is not C-contiguous: shape {array.shape}, strides {array.strides}. {fix}"
        )
    if not flags.aligned:
        raise UsageError(f"{where} is not aligned to its {p.dtype.itemsize} bytes. Pass a copy.")
    if p.written and not flags.writeable:
        raise UsageError(f"{where} is written, but the array is read-only. Pass a copy.")
    return array


def _check_device(where: str, p: Param, array: DeviceArray) -> DeviceArray:
    if array.dtype is not p.dtype:
        raise UsageError(f"{where}: expected {p.dtype}, got {array.dtype}. Convert it first.")
    _check_size(where, p, array.size, array.shape)
    if not array.contiguous:
        raise UsageError(f"{where} is not C-contiguous (shape {array.shape}). Pass a copy.")
    if p.written and not array.writable:
        raise UsageError(f"{where} is written, but the array is read-only. Pass a copy.")
    if array.pointer % DEVICE_ALIGNMENT and array.size:
        raise UsageError(
            f"{where} starts at an address that is no multiple of {DEVICE_ALIGNMENT} bytes (a view "
            f"into another array?). Pass a copy."
        )
    return array


def _check_size(where: str, p: Param, size: int, shape: tuple[int, ...]) -> None:
    if size != p.size:
        raise UsageError(
            f"{where}: expected {p.size} elements, got {size} (shape {shape}). Sizes are part of a "
            f"kernel: pass an array of that size, or compile the kernel for this one."
        )


def _foreign(where: str, p: Param, value: Any) -> Bound:
    """Arrays of other libraries, without a copy."""
    try:
        if (interface := getattr(value, "__cuda_array_interface__", None)) is not None:
            return device_array(interface, value)
        if hasattr(value, "__dlpack__") and value.__dlpack_device__()[0] == _DLPACK_CPU:
            return np.from_dlpack(value)
    except Exception as error:  # whatever the other library raises
        kind = type(value).__name__
        raise UsageError(f"{where}: this {kind} cannot be shared: {error}") from error
    fix = f"Pass np.asarray(x, {_spelling(p.dtype)})."
    raise UsageError(f"{where}: expected an array of {p.dtype}, got {type(value).__name__}. {fix}")


def _scalar(where: str, p: Param, value: Any) -> HostArray:
    """A 0-d array of the parameter's dtype from a Python or numpy scalar or a 0-d array."""
    dtype = p.dtype
    if isinstance(value, np.ndarray | np.generic):
        if value.shape:
            fix = "Pass one element, such as x[0]."
            raise UsageError(f"{where}: expected a {dtype} scalar, got shape {value.shape}. {fix}")
        if value.dtype != dtype.numpy:
            fix = f"Convert it with {_spelling(dtype)}(x)."
            raise UsageError(f"{where}: expected a {dtype} scalar, got {value.dtype}. {fix}")
        return np.asarray(value)
    if isinstance(value, bool) and dtype.kind is Kind.BOOL:
        return np.asarray(value)
    if not isinstance(value, int | float) or (dtype.kind is Kind.BOOL):
        got = f"{type(value).__name__} {value!r}"
        raise UsageError(f"{where}: expected a {dtype} scalar, got {got}.")
    if dtype.is_int:
        if not isinstance(value, int):
            raise UsageError(f"{where}: expected a {dtype} scalar, got float {value!r}. Round it.")
        if not dtype.min <= value <= dtype.max:
            allowed = f"{dtype.min} to {dtype.max}"
            raise UsageError(f"{where}: {value} does not fit {dtype} ({allowed}).")
        return np.asarray(value, dtype.numpy)
    try:
        number = np.float64(value)
    except OverflowError:
        raise UsageError(f"{where}: {value} does not fit {dtype}.") from None
    with np.errstate(over="ignore"):  # a float that is too large becomes inf, as a cast does
        return np.asarray(number).astype(dtype.numpy)


def _check_overlaps(name: str, params: Sequence[Param], bound: Sequence[Bound]) -> None:
    """Raises UsageError where a written array shares bytes with another."""
    spans = []
    for i, (p, array) in enumerate(zip(params, bound, strict=True)):
        if not p.scalar and p.size:
            start = address(array)
            on_device = isinstance(array, DeviceArray)
            spans.append((i, p.written, on_device, start, start + p.size * p.dtype.itemsize))
    for i, written, on_device, start, end in spans:
        if not written:
            continue
        for j, also_written, where, low, high in spans:
            if i != j and where == on_device and start < high and low < end:
                first, second = sorted((i, j))
                both = "both are written" if also_written else f"argument {i} is written"
                raise UsageError(
                    f"kernel {name}: arguments {first} and {second} overlap in memory and {both}. "
                    f"Pass a copy of one of them."
                )


def _spelling(dtype: DType) -> str:
    """How a user writes the numpy dtype."""
    if dtype.kind is Kind.BOOL:
        return "np.bool_"
    numpy = dtype.numpy
    return f"{'np' if numpy.isbuiltin == 1 else 'ml_dtypes'}.{numpy.name}"
