"""What a kernel may be called with: every argument is checked against the Source's parameters.

A kernel knows flat memory of an exact element count, so shapes may differ but sizes may not.  All
checks come before the first byte moves: nothing is written past a buffer's end, and no written
array shares bytes with another, since kernels are compiled with `restrict`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, TypeAlias

import numpy as np

from uopc.dtype import DType, Kind, dtypes, from_numpy
from uopc.errors import UsageError
from uopc.kernel import Param

_DLPACK_CPU = 1  # kDLCPU of dlpack.h
_NUMPY = (np.ndarray, np.generic)
_LARGEST = {dtypes.f8e4m3: 448.0, dtypes.f8e5m2: 57344.0}  # OCP 8-bit Floating Point, table 2
_FITS_EVERY_FLOAT = 448.0


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

    @cached_property
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


#: what is taken as it is, without asking other libraries' protocols
OWN = (DeviceArray, np.ndarray)
HostArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Bundle:
    """The arrays of one parameter that is a bundle, up to `count` of them."""

    arrays: tuple[HostArray | DeviceArray, ...]
    count: int

    @cached_property
    def table(self) -> HostArray:
        """What the kernel is passed: addresses, then sizes in elements; 0 for what is not there."""
        table = np.zeros((2, self.count), np.uint64)
        table[0, : len(self.arrays)] = [address(a) for a in self.arrays]
        table[1, : len(self.arrays)] = [a.size for a in self.arrays]
        return table.reshape(-1)


Bound: TypeAlias = HostArray | DeviceArray | Bundle
_Span: TypeAlias = tuple[str, bool, bool, int, int]  # argument, written, on a device, from, to
_Where: TypeAlias = tuple[str, int | str]  # kernel, argument


def check_arguments(
    name: str, params: Sequence[Param], arguments: Sequence[Any], on_device: bool = False
) -> list[Bound]:
    """The arguments as arrays of the parameters' dtypes, ready to be passed in slot order.

    Scalars become 0-d arrays, the list of a bundle's arrays a Bundle; a table that somebody has
    made of them is taken as it is.  on_device: DeviceArrays are allowed.  Raises UsageError that
    names kernel and argument, what was expected, what came, and what to do.
    """
    if len(arguments) != len(params):
        kinds = ", ".join(f"{i}: {_describe(p)}" for i, p in enumerate(params))
        raise UsageError(
            f"kernel {name} takes {len(params)} arguments ({kinds}), got {len(arguments)}."
        )
    bound = [
        _check_one((name, i), p, a, on_device)
        for i, (p, a) in enumerate(zip(params, arguments, strict=True))
    ]
    _check_overlaps(name, params, bound)
    return bound


def address(array: Bound) -> int:
    """Where an array's first element is, or a bundle's table in host memory."""
    if isinstance(array, DeviceArray):
        return array.pointer
    if isinstance(array, Bundle):
        array = array.table
    return int(array.__array_interface__["data"][0])


def is_on_device(value: Any) -> bool:
    """Is it an array in GPU memory, of ours or of another library?"""
    if isinstance(value, OWN):
        return isinstance(value, DeviceArray)
    if hasattr(value, "__dlpack_device__"):
        return bool(value.__dlpack_device__()[0] != _DLPACK_CPU)
    return hasattr(value, "__cuda_array_interface__")


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


def _refuse(where: _Where, what: str, fix: str = "") -> NoReturn:
    """Raise the UsageError for one argument."""
    name, i = where
    raise UsageError(f"kernel {name}, argument {i}{what}{fix and ' '}{fix}")


def _describe(p: Param) -> str:
    if p.bundle:
        return f"a list of up to {p.bundle} {p.dtype} arrays{' written' * p.written}"
    return f"{p.dtype} scalar" if p.scalar else f"{p.dtype}[{p.size}]{' written' * p.written}"


def _check_one(where: _Where, p: Param, value: Any, on_device: bool) -> Bound:
    if p.scalar:
        return _scalar(where, p.dtype, value)
    if p.bundle and (isinstance(value, (list, tuple)) or not _is_table(p, value)):
        return _check_bundle(where, p, value, on_device)
    if p.bundle:
        p = Param(p.slot, *p.passed, written=False, align=8)
    if not isinstance(value, OWN):
        value = _foreign(where, p, value)
    if isinstance(value, DeviceArray):
        if not on_device:
            fix = "Copy it to the host first."
            _refuse(where, " is in GPU memory, the kernel runs on the CPU.", fix)
        return _check_device(where, p, value)
    array: HostArray = value
    flags = array.flags
    if array.dtype != p.dtype.numpy:
        fix = f"Convert it with .astype({_spelling(p.dtype)})."
        _refuse(where, f": expected {p.dtype}, got {array.dtype}.", fix)
    if array.size != p.size:
        _refuse_size(where, p, array.size, array.shape)
    if not flags.c_contiguous:
        layout = f"shape {array.shape}, strides {array.strides}"
        fix = "Pass np.ascontiguousarray of it" + (" and copy the result back." * p.written or ".")
        _refuse(where, f" is not C-contiguous: {layout}.", fix)
    if not flags.aligned:
        _refuse(where, f" is not aligned to its {p.dtype.itemsize} bytes.", "Pass a copy.")
    if p.written and not flags.writeable:
        _refuse(where, " is written, but the array is read-only.", "Pass a copy.")
    return array


def _is_table(p: Param, value: Any) -> bool:
    """Is it a table of addresses, made for a bundle before?"""
    dtype = getattr(value, "dtype", None)
    return isinstance(value, OWN) and dtype in (np.uint64, dtypes.u64) and value.size == p.passed[1]


def _check_bundle(where: _Where, p: Param, value: Any, on_device: bool) -> Bundle:
    if not isinstance(value, (list, tuple)):
        fix = "Pass a list of its arrays."
        _refuse(where, f": expected {_describe(p)}, got {type(value).__name__}.", fix)
    if len(value) > p.bundle:
        fix = "Compile the kernel for more."
        _refuse(where, f": expected {_describe(p)}, got {len(value)}.", fix)
    arrays: list[HostArray | DeviceArray] = []
    for n, one in enumerate(value):
        size = min(int(getattr(one, "size", p.size)), p.size)  # another one is refused for its size
        part = Param(p.slot, p.dtype, size, p.written, align=p.align)
        array = _check_one((where[0], f"{where[1]}[{n}]"), part, one, on_device)
        assert not isinstance(array, Bundle)
        arrays.append(array)
    return Bundle(tuple(arrays), p.bundle)


def _check_device(where: _Where, p: Param, array: DeviceArray) -> DeviceArray:
    if array.dtype is not p.dtype:
        _refuse(where, f": expected {p.dtype}, got {array.dtype}.", "Convert it first.")
    if array.size != p.size:
        _refuse_size(where, p, array.size, array.shape)
    if not array.contiguous:
        _refuse(where, f" is not C-contiguous (shape {array.shape}).", "Pass a copy.")
    if p.written and not array.writable:
        _refuse(where, " is written, but the array is read-only.", "Pass a copy.")
    if array.pointer % p.align and array.size:
        what = f" starts at an address that is no multiple of {p.align} bytes"
        _refuse(where, f"{what} (a view into another array?).", "Pass a copy.")
    return array


def _refuse_size(where: _Where, p: Param, size: int, shape: tuple[int, ...]) -> NoReturn:
    fix = "Sizes are part of a kernel: pass that many, or compile the kernel for this size."
    _refuse(where, f": expected {p.size} elements, got {size} (shape {shape}).", fix)


def _foreign(where: _Where, p: Param, value: Any) -> Bound:
    """Arrays of other libraries, without a copy."""
    kind = type(value).__name__
    try:
        if (interface := getattr(value, "__cuda_array_interface__", None)) is not None:
            return device_array(interface, value)
        if hasattr(value, "__dlpack__") and value.__dlpack_device__()[0] == _DLPACK_CPU:
            return np.from_dlpack(value)
    except Exception as error:  # whatever the other library raises
        _refuse(where, f": this {kind} cannot be shared: {error}")
    fix = f"Pass np.asarray(x, {_spelling(p.dtype)})."
    _refuse(where, f": expected an array of {p.dtype}, got {kind}.", fix)


def _scalar(where: _Where, dtype: DType, value: Any) -> HostArray:
    """A 0-d array of `dtype` from a Python or numpy scalar or a 0-d array."""
    if isinstance(value, _NUMPY):
        if value.shape:
            fix = "Pass one element, such as x[0]."
            _refuse(where, f": expected a {dtype} scalar, got shape {value.shape}.", fix)
        if value.dtype != dtype.numpy:
            fix = f"Convert it with {_spelling(dtype)}(x)."
            _refuse(where, f": expected a {dtype} scalar, got {value.dtype}.", fix)
        return np.asarray(value)
    wanted = (bool,) if dtype.kind is Kind.BOOL else (int,) if dtype.is_int else (int, float)
    if not isinstance(value, wanted):
        fix = "Round it." if dtype.is_int and isinstance(value, float) else ""
        got = f"{type(value).__name__} {value!r}"
        _refuse(where, f": expected a {dtype} scalar, got {got}.", fix)
    if not dtype.is_float:
        if not dtype.min <= value <= dtype.max:
            _refuse(where, f": {value} does not fit {dtype} ({dtype.min} to {dtype.max}).")
        return np.asarray(value, dtype.numpy)
    try:
        return _rounded(float(value), dtype)
    except OverflowError:  # an int that no float holds
        _refuse(where, f": {value} does not fit {dtype}.")


def _rounded(value: float, dtype: DType) -> HostArray:
    """To the nearest of `dtype`; beyond it inf, or the largest where it is storage, as casts do."""
    if abs(value) < _FITS_EVERY_FLOAT:
        return np.asarray(value).astype(dtype.numpy)
    if dtype.storage:
        largest = _LARGEST[dtype]
        value = min(max(value, -largest), largest) if value == value else value
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(dtype.numpy)


def _check_overlaps(name: str, params: Sequence[Param], bound: Sequence[Bound]) -> None:
    """Raises UsageError where a written array shares bytes with another."""
    spans = []
    for i, p in enumerate(params):
        array = bound[i]
        if isinstance(array, Bundle):
            for n, one in enumerate(array.arrays):
                spans += [_span(f"{i}[{n}]", p, one)] * bool(one.size)
        elif not p.scalar and p.size and not p.bundle:  # nobody knows what is behind a table
            spans.append(_span(str(i), p, array))
    if not _overlap(spans):
        return
    for n, (argument, written, on_device, start, end) in enumerate(spans):
        if not written:
            continue
        for m, (other, also_written, there, low, high) in enumerate(spans):
            if start < high and low < end and n != m and there == on_device:
                first, second = (argument, other) if n < m else (other, argument)
                both = "both are written" if also_written else f"argument {argument} is written"
                raise UsageError(
                    f"kernel {name}: arguments {first} and {second} overlap in memory and {both}. "
                    f"Pass a copy of one of them."
                )


def _span(argument: str, p: Param, array: HostArray | DeviceArray) -> _Span:
    start = address(array)
    end = start + array.size * array.dtype.itemsize
    return argument, p.written, type(array) is DeviceArray, start, end


def _overlap(spans: Sequence[_Span]) -> bool:
    """Does any span that is written share bytes with another one?"""
    ends: dict[tuple[bool, bool], int] = {}  # (on a device, written) -> how far they have reached
    for _, written, on_device, start, end in sorted(spans, key=lambda s: s[3]):
        reached = ends.get((on_device, True), 0)
        if start < (max(reached, ends.get((on_device, False), 0)) if written else reached):
            return True
        ends[on_device, written] = max(end, ends.get((on_device, written), 0))
    return False


def _spelling(dtype: DType) -> str:
    """How a user writes the numpy dtype."""
    if dtype.kind is Kind.BOOL:
        return "np.bool_"
    numpy = dtype.numpy
    return f"{'np' if numpy.isbuiltin == 1 else 'ml_dtypes'}.{numpy.name}"
