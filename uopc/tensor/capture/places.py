"""The fixed memories of captures: what launches read and write, and what that must not change.

To the rest of the program values do not change: whoever holds a BUFFER node holds its contents.  A
replay writes the same memories each time.  So before it does, each value in them that somebody else
still holds moves to a memory of its own.  Whether somebody does is a matter of counting: a fresh
node has the references that are ours, and any other count means there is somebody.

A tensor that functions close over has one Place, whichever captures use it; arguments and results
are each capture's own.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from sys import getrefcount
from weakref import WeakSet, WeakValueDictionary

from uopc.runtime.buffer import Buffer
from uopc.tensor import storage
from uopc.tensor.backward import remember
from uopc.tensor.base import Base, fresh, memory_of
from uopc.tensor.core import Tensor
from uopc.tensor.engine import realize
from uopc.uop.node import Shape, UOp

Arguments = Sequence[Tensor]


class StaleError(Exception):
    """A capture does not fit what it is called with any more: capture again."""


@dataclass(eq=False)
class User:
    """A tensor whose value a place has to have.

    argument: the tensor is this argument of a call; else `tensor` is it, or with `gradient` the
    leaf whose gradient is it.
    value: its graph while the place has its value.
    """

    shape: Shape
    value: UOp
    argument: int | None = None
    tensor: weakref.ref[Base] | None = None
    gradient: bool = False

    @property
    def who(self) -> tuple[int | None, int, bool]:
        """What equal users share."""
        return self.argument, id(None if self.tensor is None else self.tensor()), self.gradient

    @property
    def gone(self) -> bool:
        """Is there no such tensor any more?"""
        return self.tensor is not None and self.tensor() is None

    def find(self, arguments: Arguments) -> Base | None:
        """The tensor; None where it is gone."""
        if self.tensor is None:
            assert self.argument is not None
            return arguments[self.argument]
        found = self.tensor()
        return found.grad if found is not None and self.gradient else found


@dataclass(eq=False)
class Place:
    """A memory that launches read.

    node: the BUFFER that stands for its contents, None where they are a copy of its users' value;
    shape: the node's; written: launches write it.
    """

    memory: Buffer
    shape: Shape
    node: UOp | None
    users: list[User] = field(default_factory=list)
    written: bool = False
    counts: tuple[int, ...] = ()

    def join(self, users: Sequence[User]) -> None:
        """These tensors have its value now; it is theirs too from now on."""
        new = {u.who for u in users}
        others = [u for u in self.users if u.who not in new]
        self.users = [*others, *users]

    def current(self, arguments: Arguments) -> bool:
        """Has it the value of its users?  (A gradient is another tensor after each call.)"""
        for user in self.users:
            found = arguments[user.argument or 0] if user.tensor is None else user.tensor()
            if found is None or found._u is not user.value or user.gradient:
                return False
        return True

    def take(self, arguments: Arguments) -> None:
        """Bring the value that its users have now.

        Raises StaleError where all are gone, or they have different values.
        """
        self.users = [u for u in self.users if not u.gone]
        found = [t for u in self.users if (t := u.find(arguments)) is not None]
        if not found or any(t.device != self.memory.device for t in found):
            raise StaleError
        if any(storage.located(t._u) is None for t in found):
            realize(*found)
            for tensor in found:
                give_memory(tensor)
        nodes = {storage.located(t._u) for t in found}
        node = nodes.pop()
        if nodes or node is None:
            raise StaleError
        if node is not self.node:
            source = storage.memory(node)
            self.release()
            source.copy_to(self.memory)
        if self.written:
            self.renew(arguments)
            return
        for user in self.users:
            held = user.find(arguments)
            if held is not None:
                user.value = held._u

    def adopt(self, arguments: Arguments) -> None:
        """Let a new node stand for its contents, and its users for that node."""
        self.node = node = _node(self.memory, self.shape)
        for user in self.users:
            user.value = node.reshape(user.shape)
            tensor = user.find(arguments)
            if tensor is not None:
                rename(tensor, user.value)
        del node
        self.counts = self._references()

    def release(self) -> None:
        """Its contents go: a copy for whoever else holds them."""
        if self.node is not None:
            old = weakref.ref(self.node)
            self.node = None
            for user in self.users:
                user.value = _NOTHING
            _keep(old, self.memory)

    def spare(self, arguments: Arguments) -> None:
        """Its contents are about to change for its users: a copy for whoever else holds them."""
        if self._references() != self.counts:
            self.renew(arguments)

    def renew(self, arguments: Arguments) -> None:
        """A new node for its users, a copy for whoever else holds the old one."""
        old = None if self.node is None else weakref.ref(self.node)
        self.adopt(arguments)
        if old is not None:
            _keep(old, self.memory)

    def _references(self) -> tuple[int, ...]:
        users = self.users
        if len(users) == 1:
            return getrefcount(self.node), getrefcount(users[0].value)
        return getrefcount(self.node), *[getrefcount(user.value) for user in users]


@dataclass(eq=False)
class Face:
    """A BUFFER that stands for a result, and the result's graph.  memory: its own copy, once it had
    to make room."""

    node: UOp
    value: UOp
    memory: Buffer | None = None
    counts: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, memory: Buffer, shape: Shape) -> Face:
        """A new one, for what is in a memory."""
        node = _node(memory, shape or (1,))
        made = cls(node, node.reshape(shape))
        del node
        made.counts = made._references()
        return made

    @property
    def held(self) -> bool:
        """Does somebody hold what it stands for?"""
        return self._references() != self.counts

    def _references(self) -> tuple[int, int]:
        return getrefcount(self.node), getrefcount(self.value)


@dataclass(eq=False)
class Output:
    """The memory of a result.  face: of the newest; others: those of earlier results, to be used
    again once nobody holds them: a loop that keeps its last loss needs two."""

    memory: Buffer
    shape: Shape
    face: Face
    others: list[Face] = field(default_factory=list)

    @classmethod
    def of(cls, memory: Buffer, shape: Shape) -> Output:
        """The output with a memory of this shape."""
        made = cls(memory, shape, Face.of(memory, shape))
        outputs.add(made)
        storage.pinned.add(memory)
        return made

    @property
    def node(self) -> UOp:
        """The BUFFER of the newest result."""
        return self.face.node

    def tensor(self) -> Tensor:
        """The result."""
        return fresh(Tensor, self.face.value, self.memory.device)

    def spare(self) -> None:
        """A copy for whoever holds the last result."""
        if self.face.held:
            self._keep(self.face)
            self.face = self._free()

    def _keep(self, face: Face) -> None:
        if face.memory is None:
            memory = self.memory
            face.memory = Buffer(memory.device, memory.dtype, memory.size)
            storage.pinned.add(face.memory)
        self.memory.copy_to(face.memory)
        storage.put(face.node, face.memory)
        self.others.append(face)
        if len(self.others) > _FACES_MAX:
            self._forget(self.others.pop(0))

    def part(self) -> None:
        """Earlier results keep what they have, and it is no longer this output's."""
        self.spare()
        while self.others:
            self._forget(self.others.pop())

    def _forget(self, face: Face) -> None:
        if face.memory is not None:
            storage.pinned.discard(face.memory)

    def _free(self) -> Face:
        """A face that nobody holds, which stands for the memory from now on."""
        for n, face in enumerate(self.others):
            if not face.held:
                del self.others[n]
                storage.put(face.node, self.memory)
                return face
        return Face.of(self.memory, self.shape)


_FACES_MAX = 4

#: places of tensors that functions close over, by the id of their memory
closed: WeakValueDictionary[int, Place] = WeakValueDictionary()
#: of every capture, its own: places of arguments and gradients, and outputs
own: WeakSet[Place] = WeakSet()
outputs: WeakSet[Output] = WeakSet()
_NOTHING = UOp.const(False)


@contextmanager
def free_to_change() -> Iterator[None]:
    """Inside, the tensors that functions close over may be updated in their places."""
    free = [p.memory for p in closed.values()]
    for memory in free:
        storage.pinned.discard(memory)
    try:
        yield
    finally:
        for memory in free:
            storage.pinned.add(memory)


def part_with_others() -> None:
    """Let no tensor live in what captures overwrite, other than those that they close over."""
    for place in list(own):
        place.release()
    for output in list(outputs):
        output.part()


def keep_others(memories: set[int], ours: set[UOp]) -> None:
    """Give the values in these memories (ids) memories of their own, unless the node is ours."""
    for node, memory in storage.held():
        if id(memory) in memories and node not in ours:
            storage.put(node, copy_of(memory))


def give_memory(tensor: Base) -> None:
    """A computed tensor that is a view gets its elements in order, in a memory of its own."""
    if storage.located(tensor._u) is None:
        held = memory_of(storage.place(tensor.device, tensor.dtype, tensor.shape))
        assert held is not None
        new = held.assign(tensor._u.reshape(held.shape)).reshape(tensor.shape)
        copy = fresh(Tensor, new, tensor.device)
        realize(copy)
        rename(tensor, copy._u)


def rename(tensor: Base, value: UOp) -> None:
    """Let another graph of the same value be the tensor's.  What it was computed from is lost: a
    tensor that is no leaf requires no gradient any more."""
    leaf = tensor.requires_grad and tensor.is_leaf  # type: ignore[attr-defined]  # of Tensor
    tensor._u, tensor._needs = value, leaf
    if leaf:
        remember(tensor)


def copy_of(memory: Buffer) -> Buffer:
    """A new memory with the same contents."""
    made = Buffer(memory.device, memory.dtype, memory.size)
    memory.copy_to(made)
    return made


def _node(memory: Buffer, shape: Shape) -> UOp:
    """A new BUFFER over a memory."""
    node = storage.new_buffer(memory.device, memory.dtype, shape)
    storage.put(node, memory)
    return node


def _keep(old: weakref.ref[UOp], memory: Buffer) -> None:
    """Give what stood for these contents a memory of its own, if anybody still holds it."""
    node = old()
    if node is not None:
        storage.put(node, copy_of(memory))
