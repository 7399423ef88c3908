"""Lazy tensors with gradients: array code from which uopc makes the kernels.

Reading order: base.py, core.py, promote.py, elementwise.py (and curves.py); engine.py for what
runs; gradient.py and backward.py; nn, optim.py and jit stand on top.
"""

from uopc.dtype import dtypes
from uopc.tensor import random
from uopc.tensor.backward import grad
from uopc.tensor.core import Tensor
from uopc.tensor.create import (
    arange,
    empty,
    empty_like,
    eye,
    from_numpy,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from uopc.tensor.elementwise import maximum, minimum, where
from uopc.tensor.engine import explain, realize
from uopc.tensor.gradcheck import gradcheck, gradgradcheck
from uopc.tensor.memory import empty_cache, memory_stats, reset_peak, synchronize
from uopc.tensor.mode import enable_grad, grad_enabled, no_grad
from uopc.tensor.movement import broadcast_tensors, cat, concat, stack
from uopc.tensor.promote import result_type
from uopc.tensor.random import manual_seed, rand, randint, randn
from uopc.tensor.storage import default_device, set_default_device

from uopc.tensor import nn, optim  # isort: skip  (they stand on all of the above)
from uopc.tensor.capture import jit  # isort: skip

__all__ = [
    "Tensor",
    "arange",
    "broadcast_tensors",
    "cat",
    "concat",
    "default_device",
    "dtypes",
    "empty",
    "empty_cache",
    "empty_like",
    "enable_grad",
    "explain",
    "eye",
    "from_numpy",
    "full",
    "full_like",
    "grad",
    "grad_enabled",
    "gradcheck",
    "gradgradcheck",
    "jit",
    "linspace",
    "manual_seed",
    "maximum",
    "memory_stats",
    "minimum",
    "nn",
    "no_grad",
    "ones",
    "ones_like",
    "optim",
    "rand",
    "randint",
    "randn",
    "random",
    "realize",
    "reset_peak",
    "result_type",
    "set_default_device",
    "stack",
    "synchronize",
    "where",
    "zeros",
    "zeros_like",
]
