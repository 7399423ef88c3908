"""The way of one kernel: read it from top to bottom.

`compile` is the one call that does all of it.  `LOWERING` is the ordered list of passes, one line
each with the reason it stands there; `lower` runs it and can record every graph on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from itertools import chain
from typing import Protocol

from uopc import config
from uopc.choose import cpu as choose_cpu
from uopc.choose import gpu as choose_gpu
from uopc.choose.facts import KernelFacts, lanes_filled
from uopc.choose.folding import folding_opts
from uopc.compiled import Kernel as Kernel  # also for those who look for it here
from uopc.compiled import Step as Step
from uopc.compiled import render_for
from uopc.decision import Because, Guess, Reason, given, kind
from uopc.errors import DeviceError, TargetError, UsageError
from uopc.kernel import (
    UNASKED,
    USUAL,
    Dims,
    Fired,
    KernelBody,
    Numerics,
    Passed,
    ProgramTree,
    Source,
)
from uopc.opts import Opts
from uopc.passes.bind import bind
from uopc.passes.cooperate import cooperate
from uopc.passes.cut import cut, nested, work
from uopc.passes.displace import displace
from uopc.passes.effects import effects
from uopc.passes.exact_math import exact_math
from uopc.passes.in_place import (
    apart,
    check_in_place,
    confined,
    is_in_place,
    may_write_in_place,
)
from uopc.passes.last_block import with_last_block
from uopc.passes.legalise import legalise
from uopc.passes.linearize import linearize
from uopc.passes.materialise import materialise
from uopc.passes.pack import pack
from uopc.passes.pipeline import pipeline
from uopc.passes.rangeify import rangeify, rangeify_kernel
from uopc.passes.scans import scans
from uopc.passes.segments import Segmented, segment_opts, segments
from uopc.passes.share import axes_of, reduced_axes, scanned_axes, share
from uopc.passes.split import split
from uopc.passes.split_grid import split_axis, split_grid
from uopc.passes.split_scan import split_scan
from uopc.passes.tile_product import tile_product
from uopc.passes.turn import turn
from uopc.passes.vectorise import vectorise
from uopc.passes.write_operands import write_operands
from uopc.render.c import render_c
from uopc.render.cuda import render_cuda as render_cuda_text
from uopc.render.emulate import render_emulated
from uopc.runtime import cuda, device, winners
from uopc.symbolic import simplify
from uopc.target import Target
from uopc.target import target as named_target
from uopc.uop.match import Step as Rewriting
from uopc.uop.node import UOp, buffer, prod, toposort
from uopc.uop.ops import Ops
from uopc.uop.spec import Stage, check

Trace = list[Passed]


class Run(Protocol):
    """What a pass does under opts; a Fired is told of it."""

    def __call__(self, root: UOp, opts: Opts, fired: Fired = UNASKED, /) -> UOp: ...


@dataclass(frozen=True)
class Pass:
    """One pass: its name, what it does under opts, the stage it gives, and why it is here.

    wanted: of a pass that does not run for every kernel, whether it runs.
    """

    name: str
    run: Run
    gives: Stage
    why: str
    wanted: Callable[[Numerics], bool] = lambda numerics: True


def _plain(run: Callable[[UOp, Fired], UOp]) -> Run:
    """A pass that asks nothing of Opts."""
    return lambda root, opts, fired=UNASKED: run(root, fired)


def _simplify(root: UOp, fired: Fired) -> UOp:
    steps: list[Rewriting] = []
    root = simplify(root, steps)
    for step in steps:
        fired.add(step.rule)
    return root


def _cooperate(root: UOp, opts: Opts, fired: Fired = UNASKED) -> UOp:
    return cooperate(root, opts.gpu, fired)


def _materialise(root: UOp, opts: Opts, fired: Fired = UNASKED) -> UOp:
    return materialise(root, opts.keep, opts.gpu, fired)


def _effects(root: UOp, opts: Opts, fired: Fired = UNASKED) -> UOp:
    return _counted(effects(root, opts.gpu), fired)


def _tile_product(root: UOp, opts: Opts, fired: Fired = UNASKED) -> UOp:
    assert opts.plan is not None
    return _counted(tile_product(root, opts.plan), fired)


def _pipeline(root: UOp, opts: Opts, fired: Fired = UNASKED) -> UOp:
    assert opts.plan is not None
    return _counted(pipeline(root, opts.plan), fired)


def _vectorise(root: UOp, opts: Opts, fired: Fired = UNASKED) -> UOp:
    return vectorise(root, fired) if opts.gpu else root  # a C compiler vectorises by itself


#: of what passes make that give memory, copies and order; no pass before them has any of it
_PLACED = frozenset(
    (Ops.STAGE, Ops.ALLOC, Ops.BARRIER, Ops.COPY, Ops.MBAR_INIT, Ops.WAIT, Ops.WAITG, Ops.MMA)
)


def _counted(root: UOp, fired: Fired) -> UOp:
    """The graph that such a pass gives, once all of that is told."""
    for u in toposort(root):
        if u.op in _PLACED:
            space = f"-{u.arg.addrspace.name}" if u.op is Ops.ALLOC else ""
            fired.add(f"{u.op}{space}".lower())
    return root


def _asked(numerics: Numerics) -> bool:
    return numerics.exact_math


#: INDEXED -> LOOPS.  `rangeify` and `share` come before: Opts name the axes that those make.
LOWERING: tuple[Pass, ...] = (
    Pass("simplify", _plain(_simplify), Stage.INDEXED, "values are smallest before axes are cut"),
    Pass("split", split, Stage.MAPPED, "digits and guards, once the choice is made"),
    Pass("turn", turn, Stage.MAPPED, "digits are known, tiles need registers"),
    Pass("scans", _plain(scans), Stage.MAPPED, "lanes are known; what is left, lanes reduce"),
    Pass("cooperate", _cooperate, Stage.MAPPED, "lanes are known, SHUFFLEs are dear"),
    Pass("materialise", _materialise, Stage.MAPPED, "what is kept, before it gets memory"),
    Pass("effects", _effects, Stage.LOOPS, "memory and order"),
    Pass("vectorise", _vectorise, Stage.LOOPS, "nests are final"),
    Pass("exact_math", _plain(exact_math), Stage.LOOPS, "a function was one dear op", _asked),
    Pass("legalise", _plain(legalise), Stage.LOOPS, "last: earlier passes see the user's ops"),
)


_USUAL = {p.name: p for p in LOWERING}

#: INDEXED -> LOOPS of a product with a plan: who copies, who waits and who multiplies
BY_PLAN: tuple[Pass, ...] = (
    _USUAL["simplify"],
    Pass("tile_product", _tile_product, Stage.MAPPED, "the plan's tiles, in place of digits"),
    Pass("pipeline", _pipeline, Stage.LOOPS, "memory and order"),
    _USUAL["vectorise"],
    Pass("displace", _plain(displace), Stage.LOOPS, "accesses are as wide as they get"),
    _USUAL["exact_math"],
    _USUAL["legalise"],
)


def index(bodies: Sequence[UOp], outs: Sequence[UOp], merge: Sequence[int] = ()) -> UOp:
    """TENSOR -> INDEXED: ranges for shapes, equal axes shared, axes numbered."""
    return share(rangeify(bodies, outs, merge))


def index_kernel(body: KernelBody, on: Target) -> UOp:
    """A kernel of a schedule in INDEXED: the axes that Opts for it name."""
    root = share(rangeify_kernel(body), given=True)
    return lanes_filled(root) if on.is_gpu else root


def lower(root: UOp, opts: Opts, trace: Trace | None = None, numerics: Numerics = USUAL) -> UOp:
    """INDEXED -> LOOPS under opts and numerics.  trace collects what each pass leaves.

    Raises UsageError where opts names axes that root has not, TargetError where the kernel cannot
    write in place under them.
    """
    opts.check(len(axes_of(root)), reduced_axes(root))
    check_in_place(root, opts)
    checked = config.current().check_spec
    if checked:
        check(root, Stage.INDEXED)
    for p in LOWERING if opts.plan is None else BY_PLAN:
        if not p.wanted(numerics):
            continue
        fired = Fired()
        root = p.run(root, opts, fired)
        if checked:
            check(root, p.gives, opts.gpu)
        if trace is not None:
            trace.append(Passed(p.name, root, p.why, p.gives, fired.rules))
    return root


def finish(root: UOp) -> ProgramTree:
    """LOOPS -> PROGRAM.  Hand-written loop IR enters here (for exact math, after `exact_math`)."""
    if config.current().check_spec:
        check(root, Stage.LOOPS)
    return linearize(legalise(root))


# ---- a body to a kernel that runs (what it is: compiled.py)
def compile(
    body: UOp | Sequence[UOp],
    opts: Opts | None = None,
    target: str | Target | None = None,
    name: str = "kernel",
    numerics: Numerics = USUAL,
    check: bool | None = None,
) -> Kernel:
    """A shaped body, or several, to a kernel that runs.

    Parameters
    ----------
    body: shaped value over BUFFERs; its outputs get slots after the last one used.
    opts: every choice; None chooses (what `uopc.search` found, where it was asked), and on a GPU
        target takes the next candidate where ptxas reports a spill, a stack frame or a serialised
        wgmma.
    target: "cpu", "emulated" (a GPU kernel as the C text that emulates it), "cuda" (this machine's
        GPU), "sm_NN" or a Target (CUDA text; a call emulates it where there is no such GPU).  None:
        cuda where it is usable, else emulated.
    name: of the kernel in its source.
    numerics: what its numbers are beside the body, whatever Opts are chosen.
    check: of a kernel that is emulated, whether its calls raise races, stray accesses and the like
        (`uopc.faults`); None: as UOPC_CHECK says.

    Raises UsageError, TargetError or ToolchainError that names the value and the option to change,
    and SpecError where the body is loop IR.
    """
    bodies = _shaped(body)
    how, language, on = _where(target)
    way = _Way(how, language, on, numerics, _checked(check, name, how, on))
    free = _free_slot(bodies)
    outs = _outs(bodies)
    if opts is not None and opts.gpu != on.is_gpu:
        raise UsageError(
            f"{opts} is for a {'GPU' if opts.gpu else 'CPU'}, the target is {on}. "
            f"Set Opts.gpu={on.is_gpu}."
        )
    if opts is not None:
        ranked: Iterable[Guess] = [given(opts)]
        root = index(bodies, outs, opts.merge)
    else:
        facts = KernelFacts.of(bodies, outs)
        root = facts.root
        aim = choose_gpu.Aim(on, tf32=numerics.tf32)
        guesses = choose_gpu.each(facts, aim) if on.is_gpu else choose_cpu.each(facts)
        ranked = chain(_searched(root, way), guesses)
    steps, partials = _first_that_fits(
        root, ranked, free + len(bodies), name, way, chosen=opts is None
    )
    return Kernel(steps, how, on, bodies, outs, partials, numerics)


@dataclass(frozen=True)
class _Way:
    """What the steps of a kernel are made for, whatever their Opts."""

    device: str
    language: str
    target: Target
    numerics: Numerics
    check: bool


def _checked(asked: bool | None, name: str, how: str, on: Target) -> bool:
    """Are calls checked?  Raises UsageError where that is asked of what cannot be."""
    if how == "emulated":
        return config.current().check if asked is None else asked
    if not asked:
        return False
    here = f"launched on this machine's {on}" if on.is_gpu else "native code without GPU threads"
    raise UsageError(
        f"kernel {name} is to be checked (check=True), but would be {here}: only emulated kernels "
        "are checked. Compile it with target='emulated', or pass its body to uopc.check."
    )


def compile_kernel(
    body: KernelBody,
    target: str | Target | None = None,
    name: str = "kernel",
    numerics: Numerics = USUAL,
    check: bool | None = None,
    opts: Opts | None = None,
) -> Kernel:
    """A kernel of a schedule, its axes given, to one that runs.

    target, name, numerics, check, opts: as `compile` takes them.  Parameters have the body's slots;
    `Kernel.run` takes arrays by slot.  Outputs may be written in place; where no Opts can do that,
    they are written apart and copied.  A CPU gets several steps where one would compute some
    reduction again and again.

    Raises UsageError, TargetError or ToolchainError as `compile` does.
    """
    how, language, on = _where(target)
    way = _Way(how, language, on, numerics, _checked(check, name, how, on))
    root = index_kernel(body, on)
    slot = 1 + max(u.arg.slot for u in toposort(root) if u.op is Ops.BUFFER)
    if opts is not None:
        steps, partials = _first_that_fits(root, [given(opts)], slot, name, way, chosen=False)
    else:
        pieces, partials = ([root], []) if on.is_gpu else _pieces(root, slot, way)
        steps = ()
        for n, piece in enumerate(pieces):
            called = name if piece is pieces[-1] else f"{name}_part{n}"
            more, written = _chosen(piece, slot + len(partials), called, way)
            steps, partials = (*steps, *more), [*partials, *written]
    values, outs = [o.value for o in body.outputs], [o.memory for o in body.outputs]
    return Kernel(steps, how, on, values, outs, partials, numerics, body.errors)


def compile_segments(
    body: KernelBody,
    count: int,
    own: Sequence[int],
    target: str | Target | None = None,
    name: str = "kernel",
    numerics: Numerics = USUAL,
) -> tuple[Step, Segmented]:
    """A flat body (`uopc/schedule/batch.py`) to one launch over any number of arrays.

    count: of chunks at most; own: slots of one element that each array has its own of.
    """
    how, language, on = _where(target)
    way = _Way(how, language, on, numerics, _checked(None, name, how, on))
    kernel = segments(share(rangeify_kernel(body), given=True), count, own)
    chosen = given(segment_opts(kernel, on.is_gpu), SEGMENTS, length=kernel.length)
    return _step(kernel.root, chosen, name, way), kernel


def _chosen(root: UOp, slot: int, name: str, way: _Way) -> tuple[tuple[Step, ...], list[UOp]]:
    """Steps under the best Opts; apart and copied where none can write in place."""
    ranked = chain(_searched(root, way), _candidates(KernelFacts.of_indexed(root), way))
    try:
        return _first_that_fits(root, ranked, slot, name, way, chosen=True)
    except TargetError:
        if not is_in_place(root):
            raise
        return _apart(root, slot, name, way)


# ---- what decides here, in words
SEGMENTS = Reason(
    "passes.segments.segment_opts",
    "one formula over several arrays: a block walks a chunk of {length} elements",
)
SEARCHED = Reason(
    "search",
    "measured fastest on this machine by uopc.search, and kept: {time_us:.2f} us, the automatic "
    "choice {automatic_us:.2f} us",
)
IN_PLACE = Reason(
    "passes.in_place.confined",
    "the kernel writes in place what other blocks along this axis would read: it is a loop instead",
)
FIRST_HALF = Reason(
    "passes.split_grid.split_grid",
    "the first half of a reduction of axis {axis} over {parts} parts, which another kernel, or the "
    "last block, folds",
)
DOES_NOT_FIT = Reason("pipeline._first_that_fits", "passed over: {error}")
SPILLS = Reason(
    "pipeline._first_that_fits",
    "passed over: ptxas gives {kernel} {spilled} bytes of stack and spills{remarks}",
)
ALL_SPILL = Reason(
    "pipeline._first_that_fits", "taken in spite of that: every other candidate spills as well"
)


def _searched(root: UOp, way: _Way) -> list[Guess]:
    """What `uopc.search` found to be fastest for a kernel, where it was searched for."""
    if not config.current().searched:
        return []
    winner = winners.stored(root, way.target, way.numerics)
    if winner is None:
        return []
    times = dict(time_us=winner.time_s * 1e6, automatic_us=winner.automatic_s * 1e6)
    return [given(winner.opts, SEARCHED, **times)]


@dataclass(frozen=True)
class Choice:
    """A kernel for which Opts are chosen: what `uopc.search` tries them on.

    root: in stage INDEXED; merge: how its output axes were merged; slot: the first one that is
    free; target, numerics: as `compile` takes them.
    """

    root: UOp
    merge: tuple[int, ...]
    slot: int
    name: str
    target: Target
    numerics: Numerics

    def ranked(self) -> Iterator[Opts]:
        """The automatic candidates, the best guess first."""
        facts = KernelFacts.of_indexed(self.root, self.merge)
        return (guess.opts for guess in _candidates(facts, self._way))

    def steps(self, opts: Opts) -> tuple[tuple[Step, ...], list[UOp]]:
        """Its steps under these Opts, and the BUFFERs between them.  No device is asked for.

        Raises UsageError or TargetError where they do not fit.
        """
        return _steps(self.root, given(opts), self.slot, self.name, self._way)

    @property
    def _way(self) -> _Way:
        kind = ("cuda", "cuda") if self.target.is_gpu else ("cpu", "c")
        return _Way(*kind, self.target, self.numerics, False)


def choices(
    body: UOp | Sequence[UOp] | KernelBody,
    target: str | Target | None = None,
    name: str = "kernel",
    numerics: Numerics = USUAL,
) -> list[Choice]:
    """What `compile`, or for a KernelBody `compile_kernel`, chooses Opts for: one kernel, or
    several where a CPU cuts it.  Raises as they do."""
    how, language, on = _where(target)
    if not isinstance(body, KernelBody):
        bodies = _shaped(body)
        facts = KernelFacts.of(bodies, _outs(bodies))
        free = _free_slot(bodies) + len(bodies)
        return [Choice(facts.root, facts.merge, free, name, on, numerics)]
    root = index_kernel(body, on)
    slot = 1 + max(u.arg.slot for u in toposort(root) if u.op is Ops.BUFFER)
    way = _Way(how, language, on, numerics, False)
    pieces, partials = ([root], []) if on.is_gpu else _pieces(root, slot, way)
    called = [*[f"{name}_part{n}" for n in range(len(pieces) - 1)], name]
    free = slot + len(partials)
    return [Choice(p, (), free, n, on, numerics) for p, n in zip(pieces, called, strict=True)]


#: statements, about as many nanoseconds, below which a kernel on a CPU is never cut
WORTH_A_CUT = 1 << 17
#: part of the work that is left where a cut is worth another kernel
LEFT_BY_A_CUT = 0.7


def _pieces(root: UOp, slot: int, way: _Way) -> tuple[list[UOp], list[UOp]]:
    """The kernels that a CPU makes of one, in their order, and the partial buffers between them.

    A reduction inside the loops of another one is cut off where that saves enough work.
    """
    pieces: list[UOp] = []
    partials: list[UOp] = []
    left = [root]
    while left:
        root = left.pop()
        cuts = [cut(root, r, slot + len(partials)) for r in nested(root)]
        if not cuts or (have := _work(root, way)) < WORTH_A_CUT:
            pieces.append(root)
            continue
        works = [_work(first, way) + _work(second, way) for first, second, _ in cuts]
        if min(works) > have * LEFT_BY_A_CUT:
            pieces.append(root)
            continue
        first, second, written = cuts[works.index(min(works))]
        partials += written
        left += [second, first]
    return pieces, partials


def _work(root: UOp, way: _Way) -> float:
    """What a kernel does under the Opts that are chosen for it; infinite where they do not fit."""
    opts = next(iter(_candidates(KernelFacts.of_indexed(root), way))).opts
    try:
        return work(linearize(lower(root, opts, numerics=way.numerics)))
    except TargetError:
        return math.inf


def _candidates(facts: KernelFacts, way: _Way, split: bool = True) -> Iterator[Guess]:
    """Opts for a kernel whose axes are given; each as it is, then as it can write in place."""
    if not way.target.is_gpu:
        yield from choose_cpu.each(facts)
        return
    seen: set[Guess] = set()
    for may_split in (True, False) if split else (False,):
        aim = choose_gpu.Aim(way.target, split=may_split, tf32=way.numerics.tf32)
        for guess in choose_gpu.each(facts, aim):
            opts = guess.opts
            if opts.plan is not None:
                if may_write_in_place(facts.root, opts):
                    yield guess
                continue
            confined_ = guess.but(confined(facts.root, opts), IN_PLACE)
            for x in (guess, confined_) if may_split is split else (confined_,):
                if x not in seen:
                    seen.add(x)
                    yield x


def _apart(root: UOp, slot: int, name: str, way: _Way) -> tuple[tuple[Step, ...], list[UOp]]:
    """A kernel that writes apart what it would write in place, then copies."""
    root, copies, written = apart(root, slot)
    ranked = _candidates(KernelFacts.of_indexed(root), way)
    free = slot + len(written)
    steps, partials = _first_that_fits(root, ranked, free, name, way, chosen=True)
    for n, copy in enumerate(copies):
        ranked = _candidates(KernelFacts.of_indexed(copy), way)
        more, _ = _first_that_fits(copy, ranked, free, f"{name}_copy{n}", way, chosen=True)
        steps += more
    return steps, [*written, *partials]


def _where(target: str | Target | None) -> tuple[str, str, Target]:
    """(device, language of the source, Target) that a user's word stands for."""
    if target is None:
        target = device.default_device()
    if target == "cuda":
        if reason := cuda.why_unusable():
            raise DeviceError(reason)
        return "cuda", "cuda", cuda.device_target()
    if target == "emulated":
        return "emulated", "emulated", named_target("sm_80")
    on = named_target(target)
    if not on.is_gpu:
        return "cpu", "c", on
    here = not cuda.why_unusable() and cuda.device_target().sm == on.sm
    return ("cuda" if here else "emulated"), "cuda", on


def _first_that_fits(
    root: UOp,
    ranked: Iterable[Guess],
    slot: int,
    name: str,
    way: _Way,
    chosen: bool,
) -> tuple[tuple[Step, ...], list[UOp]]:
    """Steps of the first candidate that needs no stack; of the first one at all where none does."""
    first: tuple[tuple[Step, ...], list[UOp]] | None = None
    refused: TargetError | UsageError | None = None
    passed_over: list[Because] = []
    for guess in ranked:
        try:
            made = _steps(root, guess.adding(*passed_over), slot, name, way)
        except (TargetError, UsageError) as error:
            refused = error
            if not chosen:
                raise
            passed_over.append(kind(str(guess.opts), DOES_NOT_FIT, error=str(error)))
            continue
        first = first or made
        judged = made[0] if chosen and way.language == "cuda" else ()
        spilling = next(filter(_spills, judged), None)
        if spilling is None:
            return made
        passed_over.append(_spilled(guess, spilling))
    if first is None:
        assert refused is not None
        raise refused
    in_spite = (*passed_over, kind("all candidates", ALL_SPILL))
    return tuple(with_fields(s, why=(*in_spite, *s.why)) for s in first[0]), first[1]


def _spilled(guess: Guess, step: Step) -> Because:
    """Why a candidate is passed over."""
    r = step.cubin.resources
    spilled = max(r.stack_bytes, r.spill_store_bytes, r.spill_load_bytes)
    remarks = "".join(f"; {remark}" for remark in r.remarks)
    figures = dict(kernel=step.source.name, spilled=spilled, remarks=remarks)
    return kind(str(guess.opts), SPILLS, **figures)


def _spills(step: Step) -> bool:
    r = step.cubin.resources
    return bool(r.stack_bytes or r.spill_store_bytes or r.spill_load_bytes or r.remarks)


def _steps(
    root: UOp, guess: Guess, slot: int, name: str, way: _Way
) -> tuple[tuple[Step, ...], list[UOp]]:
    """One step, or one per half of a reduction split over the grid; three of a scan.  What a
    product reads in panels, or in memory of its own, is written by steps before it."""
    steps: list[Step] = []
    partials: list[UOp] = []
    opts = guess.opts
    opts.check(len(axes_of(root)), reduced_axes(root))  # the halves have axes of their own
    if opts.pack:
        firsts, root, partials = pack(root, opts, slot)
        for first in firsts:
            steps.append(_step(first, _second_half(first, way), f"{name}_part{len(steps)}", way))
    if opts.plan is not None and opts.plan.written:
        firsts, root, partials = write_operands(root, opts.plan, slot)
        for first in map(lanes_filled, firsts):
            steps.append(_step(first, _second_half(first, way), f"{name}_part{len(steps)}", way))
        opts = with_fields(opts, plan=with_fields(opts.plan, written=(), major=()))
        guess = Guess(opts, guess.why)
    while (axis := split_axis(root, guess.opts)) is not None:
        if axis in scanned_axes(root):
            three = split_scan(root, guess.opts, axis, slot + len(partials))
            partials += three.buffers
            for first in three.firsts:
                mine = _second_half(first, way)
                steps.append(_step(first, mine, f"{name}_part{len(steps)}", way))
            root = three.rest
            guess = _second_half(root, way)
            continue
        parts = dict(guess.opts.blocks)[axis]
        first, halved, root, made = split_grid(root, guess.opts, slot + len(partials))
        half = guess.part(halved, kind("first half", FIRST_HALF, axis=axis, parts=parts))
        partials += made
        if (folding := folding_opts(first, halved, root)) is not None:
            step, tickets = _folded(first, half, root, folding, slot + len(partials), name, way)
            return (*steps, step), [*partials, tickets]
        steps.append(_step(first, half, f"{name}_part{len(steps)}", way))
        guess = _second_half(root, way)
    step = _step(root, guess, name, way)
    return (*steps, step), [*partials, *_added(root, step.sink)]


def _added(root: UOp, sink: UOp) -> list[UOp]:
    """BUFFERs that passes gave a kernel: what its blocks leave for the last one."""
    own = {u.arg.slot for u in toposort(root) if u.op is Ops.BUFFER}
    added = {u for u in toposort(sink) if u.op is Ops.BUFFER and u.arg.slot not in own}
    return sorted(added, key=lambda u: u.arg.slot)


def _folded(
    first: UOp, half: Guess, second: UOp, folding: Opts, slot: int, name: str, way: _Way
) -> tuple[Step, UOp]:
    """(both halves of a split reduction as one step, the memory that it counts blocks in)."""
    trace: Trace = [_indexed("index", first)]
    sink = lower(first, half.opts, trace, way.numerics)
    trace.append(_indexed("index of the fold", second))
    fold = lower(second, folding, trace, way.numerics)
    sink, tickets = with_last_block(sink, fold, slot)
    why = "the last block of each group folds what all of them have left"
    trace.append(Passed("last_block", sink, why, Stage.LOOPS))
    return _rendered(sink, half, trace, name, way), tickets


def _second_half(root: UOp, way: _Way) -> Guess:
    """Opts for what folds the parts, or goes on from them: the first that can write in place, if it
    does, and needs no stack."""
    ranked = [*_candidates(KernelFacts.of_indexed(root), way, split=False)]
    fit = [x for x in ranked if may_write_in_place(root, x.opts)] or ranked
    if way.language != "cuda":
        return fit[0]
    return next((x for x in fit if not _spills(_step(root, x, "half", way))), fit[0])


def _step(root: UOp, guess: Guess, name: str, way: _Way) -> Step:
    trace: Trace = [_indexed("index", root)]
    return _rendered(lower(root, guess.opts, trace, way.numerics), guess, trace, name, way)


def _indexed(name: str, root: UOp) -> Passed:
    return Passed(name, root, "the body over ranges, before its axes are cut", Stage.INDEXED)


def _rendered(sink: UOp, guess: Guess, trace: Trace, name: str, way: _Way) -> Step:
    if config.current().check_spec:
        check(sink, Stage.LOOPS, guess.opts.gpu)
    tree = linearize(sink)
    source = runs = render_for(tree, name, way.language, way.target, check=way.check)
    if (way.device, way.language) == ("emulated", "cuda"):
        runs = render_for(tree, name, "emulated", way.target, check=way.check)
    return Step(sink, guess.opts, tree, source, runs, tuple(trace), guess.why)


# ---- the kernel-level API: one stage at a time
def gpu_opt_choice(
    body: UOp | Sequence[UOp],
    max_threads: int = 256,
    min_blocks: int | None = None,
    target: str | Target = "sm_80",
) -> Opts:
    """Opts for a GPU kernel of the body, from sizes and strides; nothing is compiled.

    max_threads: threads of a block at most; min_blocks: blocks to aim at, default two per SM.
    """
    bodies = _shaped(body)
    on = named_target(target)
    aim = choose_gpu.Aim(on, max_threads, max_threads, min_blocks or 0, split=False)
    return choose_gpu.rank(KernelFacts.of(bodies, _outs(bodies)), aim)[0]


def cpu_opt_choice(body: UOp | Sequence[UOp]) -> Opts:
    """Opts for a native CPU kernel of the body: accumulators, register tiles, threads."""
    bodies = _shaped(body)
    if any(prod(b.shape) == 0 for b in bodies):
        return Opts()
    return choose_cpu.rank(KernelFacts.of(bodies, _outs(bodies)))[0]


def gpu_lower(
    body: UOp | Sequence[UOp],
    out: UOp | Sequence[UOp],
    opts: Opts,
    numerics: Numerics = USUAL,
) -> UOp:
    """One GPU kernel in stage LOOPS, a SINK: bodies into flat outputs.

    Raises UsageError where opts is not for a GPU, does not fit the kernel, or makes several kernels
    (`compile` does that, in several steps).
    """
    if not opts.gpu:
        raise UsageError(f"gpu_lower wants Opts(gpu=True, ...), got {opts}")
    bodies = _shaped(body)
    outs = [out] if isinstance(out, UOp) else list(out)
    root = index(bodies, outs, opts.merge)
    if (axis := split_axis(root, opts)) is not None:
        raise UsageError(
            f"Opts.blocks={{{axis}: {dict(opts.blocks)[axis]}}} splits the reduced axis {axis} "
            "over blocks, which takes two kernels. Use uopc.compile, or leave it out."
        )
    if opts.plan is not None and opts.plan.written:
        raise UsageError(
            f"Plan.written={opts.plan.written} takes a kernel for each. Use uopc.compile, or leave "
            "it out."
        )
    return lower(root, opts, numerics=numerics)


def launch_dims(sink: UOp) -> tuple[Dims, Dims]:
    """((grid x, y, z), (block x, y, z)) of a GPU kernel in stage LOOPS."""
    launch = bind(sink)
    return launch.grid, launch.block


def render_cuda(sink: UOp, name: str, target: str | Target = "sm_80") -> Source:
    """CUDA text of a GPU kernel in stage LOOPS, for one target; the machine is never probed."""
    return render_cuda_text(finish(sink), name, target)


def emulate(
    sink: UOp,
    name: str,
    check: bool | None = None,
    order: str = "forward",
    target: str | Target = "sm_80",
    trace: bool = False,
    mutate: bool = False,
) -> Source:
    """C text that runs the same GPU kernel on a CPU, warp by warp.

    check: find races, accesses out of bounds and the like; None: as UOPC_CHECK says.
    order: in which warps are resumed: "forward", "backward" or "shuffled(seed)".
    target: whose limit of shared memory counts.
    trace: checked text that also tells what chosen threads do.
    mutate: text whose synchronisation can be left out or twisted, one at a time.
    """
    return render_emulated(
        finish(sink), name, check=check, order=order, target=target, trace=trace, mutate=mutate
    )


def match_gemm(body: UOp) -> tuple[int, int, int] | None:
    """(M, N, K) where the body is one sum of products of two operands that broadcast along
    different axes, on any view and size; None where it is not (x*x summed is no product)."""
    bodies = _shaped(body)
    facts = KernelFacts.of(bodies, _outs(bodies))
    found = facts.product()
    return (
        None
        if found is None
        else (facts.sizes[found[0]], facts.sizes[found[1]], facts.sizes[found[2]])
    )


@dataclass(frozen=True)
class Ctx:
    """What `lower_body` lowers under."""

    opts: Opts = field(default_factory=Opts)
    numerics: Numerics = USUAL


def lower_body(body: UOp | Sequence[UOp], out: UOp | Sequence[UOp], ctx: Ctx = Ctx()) -> UOp:
    """One kernel in stage LOOPS, for a CPU unless ctx.opts.gpu."""
    if ctx.opts.gpu:
        return gpu_lower(body, out, ctx.opts, ctx.numerics)
    bodies = _shaped(body)
    outs = [out] if isinstance(out, UOp) else list(out)
    return lower(index(bodies, outs, ctx.opts.merge), ctx.opts, numerics=ctx.numerics)


def render_native(sink: UOp, name: str) -> Source:
    """C text of a CPU kernel in stage LOOPS."""
    return render_c(finish(sink), name)


def _shaped(body: UOp | Sequence[UOp]) -> list[UOp]:
    """What a user gives as a body or several, as a list.

    Raises UsageError where something else comes, SpecError where it is loop IR.
    """
    bodies = [body] if isinstance(body, UOp) else list(body)
    if not bodies:
        raise UsageError("there is no body: pass a UOp, or a list of them")
    for b in bodies:
        if not isinstance(b, UOp):
            raise UsageError(f"a body is a UOp, got {type(b).__name__}")
        check(b, Stage.TENSOR)
    return bodies


def _free_slot(bodies: Sequence[UOp]) -> int:
    """The first slot after those that the bodies read."""
    return 1 + max((u.arg.slot for u in toposort(*bodies) if u.op is Ops.BUFFER), default=-1)


def _outs(bodies: Sequence[UOp]) -> list[UOp]:
    """Outputs for the bodies, in the slots after the last one that they read."""
    free = _free_slot(bodies)
    return [buffer(free + n, b.dtype, (prod(b.shape),)) for n, b in enumerate(bodies)]
