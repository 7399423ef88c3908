"""tf32: the f32 values that a tensor core tells apart."""

from __future__ import annotations

from typing import Any

import numpy as np

#: the bits of an f32 that a tensor core reads as tf32: sign, 8 of exponent, 10 of mantissa
TF32_MASK = 0xFFFFE000


def to_tf32(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """cvt.rna.tf32.f32 on the bits of f32 values: to the nearest, ties away from zero; uint32.

    As NVRTC 13.5 compiles it for sm_80, sm_90a and sm_100a: half a unit is added to what is smaller
    than Inf, and the low 13 bits are cleared.  So large numbers round to Inf, denormals are kept,
    and of a NaN's payload only the upper 10 bits stay: where all of these are 0 it becomes Inf.
    Without cvt, a tensor core drops the low bits: bits & TF32_MASK.
    """
    bits = np.asarray(bits, np.uint32)
    finite = (bits & np.uint32(0x7FFFFFFF)) < np.uint32(0x7F800000)
    rounded = bits + np.where(finite, np.uint32(0x1000), np.uint32(0))
    return np.asarray(rounded & np.uint32(TF32_MASK), np.uint32)
