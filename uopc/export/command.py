"""`uopc export FILE:NAME -o DIR`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from uopc import __version__
from uopc.compiled import Kernel, Step
from uopc.errors import UsageError
from uopc.export.described import Exported, describe
from uopc.export.folder import check_folder, write_folder
from uopc.export.numbers import Numbers, numbers_for
from uopc.export.texts import files_of
from uopc.launches import Subject
from uopc.pipeline import compile
from uopc.printing import facts
from uopc.render.base import check_name
from uopc.runtime.cuda import device_target, why_unusable
from uopc.show import DEFAULT_ARCH, parse_opts, steps_of
from uopc.target import target as named_target
from uopc.uop.node import UOp
from uopc.uop.spec import check as check_spec
from uopc.uop.stages import Stage
from uopc.userfile import Lazy, kernel_name, load_with_arrays
from uopc.userfile import Subject as UserSubject


def export(
    out: Console,
    what: str,
    to: str,
    target: str | None,
    opts: str | None,
    name: str | None,
    check: bool,
    force: bool,
) -> int:
    """Write the kernel that FILE:NAME is into a folder that builds without Python.  Returns 0.

    Parameters
    ----------
    target: a GPU's arch; None for this machine's GPU, or sm_80 where there is none.
    opts: JSON text.  name: prefix of the C symbols, None for NAME.
    check: whether the program compares its results; they are computed here.
    force: whether files that no export wrote are overwritten.

    Raises UsageError for what the caller can change, another UopcError for what failed.
    """
    check_folder(Path(to), force)  # before anything that takes time
    given, subject, arrays = load_with_arrays(what)
    called = kernel_name(given) if name is None else check_name(name)
    kernel, steps, bodies = _kernel(given, called, subject, target, opts)
    on = None if isinstance(subject, Kernel) else steps[0].source.target.name
    command = _command(what, on, opts, name, check)
    exported = describe(called, command, kernel, steps, bodies)
    numbers = numbers_for(exported, bodies, arrays, check)
    files = files_of(exported, numbers)
    write_folder(Path(to), files, f"uopc {__version__}: {command}", force)
    _say(out, to, exported, numbers, len(files) + 1)
    return 0


def _kernel(
    given: str, name: str, subject: UserSubject, target: str | None, opts: str | None
) -> tuple[Subject, tuple[Step, ...], Sequence[UOp]]:
    """What the emulator runs, its launches, and the bodies where they are known."""
    if isinstance(subject, Lazy):
        raise UsageError(
            f"{given} is tensors, of which a schedule makes kernels: one kernel is wanted here, as "
            "a body, a SINK or a Kernel."
        )
    if not isinstance(subject, Kernel):
        target = _gpu(given, target)
    if isinstance(subject, Kernel | UOp):
        return subject, steps_of(name, subject, target, opts), ()
    for body in subject:
        check_spec(body, Stage.TENSOR)
    choice = None if opts is None else parse_opts(opts, gpu=True)
    made = compile(subject, choice, target, name)
    return made, made.steps, subject


def _gpu(given: str, target: str | None) -> str:
    """The arch by its name.  Raises UsageError for what is no GPU's."""
    if target in (None, "cuda"):
        if target is None and why_unusable():
            return DEFAULT_ARCH
        return device_target().name
    assert target is not None
    if target == "emulated" or not named_target(target).is_gpu:
        raise UsageError(
            f"--target {target}: what is exported runs on a GPU. Give its arch, such as sm_90a; "
            f"the emulator checks {given} with uopc check."
        )
    return target


def _command(what: str, target: str | None, opts: str | None, name: str | None, check: bool) -> str:
    """The command that makes the same files, wherever FILE lies.

    target: None for what was compiled before, which takes none.
    """
    file, _, kernel = what.rpartition(":")
    words = ["uopc", "export", f"{Path(file).name}:{kernel}"]
    words += [] if target is None else ["--target", target]
    words += [] if opts is None else ["--opts", parse_opts(opts, gpu=True).to_json()]
    words += [] if name is None else ["--name", name]
    words += [] if check else ["--no-check"]
    return shlex.join(words)


def _say(out: Console, to: str, exported: Exported, numbers: Numbers, count: int) -> None:
    rows = [("written", f"{count} files in {to}: cd there, make, make run")]
    for p in exported.parts:
        launch = p.text.launch
        rows.append(
            (
                p.stem,
                f"{p.text.name} for {exported.target}, grid {launch.grid}, block {launch.block}",
            )
        )
    if exported.workspace_bytes:
        rows.append(
            ("workspace", f"{exported.workspace_bytes} bytes that a handle holds on the GPU")
        )
    rows.append(("checked", _checked(exported, numbers)))
    facts(out, rows)


def _checked(exported: Exported, numbers: Numbers) -> str:
    if not numbers.by:
        return f"no: {numbers.why_not}"
    if not numbers.wanted:
        return "no: the kernel writes no array; make run shows what it prints"
    exact = all(w.exact for w in numbers.wanted.values())
    how = "bit for bit" if exact else "within a tolerance (README.txt)"
    text = f"make run compares {how} with the {numbers.by} kernel"
    if nans := sum(w.nans for w in numbers.wanted.values()):
        of = sum(w.samples.size for w in numbers.wanted.values())
        text += f"; {nans} of {of} kept results are NaN: give {exported.name}_arrays in the file"
    return text
