"""Launches with everything in place but the addresses of their arrays, and graphs of such launches.

cuda.core checks and converts every argument of every launch, the driver bindings most of all; here
that is done once.  What is left for a launch is to write addresses where the driver reads them, and
two calls of the driver's own functions.  CUDA is never imported here: the caller passes its driver
bindings.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from struct import Struct
from threading import Lock
from typing import Any

from uopc.kernel import Dims, TensorMapUse
from uopc.runtime.driver import DriverCalls
from uopc.runtime.tensor_maps import TensorMap, TensorMaps

_POINTER_BYTES = 8


class _Config(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class PreparedLaunch:
    """One kernel's launch: called with the addresses of its arrays, in the order of its parameters,
    it starts the kernel and gives the driver's status.  Any thread may call it.

    Parameters
    ----------
    context, function, stream: the driver's handles.
    plan: grid, block and dynamic shared bytes.
    count: of parameters, each an address.
    maps: the device's tensor maps; uses: those that follow the parameters, each with the position
        of its array among them.
    """

    def __init__(
        self,
        calls: DriverCalls,
        context: int,
        function: int,
        plan: tuple[Dims, Dims, int],
        stream: int,
        count: int,
        maps: TensorMaps,
        uses: Sequence[tuple[int, TensorMapUse]],
    ) -> None:
        grid, block, shared_bytes = plan
        self._set_context, self._launch, self._context = calls.set_context, calls.launch, context
        self._maps, self._uses, self._count, self._stream = maps, uses, count, stream
        self._config = _Config(grid, block, shared_bytes, stream, None, 0)
        self._values = (ctypes.c_uint64 * max(count, 1))()
        self._write = Struct(f"{count}Q").pack_into
        first = ctypes.addressof(self._values)
        each = range(first, first + count * _POINTER_BYTES, _POINTER_BYTES)
        self._places = (ctypes.c_void_p * max(count + len(uses), 1))(*each)
        self._arguments = (ctypes.addressof(self._config), function, ctypes.addressof(self._places))
        self._lock = Lock()

    def __call__(self, addresses: Sequence[int]) -> int:
        with self._lock:
            return self._start(addresses)

    def on(self, stream: int, addresses: Sequence[int]) -> int:
        """The same on another stream, such as one that records a graph."""
        with self._lock:
            self._config.stream = stream
            try:
                return self._start(addresses)
            finally:
                self._config.stream = self._stream

    def _start(self, addresses: Sequence[int]) -> int:
        """Under the lock: the driver has read config, values and maps when the launch returns."""
        config, function, places = self._arguments
        self._write(self._values, 0, *addresses)
        maps = self._place_maps(addresses) if self._uses else ()
        self._set_context(self._context)  # the thread's own may be another device's, or none
        status = self._launch(config, function, places, 0)
        del maps  # alive until here, whatever else the device keeps
        return status

    def _place_maps(self, addresses: Sequence[int]) -> list[TensorMap]:
        """Put the tensor maps of these arrays after the parameters."""
        made = [self._maps.of(addresses[at], use) for at, use in self._uses]
        for position, each in enumerate(made, self._count):
            self._places[position] = each.address
        return made


class Graph:
    """Work that was recorded once and starts with one call, in its order.

    Parameters
    ----------
    context, capturing, stream: the driver's handles; work is recorded on the stream `capturing`,
        which nothing else uses, and runs on `stream`.
    record: puts the work on the stream that it is given.
    check: raises where the status it is given is an error.
    """

    def __init__(
        self,
        driver: Any,
        calls: DriverCalls,
        context: int,
        capturing: Any,
        stream: int,
        record: Callable[[int], None],
        check: Callable[[Any], None],
    ) -> None:
        self._set_context, self._launch, self._context = (
            calls.set_context,
            calls.launch_graph,
            context,
        )
        recorded = _recorded(driver, capturing, record, check)
        status, ready = driver.cuGraphInstantiate(recorded, 0)
        driver.cuGraphDestroy(recorded)
        check(status)
        weakref.finalize(self, driver.cuGraphExecDestroy, ready).atexit = False
        self._arguments = (int(ready), stream)
        self._lock = Lock()

    def __call__(self) -> int:
        """Start it; the driver's status.  Any thread may."""
        with self._lock:  # the driver wants one thread at a time
            self._set_context(self._context)
            return self._launch(*self._arguments)


def _recorded(
    driver: Any, capturing: Any, record: Callable[[int], None], check: Callable[[Any], None]
) -> Any:
    """The graph of what `record` puts on the stream.  A failure ends the recording."""
    # Relaxed: what else this thread asks of the driver meanwhile, such as to take memory back that
    # Python drops, is not recorded and stays allowed.
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    (status,) = driver.cuStreamBeginCapture(capturing, mode)
    check(status)
    try:
        record(int(capturing))
    except BaseException:
        status, recorded = driver.cuStreamEndCapture(capturing)
        if int(status) == 0:
            driver.cuGraphDestroy(recorded)
        raise
    status, recorded = driver.cuStreamEndCapture(capturing)
    check(status)
    return recorded
