"""What is heard while a function runs: first in a rehearsal, then for the record.

The function runs as ever; its launches are noted with their memories.  Which tensors it closes over
follows from the memories that its launches read and write, not from what Python does: every tensor
that lived before the call and whose memory is touched is one.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from uopc.errors import JitError
from uopc.runtime.buffer import Buffer
from uopc.runtime.executor import Launcher
from uopc.runtime.graph import Copy, Launch, Work
from uopc.schedule.normalise import reachable
from uopc.tensor import storage
from uopc.tensor.base import Base, live
from uopc.tensor.engine import realize
from uopc.uop.node import UOp, here, toposort
from uopc.uop.ops import Ops

_VIEWS = frozenset((Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.DETACH))


def home(u: UOp) -> UOp | None:
    """The BUFFER whose elements a value shows, as they are or as a view; None: another value."""
    while (found := storage.located(u)) is None:
        if u.op not in _VIEWS:
            return None
        u = u.src[0]
    return found


class Rehearsal:
    """The first call: it runs as ever, but a capture's rules hold, so that a mistake shows now.

    name: of the function, for errors.
    """

    def __init__(self, name: str) -> None:
        self.name, self._thread = name, threading.get_ident()
        self.changed: dict[int, Base] = {}
        self.constants: list[tuple[Any, ...]] = []

    @property
    def mine(self) -> bool:
        """Is it the function's own thread?  What others do meanwhile is not of the function."""
        return threading.get_ident() == self._thread

    def scheduling(self, roots: Sequence[UOp]) -> None:
        """A rehearsal does not ask what is computed."""

    def launched(self, launcher: Launcher, buffers: list[Buffer]) -> None:
        launcher(buffers)

    def versioned(self, tensor: Base) -> None:
        if self.mine:
            self.changed[id(tensor)] = tensor

    def reading(self, what: str) -> None:
        if self.mine:
            raise JitError(
                f"{self.name} reads a value: {what} at {here()}. A replay runs no Python, so nothing "
                "could depend on it. Return the tensor, and read it outside."
            )

    def constant(self, array: Any) -> None:
        if self.mine:
            digest = hashlib.blake2b(array.tobytes(), digest_size=16).digest()
            self.constants.append((array.shape, array.dtype, digest))

    def depends(self, holder: object, attribute: str) -> None:
        """A rehearsal is for one call: it may depend on anything."""


@dataclass(eq=False)
class Seen:
    """A tensor that lived when the capture began.

    value: its graph then; node, memory: where its elements were, None where it was not computed;
    owner: the leaf whose gradient it was; had_gradient: whether it had one itself.
    """

    tensor: weakref.ref[Base]
    value: UOp
    node: UOp | None
    memory: Buffer | None
    owner: weakref.ref[Base] | None
    gradient: int | None


@dataclass(frozen=True)
class Guard:
    """An attribute that decided what was computed, and its value then."""

    holder: weakref.ref[Any]
    attribute: str
    value: Any

    def holds(self) -> bool:
        holder = self.holder()
        return holder is not None and getattr(holder, self.attribute) == self.value


class Recorder(Rehearsal):
    """The call that is recorded.

    rehearsed: the constants that the rehearsal heard of.

    Attributes: work, launches in order; seen, what lived before, by id; fixed, memories whose values
    may have gone into the kernels by way of a graph from before the call.
    """

    def __init__(self, name: str, rehearsed: Sequence[tuple[Any, ...]]) -> None:
        super().__init__(name)
        self.work: list[Work] = []
        self.guards: list[Guard] = []
        self.fixed: set[UOp] = set()
        self._rehearsed, self._aside = rehearsed, False
        self.seen = {id(t): _seen(t) for t in list(live)}
        for found in list(self.seen.values()):
            leaf = found.tensor()
            if leaf is not None and leaf.grad is not None and id(leaf.grad) in self.seen:
                self.seen[id(leaf.grad)].owner = found.tensor
        self._lazy = {s.value for s in self.seen.values() if s.node is None}
        self._first_slot = storage.next_slot()

    def of(self, tensor: Base) -> Seen | None:
        """What is known of a tensor from before the call; None of one that was made in it."""
        found = self.seen.get(id(tensor))
        return found if found is not None and found.tensor() is tensor else None

    def scheduling(self, roots: Sequence[UOp]) -> None:
        """Note graphs from before the call among what is computed.

        The call may have made the same graph anew from the same tensors: equal graphs are one node.
        Nobody can tell, so such a capture is good while the memories below stay what they are.
        """
        if not self.mine or self._aside:
            return
        known = storage.becomes.get
        for u in reachable(roots, known):
            memory = known(u)
            old = memory is not None and _slot(memory) < self._first_slot
            if old or u in self._lazy:
                self.fixed.update(x for x in toposort(u) if x.op is Ops.BUFFER)

    def launched(self, launcher: Launcher, buffers: list[Buffer]) -> None:
        if not self.mine or self._aside:
            launcher(buffers)
        else:
            self.do(Launch(launcher, buffers))

    def do(self, work: Work) -> None:
        """Do it now, and in each replay."""
        work()
        self.work.append(work)

    def versioned(self, tensor: Base) -> None:
        if not self.mine:
            return
        super().versioned(tensor)
        found = self.of(tensor)
        if found is not None and found.node is None:
            with self._unheard():
                realize(tensor)
            self.seen[id(tensor)] = _seen(tensor)

    def constant(self, array: Any) -> None:
        if not self.mine:
            return
        super().constant(array)
        n = len(self.constants) - 1
        if n < len(self._rehearsed):
            before, now = self._rehearsed[n], self.constants[n]
            if before[:2] == now[:2] and before[2] != now[2]:
                raise JitError(
                    f"{self.name} makes a tensor at {here()} of data that differs from call to "
                    "call. A replay would use the data of the capture. Make the tensor outside and "
                    "pass it."
                )

    def depends(self, holder: object, attribute: str) -> None:
        if self.mine:
            self.guards.append(Guard(weakref.ref(holder), attribute, getattr(holder, attribute)))

    def touched(self) -> set[int]:
        """ids of the memories that the work reads or writes."""
        return {id(b) for w in self.work for b in _buffers(w)}

    def written(self) -> set[int]:
        """ids of the memories that the work writes."""
        return {id(b) for w in self.work for b in _written(w)}

    @contextmanager
    def _unheard(self) -> Iterator[None]:
        before, self._aside = self._aside, True
        try:
            yield
        finally:
            self._aside = before


def _seen(tensor: Base) -> Seen:
    node = home(tensor._u)
    memory = None if node is None else storage.memory(node)
    gradient = None if tensor.grad is None else id(tensor.grad)
    return Seen(weakref.ref(tensor), tensor._u, node, memory, None, gradient)


def _slot(value: UOp) -> int:
    held = home(value)
    return -1 if held is None else int(held.arg.slot)


def _buffers(work: Work) -> Iterable[Buffer]:
    if isinstance(work, Copy):
        return (work.to, work.source)
    return [work.buffers[slot] for slot in work.launcher.slots]


def _written(work: Work) -> Iterable[Buffer]:
    if isinstance(work, Copy):
        return (work.to,)
    return [work.buffers[p.slot] for p in work.launcher.source.params if p.written]
