"""`uopc profile FILE:NAME`: the kernels of a program in a user's file, timed where they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console

from uopc.errors import UsageError
from uopc.profiling.judge import Rooflines
from uopc.profiling.measure import measure
from uopc.profiling.programs import Program, program_of, timed_device
from uopc.profiling.records import write
from uopc.profiling.table import WIDTH, print_profile
from uopc.runtime import observe
from uopc.runtime.ranges import Ranges
from uopc.tensor import storage
from uopc.userfile import (
    candidates,
    checked_arrays,
    is_function,
    its_own_errors,
    its_own_folder,
    kernel_name,
    required_parameters,
    returned,
    run_file,
)


def profile_file(
    out: Console,
    what: str,
    runs: int,
    device: str | None,
    seed: int = 0,
    json: str | None = None,
    trace: str | None = None,
    nvtx: bool = False,
) -> int:
    """Time the kernels of the program that FILE:NAME is, and print them.  Returns 0.

    runs: of each measurement.  device: what tensors and kernels are made on, None: the default.
    seed: of random arrays.  json, trace: files to write; json "-" prints it
    instead of the table.  nvtx: ranges for NVIDIA's tools.

    Raises UsageError for what the caller can change, another UopcError for what failed.
    """
    device = timed_device(storage.default_device() if device is None else device)
    with ExitStack() as during:
        if nvtx:
            during.enter_context(observe.observing(observe.RangesOf(Ranges())))
        during.enter_context(storage.making_on(device))
        program = during.enter_context(_opened(what, device, seed))
        found = measure(program, runs, Rooflines())
    if json == "-":
        out.out(found.to_json(indent=1), highlight=False)
        return 0
    if not out.is_terminal:
        out.width = max(out.width, WIDTH)
    print_profile(out, found)
    if json is not None:
        write(json, found.to_json(indent=1))
    if trace is not None:
        found.write_trace(trace)
        out.print(f"timeline in {trace}: open it at https://ui.perfetto.dev", soft_wrap=True)
    return 0


@contextmanager
def _opened(what: str, device: str, seed: int) -> Iterator[Program]:
    """The program of a file; while the context is open it may import what lies beside it.

    Raises UsageError where FILE or NAME is not there or is something else, UopcError where the
    file's own code fails.
    """
    file, colon, name = what.rpartition(":")
    path, name = (Path(file), name) if colon else (Path(what), "")
    if not path.is_file():
        raise UsageError(f"there is no file {path}. Give FILE:NAME, such as model.py:step.")
    with its_own_folder(path):
        module = run_file(path)
        if not name or name not in vars(module):
            asked = f"{path} has no {name}." if name else f"which program of {path}?"
            raise UsageError(f"{asked} {candidates(module, name)}")
        value = vars(module)[name]
        if is_function(value):
            value = _guarded(path, name, value)
        yield program_of(value, kernel_name(name), device, _beside(path, name, module), seed)


def _guarded(path: Path, name: str, function: Callable[..., Any]) -> Callable[[], Any]:
    """The function, whose errors name the file's line; UsageError comes of one with arguments."""
    if required_parameters(function):
        return lambda: returned(path, name, function)  # says which

    def call() -> Any:
        with its_own_errors(path, f"{name}() in {path.name}"):
            return function()

    return call


def _beside(path: Path, name: str, module: ModuleType) -> tuple[Any, ...] | None:
    """What the file calls NAME_arrays, None where it has none."""
    called = f"{name}_arrays"
    arrays = vars(module).get(called)
    if is_function(arrays):
        arrays = returned(path, called, arrays)
    return checked_arrays(arrays, called)
