"""Kernels written by hand in the loop IR (stage LOOPS), to read and to start from.

One small kernel for each family of ops, and `EXAMPLES`: all of them by name, each with arrays and
what it makes of them.
"""

from uopc.examples import blocks, bulk, copies, products, tensor_cores, warps, wgmma
from uopc.examples.parts import Example
from uopc.examples.products import smem_gemm_ir

EXAMPLES: dict[str, Example] = {
    **warps.EXAMPLES,
    **blocks.EXAMPLES,
    **copies.EXAMPLES,
    **products.EXAMPLES,
    **tensor_cores.EXAMPLES,
    **bulk.EXAMPLES,
    **wgmma.EXAMPLES,
}

__all__ = ["EXAMPLES", "Example", "smem_gemm_ir"]
