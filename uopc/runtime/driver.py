"""The CUDA driver's own functions, for what its Python bindings make slow or cannot pass.

CUDA is never imported here: the caller passes its driver bindings.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from uopc.errors import ToolchainError

FIRST_VERSION = 12000  # of the CUDA driver API whose functions are asked for


class DriverCalls:
    """What happens often.  Arguments are addresses and handles, as integers; each call gives the
    driver's status, 0 where all is well.

    Attributes: set_context(context); launch(config, function, places, extra); launch_graph(graph,
    stream).

    Raises ToolchainError where the driver is older than CUDA 12.
    """

    def __init__(self, driver: Any) -> None:
        place = ctypes.c_void_p
        self.set_context = driver_function(driver, "cuCtxSetCurrent", place)
        self.launch = driver_function(driver, "cuLaunchKernelEx", place, place, place, place)
        self.launch_graph = driver_function(driver, "cuGraphLaunch", place, place)


def driver_function(driver: Any, name: str, *arguments: Any) -> Callable[..., int]:
    """A function of the driver with these ctypes as arguments; it gives a status.

    Raises ToolchainError where the driver has none of that name.
    """
    status, address, *_ = driver.cuGetProcAddress(name.encode(), FIRST_VERSION, 0)
    if int(status) != 0 or not address:
        raise ToolchainError(
            f"the NVIDIA driver has no {name}. Update it to one for CUDA 12 or later."
        )
    made: Callable[..., int] = ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(int(address))
    return made
