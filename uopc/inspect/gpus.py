"""GPUs by name: what data sheets say of their rates, and what a copy has been seen to reach.

Sources: NVIDIA's data sheets and architecture papers of the parts (dense rates, boost clocks); per
multiprocessor and clock: CUDA Programming Guide, "Throughput of Native Arithmetic Instructions".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from uopc.errors import UsageError
from uopc.target import Target, target


@dataclass(frozen=True)
class GPU:
    """One part.

    Attributes
    ----------
    name: "H200"; arch: the Target that its kernels are rendered for.
    sms: multiprocessors; clock_hz: boost.
    memory_bytes_s: peak of its memory; l2_bytes: of its L2 cache.
    reached: part of that peak which a long copy moves; start_s: time of a copy that does not grow
        with its size.  Seen on an H200 (note 0016), taken for the others too.
    rates: operations a second of tensor cores by type of their operands; an FMA counts as two.
    per_clock: operations of one multiprocessor in a clock by unit.
    """

    name: str
    arch: str
    sms: int
    clock_hz: float
    memory_bytes_s: float
    l2_bytes: int
    rates: Mapping[str, float] = field(repr=False)
    per_clock: Mapping[str, int] = field(repr=False)
    reached: float = 0.898
    start_s: float = 4.9e-6

    def runs(self, on: Target) -> bool:
        """Does it run kernels for a target?  Those of older ones it does, unless they are for that
        arch alone ("sm_90a")."""
        mine = target(self.arch).sm
        return on.sm == mine if on.name.endswith("a") else on.sm <= mine

    def rate(self, unit: str) -> float:
        """Operations a second of a unit: "fp32", "int", "sfu", "fp64", or "tensor TYPE".

        Raises UsageError where the GPU has no such unit.
        """
        if unit in self.per_clock:
            return self.per_clock[unit] * self.sms * self.clock_hz
        if unit in self.rates:
            return self.rates[unit]
        raise UsageError(
            f"{self.name} has no rate for {unit!r}; it has "
            f"{', '.join((*self.per_clock, *self.rates))}"
        )


def _per_clock(fp32: int, fp64: int, integer: int = 64) -> dict[str, int]:
    """FMAs count as two; special functions are 16 a clock on all of them."""
    return {"fp32": 2 * fp32, "fp64": 2 * fp64, "int": integer, "sfu": 16}


def _tensor(
    f16: float, tf32: float = 0, f8: float = 0, i8: float = 0, f64: float = 0
) -> dict[str, float]:
    """Dense rates in operations a second, by the type of the operands."""
    made = {"f16": f16, "bf16": f16, "tf32": tf32, "f8": f8, "i8": i8, "f64": f64}
    return {f"tensor {name}": rate for name, rate in made.items() if rate}


_HOPPER = _tensor(989e12, 494e12, 1979e12, 1979e12, 67e12)
GPUS: Mapping[str, GPU] = {
    g.name: g
    for g in (
        GPU("H200", "sm_90a", 132, 1.98e9, 4.8e12, 50 << 20, _HOPPER, _per_clock(128, 64)),
        GPU("H100", "sm_90a", 132, 1.98e9, 3.35e12, 50 << 20, _HOPPER, _per_clock(128, 64)),
        GPU(
            *("B200", "sm_100a", 148, 1.965e9, 8e12, 126 << 20),
            *(_tensor(2250e12, 1125e12, 4500e12, 4500e12, 37e12), _per_clock(128, 64)),
        ),
        GPU(
            *("RTX 5090", "sm_120a", 170, 2.407e9, 1792e9, 96 << 20),
            *(_tensor(209.5e12, 104.8e12, 419e12, 838e12), _per_clock(128, 2)),
        ),
        GPU(
            *("A100", "sm_80", 108, 1.41e9, 2.039e12, 40 << 20),
            *(_tensor(312e12, 156e12, i8=624e12, f64=19.5e12), _per_clock(64, 32)),
        ),
        GPU(
            *("L40S", "sm_89", 142, 2.52e9, 864e9, 96 << 20),
            *(_tensor(362e12, 183e12, 733e12, 733e12), _per_clock(128, 2)),
        ),
        GPU(
            *("RTX 4090", "sm_89", 128, 2.52e9, 1008e9, 72 << 20),
            *(_tensor(165.2e12, 82.6e12, 330.3e12, 660.6e12), _per_clock(128, 2)),
        ),
        GPU(
            *("RTX 3090", "sm_86", 82, 1.695e9, 936e9, 6 << 20),
            *(_tensor(71e12, 35.6e12, i8=284e12), _per_clock(128, 2)),
        ),
        GPU(
            *("T4", "sm_75", 40, 1.59e9, 320e9, 4 << 20),
            *(_tensor(65e12, i8=130e12), _per_clock(64, 2)),
        ),
    )
}
_OF_ARCH = {75: "T4", 80: "A100", 86: "RTX 3090", 87: "RTX 3090", 89: "RTX 4090", 90: "H200"}
_OF_ARCH |= {100: "B200", 103: "B200", 120: "RTX 5090", 121: "RTX 5090"}


def named_gpu(name: str | GPU) -> GPU:
    """The GPU of this name, in any case, with or without "NVIDIA" and spaces.

    Raises UsageError for any other.
    """
    if isinstance(name, GPU):
        return name
    asked = name.replace(" ", "").lower().removeprefix("nvidia") if isinstance(name, str) else ""
    for g in GPUS.values():
        if g.name.replace(" ", "").lower() == asked:
            return g
    raise UsageError(
        f"no GPU is called {name!r}; there are {', '.join(GPUS)}. In Python gpu=GPU(...) takes the "
        "rates of another."
    )


def gpu(name: str | GPU | None, on: Target) -> GPU:
    """The GPU that a kernel for a target is reported for; None: a usual one of that target.

    Raises UsageError for a name that is not known, for a GPU that cannot run what the target is,
    and for a target without a GPU that is known: give a record of your own then.
    """
    if name is None:
        if on.sm not in _OF_ARCH:
            raise UsageError(
                f"no GPU with {on} is known; there are {', '.join(GPUS)}. "
                "In Python gpu=GPU(...) takes the rates of another."
            )
        return GPUS[_OF_ARCH[on.sm]]
    found = named_gpu(name)
    if not found.runs(on):
        raise UsageError(
            f"a kernel for {on} does not run on {found.name}, which is {found.arch}. Compile it "
            f"with target={found.arch!r}, or name another GPU than gpu={found.name!r}."
        )
    return found
