"""uopc: a kernel compiler to read.

Reading order: `uopc/uop/ops.py` and `node.py` (the IR), `uopc/pipeline.py` from top to bottom (the
passes), then one pass with its test, then `uopc/render/`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from uopc.dtype import dtypes
from uopc.kernel import Numerics
from uopc.opts import Opts
from uopc.target import Target

if TYPE_CHECKING:
    from uopc.checking import Verdict, check
    from uopc.pipeline import Kernel, compile
    from uopc.profiling import Profile, profile
    from uopc.reporting import predict, report
    from uopc.searching import search
    from uopc.tensor import Tensor
    from uopc.tracing import trace

__version__ = "0.1.0"
__all__ = [
    "Kernel",
    "Numerics",
    "Opts",
    "Profile",
    "Target",
    "Tensor",
    "Verdict",
    "check",
    "compile",
    "dtypes",
    "predict",
    "profile",
    "report",
    "search",
    "trace",
]
_LATER = {
    "Kernel": "pipeline",
    "compile": "pipeline",
    "Profile": "profiling",
    "profile": "profiling",
    "Verdict": "checking",
    "predict": "reporting",
    "report": "reporting",
    "check": "checking",
    "search": "searching",
    "trace": "tracing",
    "Tensor": "tensor",
}


def __getattr__(name: str) -> Any:
    """What compiles and runs on first use: the IR alone imports in a moment."""
    if name in _LATER:
        return getattr(import_module(f"uopc.{_LATER[name]}"), name)
    raise AttributeError(f"module 'uopc' has no attribute {name!r}")
