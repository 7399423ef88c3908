"""Profiles: what each kernel of a program takes, beside what it must move and compute."""

from __future__ import annotations

from typing import Any

from uopc.errors import UsageError
from uopc.profiling.judge import Rooflines
from uopc.profiling.measure import measure
from uopc.profiling.programs import FunctionProgram, program_of
from uopc.profiling.records import KernelTime, Profile
from uopc.tensor import storage

RUNS = 20


def profile(
    what: Any,
    *arrays: Any,
    runs: int = RUNS,
    device: str | None = None,
    name: str | None = None,
    seed: int = 0,
) -> Profile:
    """Time each kernel of a program where it runs, and say what bounds it.

    Parameters
    ----------
    what: a function without arguments that computes Tensors, captured or not; a lazy Tensor or a
        list of them; a shaped body or a list of them, loop IR (a SINK), or a compiled Kernel.
    arrays: of a kernel, in slot order; random ones where there are none.
    runs: of each measurement.  A function is called about three times as often, with all that it
        changes; tensors and kernels run on copies of what they would change.
    device: "cpu", "cuda", "cuda:1"; what new tensors are made on, or a kernel compiled for.  None:
        the default device.
    name: what the profile is called; None: the function's or kernel's own name.
    seed: of random arrays.

    Raises UsageError where nothing is computed, and for the emulator, whose times say nothing about
    a GPU; DeviceError where the device cannot be used.
    """
    program = program_of(what, name or _name(what), device, arrays or None, seed)
    if arrays and isinstance(program, FunctionProgram):
        raise UsageError(f"{program.name} is a function without arguments: it takes no arrays.")
    with storage.making_on(device):
        return measure(program, runs, Rooflines())


def _name(what: Any) -> str:
    return str(getattr(what, "__name__", "kernel"))


__all__ = ["KernelTime", "Profile", "profile"]
