"""A captured call: it brings values that are elsewhere into their places, replays the launches,
and hands out what they left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from uopc.runtime.buffer import Buffer
from uopc.runtime.graph import Replay
from uopc.tensor.capture.calls import Call, rebuilt
from uopc.tensor.capture.places import Arguments, Output, Place, StaleError, User
from uopc.tensor.capture.recorder import Guard
from uopc.tensor.core import Tensor

#: a result: what launches write, an argument by number, or a tensor that was there before
Result: TypeAlias = "Output | int | Tensor | None"


@dataclass(frozen=True, eq=False)
class Gradient:
    """What a call leaves as the gradient of a leaf.

    leaf: the tensor; had: whether it has a gradient before the call; changes: whether another one,
    or none, after it; output: that one.
    """

    leaf: User
    had: bool
    changes: bool
    output: Output | None

    def holds(self, arguments: Arguments) -> bool:
        """Is there a gradient where there was one?"""
        leaf = self.leaf.find(arguments)
        return leaf is None or (leaf.grad is not None) == self.had

    def clear(self, arguments: Arguments) -> None:
        """Drop the gradient that the call replaces."""
        leaf = self.leaf.find(arguments)
        if leaf is not None:
            leaf.grad = None

    def give(self, arguments: Arguments) -> None:
        """Set the gradient that the call made."""
        leaf = self.leaf.find(arguments)
        if leaf is not None and self.output is not None:
            leaf.grad = self.output.tensor()


@dataclass(eq=False)
class Capture:
    """A call that can be replayed on other values.

    memories: all that its launches touch, also by way of tables of addresses, kept alive; places:
    those of values from before the call; fixed: tensors whose values are baked in; guards,
    gradients: what decided how the function went; results, like: what it returned, and its
    structure.
    """

    replay: Replay
    memories: list[Buffer]
    places: list[Place]
    fixed: list[User]
    guards: list[Guard]
    gradients: list[Gradient]
    results: list[Result]
    like: Any

    def __post_init__(self) -> None:
        self._written = [p for p in self.places if p.written]
        self._changing = [g for g in self.gradients if g.changes]
        given = (*self.results, *[g.output for g in self.gradients])
        self._outputs = [r for r in given if isinstance(r, Output)]

    def holds(self, call: Call) -> bool:
        """Would the function do the same now?"""
        if not all(guard.holds() for guard in self.guards):
            return False
        return all(gradient.holds(call.tensors) for gradient in self.gradients)

    def __call__(self, call: Call) -> Any:
        """The results for these arguments.  Raises StaleError where it has to be captured again."""
        arguments = call.tensors
        for user in self.fixed:
            found = user.find(arguments)
            if found is not None and found._u is not user.value:
                raise StaleError
        for place in self.places:
            if not place.current(arguments):
                place.take(arguments)
        for gradient in self._changing:
            gradient.clear(arguments)
        for place in self._written:
            place.spare(arguments)
        for output in self._outputs:
            output.spare()
        self.replay()
        return self.first(call)

    def first(self, call: Call) -> Any:
        """What the launches have left, where they just ran: gradients, and the results."""
        for gradient in self._changing:
            gradient.give(call.tensors)
        return rebuilt(self.like, self._handed_out(call.tensors))

    def _handed_out(self, arguments: Arguments) -> Iterator[Any]:
        made: dict[int, Tensor] = {}
        for result in self.results:
            if isinstance(result, Output):
                if id(result) not in made:
                    made[id(result)] = result.tensor()
                yield made[id(result)]
            else:
                yield arguments[result] if isinstance(result, int) else result
