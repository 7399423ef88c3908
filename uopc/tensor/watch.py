"""Who listens while a function is captured: the places that jit must hear of call `current`.

A module of its own, without imports of ours, so that everything from `base` up may call it.
Outside of a capture `current` is None, and a call costs one comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from uopc.runtime.buffer import Buffer
    from uopc.runtime.executor import Arguments, Launcher
    from uopc.tensor.base import Base
    from uopc.uop.node import UOp


class Watch(Protocol):
    """What jit hears while it runs a function."""

    def scheduling(self, roots: Sequence[UOp]) -> None:
        """These values are about to be computed."""

    def launched(
        self, launcher: Launcher, buffers: Arguments, touched: list[Buffer], written: list[Buffer]
    ) -> None:
        """This launch was made; touched, written: the memories that it reads or writes, writes."""

    def versioned(self, tensor: Base) -> None:
        """This tensor is about to get another value."""

    def reading(self, what: str) -> None:
        """The host wants to see elements: what it is that wants them."""

    def constant(self, array: Any, memory: Buffer) -> None:
        """A tensor is made of this data of the host, which is in this memory now."""

    def depends(self, holder: object, attribute: str) -> None:
        """What is computed depends on this attribute, which is no tensor."""


current: Watch | None = None


@contextmanager
def listening(watch: Watch) -> Iterator[None]:
    """Let `watch` be the one that hears."""
    global current
    before, current = current, watch
    try:
        yield
    finally:
        current = before


def depends(holder: object, attribute: str) -> None:
    """Say that what is computed now depends on `holder.attribute`, which is no tensor."""
    if current is not None:
        current.depends(holder, attribute)
