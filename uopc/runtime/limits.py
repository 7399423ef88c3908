"""Whether a launch fits its target: checked before the launch, which would only say "invalid".

Source of the limits: `uopc.target`.
"""

from __future__ import annotations

from collections.abc import Sequence

from uopc.errors import TargetError, UsageError
from uopc.kernel import Dims, Param
from uopc.target import Target

_POINTER_BYTES = 8


def dims(value: int | Sequence[int], what: str) -> Dims:
    """A grid or block as three numbers; those not given are 1.  Raises UsageError."""
    numbers = (value,) if isinstance(value, int) else tuple(int(n) for n in value)
    if not 1 <= len(numbers) <= 3 or min(numbers) < 0:
        raise UsageError(f"{what} is one to three numbers that are not negative, got {value!r}.")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def parameter_bytes(params: Sequence[Param]) -> int:
    """Bytes of parameter space: pointers, and scalars at multiples of their size."""
    used = 0
    for p in params:
        size = p.dtype.itemsize if p.scalar else _POINTER_BYTES
        used = -(-used // size) * size + size
    return used


def check_launch(
    on: Target,
    name: str,
    grid: Dims,
    block: Dims,
    *,
    static_shared_bytes: int = 0,
    dynamic_shared_bytes: int = 0,
    parameter_bytes: int = 0,
    max_threads: int = 0,
    registers: int = 0,
) -> None:
    """Raises TargetError that names the limit, the value and the option to change.

    Parameters
    ----------
    max_threads: what the compiled kernel allows by its registers and launch bounds; 0: unknown.
    registers: per thread, for that message.
    """
    where = f"kernel {name}"
    threads = block[0] * block[1] * block[2]
    if threads > on.max_threads_per_block:
        allowed = on.max_threads_per_block
        _refuse(where, f"a block of {threads} threads {block}", on, allowed, "Lower Opts.local.")
    for axis, size, allowed in zip("xyz", block, on.max_block, strict=True):
        if size > allowed:
            fix = "Lower Opts.local, or put that axis on x with Opts.lanes."
            _refuse(where, f"block {axis} of {size} threads", on, allowed, fix)
    for axis, size, allowed in zip("xyz", grid, on.max_grid, strict=True):
        if size > allowed:
            fix = (
                "Put that axis on x with Opts.grid, or give it fewer blocks (Opts.blocks, or more "
                "Opts.local, upcast or loop)."
            )
            _refuse(where, f"grid {axis} of {size} blocks", on, allowed, fix)
    if static_shared_bytes > on.shared_static_bytes:
        fix = "Ask for it as dynamic shared memory, or lower Opts.local or Opts.tile."
        what = f"{static_shared_bytes} bytes of static shared memory"
        _refuse(where, what, on, on.shared_static_bytes, fix)
    shared = static_shared_bytes + dynamic_shared_bytes
    if shared > on.shared_optin_bytes:
        fix = "Lower Opts.local or Opts.tile, or use Opts.keep='reg'."
        _refuse(where, f"{shared} bytes of shared memory", on, on.shared_optin_bytes, fix)
    if parameter_bytes > on.parameter_bytes:
        fix = "Pass fewer arrays to one kernel."
        _refuse(where, f"{parameter_bytes} bytes of parameters", on, on.parameter_bytes, fix)
    if max_threads and threads > max_threads:
        why = f" at {registers} registers a thread" if registers else ""
        raise TargetError(
            f"{where} wants a block of {threads} threads, as compiled it allows {max_threads}"
            f"{why}. Lower Opts.local, or Opts.upcast and Opts.unroll (they take the registers)."
        )


def _refuse(where: str, wanted: str, on: Target, allowed: int, fix: str) -> None:
    raise TargetError(f"{where} wants {wanted}, {on} allows {allowed}. {fix}")
