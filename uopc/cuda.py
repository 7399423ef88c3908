"""The chapters' names: the GPU through the driver.  Re-exports only."""

from uopc.runtime.cuda import CUDA, run_cuda

__all__ = ["CUDA", "run_cuda"]
