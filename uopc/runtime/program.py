"""A C kernel, native or emulated, that is called with numpy arrays."""

from __future__ import annotations

import warnings
from threading import Lock
from typing import Any

import numpy as np

from uopc.config import Config, current
from uopc.errors import UsageError
from uopc.kernel import Source
from uopc.runtime import cpu
from uopc.runtime.arrays import address, check_arguments, no_work


class Program:
    """Rendered C (language "c" or "emulated") that is compiled at its first call.

    `program(*arrays)` takes numpy arrays in slot order, and scalars where the kernel takes one by
    value; outputs are written in place.  Every call is checked against the Source's parameters; a
    bare str has none, which is said once.  Any thread may call it.

    Parameters
    ----------
    source: what `emulate` or the C renderer returned, or any C text that defines
        `int NAME(void **)`.
    name: of the function; a Source knows its own.
    """

    def __init__(
        self, source: str, name: str | None = None, *, config: Config | None = None
    ) -> None:
        self.source, self.config = source, config or current()
        self._kernel: cpu.Kernel | None = None
        self._lock = Lock()
        if isinstance(source, Source):
            if source.language not in cpu.OPTIMISE:
                raise UsageError(
                    f"kernel {source.name} is {source.language} text, a Program runs C. "
                    f"Launch it with uopc.cuda.run_cuda, or render it with emulate."
                )
            if name not in (None, source.name):
                raise UsageError(f"the source defines kernel {source.name!r}, not {name!r}.")
            self.name = source.name
            return
        if name is None:
            raise UsageError("a bare text needs the name of its function: Program(text, name).")
        self.name = name
        warnings.warn(
            f"kernel {name} is a bare text: its calls are not checked. Pass the Source that a "
            f"renderer returns to have sizes and dtypes checked.",
            stacklevel=2,
        )

    def compile(self) -> cpu.Kernel:
        """The compiled function (from the disk cache where it is there).  Raises ToolchainError."""
        with self._lock:
            if self._kernel is None:
                language = self.source.language if isinstance(self.source, Source) else "c"
                self._kernel = cpu.load(self.source, self.name, language, self.config)
            return self._kernel

    def __call__(self, *arrays: Any) -> None:
        """Run the kernel on arrays in slot order.  Raises UsageError for any that does not fit."""
        if isinstance(self.source, Source):
            params = self.source.params
            bound = check_arguments(self.name, params, arrays)
            if no_work(params, self.source.launch.grid):
                return
        else:
            bound = [self._unchecked(i, a) for i, a in enumerate(arrays)]
        (self._kernel or self.compile())([address(a) for a in bound])

    def _unchecked(self, i: int, array: Any) -> Any:
        """An argument of a bare text: anything that has an address."""
        if isinstance(array, np.generic):
            return np.asarray(array)
        if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
            raise UsageError(
                f"kernel {self.name}, argument {i}: a bare text takes C-contiguous numpy arrays "
                f"and numpy scalars, got {type(array).__name__}."
            )
        return array

    def __repr__(self) -> str:
        return f"Program({self.name})"
