"""Whose fault it is: the first thing an error says.

Every error that uopc raises on purpose is a `UopcError`.  Its class names the party at fault, its
text names the place, what was expected, what came, and what to do.
"""

from __future__ import annotations


class UopcError(Exception):
    """Root of every error that uopc raises on purpose."""


class UsageError(UopcError, ValueError):
    """The caller's fault: shapes, dtypes, arguments, or an Opts that does not fit its kernel."""


class OutOfRangeError(UsageError, IndexError):
    """An index that a kernel reads from an array names no element."""


class JitError(UsageError):
    """A captured function does what a replay cannot do again, such as read a value."""


class SpecError(UopcError):
    """A graph breaks the table of its stage: a pass's fault, or that of hand-written IR."""


class GradientError(UopcError, AssertionError):
    """The gradients of a function are not its differences: what `gradcheck` finds."""


class TargetError(UopcError):
    """The kernel asks for more than the target has: threads, shared memory, grid, parameters."""


class ToolchainError(UopcError):
    """Something outside is missing or refused: a compiler, NVRTC, a driver, the disk."""


class DeviceError(ToolchainError):
    """A device is missing or failed while it ran a kernel."""


class CompilerError(UopcError):
    """uopc's own fault: an invariant of a pass does not hold.  Please report it."""
