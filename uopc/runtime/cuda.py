"""Launch CUDA kernels: devices, memory, loaded modules, streams and events, through cuda-python.

Every launch sets the device's context in the calling thread, so any thread may launch.  Arrays of
other libraries (`__cuda_array_interface__`, DLPack) are used in place, on the stream that the
caller names; numpy arrays are copied in and out by `run_cuda`.
"""

from __future__ import annotations

import ctypes
import gc
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from threading import Lock
from typing import Any

import numpy as np

from uopc.config import Config, current
from uopc.dtype import dtypes, from_numpy
from uopc.errors import DeviceError, TargetError, UopcError, UsageError
from uopc.kernel import Dims, Param, Source
from uopc.runtime.arrays import (
    OWN,
    Bound,
    Bundle,
    DeviceArray,
    HostArray,
    address,
    check_arguments,
    is_contiguous,
    no_work,
)
from uopc.runtime.asserts import AssertReport
from uopc.runtime.driver import DriverCalls
from uopc.runtime.limits import check_launch, dims, parameter_bytes
from uopc.runtime.nvrtc import Cubin, compile_cubin
from uopc.runtime.prepared import Graph, PreparedLaunch
from uopc.runtime.tensor_maps import MAP_BYTES, TensorMap, TensorMaps
from uopc.target import Target, target

INSTALL = "pip install cuda-core cuda-bindings nvidia-cuda-nvrtc"
#: loaded kernels that a device keeps for texts that come again; older ones unload once unused
_LOADED_MAX = 256
_TABLES_MAX = 16
_AS_IT_IS = (*OWN, int, float)
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_ON_DEVICE = (2, 3, 13)  # kDLCUDA, kDLCUDAHost, kDLCUDAManaged of dlpack.h
PORTABLE_CLUSTER = 8  # blocks that every GPU with clusters takes (CUDA Programming Guide)
_LEGACY_STREAM = 1  # how DLPack and the driver spell the default stream (CU_STREAM_LEGACY)


class OutOfMemoryError(DeviceError, MemoryError):
    """A GPU has no memory left, after everything that was cached has been freed."""


@dataclass(eq=False)
class Function:
    """A kernel loaded on one device; once nothing refers to it, the next load unloads it.

    Attributes: name; cubin; params, None for a bare text; max_threads of a block as compiled;
    handle, the driver's, of the function in the device's context.
    """

    name: str
    cubin: Cubin
    source: str
    params: tuple[Param, ...] | None
    max_threads: int
    kernel: Any
    handle: int
    report: AssertReport | None = None
    _configs: dict[tuple[Dims, Dims, int], Any] = field(default_factory=dict)
    _dynamic_allowed: int = 48 << 10


@lru_cache(maxsize=1)
def why_unusable() -> str:
    """Why no GPU can be used, in one line that says what to do; "" where one can.  Never raises."""
    try:
        import cuda.core  # noqa: F401  (late: 0.3 s that only a launch needs)
        from cuda.bindings import driver
    except Exception as error:
        return f"cuda-python is not installed ({_first_line(error)}). Get it with: {INSTALL}"
    try:
        (status,) = driver.cuInit(0)
        if int(status) == 0:
            status, count = driver.cuDeviceGetCount()
    except Exception:  # cuda-pathfinder's own error where libcuda is not found
        return "no NVIDIA driver found (libcuda). Install one; until then kernels run emulated."
    if int(status) != 0:
        return f"the NVIDIA driver does not start ({status.name}). Check it with nvidia-smi."
    if count == 0:
        return "the NVIDIA driver shows no GPU. Check CUDA_VISIBLE_DEVICES and nvidia-smi."
    return ""


def describe(device: int = 0) -> str:
    """Name, arch and driver of a usable GPU, in one line."""
    core, driver = _cuda_python()
    gpu = core.Device(device)
    version = driver.cuDriverGetVersion()[1]
    return f"{gpu.name} (sm_{gpu.arch}, driver for CUDA {version // 1000}.{version % 1000 // 10})"


#: compute capabilities from here on have instructions that no later one runs: sm_90a
OWN_INSTRUCTIONS = 90


@lru_cache(maxsize=16)
def device_target(device: int = 0) -> Target:
    """The Target of a GPU as it is: its arch, with the instructions that only it has, and this
    part's own limits and number of SMs.

    Raises DeviceError where no GPU is usable.
    """
    core, _ = _cuda_python()
    gpu = core.Device(device)
    is_, sm = gpu.properties, int(gpu.arch)
    name = f"sm_{sm}a" if sm >= OWN_INSTRUCTIONS else f"sm_{sm}"
    try:
        base = target(name)
    except UsageError:  # newer than the table: everything that is known comes from the driver
        base = Target(name, sm=sm, parameter_bytes=32764)
    return replace(
        base,
        sms=is_.multiprocessor_count,
        warp=is_.warp_size,
        max_threads_per_block=is_.max_threads_per_block,
        max_block=(is_.max_block_dim_x, is_.max_block_dim_y, is_.max_block_dim_z),
        max_grid=(is_.max_grid_dim_x, is_.max_grid_dim_y, is_.max_grid_dim_z),
        max_threads_per_sm=is_.max_threads_per_multiprocessor,
        registers_per_sm=is_.max_registers_per_multiprocessor,
        shared_static_bytes=is_.max_shared_memory_per_block,
        shared_optin_bytes=is_.max_shared_memory_per_block_optin,
        shared_per_sm_bytes=is_.max_shared_memory_per_multiprocessor,
    )


def arch_for(name: str, rendered: Target, device: Target) -> str:
    """The arch to compile a text for: the device's own, with the suffix that the text asks for.

    "sm_90a" text runs on sm_90 alone, "sm_100f" text on later parts of its family, any other on its
    arch and all later ones.  Raises TargetError where the device cannot run it.
    """
    suffix = rendered.name.removeprefix(f"sm_{rendered.sm}")
    same_family = rendered.sm // 10 == device.sm // 10 and rendered.sm <= device.sm
    fits = {"a": rendered.sm == device.sm, "f": same_family}.get(suffix, rendered.sm <= device.sm)
    if not rendered.is_gpu or not fits:
        raise TargetError(
            f"kernel {name} was rendered for {rendered}, this GPU is {device}. "
            f"Render it with target={device.name!r}."
        )
    return rendered.name if suffix == "a" else device.name + suffix


class CUDA:
    """One GPU: memory, kernels, launches, events.

    Parameters
    ----------
    device: its ordinal.

    Raises DeviceError where no GPU is usable.  Streams may be given as None (the legacy default
    stream), a handle, or an object of cuda.core, PyTorch or CuPy.
    """

    def __init__(self, device: int = 0, config: Config | None = None) -> None:
        self._core, self._driver = _cuda_python()
        self.config, self.ordinal = config or current(), device
        count = self._driver.cuDeviceGetCount()[1]
        if not 0 <= device < count:
            raise DeviceError(f"there is no GPU {device}: the driver shows {count}.")
        self._device = self._core.Device(device)
        self._device.set_current()
        self.target = device_target(device)
        self._functions: OrderedDict[tuple[Any, ...], Function] = OrderedDict()
        self._retired: list[Any] = []  # of functions that nothing refers to any more: libraries
        self._reports: weakref.WeakSet[AssertReport] = weakref.WeakSet()
        self._maps = TensorMaps(self._driver)
        self._tables: OrderedDict[tuple[int, bytes], DeviceArray] = OrderedDict()
        self._lock = Lock()

    @property
    def l2_bytes(self) -> int:
        """Size of the device's L2 cache."""
        return int(self._device.properties.l2_cache_size)

    # ---- streams and events
    def stream(self, stream: Any = None) -> Any:
        """The cuda.core Stream that `stream` means."""
        core = self._core
        if stream is None:
            return core.LEGACY_DEFAULT_STREAM
        if isinstance(stream, core.Stream):
            return stream
        for name in ("cuda_stream", "ptr"):  # PyTorch, CuPy
            if isinstance(handle := getattr(stream, name, None), int):
                stream = handle
                break
        if isinstance(stream, int):
            legacy = stream in (0, _LEGACY_STREAM)
            return core.LEGACY_DEFAULT_STREAM if legacy else core.Stream.from_handle(stream)
        if hasattr(stream, "__cuda_stream__"):
            self._device.set_current()
            return self._device.create_stream(stream)
        raise UsageError(
            f"stream: expected None, a handle, or a stream of cuda.core, PyTorch or CuPy, got "
            f"{type(stream).__name__}."
        )

    @cached_property
    def work(self) -> Any:
        """The stream on which tensors live: their kernels, copies and memory, in one order.

        It is no default stream, so that a graph can run on it, and it is a blocking one: it and
        the legacy default stream wait for each other, so what other libraries put there needs no
        event.  Graphs are recorded on streams of their own, since nobody could use the legacy
        stream while a blocking stream records.
        """
        self._device.set_current()
        return self._device.create_stream(options=self._core.StreamOptions(nonblocking=False))

    def create_stream(self) -> Any:
        """A new stream that does not wait for the default one."""
        self._device.set_current()
        return self._device.create_stream()

    def record(self, stream: Any = None) -> Any:
        """A timing event that completes once the stream's work so far is done."""
        self._device.set_current()
        event = self._device.create_event(self._core.EventOptions(timing_enabled=True))
        self.stream(stream).record(event)
        return event

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Milliseconds between two recorded events; waits for the second one."""
        try:
            end.sync()
            return float(end - start)
        except Exception as error:
            raise self._failure("an event", error) from None

    def synchronize(self, stream: Any = None) -> None:
        """Wait for a stream, or for the whole device.  Raises DeviceError where a kernel failed."""
        self._device.set_current()
        try:
            if stream is None:
                self._device.sync()
            else:
                self.stream(stream).sync()
        except Exception as error:
            raise self._failure("a kernel launched before", error) from None

    # ---- memory
    def alloc(self, size_bytes: int, stream: Any = None) -> Any:
        """A cuda.core Buffer from the device's stream-ordered pool; it is freed on that stream.

        Raises OutOfMemoryError, after one more try with everything unused freed.
        """
        self._device.set_current()
        on = self.stream(stream)
        for free in (self.free_unused, None):
            try:
                return self._device.memory_resource.allocate(size_bytes, stream=on)
            except Exception as error:
                if "OUT_OF_MEMORY" not in str(error):
                    raise self._failure("an allocation", error) from None
            if free:
                free()
        _, free_bytes, total_bytes = self._driver.cuMemGetInfo()
        raise OutOfMemoryError(
            f"GPU {self.ordinal} is out of memory: {size_bytes} bytes wanted, {free_bytes} of "
            f"{total_bytes} free. Let go of arrays that are no longer needed, or use smaller ones."
        )

    def free_unused(self) -> None:
        """Give memory and code that nothing refers to back to the system; waits for the device."""
        gc.collect()
        self.synchronize()
        self._unload_retired()
        if (pool := getattr(self._device.memory_resource, "handle", None)) is not None:
            self._driver.cuMemPoolTrimTo(pool, 0)

    def pool_bytes(self) -> int:
        """What the pool has taken from the system, in use or free."""
        return int(self._device.memory_resource.attributes.reserved_mem_current)

    def write(self, to: int, array: HostArray) -> None:
        """Copy a C-contiguous array to an address, on `work`; it may change once this returns."""
        start, driver = address(array), self._driver
        self._ask("a copy", driver.cuMemcpyHtoDAsync, to, start, array.nbytes, self.work.handle)
        what = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        if int(driver.cuPointerGetAttribute(what, start)[0]) == 0:
            self.synchronize(self.work)  # the driver knows it: pinned, and read late

    def read(self, start: int, out: HostArray) -> None:
        """Copy into a C-contiguous array once `work` is done; the copy is, when this returns."""
        to, on = address(out), self.work
        self._ask("a copy", self._driver.cuMemcpyDtoHAsync, to, start, out.nbytes, on.handle)
        self.synchronize(on)

    def copy(self, to: int, start: int, size_bytes: int, stream: Any = None) -> None:
        """Copy between addresses of this device, on `work` or a handle."""
        on = self.work.handle if stream is None else stream
        self._ask("a copy", self._driver.cuMemcpyDtoDAsync, to, start, size_bytes, on)

    def copy_from(self, other: CUDA, to: int, start: int, size_bytes: int) -> None:
        """Copy from an address of another device; done when this returns, so that both orders hold:
        that of its stream and that of this one."""
        mine, its, on = self.context, other.context, self.work
        other.synchronize(other.work)
        how = self._driver.cuMemcpyPeerAsync
        self._ask("a copy", how, to, mine, start, its, size_bytes, on.handle)
        self.synchronize(on)

    def zero(self, start: int, size_bytes: int) -> None:
        """Fill with zero bytes, on `work`."""
        how, on = self._driver.cuMemsetD8Async, self.work.handle
        self._ask("a fill", how, start, 0, size_bytes, on)

    @cached_property
    def context(self) -> Any:
        """The driver's handle of the device's context."""
        self._device.set_current()
        return self._ask("the device's context", self._driver.cuCtxGetCurrent)

    def _ask(self, what: str, how: Any, *arguments: Any) -> Any:
        """What a call of the driver gives.  Raises DeviceError that says what it was for."""
        self._device.set_current()
        status, *values = how(*arguments)
        if int(status) != 0:
            raise self._failure(what, status)
        return values[0] if values else None

    def empty(self, shape: int | Sequence[int], dtype: Any, stream: Any = None) -> DeviceArray:
        """Uninitialised memory on the device."""
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        array = DeviceArray(0, sizes, from_numpy(dtype), self.ordinal)
        if not array.size:
            return array
        buffer = self.alloc(array.size_bytes, stream)
        return replace(array, pointer=int(buffer.handle), owner=buffer)

    def zeros(self, shape: int | Sequence[int], dtype: Any, stream: Any = None) -> DeviceArray:
        """Memory on the device, zero before what the stream does next."""
        array = self.empty(shape, dtype, stream)
        if array.size:
            buffer: Any = array.owner
            buffer.fill(0, stream=self.stream(stream))
        return array

    def to_device(self, array: HostArray, stream: Any = None) -> DeviceArray:
        """A copy of a numpy array on the device; the copy is done when this returns."""
        array = np.asarray(array, order="C")
        on = self.stream(stream)
        made = self.empty(array.shape, array.dtype, on)
        if made.size:
            how, start = self._driver.cuMemcpyHtoDAsync, address(array)
            self._ask("a copy", how, made.pointer, start, made.size_bytes, on.handle)
            self.synchronize(on)
        return made

    def to_host(
        self, array: DeviceArray, out: HostArray | None = None, stream: Any = None
    ) -> HostArray:
        """A numpy copy of a contiguous device array (into `out` where given)."""
        out = np.empty(array.shape, array.dtype.numpy) if out is None else out
        if not (array.contiguous and out.flags.c_contiguous and out.nbytes == array.size_bytes):
            raise UsageError("to_host copies between contiguous arrays of one size.")
        on = self.stream(stream)
        if array.size:
            how, start = self._driver.cuMemcpyDtoHAsync, array.pointer
            self._ask("a copy", how, address(out), start, array.size_bytes, on.handle)
            self.synchronize(on)
        return out

    # ---- kernels
    def function(self, source: str, name: str | None = None) -> Function:
        """Compile a CUDA text for this device, and load it; the same text is loaded once.

        Raises UsageError for a text of another language, TargetError where the device cannot run
        it, ToolchainError where NVRTC refuses it, DeviceError where the driver does.
        """
        rendered = source if isinstance(source, Source) else None
        if rendered is not None:
            if rendered.language != "cuda":
                raise UsageError(
                    f"kernel {rendered.name} is {rendered.language} text, a GPU runs CUDA. "
                    f"Render it with render_cuda, or call it through Program."
                )
            if name not in (None, rendered.name):
                raise UsageError(f"the source defines kernel {rendered.name!r}, not {name!r}.")
            name = rendered.name
        if name is None:
            raise UsageError("a bare text needs the name of its kernel.")
        arch = (
            arch_for(name, rendered.target, self.target)
            if rendered is not None
            else self.target.name
        )
        key = (name, arch, source, *_shape_of_call(rendered))
        with self._lock:
            if found := self._functions.get(key):
                self._functions.move_to_end(key)
                return found
        if rendered is None:
            warnings.warn(
                f"kernel {name} is a bare text: its launches are not checked. Pass the Source that "
                f"render_cuda returns to have sizes and dtypes checked.",
                stacklevel=3,
            )
        made = self._load(compile_cubin(source, name, arch, self.config), source)
        with self._lock:
            self._functions[key] = made
            while len(self._functions) > _LOADED_MAX:
                self._functions.popitem(last=False)
        return made

    def _load(self, cubin: Cubin, source: str) -> Function:
        """Load a cubin into the device now, not at its first launch: that would wait for kernels
        that run, and so for ones that wait for it."""
        self._unload_retired()
        self._device.set_current()
        driver = self._driver

        def asked(answer: tuple[Any, ...]) -> Any:
            status, *values = answer
            if int(status) != 0:
                made_for = f"{cubin.arch}, the GPU is {describe(self.ordinal)}"
                raise DeviceError(
                    f"the driver does not load kernel {cubin.name} (made for {made_for}): "
                    f"{status.name}. A driver older than NVRTC is updated, or NVRTC set back to "
                    f"its version."
                )
            return values[0] if values else None

        library = asked(driver.cuLibraryLoadData(cubin.code, [], [], 0, [], [], 0))
        handle = asked(driver.cuLibraryGetKernel(library, cubin.name.encode()))
        code = asked(driver.cuKernelGetFunction(handle))
        option = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        gpu = asked(driver.cuDeviceGet(self.ordinal))
        max_threads = asked(driver.cuKernelGetAttribute(option, handle, gpu))
        kernel = self._core.Kernel.from_handle(int(handle))
        params = source.params if isinstance(source, Source) else None
        report = None
        if isinstance(source, Source) and source.asserts:
            report = AssertReport(driver, library, cubin.name, source.asserts)
            self._reports.add(report)
        made = Function(cubin.name, cubin, source, params, max_threads, kernel, int(code), report)
        weakref.finalize(made, self._retired.append, (library, report)).atexit = False
        return made

    def _unload_retired(self) -> None:
        """Unload what nothing refers to any more, once the device runs none of it."""
        if self._retired:
            self.synchronize()
            while self._retired:
                library, _ = self._retired.pop()  # its report goes with it
                self._driver.cuLibraryUnload(library)

    def launch(
        self,
        function: Function,
        grid: int | Sequence[int] | None,
        block: int | Sequence[int] | None,
        *arguments: Any,
        stream: Any = None,
        dynamic_shared_bytes: int | None = None,
    ) -> None:
        """Start a kernel on arrays in device memory, in slot order, and return at once.

        grid, block and dynamic_shared_bytes are for a bare text: a rendered Source knows its own.
        Raises UsageError for arguments that do not fit, TargetError for a launch that does not.
        """
        on = self.stream(stream)
        plan = self._plan(function, grid, block, dynamic_shared_bytes)
        bound = self._bind(function, arguments, on)
        for i, array in _each(bound):
            if isinstance(array, np.ndarray) and array.shape:
                raise UsageError(
                    f"kernel {function.name}, argument {i} is in host memory. Copy it with "
                    f"to_device, or use run_cuda, which copies in and out."
                )
        self._start(function, plan, bound, on)

    def _plan(
        self,
        function: Function,
        grid: int | Sequence[int] | None,
        block: int | Sequence[int] | None,
        dynamic_shared_bytes: int | None,
    ) -> tuple[Dims, Dims, int]:
        """Grid, block and dynamic shared bytes of a launch: a Source's own, else those given."""
        source = function.source
        if isinstance(source, Source):
            own = source.launch
            for what, given, right in (("grid", grid, own.grid), ("block", block, own.block)):
                if given is not None and dims(given, what) != right:
                    raise UsageError(
                        f"kernel {function.name} was rendered for {what} {right}, got {given}."
                    )
            return own.grid, own.block, source.dynamic_shared_bytes
        if grid is None or block is None:
            raise UsageError(f"kernel {function.name} is a bare text: give its grid and block.")
        return dims(grid, "grid"), dims(block, "block"), dynamic_shared_bytes or 0

    def _bind(self, function: Function, arguments: Sequence[Any], on: Any) -> list[Bound]:
        """The arguments as numpy arrays and DeviceArrays, checked where parameters are known."""
        taken: list[Any] = [self._taken(f"argument {i}", a, on) for i, a in enumerate(arguments)]
        params = function.params
        if params is not None:
            taken = check_arguments(function.name, params, taken, on_device=True)
        for i, array in _each(taken):
            if isinstance(array, DeviceArray):
                if array.device != self.ordinal and array.size:
                    raise UsageError(
                        f"kernel {function.name} runs on GPU {self.ordinal}, argument {i} is on "
                        f"GPU {array.device}. Copy it there, or name its device."
                    )
            elif not isinstance(array, np.ndarray):
                raise UsageError(
                    f"kernel {function.name}, argument {i}: a bare text has no types, so scalars "
                    f"must be numpy scalars such as np.float32(x), got {type(array).__name__}."
                )
        return taken

    def _taken(self, where: str, value: Any, on: Any) -> Any:
        """An argument; of a bundle, each of its arrays."""
        if isinstance(value, (list, tuple)):
            return [self._taken(f"{where}[{n}]", x, on) for n, x in enumerate(value)]
        return value if isinstance(value, _AS_IT_IS) else self._adopt(where, value, on)

    def _adopt(self, where: str, value: Any, on: Any) -> Any:
        """An array of another library as a DeviceArray, ordered after its own stream's work."""
        if isinstance(value, np.generic):
            return np.asarray(value)
        if isinstance(value, self._core.Buffer):
            return DeviceArray(int(value.handle), (value.size,), dtypes.u8, owner=value)
        dlpack = hasattr(value, "__dlpack_device__")
        if dlpack and int(value.__dlpack_device__()[0]) not in _ON_DEVICE:
            return np.from_dlpack(value)
        if not dlpack and not hasattr(value, "__cuda_array_interface__"):
            return value
        from cuda.core.utils import StridedMemoryView

        self._device.set_current()
        try:
            handle = int(on.handle) or _LEGACY_STREAM
            view = StridedMemoryView.from_any_interface(value, stream_ptr=handle)
            dtype, shape = from_numpy(view.dtype), tuple(view.shape)
        except Exception as error:
            said = f"this {type(value).__name__} cannot be shared: {_first_line(error)}"
            raise UsageError(f"{where}: {said}") from error
        contiguous = is_contiguous(shape, view.strides, 1)
        own = (contiguous, not view.readonly, view)
        return DeviceArray(int(view.ptr), shape, dtype, int(view.device_id), *own)

    def _start(
        self, function: Function, plan: tuple[Dims, Dims, int], bound: Sequence[Bound], on: Any
    ) -> None:
        """Launch with checked arguments; work of no size is none."""
        grid, block, dynamic = plan
        self._device.set_current()  # the calling thread may never have used this device
        config = function._configs.get(plan)
        if config is None:
            if no_work(function.params or (), (*grid, *block)):
                return
            config = self._configure(function, plan)
        values = [self._passed(a, on) for a in bound]
        maps = self._tensor_maps(function, values)
        try:
            if maps:
                self._launch_with_maps(function, plan, values, maps, on)
            else:
                self._core.launch(on, config, function.kernel, *values)
            if self.config.sync:
                on.sync()
        except Exception as error:
            what = f"kernel {function.name} (grid {grid}, block {block}, shared {dynamic})"
            raise self._failure(what, error) from None

    def _passed(self, array: Bound, on: Any) -> Any:
        """What a launch passes: an address, a scalar, the address of a bundle's table."""
        if isinstance(array, Bundle):
            array = self._table(array, on)
        return array.pointer if isinstance(array, DeviceArray) else _by_value(array)

    def _table(self, bundle: Bundle, on: Any) -> DeviceArray:
        """A bundle's table on the device; one of the last few, if the arrays are the same.  It
        belongs to its stream: that of what reads it, and on which its memory is freed."""
        key = int(on.handle), bundle.table.tobytes()
        with self._lock:
            found = self._tables.pop(key, None)
        found = found or self.to_device(bundle.table, on)
        with self._lock:
            self._tables[key] = found
            while len(self._tables) > _TABLES_MAX:
                self._tables.popitem(last=False)
        return found

    def _tensor_maps(self, function: Function, values: Sequence[Any]) -> list[TensorMap]:
        """The maps that the kernel takes after its parameters."""
        source = function.source
        if not isinstance(source, Source) or not source.tensor_maps:
            return []
        at = {p.slot: n for n, p in enumerate(source.params)}
        return [self._maps.of(values[at[use.slot]], use) for use in source.tensor_maps]

    def _launch_with_maps(
        self,
        function: Function,
        plan: tuple[Dims, Dims, int],
        values: Sequence[Any],
        maps: Sequence[TensorMap],
        on: Any,
    ) -> None:
        """cuLaunchKernel with the addresses of its arguments: pointers, scalars, tensor maps."""
        grid, block, dynamic = plan
        held = [np.asarray(v, np.uint64 if isinstance(v, int) else None) for v in values]
        places = [address(v) for v in held] + [m.address for m in maps]
        arguments = (ctypes.c_void_p * len(places))(*places)
        driver = self._driver
        status, handle = driver.cuKernelGetFunction(function.kernel.handle)
        if int(status) == 0:
            where = ctypes.addressof(arguments)
            (status,) = driver.cuLaunchKernel(handle, *grid, *block, dynamic, on.handle, where, 0)
        if int(status) != 0:
            raise RuntimeError(status.name)

    def _configure(self, function: Function, plan: tuple[Dims, Dims, int]) -> Any:
        """Check a launch's limits and prepare it, once per kernel and plan."""
        grid, block, dynamic = plan
        used = function.cubin.resources
        check_launch(
            self.target,
            function.name,
            grid,
            block,
            static_shared_bytes=used.shared_bytes,
            dynamic_shared_bytes=dynamic,
            parameter_bytes=parameter_bytes(function.params or ()) + _map_bytes(function.source),
            max_threads=function.max_threads,
            registers=used.registers,
        )
        if dynamic > function._dynamic_allowed:  # above 48 KB a kernel must ask
            driver = self._driver
            option = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            gpu = driver.cuDeviceGet(self.ordinal)[1]
            handle = function.kernel.handle
            (status,) = driver.cuKernelSetAttribute(option, dynamic, handle, gpu)
            if int(status) != 0:
                raise self._failure(f"kernel {function.name}'s shared memory", status)
            function._dynamic_allowed = dynamic
        if isinstance(function.source, Source) and function.source.launch.cluster > 1:
            self._check_clusters(function, plan, function.source.launch.cluster)
        config = self._core.LaunchConfig(grid=grid, block=block, shmem_size=dynamic)
        function._configs[plan] = config
        return config

    def _check_clusters(
        self, function: Function, plan: tuple[Dims, Dims, int], blocks: int
    ) -> None:
        """Raises TargetError where this GPU has no room for one of a kernel's clusters.

        The blocks of a cluster run at once, on neighbouring SMs; more than 8 a kernel must ask for.
        """
        grid, block, dynamic = plan
        driver = self._driver
        if blocks > PORTABLE_CLUSTER:
            attributes = driver.CUfunction_attribute
            asked = attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            gpu = driver.cuDeviceGet(self.ordinal)[1]
            (status,) = driver.cuKernelSetAttribute(asked, 1, function.kernel.handle, gpu)
            if int(status) != 0:
                raise self._failure(f"kernel {function.name}'s clusters of {blocks} blocks", status)
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes = dynamic
        size = driver.CUlaunchAttribute()
        size.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        shape = size.value.clusterDim
        shape.x, shape.y, shape.z = blocks, 1, 1
        config.attrs, config.numAttrs = [size], 1
        status, handle = driver.cuKernelGetFunction(function.kernel.handle)
        if int(status) == 0:
            status, room = driver.cuOccupancyMaxActiveClusters(handle, config)
        if int(status) != 0 or room < 1:
            said = status.name if int(status) else "there is room for none"
            raise TargetError(
                f"kernel {function.name} has clusters of {blocks} blocks of "
                f"{block[0] * block[1] * block[2]} threads, and {self.target} cannot run one "
                f"({said}). Lower Opts.cluster, local or upcast."
            )

    def prepare(self, function: Function) -> PreparedLaunch:
        """The launch of a Source whose parameters are arrays, on `work`, with its limits checked.

        Raises TargetError for one that does not fit the device.
        """
        source = function.source
        assert isinstance(source, Source)
        plan = self._plan(function, None, None, None)
        self._configure(function, plan)
        at = {p.slot: n for n, p in enumerate(source.params)}
        return PreparedLaunch(
            self._calls,
            int(self.context),
            function.handle,
            plan,
            int(self.work.handle),
            len(source.params),
            self._maps,
            [(at[use.slot], use) for use in source.tensor_maps],
        )

    def capture(self, record: Callable[[int], None]) -> Graph:
        """A graph of what `record` puts on the stream whose handle it is given; it runs on `work`.

        Raises DeviceError where that cannot be recorded.
        """
        recording = self.create_stream()
        return Graph(
            self._driver,
            self._calls,
            int(self.context),
            recording.handle,
            int(self.work.handle),
            record,
            lambda status: self.check("recording a graph", int(status)),
        )

    def check(self, what: str, status: int) -> None:
        """Raises DeviceError that says what the driver was asked, unless its status is 0."""
        if status:
            raise self._failure(what, self._driver.CUresult(status))

    @cached_property
    def _calls(self) -> DriverCalls:
        return DriverCalls(self._driver)

    def _failure(self, what: str, error: Any) -> UopcError:
        """The DeviceError for what the driver said, or for the ASSERT that made it say so."""
        if failed := next((r.failure for r in self._reports if r.failure), ""):
            return DeviceError(f"{failed}. The GPU's context is lost: restart the process.")
        said = _first_line(error) if isinstance(error, BaseException) else error.name
        late = "" if self.config.sync else " UOPC_SYNC=1 names the kernel that did it."
        lost = any(word in said for word in ("ILLEGAL", "MISALIGNED", "LAUNCH_FAILED", "TIMEOUT"))
        tail = f" The GPU's context is lost: restart the process.{late}" if lost else ""
        return DeviceError(f"{what} failed on GPU {self.ordinal}: {said}.{tail}")


_opened: dict[int, CUDA] = {}
_opening = Lock()


def open_device(device: int = 0) -> CUDA:
    """The process's CUDA object of a device.  Raises DeviceError where it is not usable."""
    with _opening:  # two would have two streams of tensors, in no order
        if device not in _opened:
            _opened[device] = CUDA(device)
        return _opened[device]


def run_cuda(
    source: str,
    name: str,
    grid: int | Sequence[int] | None,
    block: int | Sequence[int] | None,
    *arrays: Any,
    stream: Any = None,
    device: int = 0,
    dynamic_shared_bytes: int | None = None,
) -> None:
    """Compile a CUDA text for the device, copy numpy arrays in, launch, copy written ones back.

    Arrays in device memory are used in place, on `stream`; where there are only such arrays this
    returns before the kernel is done.  With a bare text every writable numpy array is copied back.

    Raises as `CUDA.function` and `CUDA.launch` do.
    """
    gpu = open_device(device)
    function = gpu.function(source, name)
    on = gpu.stream(stream)
    plan = gpu._plan(function, grid, block, dynamic_shared_bytes)
    bound = gpu._bind(function, arrays, on)
    placed: list[Bound] = []
    back: list[tuple[HostArray, DeviceArray]] = []

    def place(array: HostArray | DeviceArray, i: int | str, written: bool) -> DeviceArray:
        if isinstance(array, DeviceArray):
            return array
        if not array.flags.c_contiguous:
            raise UsageError(f"kernel {name}, argument {i} is not C-contiguous. Pass a copy.")
        there = gpu.to_device(array, on)
        if written:
            back.append((array, there))
        return there

    for i, array in enumerate(bound):
        param = function.params[i] if function.params is not None else None
        if isinstance(array, Bundle):
            written = param is not None and param.written
            there = tuple(place(a, f"{i}[{n}]", written) for n, a in enumerate(array.arrays))
            placed.append(Bundle(there, array.count))
            continue
        by_value = param.scalar if param else isinstance(array, np.ndarray) and not array.shape
        if by_value or isinstance(array, DeviceArray):
            placed.append(array)
        else:
            placed.append(place(array, i, param.written if param else array.flags.writeable))
    gpu._start(function, plan, placed, on)
    for host, made in back:
        gpu.to_host(made, host, on)
    if not any(isinstance(a, DeviceArray) for _, a in _each(bound)):
        gpu.synchronize(on)  # what it printed is shown, what it asserts has held


def _each(bound: Sequence[Any]) -> Iterator[tuple[int | str, Any]]:
    """Every array with the number of its argument; of a bundle, each of its arrays."""
    for i, array in enumerate(bound):
        if isinstance(array, Bundle):
            yield from ((f"{i}[{n}]", a) for n, a in enumerate(array.arrays))
        else:
            yield i, array


def _shape_of_call(source: Source | None) -> tuple[Any, ...]:
    """What tells sources of one text apart: how they are called."""
    if source is None:
        return ()
    launch = source.launch.grid, source.launch.block, source.dynamic_shared_bytes
    return source.params, *launch, source.tensor_maps, source.asserts


def _map_bytes(source: str) -> int:
    """Bytes of parameter space that tensor maps take, at their alignment of 64."""
    maps = len(source.tensor_maps) if isinstance(source, Source) else 0
    return MAP_BYTES * maps + (MAP_BYTES if maps else 0)


def _by_value(scalar: HostArray) -> Any:
    """A scalar's bits as an unsigned number of its size, which is passed as it is."""
    return scalar.view(_BITS[scalar.dtype.itemsize])[()]


def _cuda_python() -> tuple[Any, Any]:
    """cuda.core and the driver bindings.  Raises DeviceError where no GPU is usable."""
    if reason := why_unusable():
        raise DeviceError(reason)
    import cuda.core
    from cuda.bindings import driver

    return cuda.core, driver


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
