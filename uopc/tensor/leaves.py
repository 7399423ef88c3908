"""Leaves with a memory of their own: zeros, and a move in place.

A tensor that moves stays the same object: what holds it, a module or an optimiser, goes on with it.
"""

from __future__ import annotations

import numpy as np

from uopc.dtype import DType
from uopc.runtime.buffer import Buffer
from uopc.tensor import storage, watch
from uopc.tensor.backward import remember
from uopc.tensor.base import fresh, memory_of
from uopc.tensor.core import Tensor
from uopc.uop.node import Shape, prod


def zeros(shape: Shape, dtype: DType, device: str) -> Tensor:
    """Zeros that are memory, not a constant: the first version of something that changes."""
    place = storage.place(device, dtype, shape)
    held = memory_of(place)
    assert held is not None
    storage.put(held, memory := Buffer(device, dtype, prod(held.shape)).zero())
    if watch.current is not None:
        watch.current.constant(np.zeros(shape, dtype.numpy), memory)
    return fresh(Tensor, place, device)


def move(tensor: Tensor, device: str) -> None:
    """Move a leaf and its gradient to a device, where they are not there already.

    Raises DeviceError where the device is missing: then nothing has moved.
    """
    moved = tensor.detach().to(device)
    gradient = None if tensor.grad is None else tensor.grad.to(device)
    if tensor.device != device:
        tensor._u, tensor.device = moved._u, device
        if tensor.requires_grad:
            remember(tensor)
    tensor.grad = gradient
