"""Run kernels: compile and cache them, check their arguments, launch them.

Reading order: cache.py, cpu.py, arrays.py, program.py for C; nvrtc.py, limits.py, cuda.py for CUDA;
device.py and timing.py stand on both.  cuda-python is imported at the first use of a GPU.
"""

from uopc.runtime.arrays import DeviceArray
from uopc.runtime.cache import Cache, CacheStatus, clear, status
from uopc.runtime.cuda import CUDA, device_target, open_device, run_cuda, why_unusable
from uopc.runtime.device import DeviceInfo, default_device, devices
from uopc.runtime.nvrtc import Cubin, compile_cubin, compile_ptx, known_archs
from uopc.runtime.program import Program
from uopc.runtime.ptxas import Resources
from uopc.runtime.sass import disassemble

__all__ = [
    "CUDA",
    "Cache",
    "CacheStatus",
    "Cubin",
    "DeviceArray",
    "DeviceInfo",
    "Program",
    "Resources",
    "clear",
    "compile_cubin",
    "compile_ptx",
    "default_device",
    "device_target",
    "devices",
    "disassemble",
    "known_archs",
    "open_device",
    "run_cuda",
    "status",
    "why_unusable",
]
