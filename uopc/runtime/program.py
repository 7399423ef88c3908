"""A C kernel, native or emulated, that is called with numpy arrays."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from threading import Lock
from typing import Any

import numpy as np

from uopc.config import Config, current
from uopc.errors import UsageError
from uopc.faults.explain import explain
from uopc.kernel import Source
from uopc.runtime import cpu
from uopc.runtime.arrays import address, check_arguments, no_work
from uopc.runtime.emulated import Call, Outcome, RunOptions


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
                language, work = "c", None
                if isinstance(self.source, Source):
                    language, work = self.source.language, self.source.work
                self._kernel = cpu.load(self.source, self.name, language, self.config, work)
            return self._kernel

    def __call__(self, *arrays: Any, options: RunOptions | None = None) -> None:
        """Run the kernel on arrays in slot order.

        Lines of PRINTF go to standard output.  options: how an emulated kernel runs; None: in the
        order it was rendered with.  Raises UsageError for an array that does not fit, and what
        `uopc.faults` makes of the first fault that an emulated kernel shows.
        """
        if not isinstance(self.source, Source):
            bound = [self._unchecked(i, a) for i, a in enumerate(arrays)]
            (self._kernel or self.compile())([address(a) for a in bound])
            return
        self._tell(self.source, self._run(self.source, arrays, options))

    def run(self, arrays: Sequence[Any], options: RunOptions | None = None) -> Outcome:
        """Run an emulated kernel; its faults are told, not raised.

        Raises UsageError for an array that does not fit, and for a bare text.
        """
        if not isinstance(self.source, Source):
            raise UsageError(f"kernel {self.name} is a bare text; run takes what emulate returns.")
        return self._run(self.source, arrays, options)

    def prepared(self) -> Callable[[Sequence[int]], None]:
        """What runs the kernel on arrays that were checked before, by their addresses.

        Raises UsageError for a bare text, ToolchainError where the kernel does not compile.
        """
        source = self.source
        if not isinstance(source, Source):
            raise UsageError(f"kernel {self.name} is a bare text; only a Source can be prepared.")
        kernel = self.compile()
        if not self._emulates:
            return kernel.prepared(len(source.params))
        return lambda addresses: self._tell(source, self._emulate(source, kernel, addresses, None))

    def bound(self, addresses: Sequence[int]) -> Callable[[], None]:
        """`prepared` for the same arrays each time."""
        run = self.prepared()
        return partial(run, addresses) if self._emulates else self.compile().bound(addresses)

    @cached_property
    def _emulates(self) -> bool:
        """Does the kernel run on the emulator's runtime?"""
        source = self.source
        emulated = isinstance(source, Source) and source.language == "emulated"
        return emulated and cpu.needs_runtime(source)

    def _tell(self, source: Source, outcome: Outcome) -> None:
        """Print what a run printed, and raise what `uopc.faults` makes of its first fault."""
        for line in outcome.printed:
            print(line)
        first = next((f for f in outcome.faults if not f.kind.is_warning), None)
        if first is not None:
            found = explain(first, source, self.name, together=outcome.faults)
            assert isinstance(found, Exception)
            raise found

    def _run(self, source: Source, arrays: Sequence[Any], options: RunOptions | None) -> Outcome:
        bound = check_arguments(self.name, source.params, arrays)
        if no_work(source.params, source.launch.grid):
            return Outcome()
        kernel = self._kernel or self.compile()
        addresses = [address(a) for a in bound]
        if not self._emulates:
            if options is not None and (options.order, options.lanes) != ("forward", "forward"):
                raise UsageError(
                    f"kernel {self.name} was rendered as plain loops, whose threads run forward: "
                    f"order={options.order!r} and lanes={options.lanes!r} have no meaning there. "
                    "Leave them out, or render it with check=True, which has every order."
                )
            kernel(addresses)
            return Outcome()
        return self._emulate(source, kernel, addresses, options)

    def _emulate(
        self,
        source: Source,
        kernel: cpu.Kernel,
        addresses: Sequence[int],
        options: RunOptions | None,
    ) -> Outcome:
        """Run on the emulator's runtime; its faults are told."""
        call = Call(source, options or RunOptions(), by_source=options is None)
        try:
            code = kernel.call(addresses, call.address)
            outcome = call.outcome()
        finally:
            cpu.load_runtime(self.config).emu_forget(ctypes.c_void_p(call.address))
        if code and not outcome.faults:
            kernel.fail(code)
        return outcome

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
