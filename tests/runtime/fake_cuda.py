"""A GPU made of host memory, for the host side of launches: what is checked, copied, asked, kept.

It stands in for cuda.core and the driver bindings.  A kernel runs as the Python function that
`kernels` has under its name, called with addresses and scalars' bits.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from enum import IntEnum
from types import SimpleNamespace
from typing import Any


class Result(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


_OK = Result.CUDA_SUCCESS
_P, _I = ctypes.c_void_p, ctypes.c_int
_CALL = {n: ctypes.CFUNCTYPE(_I, *[_P] * n) for n in (1, 2, 4)}
_ENCODE = ctypes.CFUNCTYPE(_I, _P, _I, ctypes.c_uint32, _P, _P, _P, _P, _P, _I, _I, _I, _I)


class Buffer:
    """Memory with a 256-byte alignment."""

    live = 0

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory = ctypes.create_string_buffer(size + 256)
        self.handle = -(-ctypes.addressof(self._memory) // 256) * 256
        Buffer.live += 1

    def __del__(self) -> None:
        Buffer.live -= 1

    def fill(self, value: int, stream: Any) -> None:
        ctypes.memset(self.handle, value, self.size)


class Stream:
    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.synced = 0

    @staticmethod
    def from_handle(handle: int) -> Stream:
        return Stream(handle)

    def sync(self) -> None:
        self.synced += 1

    def record(self, event: Event) -> None:
        event.at_ms = event.now_ms()


class Event:
    """A moment of a GPU that takes a millisecond for every launch."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self.now_ms = now_ms
        self.at_ms = 0.0

    def sync(self) -> None:
        """All work is done at once."""

    def __sub__(self, other: Event) -> float:
        return self.at_ms - other.at_ms


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_uint64),
        ("attributes", ctypes.c_uint64),
        ("attribute_count", ctypes.c_uint),
    )


class FakeCUDA:
    """Both modules, and a record of what was asked of them.

    Attributes: core, driver; kernels by name; launches as (name, grid, block, shared bytes, stream
    handle); current, the threads that set the context; free_bytes of memory; asked_shared bytes;
    loaded libraries; encoded, the arguments of each tensor map.  A kernel launched with tensor maps
    gets the addresses of its arguments, like one that is launched by cuLaunchKernelEx.

    On a stream that records, launches and copies are put in a graph, which has what they were
    called with; pinned are the addresses of host memory that the driver knows.
    """

    def __init__(self, sm: int = 80, free_bytes: int = 1 << 20) -> None:
        self.kernels: dict[str, Callable[..., object]] = {}
        self.launches: list[tuple[Any, ...]] = []
        self.current: list[int] = []
        self.trims: list[int] = []
        self.asked_shared: list[int] = []
        self.asked_clusters: list[int] = []  # for more blocks than every GPU takes
        self.clusters = 3  # that have room at once
        self.names: list[str] = []  # of the kernel in each library
        self.counts: dict[str, int] = {}  # of parameters of kernels by cuLaunchKernelEx
        self.loaded: set[int] = set()
        self.synced = 0
        self.max_threads = 1024
        self.encoded: list[tuple[Any, ...]] = []
        self.encode_status = 0
        self._encode = _ENCODE(self._encode_map)
        self.variable = ctypes.c_uint64(0)  # a kernel's pointer to the report of its asserts
        self._reports: list[Any] = []
        self.free_bytes = free_bytes
        self.cached_bytes = 0
        self.fault = ""
        self._sm = sm
        self.legacy = Stream(1)
        self.pinned: set[int] = set()
        self.contexts: list[int] = []  # as they were set by the driver's own function
        self.recording: dict[int, list[Callable[[], Any]]] = {}  # by the stream's handle
        self.graphs: dict[int, list[Callable[[], Any]]] = {}
        self.executables: dict[int, list[Callable[[], Any]]] = {}
        self.graph_launches: list[tuple[int, int]] = []
        self._numbers = itertools.count(1000)
        self._functions = {
            b"cuTensorMapEncodeTiled": self._encode,
            b"cuCtxSetCurrent": _CALL[1](self._set_context),
            b"cuLaunchKernelEx": _CALL[4](self._launch_ex),
            b"cuGraphLaunch": _CALL[2](self._launch_graph),
        }
        self.core = SimpleNamespace(
            StreamOptions=lambda **given: given,
            Device=self._open,
            LEGACY_DEFAULT_STREAM=self.legacy,
            Stream=Stream,
            Buffer=Buffer,
            EventOptions=lambda **given: given,
            LaunchConfig=lambda **given: SimpleNamespace(**given),
            Kernel=SimpleNamespace(from_handle=self._kernel),
            launch=self._launch,
        )
        attribute = SimpleNamespace(
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic",
            CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK="threads",
            CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED="clusters",
        )
        mode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
        self.driver = SimpleNamespace(
            CUfunction_attribute=attribute,
            CUlaunchAttribute=lambda: SimpleNamespace(
                value=SimpleNamespace(clusterDim=SimpleNamespace())
            ),
            CUlaunchAttributeID=SimpleNamespace(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION="cluster"),
            CUlaunchConfig=SimpleNamespace,
            cuOccupancyMaxActiveClusters=lambda kernel, config: (_OK, self.clusters),
            CUpointer_attribute=SimpleNamespace(CU_POINTER_ATTRIBUTE_MEMORY_TYPE="type"),
            CUresult=Result,
            CUstreamCaptureMode=mode,
            cuCtxGetCurrent=lambda: (_OK, 55),
            cuGraphDestroy=lambda graph: (self.graphs.pop(graph) and _OK,),
            cuGraphExecDestroy=lambda graph: (self.executables.pop(graph) and _OK,),
            cuGraphInstantiate=self._instantiate,
            cuMemcpyDtoDAsync=self._copy,
            cuMemcpyPeerAsync=lambda to, a, start, b, size, on: self._copy(to, start, size, on),
            cuMemsetD8Async=self._fill,
            cuPointerGetAttribute=self._known,
            cuStreamBeginCapture=self._begin,
            cuStreamEndCapture=self._end,
            cuDeviceGet=lambda ordinal: (_OK, ordinal),
            cuDeviceGetCount=lambda: (_OK, 1),
            cuDriverGetVersion=lambda: (_OK, 13000),
            cuGetProcAddress=self._address,
            cuLaunchKernel=self._launch_places,
            cuLibraryGetGlobal=lambda library, name: (_OK, ctypes.addressof(self.variable), 8),
            cuMemcpyHtoD=lambda to, source, size: self._copy(to, source, size, 0),
            cuMemFreeHost=lambda address: (_OK,),
            cuMemHostAlloc=self._host_memory,
            cuKernelGetAttribute=lambda what, kernel, gpu: (_OK, self.max_threads),
            cuKernelGetFunction=lambda kernel: (_OK, kernel),
            cuKernelSetAttribute=self._attribute,
            cuLibraryGetKernel=self._name_kernel,
            cuLibraryLoadData=self._load,
            cuLibraryUnload=self._unload,
            cuMemcpyDtoHAsync=self._copy,
            cuMemcpyHtoDAsync=self._copy,
            cuMemGetInfo=lambda: (_OK, self.free_bytes, 1 << 20),
            cuMemPoolTrimTo=self._trim,
        )
        limits = dict(max_threads_per_block=1024, max_threads_per_multiprocessor=2048)
        limits |= dict(max_block_dim_x=1024, max_block_dim_y=1024, max_block_dim_z=64)
        limits |= dict(max_grid_dim_x=2**31 - 1, max_grid_dim_y=65535, max_grid_dim_z=65535)
        limits |= dict(multiprocessor_count=7, warp_size=32, l2_cache_size=1 << 12)
        limits |= dict(max_shared_memory_per_block=48 << 10)
        limits |= dict(max_shared_memory_per_block_optin=163 << 10)
        limits |= dict(max_shared_memory_per_multiprocessor=164 << 10)
        limits |= dict(max_registers_per_multiprocessor=65536)
        self._device = SimpleNamespace(
            arch=str(sm),
            name="Fake",
            properties=SimpleNamespace(**limits),
            set_current=lambda: self.current.append(threading.get_ident()),
            sync=self._sync,
            memory_resource=SimpleNamespace(
                allocate=self._allocate,
                handle=99,
                attributes=SimpleNamespace(reserved_mem_current=1 << 16),
            ),
            create_stream=self._create_stream,
            create_event=lambda options: Event(lambda: float(len(self.launches))),
        )

    def _open(self, _: int) -> Any:
        return self._device

    def _sync(self) -> None:
        self.synced += 1
        if self.fault:
            raise RuntimeError(self.fault)

    def _allocate(self, size: int, *, stream: Stream) -> Buffer:
        if size > self.free_bytes:
            raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: no\nmore")
        return Buffer(size)

    def _trim(self, pool: int, keep: int) -> tuple[Result]:
        self.trims.append(keep)
        self.free_bytes += self.cached_bytes
        self.cached_bytes = 0
        return (_OK,)

    def _copy(self, to: int, source: int, size: int, stream: int) -> tuple[Result]:
        self._do(stream, lambda: ctypes.memmove(to, source, size))
        return (_OK,)

    def _fill(self, to: int, value: int, size: int, stream: int) -> tuple[Result]:
        self._do(stream, lambda: ctypes.memset(to, value, size))
        return (_OK,)

    def _known(self, what: str, address: int) -> tuple[Any, ...]:
        return (_OK, 1) if address in self.pinned else (Result.CUDA_ERROR_INVALID_VALUE, None)

    def _create_stream(self, obj: Any = None, options: Any = None) -> Stream:
        if obj:
            return Stream(obj.__cuda_stream__()[1])
        return Stream(8 if options == {"nonblocking": False} else 7)

    # ---- graphs
    def _do(self, stream: int, work: Callable[[], Any]) -> None:
        """Now, or when the graph that the stream records is launched."""
        if stream in self.recording:
            self.recording[stream].append(work)
        else:
            work()

    def _begin(self, stream: int, mode: str) -> tuple[Result]:
        self.recording[stream] = []
        return (_OK,)

    def _end(self, stream: int) -> tuple[Any, ...]:
        number = next(self._numbers)
        self.graphs[number] = self.recording.pop(stream)
        return _OK, number

    def _instantiate(self, graph: int, flags: int) -> tuple[Any, ...]:
        if self.fault:
            return Result.CUDA_ERROR_INVALID_VALUE, None
        number = next(self._numbers)
        self.executables[number] = list(self.graphs[graph])
        return _OK, number

    def _launch_graph(self, graph: int, stream: int) -> int:
        if self.fault:
            return Result.CUDA_ERROR_ILLEGAL_ADDRESS
        self.graph_launches.append((graph, stream))
        for work in self.executables[graph]:
            work()
        return 0

    def _set_context(self, context: int) -> int:
        self.contexts.append(context)
        return 0

    def _attribute(self, what: str, value: int, kernel: Any, device: int) -> tuple[Result]:
        (self.asked_clusters if what == "clusters" else self.asked_shared).append(value)
        return (_OK,)

    def _load(self, code: bytes, *options: Any) -> tuple[Any, ...]:
        if self.fault:
            return Result.CUDA_ERROR_ILLEGAL_ADDRESS, None
        self.names.append("")
        self.loaded.add(len(self.names) - 1)
        return _OK, len(self.names) - 1

    def _name_kernel(self, library: int, name: bytes) -> tuple[Any, ...]:
        self.names[library] = name.decode()
        return _OK, library

    def _kernel(self, handle: int) -> Any:
        return SimpleNamespace(name=self.names[handle], handle=handle)

    def _unload(self, library: int) -> tuple[Any, ...]:
        self.loaded.remove(library)
        return (_OK,)

    def _address(self, name: bytes, version: int, flags: int) -> tuple[Any, ...]:
        found = self._functions.get(name)
        if found is None:
            return Result.CUDA_ERROR_ILLEGAL_ADDRESS, 0
        return _OK, ctypes.cast(found, ctypes.c_void_p).value, 0

    def _encode_map(self, to: int, dtype: int, rank: int, pointer: int, *more: Any) -> int:
        lists, modes = more[:4], more[4:]
        wide = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)
        counts = (rank, rank - 1, rank, rank)
        values = [
            tuple((c * n).from_address(at)) if n else ()
            for c, n, at in zip(wide, counts, lists, strict=True)
        ]
        self.encoded.append((dtype, pointer, *values, *modes))
        ctypes.memset(to, 0xAB, 128)
        return self.encode_status

    def _host_memory(self, size: int, flags: int) -> tuple[Any, ...]:
        self._reports.append(ctypes.create_string_buffer(size))
        return _OK, ctypes.addressof(self._reports[-1])

    def _launch_places(
        self,
        kernel: int,
        gx: int,
        gy: int,
        gz: int,
        bx: int,
        by: int,
        bz: int,
        shared: int,
        stream: int,
        where: int,
        extra: int,
    ) -> tuple[Result]:
        if self.fault:
            return (Result.CUDA_ERROR_ILLEGAL_ADDRESS,)
        name = self.names[kernel]
        self.launches.append((name, (gx, gy, gz), (bx, by, bz), shared, stream))
        if name in self.kernels:
            self.kernels[name](where)
        return (_OK,)

    def _launch_ex(self, config: int, kernel: int | None, places: int, extra: int | None) -> int:
        if self.fault:
            return Result.CUDA_ERROR_ILLEGAL_ADDRESS
        c = LaunchConfig.from_address(config)
        name = self.names[kernel or 0]
        shape = tuple(c.grid), tuple(c.block), c.shared, c.stream
        self.launches.append((name, *shape))
        if name in self.kernels:
            count = self.counts[name]  # what the driver copies before it returns
            values = list((ctypes.c_void_p * count).from_address(places))
            numbers = [ctypes.c_uint64.from_address(v or 0).value for v in values]
            self._do(c.stream, lambda: self.kernels[name](*numbers))
        return 0

    def _launch(self, stream: Stream, config: Any, kernel: Any, *values: Any) -> None:
        if self.fault:
            raise RuntimeError(self.fault)
        shape = (config.grid, config.block, config.shmem_size)
        self.launches.append((kernel.name, *shape, stream.handle))
        if kernel.name in self.kernels:
            self.kernels[kernel.name](*values)
