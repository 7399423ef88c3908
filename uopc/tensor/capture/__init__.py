"""`jit`: a function of tensors is captured once for each kind of call and then replayed.

    @jit
    def step(images, labels):
        loss = nn.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        return loss

The first call of a kind (shapes, dtypes, devices, other arguments) runs as ever, and so does the
second, which is recorded; from the third on the same launches run again on the new values, without
Python for each of them, on cuda as one graph.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar, cast

from uopc.tensor import storage, watch
from uopc.tensor.capture.calls import Call, Closed, Key, call_of, changes, parts_of
from uopc.tensor.capture.places import StaleError
from uopc.tensor.capture.recorder import Rehearsal
from uopc.tensor.capture.recording import record, rehearse
from uopc.tensor.capture.replaying import Capture

P = ParamSpec("P")
R = TypeVar("R")
#: kinds of calls from this one on come with a warning, since each costs what a compilation costs
_WARN_FROM = 3
#: captures, and kinds of calls, that one function keeps; the oldest goes first
_KEPT, _KINDS_KEPT = 16, 64


class JitWarning(UserWarning):
    """A function is captured again and again."""


class Jit(Generic[P, R]):
    """What `jit` makes of a function.  captures: how often it has been captured."""

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._closed = function, Closed(function)
        self._name = getattr(function, "__qualname__", repr(function))
        self._rehearsed: dict[Key, Rehearsal] = {}
        self._captures: dict[Key, list[Capture]] = {}
        self._last: dict[str, str] | None = None
        self._kinds = self.captures = 0

    def __get__(self, holder: Any, kind: type | None = None) -> Any:
        """A method of the holder."""
        return self if holder is None else MethodType(self, holder)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        with storage.turn:
            if watch.current is not None:  # inside of another capture: part of it
                return self._function(*args, **kwargs)
            call = call_of(args, kwargs, self._closed())
            captures = self._captures.get(call.key, [])
            for capture in captures:
                if capture.holds(call):
                    try:
                        return cast(R, capture(call))
                    except StaleError:
                        captures.remove(capture)
                        break
            return cast(R, self._as_ever(call))

    def forget(self) -> None:
        """Drop every capture, and the memory that they hold."""
        with storage.turn:
            self._rehearsed.clear()
            self._captures.clear()

    def _as_ever(self, call: Call) -> Any:
        """Run the function, and record it where it has run like this before."""
        rehearsal = self._rehearsed.get(call.key)
        if rehearsal is None:
            result, self._rehearsed[call.key] = rehearse(self._name, self._function, call)
            self._drop_oldest()
            self._new_kind(call)
            return result
        result, capture = record(self._name, self._function, call, rehearsal)
        if capture is not None:
            again = call.key in self._captures
            self._captures.setdefault(call.key, []).append(capture)
            self.captures += 1
            if again and not capture.fixed:  # those are soon replaced, at no fault of the caller
                self._new_kind(call)
            self._drop_oldest()
        return result

    def _new_kind(self, call: Call) -> None:
        """Note another kind of call; say what differs where there are many."""
        self._kinds += 1
        parts = parts_of(self._function, call)
        before, self._last = self._last, parts
        if self._kinds >= _WARN_FROM and before is not None:
            changed = changes(before, parts) or "something that it closes over"
            warnings.warn(
                f"{self._name} is captured anew, for kind {self._kinds} of calls: {changed} "
                "changed. What changes from call to call should be a tensor of one shape.",
                JitWarning,
                stacklevel=4,
            )

    def _drop_oldest(self) -> None:
        while sum(map(len, self._captures.values())) > _KEPT:
            oldest = next(iter(self._captures))
            self._captures[oldest][:1] = []
            if not self._captures[oldest]:
                del self._captures[oldest]
        while len(self._rehearsed) > _KINDS_KEPT:
            del self._rehearsed[next(iter(self._rehearsed))]


def jit(function: Callable[P, R]) -> Jit[P, R]:
    """Capture a function of tensors, and replay it.

    Parameters
    ----------
    function: takes and returns tensors, in lists, tuples or dicts if it likes; None may be
        returned too.  Other arguments are part of the capture: each value is captured anew.

    Tensors that it closes over (parameters, states of optimisers, counters of random numbers) are
    read as they are at each call, and updated.  Random numbers go on.  Results require no gradient:
    `backward` belongs inside, and the gradients that it leaves are set on replay too.  Values that
    the caller holds do not change with later calls.

    What is no tensor stays as it was when the function was captured: Python runs twice for each
    kind of call and then no more.  A name of the function that stands for another tensor than
    before is another kind of call; a tensor in an attribute, a list or a dict that is exchanged
    for another one is not noticed: give the old one its value with `assign`.  An attribute
    `training` that Dropout asked for is looked at again, and so is which parameters have gradients.

    Raises JitError where the function reads a value, makes tensors of data that differ from call to
    call, computes on two devices, or returns what is no tensor.  Warns (JitWarning) with what
    changed, from the third kind of calls on.
    """
    return Jit(function)


__all__ = ["Jit", "JitWarning", "jit"]
