"""Whether results remember how they were computed, for this thread (and asynchronous task)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_enabled: ContextVar[bool] = ContextVar("gradients", default=True)


def grad_enabled() -> bool:
    """Whether what is computed now requires a gradient where one of its operands does."""
    return _enabled.get()


@contextmanager
def no_grad() -> Iterator[None]:
    """Inside, results require no gradient: `with no_grad():`, or `@no_grad()` on a function.

    Updates of parameters belong here.
    """
    token = _enabled.set(False)
    try:
        yield
    finally:
        _enabled.reset(token)


@contextmanager
def enable_grad() -> Iterator[None]:
    """Inside, results require gradients again: the way back from inside `no_grad`."""
    token = _enabled.set(True)
    try:
        yield
    finally:
        _enabled.reset(token)
