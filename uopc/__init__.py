"""uopc: a kernel compiler to read.

Reading order: `uopc/uop/ops.py` and `node.py` (the IR), `uopc/pipeline.py` from top to bottom (the
passes), then one pass with its test, then `uopc/render/`.
"""

from uopc.dtype import dtypes
from uopc.opts import Opts
from uopc.pipeline import Kernel, compile  # noqa: A004  (the name that users know)
from uopc.target import Target

__version__ = "0.1.0"
__all__ = ["Kernel", "Opts", "Target", "compile", "dtypes"]
