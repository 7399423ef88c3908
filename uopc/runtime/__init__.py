"""Run kernels: compile and cache them, check their arguments, launch them.

Reading order: cache.py, cpu.py, arrays.py, program.py for C; nvrtc.py, limits.py, cuda.py for CUDA;
device.py and timing.py stand on both.  What runs tensors does without checks of every call:
memory.py, buffer.py, prepared.py, executor.py, graph.py.  cuda-python is imported at the first use
of a GPU.
"""

from uopc.runtime.arrays import DeviceArray
from uopc.runtime.buffer import Buffer, empty_cache, memory_stats, reset_peak, synchronize
from uopc.runtime.cache import Cache, CacheStatus, clear, status
from uopc.runtime.cuda import CUDA, device_target, open_device, run_cuda, why_unusable
from uopc.runtime.device import DeviceInfo, default_device, devices
from uopc.runtime.executor import Launcher, errors_of, raise_errors
from uopc.runtime.graph import Copy, Launch, Replay
from uopc.runtime.memory import MemoryStats
from uopc.runtime.nvrtc import Cubin, compile_cubin, compile_ptx, known_archs
from uopc.runtime.program import Program
from uopc.runtime.ptxas import Resources
from uopc.runtime.sass import disassemble

__all__ = [
    "CUDA",
    "Buffer",
    "Cache",
    "CacheStatus",
    "Copy",
    "Cubin",
    "DeviceArray",
    "DeviceInfo",
    "Launch",
    "Launcher",
    "MemoryStats",
    "Program",
    "Replay",
    "Resources",
    "clear",
    "compile_cubin",
    "compile_ptx",
    "default_device",
    "device_target",
    "devices",
    "disassemble",
    "empty_cache",
    "errors_of",
    "known_archs",
    "memory_stats",
    "open_device",
    "raise_errors",
    "reset_peak",
    "run_cuda",
    "status",
    "synchronize",
    "why_unusable",
]
