"""Where the elements of tensors are: memories by BUFFER, and what realised nodes became.

Both tables are weak: a memory is given back when nothing refers to its BUFFER any more, and what a
node became is forgotten with the node.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from uopc.dtype import DType
from uopc.errors import UsageError
from uopc.runtime import device as devices
from uopc.runtime.buffer import Buffer
from uopc.uop.node import Shape, UOp, buffer, prod
from uopc.uop.ops import Ops

if TYPE_CHECKING:
    from uopc.tensor.base import Base

_SAME_ELEMENTS = frozenset((Ops.RESHAPE, Ops.DETACH, Ops.CURVE))
#: far above the numbers of a schedule's leaves: equal BUFFERs are one node, and schedules that are
#: kept would keep the memory of a tensor
_slots = itertools.count(1_000_000)
_lock = threading.Lock()

#: held by the thread that computes: what is overwritten in place follows from all tensors that
#: there are, so one thread at a time decides it and starts kernels.  Graphs grow without it.
turn = threading.RLock()
_memory: WeakKeyDictionary[UOp, Buffer] = WeakKeyDictionary()
_device: WeakKeyDictionary[UOp, str] = WeakKeyDictionary()
_lost: WeakSet[UOp] = WeakSet()

#: a realised node -> the value over the BUFFER that holds it, for graphs that still name the node
becomes: WeakKeyDictionary[UOp, UOp] = WeakKeyDictionary()
#: a BUFFER -> the nodes whose elements it holds, by `becomes`
_holds: WeakKeyDictionary[UOp, WeakSet[UOp]] = WeakKeyDictionary()

#: memories that captures read and write: an update outside of them is not made in place there
pinned: WeakSet[Buffer] = WeakSet()

#: by device, tensors whose newest version is realised with whatever is realised there: counters of
#: random numbers, whose chain of versions would grow with every draw
companions: dict[str, list[Base]] = {}


def new_buffer(device: str, dtype: DType, shape: Shape) -> UOp:
    """A BUFFER that no other tensor has, on a device; memory comes with its first use.

    shape () is not for BUFFERs of tensors: they are scalars passed by value.  See `place`.
    """
    u = buffer(next(_slots), dtype, shape)
    with _lock:
        _device[u] = device
    return u


def place(device: str, dtype: DType, shape: Shape) -> UOp:
    """A new memory for a value of this shape: a BUFFER, reshaped where the shape is ()."""
    return (
        new_buffer(device, dtype, shape) if shape else new_buffer(device, dtype, (1,)).reshape(())
    )


def next_slot() -> int:
    """A number above that of every BUFFER so far, and below that of every later one."""
    return next(_slots)


def held() -> list[tuple[UOp, Buffer]]:
    """Every BUFFER that has a memory, with it."""
    with _lock:
        return list(_memory.items())


def put(u: UOp, memory: Buffer) -> None:
    """Give a BUFFER its memory."""
    with _lock:
        _memory[u] = memory


def memory(u: UOp) -> Buffer:
    """The memory of a BUFFER that `new_buffer` made; made now where it has none."""
    found = _memory.get(u)
    if u in _lost:
        raise UsageError(
            f"a value of {u.dtype} {u.shape} is needed, but a later version has been written over "
            "its memory. What is computed with it, a backward pass too, must come before the "
            "update, or work on a .clone()."
        )
    if found is None:
        found = Buffer(_device[u], u.dtype, prod(u.shape))
        put(u, found)
    return found


def stand_in(value: UOp, root: UOp) -> None:
    """Let a value over a BUFFER stand for the node that computed it."""
    held = located(value)
    assert held is not None
    with _lock:
        becomes[root] = value
        _holds.setdefault(held, WeakSet()).add(root)


def forget(u: UOp) -> None:
    """Take the memory from a BUFFER: a later version has it.

    Nodes that it stood for are values to be computed again: an equal graph may be built any time.
    """
    with _lock:
        _memory.pop(u, None)
        _lost.add(u)
        for root in list(_holds.pop(u, ())):
            if root in becomes and located(becomes[root]) is u:
                del becomes[root]


def has_memory(u: UOp) -> bool:
    """Whether something was put into a BUFFER."""
    return u in _memory


def device_named(device: str | None) -> str:
    """The device of that name; None: the default.

    Raises UsageError for an unknown name, DeviceError where the default cannot run.
    """
    if device is None:
        return default_device()
    return devices.device_name(device)


_default: str | None = None


def default_device() -> str:
    """Where tensors are made: what `set_default_device` or UOPC_DEVICE says, else cuda where it is
    usable, else emulated."""
    global _default
    if _default is None:
        _default = devices.default_device()
    return _default


def set_default_device(device: str | None) -> None:
    """Make tensors there from now on; None: as the environment says.

    Raises UsageError for an unknown name.
    """
    global _default
    _default = None if device is None else device_named(device)


@contextmanager
def making_on(device: str | None) -> Iterator[None]:
    """Make tensors there while the context is open; None: wherever they are made.

    Raises UsageError for an unknown name.
    """
    global _default
    before = _default
    if device is not None:
        set_default_device(device)
    try:
        yield
    finally:
        _default = before


def located(u: UOp) -> UOp | None:
    """The BUFFER that holds a value's elements in order; None where it is not computed yet."""
    while u.op is not Ops.BUFFER:
        known = becomes.get(u)
        if known is not None:
            u = known
        elif u.op in _SAME_ELEMENTS:
            u = u.src[0]
        else:
            return None
    return u
