"""The user's file and line: where a node was written, for messages and for comments in sources.

A frame of `node.py` is the operator that the user called; any other frame of the package is a pass.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from uopc.uop.node import UOp

Origin: TypeAlias = tuple[str, int]

#: places that a node remembers: equal nodes are one, wherever the user wrote them
ORIGINS = 3
_PACKAGE = str(Path(__file__).parents[1]) + "/"
_OPERATORS = str(Path(__file__).with_name("node.py"))


def user_frame(depth: int) -> tuple[Origin, ...]:
    """The line outside uopc that called this module; () where a pass of ours did."""
    frame = sys._getframe(depth)
    while frame is not None and frame.f_code.co_filename == _OPERATORS:
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None or frame.f_code.co_filename.startswith(_PACKAGE):
        return ()
    return ((frame.f_code.co_filename, frame.f_lineno),)


def here() -> str:
    """file:line of the user's call, for messages raised while a node is built."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def where_from(u: UOp) -> str:
    """file:line where the user wrote a node (the last place, where several share it)."""
    if not u.origins:
        return "generated"
    file, line = u.origins[0]
    return f"{Path(file).name}:{line}"
