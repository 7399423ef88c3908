"""Tensor maps: what a tensor copy (TMA) can move, and how the driver is told.

Source: CUDA driver API 13.0, cuTensorMapEncodeTiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from uopc.dtype import dtype_named
from uopc.errors import UsageError
from uopc.layouts.shared import SWIZZLES

TMA_MAX_RANK = 5
TMA_MAX_BOX = 256
TMA_MAX_SIZE = 1 << 31  # a map takes twice that, a copy coordinates below: they are signed
TMA_MAX_STRIDE_BYTES = 1 << 40
#: bytes that base, strides, the box's rows and the first innermost coordinate are multiples of
TMA_GRANULE = 16

# Values of the enumerations of cuTensorMapEncodeTiled (cuda.h 13.0: CUtensorMapDataType,
# CUtensorMapSwizzle, CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapFloatOOBfill).
#: by uopc's dtype, and "tf32", which rounds f32 on the way; where the map has no such type, the
#: unsigned one of the same size
TMA_DATA_TYPE: Mapping[str, int] = {
    **dict.fromkeys(("bool", "u8", "i8", "f8e4m3", "f8e5m2"), 0),
    **dict.fromkeys(("u16", "i16"), 1),
    **{"u32": 2, "i32": 3, "u64": 4, "i64": 5},
    **{"f16": 6, "f32": 7, "f64": 8, "bf16": 9, "tf32": 11},
}
TMA_SWIZZLE: Mapping[int, int] = {0: 0, 32: 1, 64: 2, 128: 3}
TMA_INTERLEAVE: Mapping[str, int] = {"none": 0, "16B": 1, "32B": 2}
TMA_L2_PROMOTION: Mapping[int, int] = {0: 0, 64: 1, 128: 2, 256: 3}
TMA_OOB_FILL: Mapping[str, int] = {"zero": 0, "nan": 1}


def tma_fault(
    shape: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    element_bytes: int,
    swizzle: int = 0,
    address: int = 0,
    inner_start: int = 0,
) -> str:
    """Why no tensor map, or no copy, has this form: the limit and what came, or "".

    shape and box in elements, outermost axis first; strides in elements for every axis but the
    last, which is contiguous.  address: of the memory, or a power of two that it is a multiple of.
    inner_start: the innermost coordinate of a copy, or a number that it is a multiple of.
    Sources: CUDA driver API, cuTensorMapEncodeTiled; the rule for inner_start was found by running
    it on an H200 (starts off 16 bytes are an illegal instruction).
    """
    rank = len(shape)
    if not 1 <= rank <= TMA_MAX_RANK:
        return f"a tensor map has 1 to {TMA_MAX_RANK} axes, this has {rank}"
    if len(box) != rank or len(strides) != rank - 1:
        got = f"{len(box)} and {len(strides)}"
        return f"{rank} axes need {rank} box sizes and {rank - 1} strides, not {got}"
    if swizzle not in SWIZZLES:
        return f"swizzle is {swizzle} bytes; there are {SWIZZLES}"
    for axis, size in enumerate(shape):
        if not 1 <= size <= TMA_MAX_SIZE:
            return f"axis {axis} has {size} elements; a tensor map takes 1 to {TMA_MAX_SIZE}"
    for axis, stride in enumerate(strides):
        stride_bytes = stride * element_bytes
        if stride_bytes % TMA_GRANULE or not 0 < stride_bytes < TMA_MAX_STRIDE_BYTES:
            return (
                f"axis {axis} has a stride of {stride_bytes} bytes; a tensor map takes multiples "
                f"of {TMA_GRANULE} below 2**40. Pad the rows"
            )
    for axis, size in enumerate(box):
        if not 1 <= size <= TMA_MAX_BOX:
            return f"the box has {size} elements along axis {axis}; it takes 1 to {TMA_MAX_BOX}"
    inner_bytes = box[-1] * element_bytes
    if inner_bytes % TMA_GRANULE:
        return f"the box's rows have {inner_bytes} bytes; they are multiples of {TMA_GRANULE}"
    if swizzle and inner_bytes > swizzle:
        return f"the box's rows have {inner_bytes} bytes; a {swizzle}-byte swizzle takes {swizzle}"
    if address % TMA_GRANULE:
        return f"the memory is at {address}, which is no multiple of {TMA_GRANULE} bytes"
    if inner_start * element_bytes % TMA_GRANULE:
        return (
            f"copies start {inner_start * element_bytes} bytes into a row; they start at multiples "
            f"of {TMA_GRANULE}"
        )
    return ""


@dataclass(frozen=True)
class TensorMapEncoding:
    """What cuTensorMapEncodeTiled takes besides the address, in its order: innermost axis first.

    strides_bytes: of every axis but the innermost.
    """

    data_type: int
    sizes: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int
    swizzle: int
    l2_promotion: int
    oob_fill: int

    @property
    def rank(self) -> int:
        return len(self.sizes)


def tma_encoding(
    type_name: str,
    shape: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int = 0,
    l2_promotion: int = 128,
    oob_fill: str = "zero",
) -> TensorMapEncoding:
    """The tensor map of a memory of a dtype (or "tf32"); the rest as in `tma_fault`.

    Raises UsageError with the limit that it breaks.
    """
    if type_name not in TMA_DATA_TYPE:
        raise UsageError(
            f"tma_encoding: no tensor map has {type_name!r}; there are {', '.join(TMA_DATA_TYPE)}"
        )
    element_bytes = 4 if type_name == "tf32" else dtype_named(type_name).itemsize
    if fault := tma_fault(shape, strides, box, element_bytes, swizzle):
        raise UsageError(f"tma_encoding of {type_name}, shape {tuple(shape)}: {fault}")
    return TensorMapEncoding(
        TMA_DATA_TYPE[type_name],
        tuple(reversed(shape)),
        tuple(stride * element_bytes for stride in reversed(strides)),
        tuple(reversed(box)),
        (1,) * len(shape),
        TMA_INTERLEAVE["none"],
        TMA_SWIZZLE[swizzle],
        TMA_L2_PROMOTION[l2_promotion],
        TMA_OOB_FILL[oob_fill],
    )
