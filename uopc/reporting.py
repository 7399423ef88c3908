"""`uopc.report` and `uopc.predict`: what there is to say about a kernel in whatever form it comes.

The report itself: `uopc/inspect/`.  Here arrays let the emulator say where data sends accesses, and
the changes that warnings suggest are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from uopc.errors import UopcError, UsageError
from uopc.inspect.advice import FEW_BLOCKS
from uopc.inspect.gpus import GPU, named_gpu
from uopc.inspect.records import Advice, How, ProgramReport, Report
from uopc.inspect.report import program_report
from uopc.launches import launches_of
from uopc.observing import observed
from uopc.opts import Opts
from uopc.pipeline import Kernel, Step, compile
from uopc.show import Shown, subject_steps, usual_target
from uopc.tensor import Tensor
from uopc.uop.node import UOp
from uopc.uop.ops import Ops
from uopc.userfile import Lazy, Subject, kernel_name

#: statements of threads beyond which a kernel is not emulated only to see where it reads
MOST_WORK = 1 << 28
#: how much faster more blocks must make a kernel before few are a fault
WORTH_MORE_BLOCKS = 1.05


def report(
    kernel: Any,
    *arrays: Any,
    target: str | None = None,
    opts: Opts | None = None,
    gpu: str | GPU | None = None,
    name: str = "kernel",
) -> ProgramReport:
    """What a kernel does to memory, what bounds it, and why it looks like that.  No GPU is needed.

    Parameters
    ----------
    kernel: a shaped body or several, loop IR (a SINK), a compiled Kernel for a GPU target, or lazy
        Tensors.
    arrays: in slot order, not for Tensors; where data decides where an access goes, the emulator
        runs on them.  Without them such accesses are listed, and not counted.
    target, opts: as `uopc.compile` takes them; None: what `gpu` is, without that this machine's
        GPU, or sm_80 where there is none; and automatic choices.
    gpu: the GPU that times are for: "H200", another name, or a record of its rates; None: a usual
        one of the target.
    name: of what is no Kernel yet; a Kernel has its own.

    Raises UsageError for what is no kernel of a GPU, arrays that do not fit, a GPU that is not
    known or does not run kernels for the target.
    """
    if isinstance(kernel, Kernel):
        name = kernel.steps[-1].source.name
    return reported(_subject(kernel), name, arrays, target, opts, gpu)


def predict(kernel: Any, gpu: str | GPU | None = None, **how: Any) -> float:
    """Microseconds that a kernel is expected to take on a GPU, its launches one after the other.

    kernel, gpu, how: as `report` takes them.  What the number is made of: note 0016.
    """
    return report(kernel, gpu=gpu, **how).predicted_s * 1e6


def reported(
    subject: Subject,
    name: str,
    arrays: Sequence[Any] = (),
    target: str | None = None,
    opts: Opts | None = None,
    gpu: str | GPU | None = None,
) -> ProgramReport:
    """The report on what `uopc.userfile.load` gives; the changes that its warnings suggest are
    tried where Opts can be given."""
    if isinstance(subject, Kernel) and target == subject.target.name:
        target = None  # that is what it is compiled for
    if target is None and gpu is not None and not isinstance(subject, Kernel):
        target = named_gpu(gpu).arch
    bodies = subject if isinstance(subject, tuple) else ()
    if isinstance(subject, tuple):
        subject = compile(list(subject), opts, usual_target(target), kernel_name(name))
        shown = Shown(name, subject.steps)
    else:
        shown = subject_steps(name, subject, target, None if opts is None else opts.to_json())
    on = shown.steps[0].source.target
    if not on.is_gpu:
        raise UsageError(
            f"{name} is for {on}: a report speaks of warps and their memory, so it wants a GPU "
            "target. Choose one such as sm_80."
        )
    first = program_report(name, shown.steps, gpu, shown.boundaries, least_bytes=shown.least_bytes)
    if arrays:
        first = _with_arrays(first, subject, arrays, shown.steps, gpu)
    if bodies and len(first.launches) == 1:
        (one,) = first.launches
        tried = [_tried(w, bodies, one, name, gpu) for w in one.warnings]
        kept = tuple([w for w in tried if w is not None])
        return replace(first, launches=(replace(one, warnings=kept),))
    return first


def _subject(kernel: Any) -> Subject:
    if isinstance(kernel, Tensor):
        return Lazy((kernel,))
    if isinstance(kernel, Kernel) or (isinstance(kernel, UOp) and kernel.op is Ops.SINK):
        return kernel
    several = list(kernel) if isinstance(kernel, list | tuple) else [kernel]
    if several and all(isinstance(x, Tensor) for x in several):
        return Lazy(tuple(several))
    return tuple(several)


def _with_arrays(
    made: ProgramReport,
    subject: Kernel | UOp | Lazy,
    arrays: Sequence[Any],
    steps: Sequence[Step],
    gpu: str | GPU | None,
) -> ProgramReport:
    """The same with counts of an emulated run where data decides; unchanged where nothing does, or
    emulation would take long."""
    if isinstance(subject, Lazy):
        raise UsageError(
            f"{made.name} is tensors, which have their values: no arrays can be given for them. "
            "Report on the body of one kernel."
        )
    launches = launches_of(subject, arrays, name=made.name)
    unknown = any(a.how is How.UNKNOWN for r in made.launches for a in r.accesses)
    if not unknown or sum(s.work for s in launches.sources(check=False)) > MOST_WORK:
        return made
    found = observed(subject, *arrays, name=made.name)
    return program_report(made.name, steps, gpu, found=found)


def _tried(
    advice: Advice, bodies: Sequence[UOp], before: Report, name: str, gpu: str | GPU | None
) -> Advice | None:
    """A warning, and what came of the change that it suggests; None where more blocks would not
    help."""
    if advice.opts is None:
        return advice
    try:
        kernel = compile(list(bodies), advice.opts, before.target, name)
        after = program_report(name, kernel.steps, gpu)
    except UopcError as error:
        return replace(advice, opts=None, tried=f"refused: {error}")
    gain = before.roofline.predicted_s / after.predicted_s
    if advice.kind == FEW_BLOCKS and gain < WORTH_MORE_BLOCKS:
        return None
    sectors = sum(a.sectors for r in after.launches for a in r.accesses)
    moved = f"{sectors} sectors instead of {sum(a.sectors for a in before.accesses)}"
    times = (after.predicted_s * 1e6, before.roofline.predicted_s * 1e6)
    return replace(advice, tried=f"{moved}, {times[0]:.1f} us expected instead of {times[1]:.1f}")
