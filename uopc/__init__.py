"""uopc: a kernel compiler to read.

Reading order: `uopc/uop/ops.py` and `node.py` (the IR), `uopc/pipeline.py` from top to bottom (the
passes), then one pass with its test, then `uopc/render/`.
"""

from typing import TYPE_CHECKING, Any

from uopc.dtype import dtypes
from uopc.opts import Opts
from uopc.target import Target

if TYPE_CHECKING:
    from uopc.pipeline import Kernel, compile

__version__ = "0.1.0"
__all__ = ["Kernel", "Opts", "Target", "compile", "dtypes"]


def __getattr__(name: str) -> Any:
    """`compile` and `Kernel` on first use: the IR alone imports in a moment."""
    if name in ("Kernel", "compile"):
        from uopc import pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module 'uopc' has no attribute {name!r}")
