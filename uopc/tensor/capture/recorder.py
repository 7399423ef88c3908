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
from uopc.runtime.executor import Arguments, Launcher
from uopc.runtime.graph import Copy, Launch, Work
from uopc.schedule.normalise import reachable
from uopc.tensor import storage
from uopc.tensor.base import Base, everyone
from uopc.tensor.engine import base_of, realize
from uopc.uop.node import UOp, here, toposort
from uopc.uop.ops import Ops


def home(u: UOp) -> UOp | None:
    """The BUFFER whose elements a value shows, as they are or as a view; None: another value."""
    return storage.located(base_of(u))


class Rehearsal:
    """The first call: it runs as ever, but a capture's rules hold, so that a mistake shows now.

    name: of the function, for errors.
    """

    def __init__(self, name: str) -> None:
        self.name, self._thread = name, threading.get_ident()
        self._changed: dict[int, weakref.ref[Base]] = {}
        self.constants: list[tuple[Any, ...]] = []

    @property
    def mine(self) -> bool:
        """Is it the function's own thread?  What others do meanwhile is not of the function."""
        return threading.get_ident() == self._thread

    def scheduling(self, roots: Sequence[UOp]) -> None:
        """A rehearsal does not ask what is computed."""

    def launched(
        self, launcher: Launcher, buffers: Arguments, touched: list[Buffer], written: list[Buffer]
    ) -> None:
        """A rehearsal keeps no record."""

    def versioned(self, tensor: Base) -> None:
        if self.mine:
            self._changed[id(tensor)] = weakref.ref(tensor)

    def still_changed(self) -> list[Base]:
        """The tensors that got new values, as far as they are still there."""
        return [t for r in self._changed.values() if (t := r()) is not None]

    def reading(self, what: str) -> None:
        if self.mine:
            raise JitError(
                f"{self.name} reads a value: {what} at {here()}. A replay runs no Python, so "
                "nothing could depend on it. Return the tensor, and read it outside."
            )

    def constant(self, array: Any, memory: Buffer) -> None:
        if self.mine:
            digest = hashlib.blake2b(array.tobytes(), digest_size=16).digest()
            self.constants.append((array.shape, array.dtype, digest))

    def depends(self, holder: object, attribute: str) -> None:
        """A rehearsal is for one call: it may depend on anything."""


@dataclass(eq=False)
class Seen:
    """A tensor that lived when the capture began.

    value: its graph then; node, memory: where its elements were, None where it was not computed;
    gradient: its own, None where it had none; owner: the leaf whose gradient it was.
    """

    tensor: weakref.ref[Base]
    value: UOp
    node: UOp | None
    memory: Buffer | None
    gradient: weakref.ref[Base] | None
    owner: weakref.ref[Base] | None = None

    @property
    def had_gradient(self) -> bool:
        return self.gradient is not None

    def has_new_gradient(self, tensor: Base) -> bool:
        """Has it another gradient than before the call, or none any more?"""
        if tensor.grad is None or self.gradient is None:
            return tensor.grad is not None or self.gradient is not None
        return tensor.grad is not self.gradient()


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

    Attributes: work, launches in order; touched, written, the memories that they read or write and
    those that they write, by id; seen, what lived before, by id; met, graphs from before the
    call among what was computed; fixed, the memories below them.
    """

    def __init__(self, name: str, rehearsed: Sequence[tuple[Any, ...]]) -> None:
        super().__init__(name)
        self.work: list[Work] = []
        self.touched: dict[int, Buffer] = {}
        self.written: dict[int, Buffer] = {}
        self.guards: list[Guard] = []
        self.met: set[UOp] = set()
        self.fixed: set[UOp] = set()
        self._rehearsed, self._aside = rehearsed, False
        self.seen = {id(t): _seen(t) for t in everyone()}
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
                self.met.add(u)
                self.fixed.update(x for x in toposort(u) if x.op is Ops.BUFFER)
                if (held := home(u)) is not None:  # read as the graph's value, whoever's it becomes
                    self.fixed.add(held)

    def launched(
        self, launcher: Launcher, buffers: Arguments, touched: list[Buffer], written: list[Buffer]
    ) -> None:
        if self.mine and not self._aside:
            self._note(Launch(launcher, buffers), touched, written)

    def copy(self, to: Buffer, source: Buffer) -> None:
        """Copy now, and in each replay."""
        work = Copy(to, source)
        work()
        self._note(work, [to, source], [to])

    def _note(self, work: Work, touched: Iterable[Buffer], written: Iterable[Buffer]) -> None:
        self.work.append(work)
        self.touched.update({id(b): b for b in touched})
        self.written.update({id(b): b for b in written})

    def versioned(self, tensor: Base) -> None:
        if not self.mine:
            return
        super().versioned(tensor)
        found = self.of(tensor)
        if found is not None and found.node is None:
            with self._unheard():
                realize(tensor)
            self.seen[id(tensor)] = _seen(tensor)

    def constant(self, array: Any, memory: Buffer) -> None:
        if not self.mine:
            return
        super().constant(array, memory)
        storage.pinned.add(memory)  # each replay starts from it
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

    def touch(self, node: UOp | None) -> None:
        """The memory of this BUFFER is read by what is left of the call."""
        if node is not None:
            memory = storage.memory(node)
            self.touched[id(memory)] = memory

    def forget(self) -> None:
        """Drop what was known of tensors from before the call: nothing here holds their values."""
        self.seen.clear()
        self.met.clear()
        self.fixed.clear()
        self._lazy.clear()

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
    gradient = None if tensor.grad is None else weakref.ref(tensor.grad)
    return Seen(weakref.ref(tensor), tensor._u, node, memory, gradient)


def _slot(value: UOp) -> int:
    held = home(value)
    return -1 if held is None else int(held.arg.slot)
