"""Which devices there are, which of them can run something now, and what the others lack."""

from __future__ import annotations

import re
from dataclasses import dataclass

from uopc.config import Config, current
from uopc.errors import DeviceError, ToolchainError, UsageError
from uopc.runtime import cpu, cuda

NAMES = ("cuda", "emulated", "cpu")


@dataclass(frozen=True)
class DeviceInfo:
    """One device.  detail: what it is if usable, else what is missing and how to get it."""

    name: str
    usable: bool
    detail: str


def device_name(device: str) -> str:
    """The one name of a device: "cuda:0" is "cuda".  Raises UsageError where none is called so."""
    found = re.fullmatch(r"cuda(?::(\d+))?", device) if isinstance(device, str) else None
    if found:
        ordinal = int(found[1] or 0)
        return f"cuda:{ordinal}" if ordinal else "cuda"
    if device not in NAMES:
        raise UsageError(
            f"no device is called {device!r}; there are cpu, emulated, cuda, cuda:1 ..."
        )
    return device


def ordinal_of(device: str) -> int:
    """Which GPU a device is: 1 for "cuda:1"."""
    return int(device.partition(":")[2] or 0)


def devices(config: Config | None = None) -> list[DeviceInfo]:
    """cuda, emulated and cpu, with their state.  Never raises."""
    try:
        compiler = str(cpu.find_compiler(config))
        found = True
    except ToolchainError as error:
        compiler, found = str(error), False
    missing = cuda.why_unusable()
    gpu = missing or cuda.describe()
    infos = [DeviceInfo("cuda", not missing, gpu)]
    infos.append(DeviceInfo("emulated", found, f"GPU kernels by {compiler}" if found else compiler))
    infos.append(DeviceInfo("cpu", found, f"C kernels by {compiler}" if found else compiler))
    return infos


def default_device(config: Config | None = None) -> str:
    """The configured device, else cuda where it is usable, else emulated.

    Raises DeviceError where the one that was asked for cannot run, or none can.
    """
    config = config or current()
    state = {info.name: info for info in devices(config)}
    if wanted := config.device:
        if wanted not in state:
            raise UsageError(f"UOPC_DEVICE is {wanted!r}; it is one of {', '.join(NAMES)}.")
        if not state[wanted].usable:
            raise DeviceError(f"device {wanted} is not usable: {state[wanted].detail}")
        return wanted
    for name in ("cuda", "emulated"):
        if state[name].usable:
            return name
    raise DeviceError(
        f"no device is usable. cuda: {state['cuda'].detail} cpu: {state['cpu'].detail}"
    )
