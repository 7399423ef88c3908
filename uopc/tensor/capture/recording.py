"""Run a function once more and make a capture of it.

The order matters at the end.  Results that lie in memories that tensors are read from get their own
first; then the tensors that changed stand for new nodes over the memories that they are read from;
then every other value in a memory that replays write moves away; and only then new versions that
were made elsewhere are copied to where the next replay reads them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from uopc.errors import JitError
from uopc.runtime.buffer import Buffer
from uopc.runtime.graph import Replay
from uopc.tensor import storage
from uopc.tensor.base import Base, everyone, fresh, memory_of
from uopc.tensor.capture import places
from uopc.tensor.capture.calls import Call, rebuilt, results_of
from uopc.tensor.capture.places import Output, Place, User
from uopc.tensor.capture.recorder import Recorder, Rehearsal, Seen, home
from uopc.tensor.capture.replaying import Capture, Gradient, Result
from uopc.tensor.core import Tensor
from uopc.tensor.engine import realize
from uopc.tensor.watch import listening
from uopc.uop.node import UOp
from uopc.uop.ops import Ops


def rehearse(name: str, function: Callable[..., Any], call: Call) -> tuple[Any, Rehearsal]:
    """Run the function without a record: (what it returned, what was heard).

    Raises JitError where it does what a replay cannot do.
    """
    _check_leaves(name, call)
    heard = Rehearsal(name)
    before = {id(t): weakref.ref(t) for t in everyone()}
    with listening(heard):
        result = function(*call.args, **call.kwargs)
        made = _detached(
            results_of(name, result), lambda t: (r := before.get(id(t))) is not None and r() is t
        )
        realize(*[t for t in made if t is not None], *heard.still_changed())
    return rebuilt(result, iter(made)), heard


def record(
    name: str, function: Callable[..., Any], call: Call, rehearsal: Rehearsal | None
) -> tuple[Any, Capture | None]:
    """Run the function and record it: (what it returned, its capture).

    The capture is None where another call would not go like this one: then the next may.
    Raises JitError where the function does what a replay cannot do.
    """
    _check_leaves(name, call)
    places.part_with_others()
    _own_memories(call.tensors)
    with places.free_to_change():
        recorder = Recorder(name, [] if rehearsal is None else rehearsal.constants)
        with listening(recorder):
            result = function(*call.args, **call.kwargs)
            left = _Left.of(name, recorder, call, result)
        del result
        return left.captured()


@dataclass(eq=False)
class _Part:
    """A tensor from before the call, which it touched.

    end: the memory with its value after the call.
    """

    seen: Seen
    user: User
    tensor: Base
    changed: bool
    end: Buffer | None


class _Left:
    """What a recorded call has left: results, gradients, tensors that changed."""

    def __init__(
        self, recorder: Recorder, call: Call, like: Any, results: list[Result | Tensor]
    ) -> None:
        self.recorder, self.call, self.like, self.results = recorder, call, like, results
        self.index = {id(t): n for n, t in reversed(list(enumerate(call.tensors)))}
        self.leaves = [
            (seen, tensor)
            for seen in recorder.seen.values()
            if (tensor := seen.tensor()) is not None and tensor.requires_grad
        ]

    @classmethod
    def of(cls, name: str, recorder: Recorder, call: Call, result: Any) -> _Left:
        """Compute what is left lazy; it belongs to the record."""
        leaves = results_of(name, result)
        like = rebuilt(result, iter([None] * len(leaves)))
        made = _detached(leaves, lambda t: recorder.of(t) is not None)
        left = cls(recorder, call, like, list(made))
        gradients = [t.grad for seen, t in left.leaves if seen.has_new_gradient(t)]
        new = [t for t in (*made, *gradients) if t is not None and not recorder.of(t)]
        recorder.scheduling([t._u for t in new])  # some may have been there before
        realize(*new, *recorder.still_changed())
        for t in recorder.still_changed():
            places.give_memory(t)
        for t in new:
            places.give_memory(t)
            recorder.touch(home(t._u))
        for seen in recorder.seen.values():
            tensor = seen.tensor()
            if tensor is not None and tensor._u is not seen.value:
                recorder.touch(home(tensor._u))
        return left

    def captured(self) -> tuple[Any, Capture | None]:
        """The results as the caller gets them, and the capture."""
        parts, fixed = self._parts()
        groups: dict[int, list[_Part]] = {}
        for part in parts:
            groups.setdefault(id(part.seen.memory), []).append(part)
        if fixed is None or not all(_agree(group) for group in groups.values()):
            return rebuilt(self.like, iter(self.results)), None
        self._check_devices()
        taken = {*groups, *[id(p.end) for p in parts]}
        results, gradients = self._outputs(taken)
        made = [self._place(group) for group in groups.values()]
        moved = [
            (place, end)
            for place, group in zip(made, groups.values(), strict=True)
            if group[0].changed and (end := group[0].end) is not None and end is not place.memory
        ]
        del parts, groups
        self.leaves.clear()
        self.recorder.forget()
        self._move(made, moved, [*results, *[g.output for g in gradients]])
        capture = Capture(
            Replay(self.recorder.work),
            list(self.recorder.touched.values()),
            made,
            fixed,
            self.recorder.guards,
            gradients,
            results,
            self.like,
        )
        return capture.first(self.call), capture

    # ---- tensors from before the call
    def _parts(self) -> tuple[list[_Part], list[User] | None]:
        """What the call touched, and what is baked in; None where a value that is has changed."""
        touched = self.recorder.touched
        parts: list[_Part] = []
        fixed: list[User] = []
        views: list[Base] = []
        for seen in self.recorder.seen.values():
            user, tensor = self._user(seen)
            if tensor is None:
                continue
            node = home(tensor._u)
            changed = seen.node is not None and node is not seen.node and not user.gradient
            if seen.node in self.recorder.fixed or seen.value in self.recorder.met:
                if changed:
                    return [], None
                fixed.append(user)
            elif seen.memory is None or not (changed or id(seen.memory) in touched):
                continue
            elif not changed and storage.located(seen.value) is None:
                if tensor.requires_grad:  # no leaf: its graph has to stay
                    fixed.append(user)
                else:
                    views.append(tensor)
            else:
                end = None if node is None else storage.memory(node)
                parts.append(_Part(seen, user, tensor, changed, end))
        if views:  # a new value would not fit where the old one is seen: the next call finds places
            for tensor in views:
                places.give_memory(tensor)
            return [], None
        return parts, fixed

    def _user(self, seen: Seen) -> tuple[User, Base | None]:
        """How a replay finds this tensor, and the tensor now."""
        tensor = seen.tensor()
        shape, value = seen.value.shape, seen.value if tensor is None else tensor._u
        owner = None if seen.owner is None else seen.owner()
        if tensor is not None and (at := self.index.get(id(tensor))) is not None:
            return User(shape, value, argument=at), tensor
        if owner is not None:
            user = User(shape, value, tensor=weakref.ref(owner), gradient=True)
            return user, fresh(Tensor, seen.value, owner.device) if tensor is None else tensor
        return User(shape, value, tensor=seen.tensor), tensor

    def _place(self, group: Sequence[_Part]) -> Place:
        """The place of these tensors."""
        seen, users = group[0].seen, [p.user for p in group]
        assert seen.memory is not None and seen.node is not None
        own = any(u.argument is not None or u.gradient for u in users)
        place = None if own else places.closed.get(id(seen.memory))
        if place is None:
            place = Place(seen.memory, seen.node.shape, seen.node)
            storage.pinned.add(seen.memory)
            if own:
                places.own.add(place)
            else:
                places.closed[id(seen.memory)] = place
        place.join(users)
        place.written = place.written or group[0].changed
        return place

    # ---- what replays give
    def _outputs(self, taken: set[int]) -> tuple[list[Result], list[Gradient]]:
        """Outputs for what was made in the call; taken: memories that are not results'."""
        written = self.recorder.written

        def output(t: Base) -> Output:
            held = storage.located(t._u)
            assert held is not None
            memory = storage.memory(held)
            if id(memory) in taken or id(memory) not in written:
                copy = Buffer(memory.device, memory.dtype, memory.size)
                self.recorder.copy(copy, memory)
                memory = copy
            taken.add(id(memory))
            return Output.of(memory, t.shape)

        results: list[Result] = []
        made: dict[int, Output] = {}
        for t in self.results:
            if not isinstance(t, Tensor):
                results.append(t)
            elif self.recorder.of(t) is not None:
                results.append(self.index.get(id(t), t))
            else:
                if id(t) not in made:
                    made[id(t)] = output(t)
                results.append(made[id(t)])
        self.results.clear()
        gradients = []
        for seen, leaf in self.leaves:
            user, _ = self._user(seen)
            new, given = seen.has_new_gradient(leaf), None
            if new:
                given = None if leaf.grad is None else output(leaf.grad)
                leaf.grad = None
            gradients.append(Gradient(user, seen.had_gradient, new, given))
        return results, gradients

    def _move(
        self,
        made: Sequence[Place],
        moved: Sequence[tuple[Place, Buffer]],
        outputs: Sequence[Any],
    ) -> None:
        """Let everything be where the next replay reads it, and nothing else where it writes."""
        arguments = self.call.tensors
        for place in made:
            if place.written:
                place.adopt(arguments)
        ours = {p.node for p in made if p.node is not None}
        ours |= {o.node for o in outputs if isinstance(o, Output)}
        targets = {id(p.memory) for p, _ in moved}
        places.keep_others(targets.union(self.recorder.written), ours)
        sources = [(p, self._aside(end) if id(end) in targets else end) for p, end in moved]
        for place, source in sources:
            self.recorder.copy(place.memory, source)

    def _aside(self, memory: Buffer) -> Buffer:
        """A copy of what is overwritten before it is read."""
        copy = Buffer(memory.device, memory.dtype, memory.size)
        self.recorder.copy(copy, memory)
        return copy

    def _check_devices(self) -> None:
        devices = sorted({w.device for w in self.recorder.work})
        if len(devices) > 1:
            raise JitError(
                f"{self.recorder.name} computes on {' and '.join(devices)}; a replay is of one "
                "device. Capture a function for each."
            )


def _agree(group: Sequence[_Part]) -> bool:
    """Have the tensors that share a memory still one value, and can they stand for a new node?"""
    if len({(p.changed, id(p.end)) for p in group}) > 1:
        return False
    return not group[0].changed or all(
        p.end is not None and storage.located(p.seen.value) is not None for p in group
    )


def _detached(
    results: Sequence[Tensor | None], before: Callable[[Tensor], bool]
) -> list[Tensor | None]:
    """What was made in the call, without its history; the same tensor stays the same tensor."""
    made: dict[int, Tensor] = {}
    for t in results:
        if t is not None and id(t) not in made:
            made[id(t)] = t if before(t) else t.detach()
    return [None if t is None else made[id(t)] for t in results]


# ---- memories
def _check_leaves(name: str, call: Call) -> None:
    for n, tensor in enumerate(call.tensors):
        if tensor.requires_grad and not tensor.is_leaf:
            raise JitError(
                f"{name}: tensor {n} among its arguments (shape {tensor.shape}) was computed from "
                "leaves that require gradients, and a replay cannot follow them. Compute it "
                "inside, or pass it detached."
            )


def _own_memories(tensors: Sequence[Tensor]) -> None:
    """Give each argument a memory that no other tensor shares, and compute updates that are due."""
    realize(*tensors, *[t for t in everyone() if _due(t)])
    for t in tensors:
        places.give_memory(t)
    holders: dict[UOp, set[int]] = {}
    for other in everyone():
        node = home(other._u)
        if node is not None:
            holders.setdefault(node, set()).add(id(other))
    for t in tensors:
        node = storage.located(t._u)
        assert node is not None
        memory = storage.memory(node)
        if len(holders[node]) > 1 or id(memory) in places.closed:
            holders[node].discard(id(t))
            own = storage.new_buffer(t.device, node.dtype, node.shape)
            storage.put(own, places.copy_of(memory))
            places.rename(t, own.reshape(t.shape))


def _due(t: Base) -> bool:
    """Is its newest version not computed yet?"""
    version = memory_of(t._u)
    return version is not None and version.op is Ops.ASSIGN and storage.located(version) is None
