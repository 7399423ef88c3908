"""FILE:NAME of the command line: run a user's Python file and take a kernel from it.

What goes wrong in the file is told with its line; what is asked for and not there, with what is.
"""

from __future__ import annotations

import difflib
import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from uopc.dtype import dtypes
from uopc.errors import UopcError, UsageError
from uopc.pipeline import Kernel
from uopc.render.base import check_name
from uopc.tensor import Tensor
from uopc.tensor.engine import is_lazy
from uopc.uop.node import UOp
from uopc.uop.ops import Ops


@dataclass(frozen=True)
class Lazy:
    """Tensors that are not computed yet: a schedule makes kernels of them."""

    tensors: tuple[Tensor, ...]


#: a compiled kernel, hand-written loop IR (a SINK), shaped bodies, or lazy tensors
Subject: TypeAlias = Kernel | UOp | tuple[UOp, ...] | Lazy
KINDS = (
    "a shaped body, a lazy Tensor, a list of either, a SINK, a Kernel, or a function without "
    "arguments of one"
)


def load(what: str) -> tuple[str, Subject]:
    """NAME, and the kernel that it is in FILE.

    Raises UsageError where FILE or NAME is not there or is something else, UopcError where the
    file's own code fails.
    """
    name, subject, _ = load_with_arrays(what)
    return name, subject


def load_with_arrays(what: str) -> tuple[str, Subject, tuple[Any, ...] | None]:
    """NAME, its kernel, and the arrays that FILE has for it; None where it has none.

    These are what a function NAME returns after the kernel, as in (kernel, [x, y]), or else what
    the file calls NAME_arrays: a list of them, or a function without arguments that returns one.
    Raises what `load` raises.
    """
    file, colon, name = what.rpartition(":")
    path, name = (Path(file), name) if colon else (Path(what), "")
    if not path.exists():
        raise UsageError(f"there is no file {path}. Give FILE:NAME, such as model.py:softmax.")
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Give a Python file in it: FILE:NAME.")
    with its_own_folder(path):
        module = run_file(path)
        if not name:
            raise UsageError(f"which kernel of {path}? Give {path}:NAME. {candidates(module)}")
        if name not in vars(module):
            raise UsageError(f"{path} has no {name}. {candidates(module, name)}")
        value, where = vars(module)[name], f"{name} in {path.name}"
        if is_function(value):
            value, where = returned(path, name, value), f"what {name}() in {path.name} returned"
        arrays = vars(module).get(beside := f"{name}_arrays")
        if _has_arrays(value):
            value, arrays = value
        elif is_function(arrays):
            arrays = returned(path, beside, arrays)
        subject = _subject(value, where)
        if isinstance(subject, Lazy) and arrays is not None:
            raise UsageError(
                f"{where} is tensors, which have their memory; there are arrays beside it "
                f"({beside}, or what follows it). Leave them out."
            )
        return name, subject, checked_arrays(arrays, beside)


def kernel_name(name: str) -> str:
    """The user's name where a kernel may be called so."""
    try:
        return check_name(name)
    except UsageError:
        return "kernel"


def run_file(path: Path) -> ModuleType:
    """The module that a file makes, whatever its name ends in; no bytecode is left behind."""
    module = ModuleType(path.stem)
    module.__file__ = os.path.abspath(path)  # of which nodes show what is below the working folder
    sys.modules[module.__name__] = module  # dataclasses and pickle look their module up
    with its_own_errors(path, path.name):
        exec(compile(path.read_bytes(), module.__file__, "exec"), vars(module))
    return module


@contextmanager
def its_own_folder(path: Path) -> Iterator[None]:
    """Let the file import what lies beside it, as `python FILE` does."""
    before, known = list(sys.path), dict(sys.modules)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        yield
    finally:
        sys.path[:] = before
        if path.stem in known:
            sys.modules[path.stem] = known[path.stem]
        else:
            sys.modules.pop(path.stem, None)


@contextmanager
def its_own_errors(path: Path, what: str) -> Iterator[None]:
    """Whatever the user's code raises as a UopcError with its file, line and text."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: the file ended itself
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        file = os.path.abspath(path)
        lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        if isinstance(error, SyntaxError) and error.filename == file:
            said = f"{type(error).__name__}: {error.msg}"
            place, text = f"{path}:{error.lineno}", error.text or ""
        elif lines:
            place, text = f"{path}:{lines[-1].lineno}", lines[-1].line or ""
        else:
            place, text = str(path), ""
        shown = f"\n    {text.strip()}" if text.strip() else ""
        raise UopcError(f"{what} failed at {place}: {said}{shown}") from error


def returned(path: Path, name: str, function: Any) -> Any:
    """What the file's function returns; UsageError where a call needs arguments."""
    if needed := required_parameters(function):
        raise UsageError(
            f"{name} in {path.name} wants arguments ({', '.join(needed)}). Give them defaults, or "
            f"write a function without arguments that calls it."
        )
    with its_own_errors(path, f"{name}() in {path.name}"):
        return function()


def _has_arrays(value: Any) -> bool:
    """Is it (kernel, arrays)?"""
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    arrays = value[1]
    if isinstance(arrays, list | tuple):
        return not any(isinstance(a, UOp | Tensor) for a in arrays)
    return isinstance(arrays, np.ndarray)


def checked_arrays(given: Any, called: str) -> tuple[Any, ...] | None:
    """Raises UsageError for what is no list of arrays."""
    if given is None:
        return None
    if isinstance(given, np.ndarray | np.generic):
        return (given,)
    if not isinstance(given, list | tuple):
        kind = type(given).__name__
        raise UsageError(f"{called} is {kind}; arrays for a kernel are a list in slot order.")
    return tuple(given)


def _subject(value: Any, where: str) -> Subject:
    """Raises UsageError for what is no kernel."""
    if isinstance(value, Kernel) or (isinstance(value, UOp) and value.op is Ops.SINK):
        return value
    several = isinstance(value, list | tuple)
    bodies = tuple(value) if several else (value,)
    if bodies and all(isinstance(x, Tensor) for x in bodies):
        return _lazy(bodies, where)
    if bodies and all(isinstance(body, UOp) for body in bodies):
        for body in bodies:
            if body.dtype is dtypes.void:
                raise UsageError(
                    f"{where} is {body.op}, a part of a kernel. A kernel of loop IR is a SINK: "
                    f"close its effects with uopc.uop.sink(...)."
                )
        return bodies
    kind = type(value).__name__
    if several:
        kind += f" of {', '.join(sorted({type(x).__name__ for x in bodies})) or 'nothing'}"
    raise UsageError(f"{where} is no kernel but {kind}. show takes {KINDS}.")


def _lazy(tensors: tuple[Tensor, ...], where: str) -> Lazy:
    """Raises UsageError where nothing is left to compute."""
    if not any(is_lazy(t) for t in tensors):
        whose = "its elements are" if len(tensors) == 1 else "their elements are all"
        raise UsageError(
            f"{where}: {whose} in memory already, no kernel is left to show. Let it be a function "
            "that returns what is not computed yet."
        )
    return Lazy(tensors)


def is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, Kernel | UOp | Tensor | type)


def required_parameters(function: Any) -> list[str]:
    """Names of the parameters that a call must give."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C: nothing is known
        return []
    bare = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in bare]


def candidates(module: ModuleType, wanted: str = "") -> str:
    """The names of a file that may be kernels, and which of them looks like the wanted one."""
    names = [n for n, v in vars(module).items() if not n.startswith("_") and _may_be(module, v)]
    if not names:
        return f"Nothing in it is a kernel: {KINDS}."
    near = difflib.get_close_matches(wanted, names, n=1)
    guess = f"Did you mean {near[0]}? " if near else ""
    return f"{guess}Its kernels: {', '.join(names)}."


def _may_be(module: ModuleType, value: Any) -> bool:
    if inspect.isfunction(value):
        return value.__module__ == module.__name__ and not required_parameters(value)
    try:
        _subject(value, "")
    except UsageError:
        return False
    return True
