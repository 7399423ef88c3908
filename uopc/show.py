"""`uopc show FILE:NAME`: a kernel of a user's file, its text, launch and resources."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rich.console import Console

from uopc.errors import UsageError
from uopc.inspect.explain import boundaries, passes
from uopc.inspect.records import Boundary, PassReport
from uopc.kernel import Passed
from uopc.opts import Opts
from uopc.pipeline import Kernel, Step, compile, finish
from uopc.printing import code, facts, heading, step_facts
from uopc.render.c import render_c
from uopc.render.cuda import render_cuda
from uopc.render.emulate import render_emulated
from uopc.runtime.cuda import device_target, why_unusable
from uopc.runtime.nvrtc import compile_ptx
from uopc.target import Target
from uopc.target import target as named_target
from uopc.tensor.engine import schedule_of
from uopc.tensor.prepare import steps_for
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import Ops
from uopc.uop.spec import check
from uopc.uop.stages import GPU_OPS, GPU_RANGES, Stage
from uopc.userfile import Lazy, Subject, kernel_name, load

DEFAULT_ARCH = "sm_80"
EXAMPLE = '{"local": {"0": 8, "1": 16}, "upcast": {"0": 2}}'
BY_HAND = "as written"


@dataclass(frozen=True)
class Shown:
    """What FILE:NAME is: its launches in order, and what stands between them.

    boundaries, moved_bytes and least_bytes are of tensors, of which a schedule makes kernels: why
    values are stored, bytes that all of its kernels read and write, and the fewest that could do.
    """

    name: str
    steps: tuple[Step, ...]
    boundaries: tuple[Boundary, ...] = ()
    moved_bytes: int = 0
    least_bytes: int = 0


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
    shown = subject_steps(name, subject, target, opts)
    steps = shown.steps
    for n, step in enumerate(steps):
        if len(steps) > 1:
            heading(out, f"launch {n + 1} of {len(steps)}")
        _print(out, step, view, target == "emulated", takes_opts=not shown.boundaries)
        if n + 1 < len(steps):
            out.print()
    if shown.boundaries:
        out.print()
        print_boundaries(out, shown.boundaries, shown.moved_bytes, shown.least_bytes)
    return 0


def print_boundaries(
    out: Console, found: Sequence[Boundary], moved_bytes: int, least_bytes: int
) -> None:
    """Why kernels end where they do: what each leaves in memory, what is computed again, what was
    kept apart."""
    heading(out, f"{moved_bytes} bytes moved, {least_bytes} at least")
    where = [f"launch {b.kernel + 1}" if b.kernel >= 0 else "overall" for b in found]
    said = list(zip(where, (b.text for b in found), strict=True))
    facts(out, said)


def subject_steps(
    name: str, subject: Subject, target: str | None = None, opts: str | None = None
) -> Shown:
    """What `uopc.userfile.load` gave, compiled: its launches, and for tensors the boundaries.

    target: None for this machine's GPU, or sm_80 where there is none.  opts: JSON text.

    Raises UsageError for what the caller can change.
    """
    if not isinstance(subject, Lazy):
        return Shown(name, steps_of(name, subject, target, opts))
    if opts is not None:
        raise UsageError(
            f"{name} is tensors, of which a schedule makes kernels: --opts cannot say which of "
            "them it is for. Show the body of one kernel."
        )
    target = usual_target(target)
    plan = schedule_of(*subject.tensors, on=_named(target))
    counts: Counter[str] = Counter()
    steps: list[Step] = []
    last: list[int] = []
    for launch in plan.launches:
        counts[launch.name] += 1
        again = f"_{counts[launch.name]}" if counts[launch.name] > 1 else ""
        steps += steps_for(launch, target, launch.name + again)
        last.append(len(steps) - 1)
    found = boundaries(plan, last)
    return Shown(name, tuple(steps), found, plan.moved_bytes, plan.least_bytes)


def steps_of(
    name: str, subject: Subject, target: str | None = None, opts: str | None = None
) -> tuple[Step, ...]:
    """The launches of a kernel, or of tensors; one of loop IR has one.  As `subject_steps`."""
    if isinstance(subject, Lazy):
        return subject_steps(name, subject, target, opts).steps
    if isinstance(subject, Kernel):
        if target is not None or opts is not None:
            given = "--opts" if target is None else "--target"
            raise UsageError(
                f"{name} is compiled already, for {subject.target}: {given} comes too late. "
                f"Show its body instead."
            )
        return subject.steps
    target = usual_target(target)
    on = _named(target)
    name = kernel_name(name)
    if isinstance(subject, UOp):
        if opts is not None:
            raise UsageError(
                f"{name} is loop IR: its choices are made, --opts has nothing to change."
            )
        return (_written_by_hand(name, subject, on),)
    for body in subject:
        check(body, Stage.TENSOR)
    choice = None if opts is None else parse_opts(opts, on.is_gpu)
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


def usual_target(asked: str | None) -> str:
    """What is asked for, else this machine's GPU, else an arch that shows what GPUs do."""
    return asked or (DEFAULT_ARCH if why_unusable() else "cuda")


def _named(target: str) -> Target:
    if target == "cuda":
        return device_target()
    return named_target(DEFAULT_ARCH if target == "emulated" else target)


def _written_by_hand(name: str, sink: UOp, on: Target) -> Step:
    """Loop IR has one launch and no choices."""
    if not on.is_gpu and any(_is_gpus(u) for u in toposort(sink)):
        raise UsageError(
            f"{name} is written for a GPU: it has blocks and threads. Choose a target such as "
            f"{DEFAULT_ARCH} or emulated, not {on}."
        )
    check(sink, Stage.LOOPS, on.is_gpu)
    program = finish(sink)
    source = render_cuda(program, name, on) if on.is_gpu else render_c(program, name)
    opts = Opts(gpu=on.is_gpu)
    written = Passed(BY_HAND, sink, "loop IR", Stage.LOOPS)
    return Step(sink, opts, program, source, runs=source, trace=(written,))


def _is_gpus(u: UOp) -> bool:
    return u.op in GPU_OPS or (u.op is Ops.RANGE and u.arg.kind in GPU_RANGES)


def _print(out: Console, step: Step, view: View, emulated: bool, takes_opts: bool) -> None:
    on, name = step.source.target, step.source.name
    if view in (View.PTX, View.SASS):
        if not on.is_gpu:
            raise UsageError(f"--{view.value} is for GPU kernels, this one is for {on}.")
        text = step.cubin.sass if view is View.SASS else compile_ptx(step.cuda_source, name, on)
        code(out, text, view.value)
        return
    if view is View.STEPS:
        if step.decisions:
            heading(out, "choices, each with its reason and the rule that made it")
            facts(out, [(d.field, f"{d.value}: {d.why} [{d.rule}]") for d in step.decisions])
            out.print()
        for passed in passes(step):
            _print_pass(out, passed)
    text, language = _text(step, emulated)
    code(out, text, language)
    out.print()
    if step.trace[0].name == BY_HAND:
        facts(out, step_facts(step))
        return
    facts(out, [*step_facts(step), ("choice", str(step.opts))])
    if takes_opts:
        out.print(f"--opts '{step.opts.to_json()}'", soft_wrap=True)  # in one piece, to be copied


def _print_pass(out: Console, passed: PassReport) -> None:
    """Its name and reason, the rules that fired in it, and the graph where it has changed that."""
    heading(out, f"{passed.name}: {passed.why}")
    if passed.rules:
        facts(out, [("fired", ", ".join(f"{rule} x{n}" for rule, n in passed.rules))])
    out.out(passed.text if passed.changed else "(as before)", highlight=False)
    out.print()


def _text(step: Step, emulated: bool) -> tuple[str, str]:
    """What is read, with the user's file and line as comments, and its language."""
    on, name = step.source.target, step.source.name
    if not on.is_gpu:
        return render_c(step.program, name, origins=True), "c"
    if emulated:
        return render_emulated(step.program, name, target=on, origins=True), "c"
    return render_cuda(step.program, name, on, origins=True), "cuda"
