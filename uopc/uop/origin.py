"""The user's file and line: where a node was written, for messages and for comments in sources.

Frames of `node.py`, `cursor.py` and `uopc/tensor` are what the user called; those of
`uopc/examples` are a user's; any other frame of the package is a pass.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from uopc.uop.node import UOp

Origin: TypeAlias = tuple[str, int]

#: places that a node remembers: equal nodes are one, wherever the user wrote them
ORIGINS = 3
_PACKAGE = str(Path(__file__).parents[1]) + "/"
_EXAMPLES = _PACKAGE + "examples"
_TENSOR = _PACKAGE + "tensor/"
_OPERATORS = frozenset(
    (
        *(str(Path(__file__).with_name(name)) for name in ("node.py", "cursor.py")),
        contextlib.__file__,  # scopes of a Cursor
    )
)


_called: dict[str, bool] = {}  # whether a file is one of those: asked for every frame of every node


def user_frame(depth: int) -> tuple[Origin, ...]:
    """The line outside uopc that called this module; () where a pass of ours did."""
    frame = sys._getframe(depth)
    called = _called.get
    while frame is not None:
        file = frame.f_code.co_filename
        if not (_is_called(file) if (known := called(file)) is None else known):
            break
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None or _is_ours(frame.f_code.co_filename):
        return ()
    return ((frame.f_code.co_filename, frame.f_lineno),)


def _is_called(file: str) -> bool:
    found = _called[file] = file in _OPERATORS or file.startswith(_TENSOR)
    return found


def _is_ours(file: str) -> bool:
    return file.startswith(_PACKAGE) and not file.startswith(_EXAMPLES)


def here() -> str:
    """file:line of the user's call, for messages raised while a node is built."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        _is_ours(frame.f_code.co_filename) or frame.f_code.co_filename in _OPERATORS
    ):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def where_from(u: UOp) -> str:
    """file:line where the user wrote a node (the last place, where several share it)."""
    if not u.origins:
        return "generated"
    file, line = u.origins[0]
    return f"{Path(file).name}:{line}"
