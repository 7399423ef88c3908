"""Small rendered kernels for the tests of the runtime."""

from __future__ import annotations

from uopc.dtype import DType, dtypes
from uopc.kernel import Dims, Launch, Param, Source
from uopc.target import target

AXPY_C = """
int axpy(void **args) {
  float *y = args[0]; const float *x = args[1]; const float a = *(float *)args[2];
  for (int i = 0; i < 100; i++) y[i] = a * x[i] + y[i];
  return 0;
}
"""
AXPY_CUDA = """
extern "C" __global__ void __launch_bounds__(32)
axpy(float* __restrict__ y, const float* __restrict__ x, float a) {
  int i = blockIdx.x * 32 + threadIdx.x;
  if (i < 100) y[i] = a * x[i] + y[i];
}
"""
AXPY_PARAMS = (
    Param(0, dtypes.f32, 100, written=True),
    Param(1, dtypes.f32, 100, written=False),
    Param(2, dtypes.f32, 1, written=False, scalar=True),
)


def c_source(
    text: str, name: str, params: tuple[Param, ...], language: str = "c", grid: Dims = (1, 1, 1)
) -> Source:
    """A Source in C."""
    launch = Launch(grid, (1, 1, 1))
    return Source(
        text, name=name, language=language, params=params, launch=launch, target=target("cpu")
    )


def cuda_source(
    text: str,
    name: str,
    params: tuple[Param, ...],
    grid: Dims,
    block: Dims,
    *,
    on: str = "sm_80",
    dynamic_shared_bytes: int = 0,
) -> Source:
    """A Source in CUDA."""
    return Source(
        text,
        name=name,
        language="cuda",
        params=params,
        launch=Launch(grid, block),
        shared_bytes=dynamic_shared_bytes,
        dynamic_shared_bytes=dynamic_shared_bytes,
        target=target(on),
    )


def axpy_c(language: str = "c") -> Source:
    """y += a * x over 100 floats."""
    return c_source(AXPY_C, "axpy", AXPY_PARAMS, language)


def axpy_cuda(on: str = "sm_80") -> Source:
    """The same in four blocks of 32 threads."""
    return cuda_source(AXPY_CUDA, "axpy", AXPY_PARAMS, (4, 1, 1), (32, 1, 1), on=on)


def copy_params(dtype: DType, n: int) -> tuple[Param, ...]:
    """One written and one read array."""
    return Param(0, dtype, n, written=True), Param(1, dtype, n, written=False)
