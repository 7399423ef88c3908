"""Whether this machine can launch kernels, for tests and tools; importing it imports no CUDA."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1)
def why_no_gpu() -> str:
    """Exactly what a launch would lack here; "" where nothing is missing."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        return f"no usable GPU: {error}"
    try:
        status = driver.cuInit(0)[0]
    except RuntimeError as error:  # the driver's library is not installed
        return f"no usable GPU: {error}"
    if status != driver.CUresult.CUDA_SUCCESS:
        return f"no usable GPU: cuInit gave {status.name}"
    status, count = driver.cuDeviceGetCount()
    if status != driver.CUresult.CUDA_SUCCESS or count == 0:
        return f"no usable GPU: the driver counts {count} devices ({status.name})"
    return ""
