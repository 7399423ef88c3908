"""What is profiled, in whatever form it comes, as something that can be run again and again.

A function runs as it is, with all that it changes.  Lazy tensors and kernels run beside the user's
values: tensors stay lazy, and what would be updated in place is updated in a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from uopc.compiled import Kernel, Step
from uopc.errors import UsageError
from uopc.kernel import Param
from uopc.launches import random_arrays
from uopc.pipeline import compile
from uopc.runtime.arrays import check_arguments
from uopc.runtime.buffer import Buffer
from uopc.runtime.cuda import why_unusable
from uopc.runtime.device import device_name
from uopc.runtime.executor import Launcher
from uopc.schedule.memory import Leaf
from uopc.show import steps_of
from uopc.tensor import Tensor, storage
from uopc.tensor.capture.calls import leaves_of
from uopc.tensor.engine import ready, realize
from uopc.uop.node import UOp
from uopc.uop.ops import Ops

#: a compiled Kernel, loop IR (a SINK), a shaped body or several
KernelLike: TypeAlias = "Kernel | UOp | Sequence[UOp]"
KINDS = (
    "a function without arguments that computes Tensors, a lazy Tensor or a list of them, a shaped "
    "body or a list of them, a SINK, or a Kernel"
)


class Program(Protocol):
    """Something that runs again and again."""

    name: str

    def first(self) -> Program:
        """Run it for the first time; the program to go on with, itself unless it made another."""

    def run(self) -> None:
        """Run it once more; on a GPU this returns before the work is done."""


class FunctionProgram:
    """A function without arguments.  The tensors that it returns are computed in every run.

    make: what makes a program of a kernel that it returns, where it may return one.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[], Any],
        make: Callable[[Any], Program] | None = None,
    ) -> None:
        self.name, self._function, self._make = name, function, make

    def first(self) -> Program:
        result = self._function()
        if self._make is not None and is_kernel(result):
            return self._make(result).first()
        self._finish(result)
        return self

    def run(self) -> None:
        self._finish(self._function())

    def _finish(self, result: Any) -> None:
        """Compute what was left lazy; then nothing holds it, and the next run computes anew."""
        realize(*[v for _, v in leaves_of(result) if isinstance(v, Tensor)])


class TensorsProgram:
    """Lazy tensors of one device, which stay lazy.

    Raises UsageError where they live on two devices, or are in memory already.
    """

    def __init__(self, name: str, tensors: Sequence[Tensor]) -> None:
        self.name = name
        with storage.turn:
            self._ready, leaves = ready(*tensors)
            written = self._written()
            memories = [storage.memory(u) for u in leaves]
            self._memories = [_copy(m) if n in written else m for n, m in enumerate(memories)]

    def first(self) -> Program:
        self.run()
        return self

    def run(self) -> None:
        with storage.turn:
            self._ready.run(self._memories)

    def _written(self) -> set[int]:
        """Numbers of the leaves that are updated in place."""
        places = [
            mine[o.memory.arg.slot]
            for launch in self._ready.plan.launches
            for o in launch.body.outputs
            for mine in launch.places
        ]
        return {p.number for p in places if isinstance(p, Leaf)}


class KernelProgram:
    """The steps of a kernel on arrays of its own.

    arrays: in slot order; of loop IR all of them, or all but those that it writes.  None: random
        ones.

    Raises UsageError for arrays that do not fit and for a kernel that the device does not run.
    """

    def __init__(
        self,
        name: str,
        kernel: KernelLike,
        device: str,
        arrays: Sequence[Any] | None = None,
        seed: int = 0,
    ) -> None:
        self.name, self.device = name, device
        kind = device.partition(":")[0]
        self._by_slot: dict[int, Any] = {}
        if not isinstance(kernel, UOp) or kernel.op is not Ops.SINK:
            kernel = _compiled(name, kernel, kind)
            steps, slots = kernel.steps, kernel.input_slots
        else:
            steps = steps_of(name, kernel, kind)
            slots = _slots_for(steps[0], arrays)
        given = random_arrays(kernel, seed) if arrays is None else arrays
        self._take(steps, slots, given)
        self._launchers = [Launcher(step, device) for step in steps]

    def first(self) -> Program:
        self.run()
        return self

    def run(self) -> None:
        for launcher in self._launchers:
            launcher(self._by_slot)

    def _take(
        self,
        steps: Sequence[Step],
        slots: Sequence[int],
        given: Sequence[Any],
    ) -> None:
        """Memory for these slots, with the arrays in it; for all others of the steps, zeros."""
        params = {p.slot: p for step in steps for p in step.program.params}
        if bundles := [slot for slot, p in params.items() if p.bundle]:
            raise UsageError(
                f"kernel {self.name}: slots {bundles} are bundles, whose arrays a profile does not "
                "place. Profile a function that makes its launches through Tensors."
            )
        arrays = [_on_host(a) for a in given]
        if len(arrays) != len(slots):
            raise UsageError(
                f"kernel {self.name} takes {len(slots)} arrays (slots {list(slots)}), got "
                f"{len(arrays)}"
            )
        taken = [(params[s], a) for s, a in zip(slots, arrays, strict=True) if s in params]
        check_arguments(self.name, [_read(p) for p, _ in taken], [a for _, a in taken])
        for p, array in taken:
            self._by_slot[p.slot] = Buffer.from_numpy(self.device, array)
        for slot, p in params.items():
            if slot not in self._by_slot:
                self._by_slot[slot] = Buffer(self.device, p.dtype, p.size).zero()


def program_of(
    subject: Any, name: str, device: str | None, arrays: Sequence[Any] | None, seed: int
) -> Program:
    """What profiles a subject.  Raises UsageError where nothing does."""

    def make(value: Any) -> Program:
        if has_arrays(value):
            return program_of(value[0], name, device, tuple(value[1]), seed)
        return program_of(value, name, device, arrays, seed)

    if device is not None:
        timed_device(device)
    if is_kernel(subject):
        return KernelProgram(name, subject, kernel_device(subject, device), arrays, seed)
    if isinstance(subject, Tensor):
        subject = [subject]
    if isinstance(subject, list | tuple) and subject and _all(subject, Tensor):
        for tensor in subject:
            _check_device(name, tensor, device)
        return TensorsProgram(name, subject)
    if callable(subject) and not isinstance(subject, type):
        return FunctionProgram(name, subject, make)
    raise UsageError(f"{name} is {type(subject).__name__}. A profile is of {KINDS}.")


def is_kernel(value: Any) -> bool:
    """Is it a kernel in any form, perhaps with arrays: (kernel, [x, y])?"""
    if has_arrays(value):
        value = value[0]
    several = isinstance(value, list | tuple)
    return isinstance(value, Kernel | UOp) or (several and bool(value) and _all(value, UOp))


def has_arrays(value: Any) -> bool:
    """Is it (kernel, list of arrays)?"""
    if not isinstance(value, tuple) or len(value) != 2 or not isinstance(value[1], list | tuple):
        return False
    return not any(isinstance(a, UOp) for a in value[1]) and is_kernel(value[0])


def kernel_device(kernel: KernelLike, device: str | None) -> str:
    """Where a kernel is to run: on what it was compiled for, the device that is asked for, or the
    default.  Raises UsageError where that is the emulator, or not what the kernel was made for."""
    if isinstance(kernel, Kernel):
        if device is not None and device_name(device).partition(":")[0] != kernel.device:
            raise UsageError(
                f"kernel {kernel.steps[0].source.name} is compiled for {kernel.device}, not for "
                f"{device}. Profile its body, or compile it with target={device!r}."
            )
        device = device or kernel.device
    return timed_device(device or storage.default_device())


def timed_device(device: str) -> str:
    """The one name of a device whose times mean something.

    Raises UsageError for the emulator, DeviceError for a GPU that cannot be used.
    """
    name = device_name(device)
    if name == "emulated":
        raise emulator_refused(why_unusable().rstrip(".") or "it was asked for")
    return name


def emulator_refused(reason: str) -> UsageError:
    """The error for kernels that would be emulated; reason: why they would."""
    return UsageError(
        "the device is emulated, and how long the emulator takes says nothing about a GPU. Give "
        "--device cpu (device='cpu') to time native kernels on this CPU, or --device cuda on a "
        f"machine with a GPU. Why it is emulated: {reason}."
    )


def _check_device(name: str, tensor: Tensor, device: str | None) -> None:
    """Raises UsageError for a tensor that is elsewhere."""
    if device is not None and device_name(device) != tensor.device:
        raise UsageError(
            f"{name} is on {tensor.device}, not on {device}. Make its tensors there: with "
            f"device={device!r}, or UOPC_DEVICE={device} in the environment."
        )
    timed_device(tensor.device)


def _all(values: Sequence[Any], kind: type) -> bool:
    return all(isinstance(v, kind) for v in values)


def _compiled(name: str, kernel: Any, kind: str) -> Kernel:
    return kernel if isinstance(kernel, Kernel) else compile(kernel, target=kind, name=name)


def _slots_for(step: Step, arrays: Sequence[Any] | None) -> tuple[int, ...]:
    """The slots that arrays for loop IR are for."""
    params = step.program.params
    inputs = tuple(p.slot for p in params if not p.written)
    if arrays is not None and len(arrays) == len(inputs):
        return inputs
    return tuple(p.slot for p in params)


def _read(p: Param) -> Param:
    """The parameter as it is read: two of them may be one array."""
    return Param(p.slot, p.dtype, p.size, written=False, scalar=p.scalar)


def _on_host(array: Any) -> Any:
    return array.numpy() if isinstance(array, Tensor) else np.asarray(array)


def _copy(memory: Buffer) -> Buffer:
    made = Buffer(memory.device, memory.dtype, memory.size)
    memory.copy_to(made)
    return made
