"""The arguments and results of a captured function: which tensors are in them, and what else.

Lists, tuples and dicts are looked into.  Everything that is no tensor is part of the key of a
capture by its value: it is baked into the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, TypeAlias

from uopc.errors import JitError
from uopc.tensor import storage
from uopc.tensor.core import Tensor
from uopc.tensor.mode import grad_enabled

Key: TypeAlias = Hashable


@dataclass(frozen=True)
class Call:
    """One call.  tensors: those in the arguments, in order; key: what a capture is good for."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    key: Key


def call_of(args: tuple[Any, ...], kwargs: Mapping[str, Any], closed: tuple[int, ...] = ()) -> Call:
    """The call with its key: shapes, dtypes, devices, which tensors are the same, other values.

    closed: what `Closed` found.
    Raises JitError for an argument that has no hash: nobody can tell whether it changed.
    """
    tensors: list[Tensor] = []
    parts = [_part(value, tensors) for value in args]
    parts += [(name, _part(kwargs[name], tensors)) for name in sorted(kwargs)]
    first: dict[int, int] = {}
    same = tuple([first.setdefault(id(t), n) for n, t in enumerate(tensors)])
    around = tuple([("argument", first[i]) if i in first else i for i in closed])
    key = (*parts, same, around, grad_enabled(), storage.default_device())
    try:
        hash(key)
    except TypeError as error:
        raise JitError(f"an argument of a captured function: {error}. {_ADVICE}") from None
    return Call(args, kwargs, tuple(tensors), key)


class Closed:
    """Which tensors the names stand for that a function takes from around it.  Where one is another
    tensor, Python would compute with that: it is another kind of call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        code = getattr(function, "__code__", None)
        self._cells = getattr(function, "__closure__", None) or ()
        self._around: Mapping[str, Any] = getattr(function, "__globals__", {})
        self._names: tuple[str, ...] = () if code is None else code.co_names

    def __call__(self) -> tuple[int, ...]:
        around = self._around
        found = [id(v) for n in self._names if type(v := around.get(n)) is Tensor]
        for cell in self._cells:
            try:
                value = cell.cell_contents
            except ValueError:  # a name that is not bound yet
                continue
            if type(value) is Tensor:
                found.append(id(value))
        return tuple(found)


_ADVICE = "Pass tensors, numbers, and lists, tuples or dicts of them; make arrays Tensors first."


def _part(value: Any, tensors: list[Tensor]) -> Key:
    if isinstance(value, Tensor):
        tensors.append(value)
        return (Tensor, value.shape, value.dtype, value.device, value.requires_grad)
    if isinstance(value, float):
        return (type(value), value.hex())  # -0.0 is not 0.0, and NaN is NaN
    if isinstance(value, list | tuple):
        return (type(value), *[_part(v, tensors) for v in value])
    if isinstance(value, dict):
        return (dict, *[(k, _part(v, tensors)) for k, v in value.items()])
    return (type(value), value)


# ---- words for what changed
def parts_of(function: Callable[..., Any], call: Call) -> dict[str, str]:
    """Each argument by name, in the words that tell two captures apart."""
    try:
        bound = signature(function).bind(*call.args, **call.kwargs).arguments
    except (TypeError, ValueError):
        bound = {**{str(n): v for n, v in enumerate(call.args)}, **call.kwargs}
    return {path: _words(value) for path, value in leaves_of(dict(bound))}


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """What differs, as "name from this to that"."""
    names = [n for n in {**before, **after} if before.get(n) != after.get(n)]
    said = [f"{n} from {before.get(n, 'nothing')} to {after.get(n, 'nothing')}" for n in names]
    return ", ".join(said)


def _words(value: Any) -> str:
    if isinstance(value, Tensor):
        grad = ", requires_grad" if value.requires_grad else ""
        return f"{value.dtype} {value.shape} on {value.device}{grad}"
    return repr(value)


# ---- nested values
def leaves_of(value: Any) -> Iterator[tuple[str, Any]]:
    """(path, value) of everything in lists, tuples and dicts, in order."""
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, found = stack.pop()
        inner = _named(found)
        if inner is None:
            yield path, found
        else:
            stack.extend((f"{path}.{n}" if path else n, v) for n, v in reversed(inner))


def _named(value: Any) -> list[tuple[str, Any]] | None:
    """The parts of a list, tuple or dict under names; None of what is none of them."""
    if isinstance(value, dict):
        return [(str(k), v) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return [(str(n), v) for n, v in enumerate(value)]
    return None


def rebuilt(like: Any, leaves: Iterator[Any]) -> Any:
    """The same lists, tuples and dicts with other leaves."""
    if isinstance(like, dict):
        return {k: rebuilt(v, leaves) for k, v in like.items()}
    if isinstance(like, list | tuple):
        made = [rebuilt(v, leaves) for v in like]
        if isinstance(like, tuple) and hasattr(like, "_fields"):
            return type(like)(*made)
        return type(like)(made)
    return next(leaves)


def results_of(name: str, value: Any) -> Sequence[Tensor | None]:
    """The leaves of what a captured function returns.

    Raises JitError for one that is no tensor: a replay cannot compute it.
    """
    found = []
    for path, leaf in leaves_of(value):
        if leaf is not None and not isinstance(leaf, Tensor):
            where = f" (in {path})" if path else ""
            raise JitError(
                f"{name} returned {type(leaf).__name__}{where}: what is replayed gives tensors "
                "only, everything else would be that of the capture. Return a Tensor or None."
            )
        found.append(leaf)
    return found
