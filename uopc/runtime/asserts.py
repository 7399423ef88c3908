"""What is left of a failed ASSERT: a report in the host's memory, which outlives the kernel.

A thread whose assert fails prints a line, writes the number of the assert with its block and thread
to the report, and stops the kernel with a trap.  The trap takes the whole context with it (error
719, CUDA_ERROR_LAUNCH_FAILED) and device memory is gone.  Pinned memory of the host stays, so the
DeviceError can say what failed.  The printed line came as well on an H200 with driver 580, but
nothing promises that.
CUDA is never imported here: the caller passes its driver bindings.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

from uopc.errors import DeviceError

WORDS = 8  # number of the assert + 1, block x, y, z, thread x, y, z
_POINTER_BYTES = 8
_PORTABLE_AND_MAPPED = 1 | 2  # CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP of cuda.h
#: the variable of the kernel's text that points to the report: `uopc/render/cuda.py`
VARIABLE = "uopc_report"


class AssertReport:
    """Where one loaded kernel reports.

    Parameters
    ----------
    driver: cuda-python's driver bindings.
    library: the loaded code, whose variable is set.
    name, messages: of the kernel and of its asserts, by number.

    Raises DeviceError where the driver has no memory for it.
    """

    def __init__(self, driver: Any, library: Any, name: str, messages: tuple[str, ...]) -> None:
        self.name, self.messages = name, messages
        status, address = driver.cuMemHostAlloc(4 * WORDS, _PORTABLE_AND_MAPPED)
        _check(status, name)
        weakref.finalize(self, driver.cuMemFreeHost, address).atexit = False
        self._words = (ctypes.c_uint32 * WORDS).from_address(int(address))
        ctypes.memset(int(address), 0, 4 * WORDS)
        status, variable, _ = driver.cuLibraryGetGlobal(library, VARIABLE.encode())
        _check(status, name)
        pointer = ctypes.c_uint64(int(address))
        (status,) = driver.cuMemcpyHtoD(variable, ctypes.addressof(pointer), _POINTER_BYTES)
        _check(status, name)

    @property
    def failure(self) -> str:
        """What failed and where; "" while nothing has."""
        number, *where = self._words[:7]
        if not number:
            return ""
        block, thread = tuple(where[:3]), tuple(where[3:])
        message = self.messages[number - 1]
        return f"kernel {self.name}: assert failed: {message}, in block {block}, thread {thread}"


def _check(status: Any, name: str) -> None:
    if int(status) != 0:
        raise DeviceError(f"kernel {name} has asserts, and no place to report them: {status.name}.")
