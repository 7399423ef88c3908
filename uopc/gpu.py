"""The GPU chapter's names: a body to a GPU kernel, its text, its emulation.  Re-exports only."""

from uopc.examples import smem_gemm_ir
from uopc.pipeline import emulate, gpu_lower, gpu_opt_choice, launch_dims, match_gemm, render_cuda
from uopc.target import occupancy

__all__ = [
    "emulate",
    "gpu_lower",
    "gpu_opt_choice",
    "launch_dims",
    "match_gemm",
    "occupancy",
    "render_cuda",
    "smem_gemm_ir",
]
