"""A captured call: what its launches read, the launches, and what they leave.

`record` runs the function once more and makes a `Capture` of what it launched; calling that brings
values that are elsewhere into their places, replays, and hands out the results.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from uopc.errors import JitError, UsageError
from uopc.runtime.buffer import Buffer
from uopc.runtime.graph import Copy, Replay
from uopc.tensor import storage
from uopc.tensor.base import Base, fresh, live
from uopc.tensor.core import Tensor
from uopc.tensor.engine import realize
from uopc.tensor.jit import places
from uopc.tensor.jit.calls import Call, rebuilt, results_of
from uopc.tensor.jit.places import Output, Place, Stale, User
from uopc.tensor.jit.recorder import Guard, Recorder, Rehearsal, Seen, home
from uopc.tensor.watch import listening
from uopc.uop.node import UOp

#: a result: what launches write, an argument by number, or a tensor that was there before
Result: TypeAlias = "Output | int | Tensor | None"


@dataclass(frozen=True, eq=False)
class Gradient:
    """What a call leaves as the gradient of a leaf.  had: whether the leaf has one before it."""

    leaf: weakref.ref[Base]
    had: bool
    changes: bool
    output: Output | None

    def holds(self) -> bool:
        leaf = self.leaf()
        return leaf is None or (leaf.grad is not None) == self.had

    def clear(self) -> None:
        """The gradient is one that the call replaces without reading it, or none."""
        leaf = self.leaf()
        if leaf is not None and self.changes:
            leaf.grad = None

    def give(self) -> None:
        leaf = self.leaf()
        if leaf is not None and self.output is not None:
            leaf.grad = self.output.tensor()


class Capture:
    """A call that can be replayed on other values.

    Attributes: replay, the launches; fixed, tensors whose value is baked in, with it.
    """

    def __init__(
        self,
        replay: Replay,
        all_places: Sequence[Place],
        fixed: Sequence[User],
        guards: Sequence[Guard],
        gradients: Sequence[Gradient],
        results: Sequence[Result],
        like: Any,
    ) -> None:
        self.replay, self._places, self._fixed = replay, list(all_places), list(fixed)
        self._written = [p for p in all_places if p.written]
        self._guards, self._gradients = list(guards), list(gradients)
        self._results, self._like = list(results), like
        left = [g.output for g in gradients]
        self._outputs = [r for r in (*results, *left) if isinstance(r, Output)]

    def holds(self) -> bool:
        """Would the function do the same now?"""
        return all(g.holds() for g in self._guards) and all(g.holds() for g in self._gradients)

    def __call__(self, call: Call) -> Any:
        """The results for these arguments.  Raises Stale where it has to be captured again."""
        arguments = call.tensors
        for user in self._fixed:
            found = user.find(arguments)
            if found is not None and found._u is not user.value:
                raise Stale
        for place in self._places:
            if not place.current(arguments):
                place.take(arguments)
        for gradient in self._gradients:
            gradient.clear()
        for place in self._written:
            place.spare(arguments)
        for output in self._outputs:
            output.spare()
        self.replay()
        for gradient in self._gradients:
            gradient.give()
        return rebuilt(self._like, self._handed_out(arguments))

    def _handed_out(self, arguments: Sequence[Tensor]) -> Iterator[Any]:
        for result in self._results:
            if isinstance(result, Output):
                yield result.tensor()
            else:
                yield arguments[result] if isinstance(result, int) else result


# ---- a call as ever
def rehearse(name: str, function: Callable[..., Any], call: Call) -> tuple[Any, Rehearsal]:
    """Run the function without a record: (what it returned, what was heard)."""
    for n, tensor in enumerate(call.tensors):
        _check_leaf(name, tensor, f"tensor {n} of its arguments")
    heard = Rehearsal(name)
    before = {id(t): weakref.ref(t) for t in live}
    with listening(heard):
        result = function(*call.args, **call.kwargs)
        leaves = results_of(name, result)
        made = [
            t if t is None or (r := before.get(id(t))) and r() is t else t.detach() for t in leaves
        ]
        realize(*[t for t in made if t is not None], *heard.still_changed())
    return rebuilt(result, iter(made)), heard


# ---- a call for the record
def record(
    name: str, function: Callable[..., Any], call: Call, rehearsed: Sequence[Any]
) -> tuple[Any, Capture | None]:
    """Run the function: (what it returned, its capture).

    None where this call was not like those to come: a graph from before it may have gone in.
    Raises JitError where it does what a replay cannot do.
    """
    places.part_with_others()
    _own(name, call.tensors)
    recorder = Recorder(name, rehearsed)
    with listening(recorder):
        result = function(*call.args, **call.kwargs)
        leaves = results_of(name, result)
        made = [None if t is None or recorder.of(t) else _plain(t.detach()) for t in leaves]
        left = _gradients_left(recorder)
        realize(
            *[t for t in made if t is not None],
            *[g for _, g in left if g is not None],
            *recorder.still_changed(),
        )
        for t in made:
            ...
    raise NotImplementedError
