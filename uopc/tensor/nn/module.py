"""A module: tensors and other modules under names, found by walking its attributes.

What a module holds is what its attributes hold: tensors, modules, and lists, tuples and dicts of
them.  A parameter is a tensor that requires a gradient; every tensor is part of the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from uopc.dtype import DType
from uopc.errors import UsageError
from uopc.tensor.core import Tensor
from uopc.tensor.engine import realize
from uopc.tensor.leaves import move
from uopc.tensor.mode import no_grad
from uopc.tensor.storage import device_named


class Module:
    """Base of everything that has parameters.  Derive, set attributes, write `forward`.

    Attributes
    ----------
    training: what `train` and `eval` set; Dropout asks it.
    """

    training: bool = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What a call computes.  Raises UsageError where the class does not say."""
        raise UsageError(f"{type(self).__name__} has no forward: define what a call computes.")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    # ---- what it holds
    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, tensor) of each tensor, in the order of the attributes, each once."""
        for name, found in _walk(self):
            if isinstance(found, Tensor):
                yield name, found

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, tensor) of those that require a gradient."""
        return ((name, t) for name, t in self.named_tensors() if t.requires_grad)

    def parameters(self) -> list[Tensor]:
        """The tensors that require a gradient; one that has two names comes once."""
        return [t for _, t in self.named_parameters()]

    def modules(self) -> Iterator[Module]:
        """This module and each one below it, once."""
        return (found for _, found in _walk(self) if isinstance(found, Module))

    # ---- modes
    def train(self, mode: bool = True) -> Self:
        """Set `training` of this module and all below it.  Returns the module."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """`train(False)`."""
        return self.train(False)

    def zero_grad(self) -> None:
        """Forget the gradients: each parameter's `grad` is None."""
        for parameter in self.parameters():
            parameter.grad = None

    # ---- places
    def to(self, device: str) -> Self:
        """Move every tensor, and its gradient, to a device, in place.

        The tensors stay the same objects: an optimiser made before goes on with them.  Returns the
        module.  Raises UsageError for an unknown device, DeviceError where it is missing.
        """
        for _, tensor in self.named_tensors():
            move(tensor, device_named(device))
        return self

    def cpu(self) -> Self:
        """`to("cpu")`."""
        return self.to("cpu")

    def cuda(self) -> Self:
        """`to("cuda")`."""
        return self.to("cuda")

    # ---- state
    def state_dict(self) -> dict[str, Tensor]:
        """The tensors by name: values as they are now, whatever becomes of the parameters."""
        return {name: t.detach() for name, t in self.named_tensors()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give every tensor the value of its name, a Tensor or an array, on its own device.

        Raises UsageError, before anything is changed, where names, shapes or dtypes differ.
        """
        own = dict(self.named_tensors())
        missing, unknown = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
        if missing or unknown:
            raise UsageError(
                f"load_state_dict of {type(self).__name__}: missing {missing or 'nothing'}, "
                f"not known here {unknown or 'nothing'}."
            )
        values = {
            name: v if isinstance(v := state[name], Tensor) else Tensor(v, device=t.device)
            for name, t in own.items()
        }
        for name, tensor in own.items():
            _check_same(name, tensor, values[name])
        with no_grad():
            for name, tensor in own.items():
                tensor.assign(values[name].to(tensor.device))
            realize(*own.values())

    # ---- words
    def describe(self) -> str:
        """What stands in the brackets of its repr before the modules below it."""
        return ""

    def __repr__(self) -> str:
        lines = [
            f"  ({name}): " + repr(child).replace("\n", "\n  ")
            for name, child in _walk(self, inside=False)
            if isinstance(child, Module) and child is not self
        ]
        head, own = type(self).__name__, self.describe()
        if not lines:
            return f"{head}({own})"
        return "\n".join([f"{head}({own}", *lines, ")"])


def _walk(root: Module, inside: bool = True) -> Iterator[tuple[str, Tensor | Module]]:
    """Each tensor and module below `root`, itself first, once, in the order of the attributes.

    inside=False: not what other modules hold.
    """
    seen: set[int] = set()
    stack: list[tuple[str, Any]] = [("", root)]
    while stack:
        name, found = stack.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, Tensor | Module):
            yield name, found
        if isinstance(found, Module) and found is not root and not inside:
            continue
        below = [(f"{name}.{n}" if name else n, child) for n, child in _children(found)]
        stack.extend(reversed(below))


def _children(holder: Any) -> list[tuple[str, Any]]:
    """The named parts of a module, list, tuple or dict; nothing of anything else."""
    if isinstance(holder, Module):
        return list(vars(holder).items())
    if isinstance(holder, list | tuple):
        return [(str(n), child) for n, child in enumerate(holder)]
    if isinstance(holder, dict):
        return [(str(n), child) for n, child in holder.items()]
    return []


def _check_same(name: str, own: Tensor, given: Tensor) -> None:
    def words(shape: tuple[int, ...], dtype: DType) -> str:
        return f"{shape} {dtype}"

    if (own.shape, own.dtype) != (given.shape, given.dtype):
        raise UsageError(
            f"load_state_dict: {name} is {words(own.shape, own.dtype)} here and "
            f"{words(given.shape, given.dtype)} in the state."
        )
