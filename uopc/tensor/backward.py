"""Gradients of tensors: `backward`, `grad`, and which tensors are leaves.

There is no tape: the graph of a tensor says how it was computed, and `gradient.py` differentiates
graphs.  What a graph does not say stands in two weak tables here.

_leaves: node -> the leaf tensor whose value it is.  A leaf gets a new node with each assignment;
the older ones stay in the table as long as some graph names them.  Versions are values: the
gradient of a graph that was built on an older version is that at the older value, and still goes to
the leaf, on whatever device it is by then; a graph on several versions gives their sum.  (Torch
refuses such a backward pass.)  Only when an update has been computed in place is the older value
gone, and asking for it an error.

_copies: node -> what it is a copy of, on another device.  A backward pass copies what comes to such
a node to the other device and goes on from there.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, TypeVar, cast, overload
from weakref import WeakKeyDictionary

from uopc.dtype import DType
from uopc.errors import UsageError
from uopc.tensor import storage
from uopc.tensor.base import Base, T, fresh, memory_of
from uopc.tensor.gradient import arrivals, depends
from uopc.tensor.mode import grad_enabled, no_grad
from uopc.uop.node import UOp, here, toposort
from uopc.uop.ops import Ops

if TYPE_CHECKING:
    from uopc.tensor.core import Tensor


@dataclass(frozen=True)
class _Copy:
    """What a node is a copy of; order: copies made later have larger numbers."""

    order: int
    source: UOp
    source_device: str
    device: str


@dataclass(frozen=True)
class _Version:
    """Whose value a node is, and on which device."""

    leaf: weakref.ref[Base]
    device: str


_leaves: WeakKeyDictionary[UOp, _Version] = WeakKeyDictionary()
_copies: WeakKeyDictionary[UOp, _Copy] = WeakKeyDictionary()
_orders = itertools.count()
#: what the node of a leaf or of a copy can be
_PLACES = frozenset((Ops.BUFFER, Ops.ASSIGN, Ops.RESHAPE))

S = TypeVar("S")


def remember(leaf: Base) -> None:
    """This leaf has a new node.  To be called whenever that of a leaf has been set."""
    _leaves[leaf._u] = _Version(weakref.ref(leaf), leaf.device)


def copied(result: Base, source: Base) -> None:
    """`result` is a copy of `source` on another device, through which gradients come back."""
    _copies[result._u] = _Copy(next(_orders), source._u, source.device, result.device)


def collects(u: UOp) -> bool:
    """Whether gradients come to a node: the value of a leaf, or a copy from another device."""
    return u in _leaves or u in _copies


def check_gradient(dtype: DType) -> None:
    """Raises UsageError where values of a dtype have no gradients."""
    if not dtype.is_float or dtype.storage:
        raise UsageError(
            f"requires_grad at {here()}: {dtype} has no gradients; f16, bf16, f32 and f64 have"
        )


class Backward(Base):
    """What a tensor has to do with gradients."""

    __slots__ = ()

    @property
    def requires_grad(self) -> bool:
        """Whether `backward` works out what it does to the result; set it to say so of a leaf."""
        return self._needs

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def is_leaf(self) -> bool:
        """Whether it is no result of a computation that gradients go through: `backward` leaves its
        gradient in `.grad`."""
        if not self.requires_grad:
            return True
        owner = _leaves.get(self._u)
        return owner is not None and owner.leaf() is self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Make it a leaf that requires a gradient, or one that requires none; itself.

        What was computed from it before stays a constant to it.
        Raises UsageError for dtypes without gradients, and for what is no leaf.
        """
        if requires_grad == self.requires_grad:
            return self
        if not requires_grad:
            if not self.is_leaf:
                raise UsageError(
                    f"requires_grad_(False) at {here()}: a computed tensor requires a gradient as "
                    "what it was computed from does. Use .detach()."
                )
            _leaves.pop(self._u, None)
            self._needs = False
            return self
        check_gradient(self.dtype)
        held = memory_of(storage.place(self.device, self.dtype, self.shape))
        assert held is not None
        self._u = held.assign(self._u.detach().reshape(held.shape)).reshape(self.shape)
        self._needs = True
        remember(self)
        return self

    def zero_grad(self) -> None:
        """Forget its gradient."""
        self.grad = None

    def backward(self, gradient: Base | None = None) -> None:
        """Add the gradient of this tensor to `.grad` of every leaf that it was computed from.

        gradient: that of something by this tensor, of its shape and dtype; may be left out where it
        has one element.  Lazy: nothing is computed but what has to cross devices.
        Raises UsageError where it requires no gradient, or `gradient` does not fit.
        """
        leaves, copies = _found([self._u])
        with no_grad():
            seed = _seed(self, gradient, "backward")
            come = _Flow(self, leaves, copies).run([self._u], [seed])
            for node, version in leaves.items():
                leaf = version.leaf()
                if node in come and leaf is not None and leaf.requires_grad:
                    g = _moved(leaf, come[node], version.device, leaf.device)
                    total = g if leaf.grad is None else leaf.grad._u + g
                    leaf.grad = fresh(type(leaf), total.detach(), leaf.device)


@overload
def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    allow_unused: Literal[False] = False,
) -> tuple[Tensor, ...]: ...
@overload
def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]: ...
def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of outputs by inputs, one for each input; `.grad` of nothing changes.

    outputs: tensors that require a gradient.
    inputs: leaves, or anything that the outputs were computed from.  Tensors that were computed in
        the same way from the same leaves are one value here: by y = x.clone() is by x, too.
    grad_outputs: for each output the gradient of something by it, of its shape and dtype; None for
        ones, where it has one element.
    allow_unused: give None for an input that no output depends on, instead of an error.

    The results require gradients themselves where they depend on leaves, so that gradients of
    gradients work; in `no_grad` they do not.
    Raises UsageError where an output requires no gradient, a `grad_outputs` does not fit, or an
    input is not used.
    """
    ends, starts = _listed(outputs), _listed(inputs)
    given: Sequence[Tensor | None] = (
        [None] * len(ends) if grad_outputs is None else _listed(grad_outputs)
    )
    if not ends or len(given) != len(ends):
        raise UsageError(
            f"grad at {here()}: {len(ends)} outputs, {len(given)} grad_outputs; give one for each"
        )
    seeds = [_seed(t, g, "grad") for t, g in zip(ends, given, strict=True)]
    nodes = [t._u for t in ends]
    leaves, copies = _found(nodes)
    wanted = [_versions(t, leaves) for t in starts]
    come = _Flow(starts[0], {u for versions in wanted for u in versions}, copies).run(nodes, seeds)
    out: list[Tensor | None] = []
    for n, (start, versions) in enumerate(zip(starts, wanted, strict=True)):
        found = [
            _moved(start, come[u], device, start.device)
            for u, device in versions.items()
            if u in come
        ]
        if not found and not allow_unused:
            raise UsageError(
                f"grad at {here()}: no output depends on input {n}, of shape {start.shape}. "
                "With allow_unused=True its gradient is None."
            )
        out.append(_result(start, functools.reduce(UOp.__add__, found)) if found else None)
    return tuple(out)


def _result(start: T, g: UOp) -> T:
    """The gradient by an input as a tensor, with its history where gradients are enabled."""
    if not grad_enabled():
        return fresh(type(start), g.detach(), start.device)
    leaves, copies = _found([g], beyond=False)
    return fresh(type(start), g, start.device, depends(g, {*leaves, *copies}))


def _listed(given: Tensor | Sequence[S]) -> list[Tensor | S]:
    return list(given) if isinstance(given, Sequence) else [given]


def _seed(output: Base, given: Base | None, what: str) -> UOp:
    """The gradient by an output."""
    if not output.requires_grad:
        raise UsageError(
            f"{what} at {here()}: the tensor (shape {output.shape}) was not computed from any leaf "
            "that requires a gradient: see requires_grad_() and no_grad"
        )
    if given is None:
        if output.size != 1:
            raise UsageError(
                f"{what} at {here()}: of a tensor of shape {output.shape}, not of one number. Sum "
                "it, or give the gradient by each of its elements."
            )
        return UOp.const(1.0, output.dtype, output.shape)
    if given.device != output.device:
        raise UsageError(
            f"{what} at {here()}: the tensor is on {output.device}, the gradient given for it on "
            f"{given.device}. Move one: .to({output.device!r})"
        )
    return given._u


# ---- leaves, and copies on other devices
Leaves: TypeAlias = dict[UOp, _Version]
Copies: TypeAlias = dict[UOp, _Copy]


def _found(roots: Iterable[UOp], beyond: bool = True) -> tuple[Leaves, Copies]:
    """The leaves and the copies that graphs name; beyond: those too that copies were made from."""
    leaves: Leaves = {}
    copies: Copies = {}
    todo = list(roots)
    while todo:
        for u in toposort(todo.pop()):
            if u.op not in _PLACES or u in leaves or u in copies:
                continue
            leaf, copy = _leaves.get(u), _copies.get(u)
            if leaf is not None:
                leaves[u] = leaf
            elif copy is not None:
                copies[u] = copy
                if beyond:
                    todo.append(copy.source)
    return leaves, copies


def _versions(tensor: Base, leaves: Leaves) -> dict[UOp, str]:
    """The nodes of a tensor and where they are: its own, and the older ones of a leaf that a graph
    still names."""
    older = {u: v.device for u, v in leaves.items() if v.leaf() is tensor}
    return {tensor._u: tensor.device, **older}


def _moved(like: Base, g: UOp, device: str, to: str) -> UOp:
    """A gradient, copied from one device to another; with its history where gradients are on."""
    if device == to:
        return g
    return cast("Tensor", fresh(type(like), g, device, grad_enabled())).to(to)._u


class _Flow:
    """A backward pass through graphs on several devices.

    A copy is of something that was there before it; so the copies are gone through from the last to
    the first, each when all has come to it.
    """

    def __init__(self, like: Base, wanted: Collection[UOp], copies: Copies) -> None:
        self.like = like  # a tensor: what is copied on the way becomes one
        self.come: dict[UOp, UOp] = {}
        self.wanted = set(wanted)
        self.stops = set(wanted)  # and the copies by way of which one of them is reached
        for node, copy in sorted(copies.items(), key=lambda item: item[1].order):
            if depends(copy.source, self.stops):
                self.stops.add(node)
        self.copies = {u: copy for u, copy in copies.items() if u in self.stops}

    def run(self, outputs: Sequence[UOp], seeds: Sequence[UOp]) -> dict[UOp, UOp]:
        """What comes to each node that is wanted."""
        self._add(outputs, seeds)
        for node, copy in sorted(self.copies.items(), key=lambda item: -item[1].order):
            if node in self.come:
                g = _moved(self.like, self.come[node], copy.device, copy.source_device)
                self._add([copy.source], [g])
        return {u: g for u, g in self.come.items() if u in self.wanted}

    def _add(self, outputs: Sequence[UOp], seeds: Sequence[UOp]) -> None:
        for u, g in arrivals(outputs, seeds, self.stops).items():
            self.come[u] = self.come[u] + g if u in self.come else g
