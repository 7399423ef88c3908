"""Element types and address spaces.

`dtypes.index` is a mathematical integer: it gets a width only when it is rendered.  fp8 types are
storage: they are loaded, stored and cast, never computed with.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np

from uopc.errors import UsageError


class AddrSpace(Enum):
    """Where a memory lives: GLOBAL device memory, a block's SHARED memory, a thread's REGisters.

    MBARRIER: mbarrier objects of a block, 8 bytes each beside its SHARED memory.
    CLUSTER: shared memory of a thread block cluster: one array that all of its blocks see, of
    which each block holds an equal part in its own shared memory.
    """

    GLOBAL = "global"
    SHARED = "shared"
    REG = "reg"
    MBARRIER = "mbarrier"
    CLUSTER = "cluster"


class Kind(Enum):
    """What a dtype's bits mean."""

    FLOAT = "float"
    INT = "int"
    UINT = "uint"
    BOOL = "bool"
    INDEX = "index"
    VOID = "void"


@dataclass(frozen=True, eq=False)
class DType:
    """One element type; instances are singletons compared by identity.

    Attributes: name; bits per element; kind; storage, true where only LOAD, STORE and CAST take it.
    """

    name: str
    bits: int
    kind: Kind
    storage: bool = False

    @property
    def itemsize(self) -> int:
        """Bytes per element in memory."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def is_int(self) -> bool:
        """Signed, unsigned or index; bool is not an integer."""
        return self.kind in (Kind.INT, Kind.UINT, Kind.INDEX)

    @property
    def is_data_int(self) -> bool:
        """An integer that wraps: signed or unsigned of some width."""
        return self.kind in (Kind.INT, Kind.UINT)

    @property
    def min(self) -> int:
        """Smallest integer value (integers and bool)."""
        return -(1 << (self.bits - 1)) if self.kind is Kind.INT else 0

    @property
    def max(self) -> int:
        """Largest integer value (integers and bool)."""
        if self.kind is Kind.BOOL:
            return 1
        return (1 << (self.bits - 1)) - 1 if self.kind is Kind.INT else (1 << self.bits) - 1

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype (ml_dtypes for bf16 and fp8); index is int64 there."""
        return _NUMPY[self.name]

    def wrap(self, value: int) -> int:
        """`value` modulo 2**bits in this dtype's range; index values stay as they are."""
        if self.kind is Kind.INDEX:
            return value
        if self.kind is Kind.BOOL:
            return int(value != 0)
        value &= (1 << self.bits) - 1
        return (
            value - (1 << self.bits)
            if self.kind is Kind.INT and value >> (self.bits - 1)
            else value
        )

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (dtype_named, (self.name,))


class dtypes:  # noqa: N801  (a namespace of values, as users write dtypes.f32)
    """The element types by name."""

    void = DType("void", 0, Kind.VOID)
    bool = DType("bool", 8, Kind.BOOL)
    index = DType("index", 64, Kind.INDEX)
    i8, i16, i32, i64 = (DType(f"i{b}", b, Kind.INT) for b in (8, 16, 32, 64))
    u8, u16, u32, u64 = (DType(f"u{b}", b, Kind.UINT) for b in (8, 16, 32, 64))
    f16 = DType("f16", 16, Kind.FLOAT)
    bf16 = DType("bf16", 16, Kind.FLOAT)
    f32 = DType("f32", 32, Kind.FLOAT)
    f64 = DType("f64", 64, Kind.FLOAT)
    f8e4m3 = DType("f8e4m3", 8, Kind.FLOAT, storage=True)
    f8e5m2 = DType("f8e5m2", 8, Kind.FLOAT, storage=True)


SIGNED = (dtypes.i8, dtypes.i16, dtypes.i32, dtypes.i64)
UNSIGNED = (dtypes.u8, dtypes.u16, dtypes.u32, dtypes.u64)
FLOATS = (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64)
FP8 = (dtypes.f8e4m3, dtypes.f8e5m2)
#: every dtype that an array can have
DATA = (dtypes.bool, *SIGNED, *UNSIGNED, *FLOATS, *FP8)

_BY_NAME = {d.name: d for d in (dtypes.void, dtypes.index, *DATA)}
_NUMPY: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    "index": np.dtype(np.int64),
    **{f"i{b}": np.dtype(f"int{b}") for b in (8, 16, 32, 64)},
    **{f"u{b}": np.dtype(f"uint{b}") for b in (8, 16, 32, 64)},
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
_FROM_NUMPY = {_NUMPY[d.name]: d for d in DATA}


def dtype_named(name: str) -> DType:
    """The dtype called `name`.  Raises UsageError for an unknown one."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise UsageError(f"no dtype is called {name!r}; there are {', '.join(_BY_NAME)}") from None


def from_numpy(dtype: Any) -> DType:
    """The dtype of a numpy dtype.  Raises UsageError where uopc has none (complex, strings)."""
    try:
        return _FROM_NUMPY[np.dtype(dtype)]
    except KeyError:
        raise UsageError(
            f"numpy dtype {np.dtype(dtype)} has no counterpart; "
            f"uopc has {', '.join(map(str, DATA))}"
        ) from None


def to_bits(value: Any, dtype: DType) -> int:
    """The bits (floats) or the wrapped value (integers) of a Python number as a constant.

    Floats round to nearest even; f32 0.0 and -0.0 give different bits, and so do 1, 1.0 and True
    through their dtypes.
    """
    if not dtype.is_float:
        return dtype.wrap(int(value))
    if dtype is dtypes.f64:
        return int(struct.unpack("<Q", struct.pack("<d", float(value)))[0])
    if dtype is dtypes.f32 and abs(value) < 1e38:  # as below, and far faster
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.asarray(float(value), np.float64).astype(dtype.numpy)
    return int(array.view(f"uint{dtype.bits}"))


def from_bits(bits: int, dtype: DType) -> int | float | bool:
    """The Python number that `to_bits` made the bits from (rounded to the dtype)."""
    if dtype.kind is Kind.BOOL:
        return bool(bits)
    if not dtype.is_float:
        return bits
    if dtype is dtypes.f32:
        return float(struct.unpack("<f", struct.pack("<I", bits))[0])
    if dtype is dtypes.f64:
        return float(struct.unpack("<d", struct.pack("<Q", bits))[0])
    return float(np.asarray(bits, f"uint{dtype.bits}").view(dtype.numpy).astype(np.float64))
