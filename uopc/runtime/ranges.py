"""NVTX ranges: names that Nsight Systems and other NVIDIA tools show above what the host calls.

They come from the package nvtx, which is small, optional, and does next to nothing while no such
tool runs.  It is imported on first use: nobody else pays for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from uopc.errors import ToolchainError

DOMAIN = "uopc"  # what tools group the ranges under
INSTALL = "pip install nvtx"


class Ranges:
    """Opens and closes ranges of the calling thread.

    Raises ToolchainError where the package nvtx is not installed.
    """

    def __init__(self) -> None:
        try:
            nvtx: Any = import_module("nvtx")
        except ImportError as error:
            raise ToolchainError(
                f"NVTX ranges want the package nvtx ({error}). Get it with: {INSTALL}, or leave "
                f"--nvtx and UOPC_NVTX=1 away."
            ) from None
        self._domain = nvtx.get_domain(DOMAIN)
        self._attributes: dict[str, Any] = {}  # a range costs less where they are kept

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        """A range of this name while the context is open."""
        attributes = self._attributes.get(name)
        if attributes is None:
            attributes = self._domain.get_event_attributes(message=name)
            self._attributes[name] = attributes
        self._domain.push_range(attributes)
        try:
            yield
        finally:
            self._domain.pop_range()
