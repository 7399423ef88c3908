"""`uopc show FILE:NAME`: a kernel of a user's file, its text, launch and resources."""

from __future__ import annotations

import json
from enum import Enum

from rich.console import Console

from uopc.errors import UsageError
from uopc.opts import Opts
from uopc.pipeline import (
    LOWERING,
    Kernel,
    Step,
    compile,
    emulate,
    finish,
    render_cuda,
    render_native,
)
from uopc.printing import code, facts, heading, step_facts
from uopc.render.base import check_name
from uopc.runtime.cuda import device_target, why_unusable
from uopc.runtime.nvrtc import compile_ptx
from uopc.target import CPU, Target
from uopc.target import target as named_target
from uopc.uop.node import UOp
from uopc.uop.spec import Stage, check
from uopc.uop.text import show as graph_text
from uopc.userfile import Subject, load

DEFAULT_ARCH = "sm_80"
EXAMPLE = '{"local": {"0": 8, "1": 16}, "upcast": {"0": 2}}'
_WHY = {"index": "the body over ranges, before any choice"} | {p.name: p.why for p in LOWERING}


class View(Enum):
    """Which text of a kernel is shown."""

    SOURCE = "source"
    PTX = "ptx"
    SASS = "sass"
    STEPS = "steps"


def show(out: Console, what: str, target: str | None, opts: str | None, view: View) -> int:
    """Print the kernel that FILE:NAME is.  Returns 0.

    target: None for this machine's GPU, or sm_80 where there is none.  opts: JSON text.

    Raises UsageError for what the caller can change, another UopcError for what failed.
    """
    name, subject = load(what)
    steps = steps_of(name, subject, target, opts)
    for n, step in enumerate(steps):
        if len(steps) > 1:
            heading(out, f"{'' if n == 0 else chr(10)}launch {n + 1} of {len(steps)}")
        _print(out, step, view, as_c=target == "emulated")
    return 0


def steps_of(
    name: str, subject: Subject, target: str | None = None, opts: str | None = None
) -> tuple[Step, ...]:
    """The launches of a kernel; one of loop IR has one."""
    if isinstance(subject, Kernel):
        if target or opts:
            given = "--target" if target else "--opts"
            raise UsageError(
                f"{name} is compiled already, for {subject.target}: {given} comes too late. "
                f"Show its body instead."
            )
        return subject.steps
    target = target or (DEFAULT_ARCH if why_unusable() else "cuda")
    on = _named(target)
    name = _kernel_name(name)
    if isinstance(subject, UOp):
        if opts:
            raise UsageError(
                f"{name} is loop IR: its choices are made, --opts has nothing to change."
            )
        return (_written_by_hand(name, subject, target, on),)
    for body in subject:
        check(body, Stage.TENSOR)
    choice = parse_opts(opts, on.is_gpu) if opts else None
    return compile(subject, choice, target, name).steps


def parse_opts(text: str, gpu: bool) -> Opts:
    """Opts from JSON of the fields that differ from the default; gpu follows the target.

    Raises UsageError that shows how they are written.
    """
    try:
        given = json.loads(text)
        if not isinstance(given, dict):
            raise TypeError(f"an object is wanted, got {type(given).__name__}")
        return Opts.from_json(json.dumps({"gpu": gpu} | given))
    except UsageError:
        raise
    except (TypeError, ValueError) as error:
        raise UsageError(f"--opts {text!r}: {error}. Write them like {EXAMPLE}.") from None


def _named(target: str) -> Target:
    if target == "cuda":
        return device_target()
    return named_target(DEFAULT_ARCH if target == "emulated" else target)


def _kernel_name(name: str) -> str:
    """The user's name where a kernel may be called so."""
    try:
        return check_name(name)
    except UsageError:
        return "kernel"


def _written_by_hand(name: str, sink: UOp, target: str, on: Target) -> Step:
    check(sink, Stage.LOOPS, on.is_gpu)
    if on is CPU:
        source = render_native(sink, name)
    else:
        source = emulate(sink, name) if target == "emulated" else render_cuda(sink, name, on)
    return Step(sink, Opts(gpu=on.is_gpu), finish(sink), source, (("as written", sink),))


def _print(out: Console, step: Step, view: View, as_c: bool) -> None:
    gpu = step.source.target.is_gpu
    if view in (View.PTX, View.SASS):
        if not gpu:
            raise UsageError(
                f"--{view.value} is for GPU kernels, this one is for {step.source.target}."
            )
        source = step.cuda_source
        if view is View.SASS:
            code(out, step.cubin.sass, "sass")
        else:
            code(out, compile_ptx(source, source.name, source.target), "ptx")
        return
    if view is View.STEPS:
        for name, graph in step.trace:
            heading(out, f"{name}: {_WHY[name]}" if name in _WHY else name)
            out.out(graph_text(graph), "\n", highlight=False)
    source = step.cuda_source if gpu and not as_c else step.source
    code(out, source, source.language)
    by_hand = len(step.trace) == 1
    choice = [] if by_hand else [("choice", str(step.opts)), ("as JSON", step.opts.to_json())]
    out.print()
    facts(out, [*step_facts(step), *choice])
