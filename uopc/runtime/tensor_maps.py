"""Tensor maps: how bulk copies see an array, encoded by the driver into 128 bytes.

The driver wants these bytes at a multiple of 64; the objects of cuda-python lie at multiples of 16,
so the memory is ours, and the driver's own function is called on it.  CUDA is never imported here:
the caller passes its driver bindings.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from threading import Lock
from typing import Any

from uopc.errors import DeviceError
from uopc.kernel import TensorMapUse
from uopc.layouts import TensorMapEncoding, tma_encoding
from uopc.runtime.driver import driver_function

MAP_BYTES = 128  # cuda.h, CUtensorMap
MAP_ALIGNMENT = 64  # CUDA driver API, cuTensorMapEncodeTiled
#: maps that a device keeps; an array's map is the same as long as it stays where it is
KEPT_MAX = 1024


class TensorMap:
    """128 bytes at a multiple of 64.  Attribute: address."""

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
        first = ctypes.addressof(self._memory)
        self.address = -(-first // MAP_ALIGNMENT) * MAP_ALIGNMENT


class TensorMaps:
    """The tensor maps of one device, by array and view.

    Parameters
    ----------
    driver: cuda-python's driver bindings.
    """

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._encode: Any = None
        self._made: OrderedDict[tuple[int, TensorMapUse], TensorMap] = OrderedDict()
        self._lock = Lock()

    def of(self, pointer: int, use: TensorMapUse) -> TensorMap:
        """The map of the array at `pointer`.

        Raises ToolchainError where the driver has no tensor maps, DeviceError where it refuses.
        """
        with self._lock:
            if found := self._made.get((pointer, use)):
                self._made.move_to_end((pointer, use))
                return found
            made = self._encoded(pointer, use)
            self._made[pointer, use] = made
            while len(self._made) > KEPT_MAX:
                self._made.popitem(last=False)
            return made

    def _encoded(self, pointer: int, use: TensorMapUse) -> TensorMap:
        a = use.arg
        form = tma_encoding(use.dtype.name, a.shape, a.strides, a.box, a.swizzle)
        made = TensorMap()
        status = self._function()(*_arguments(made.address, pointer, form))
        if status != 0:
            raise DeviceError(
                f"the driver refuses a tensor map of parameter {use.slot} at {pointer:#x}: error "
                f"{status} of cuTensorMapEncodeTiled for {form}."
            )
        return made

    def _function(self) -> Any:
        """cuTensorMapEncodeTiled itself."""
        if self._encode is None:
            self._encode = driver_function(
                self._driver,
                "cuTensorMapEncodeTiled",
                *(ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p),
                *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
                *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int),
            )
        return self._encode


def _arguments(to: int, pointer: int, form: TensorMapEncoding) -> list[Any]:
    """The arguments of cuTensorMapEncodeTiled, in its order."""
    rank = form.rank
    strides = form.strides_bytes or (0,)
    return [
        *(to, form.data_type, rank, pointer),
        (ctypes.c_uint64 * rank)(*form.sizes),
        (ctypes.c_uint64 * len(strides))(*strides),
        (ctypes.c_uint32 * rank)(*form.box),
        (ctypes.c_uint32 * rank)(*form.element_strides),
        *(form.interleave, form.swizzle, form.l2_promotion, form.oob_fill),
    ]
