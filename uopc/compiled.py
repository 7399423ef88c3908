"""What `uopc.compile` gives: the steps of a kernel, and the call that runs them.

A step is one launch; a reduction split over the grid has two.  Texts, cubins and resources are
asked of a step; a kernel of one step answers for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uopc.decision import Because, Decision, Guess
from uopc.dtype import DType
from uopc.errors import UsageError
from uopc.inspect.gpus import GPU
from uopc.inspect.records import ProgramReport
from uopc.inspect.report import program_report
from uopc.kernel import USUAL, Dims, Numerics, Passed, ProgramTree, Source
from uopc.opts import Opts
from uopc.render.c import render_c
from uopc.render.cuda import render_cuda
from uopc.render.emulate import render_emulated
from uopc.runtime import cuda, nvrtc
from uopc.runtime.arrays import is_on_device
from uopc.runtime.nvrtc import Cubin
from uopc.runtime.program import Program
from uopc.runtime.ptxas import Resources
from uopc.target import Target
from uopc.uop.node import Shape, UOp, memory, toposort
from uopc.uop.ops import Ops
from uopc.uop.text import show


@dataclass(frozen=True)
class Step:
    """One launch of a compiled kernel: the graph in LOOPS, its Opts, its tree and its text.

    trace: what each pass left; why: what is to say of its Opts.
    runs is the text that its device runs: the source, or its emulation where there is no such GPU.
    """

    sink: UOp = field(repr=False)
    opts: Opts
    program: ProgramTree = field(repr=False)
    source: Source = field(repr=False)
    runs: Source = field(repr=False)
    trace: tuple[Passed, ...] = field(repr=False)
    why: tuple[Because, ...] = field(default=(), repr=False, compare=False)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Each choice with the rule that made it, and why; first what is said of all of them."""
        return Guess(self.opts, self.why).decisions

    def after(self, name: str) -> UOp:
        """The graph after a pass ("index" is what the passes begin with).

        Raises UsageError for a pass that this step has not gone through.
        """
        found = {passed.name: passed.graph for passed in self.trace}
        if name not in found:
            raise UsageError(
                f"kernel {self.source.name} has no graph after {name!r}, it has those after "
                f"{', '.join(found)}"
            )
        return found[name]

    @property
    def launch_dims(self) -> tuple[Dims, Dims]:
        """((grid x, y, z), (block x, y, z))."""
        return self.program.launch.grid, self.program.launch.block

    @property
    def cubin(self) -> Cubin:
        """Machine code and resources, from NVRTC; no GPU is needed.  Raises UsageError on cpu."""
        return nvrtc.compile_cubin(self.cuda_source, self.source.name, self.source.target)

    @property
    def cuda_source(self) -> Source:
        """The CUDA text of this step (the source itself, unless that is the emulation).

        Raises UsageError on cpu.
        """
        if not self.source.target.is_gpu:
            raise UsageError(
                f"kernel {self.source.name} is for cpu; CUDA text and a cubin need a GPU target "
                "such as target='sm_90a'"
            )
        if self.source.language == "cuda":
            return self.source
        return render_cuda(self.program, self.source.name, self.source.target)


class Kernel:
    """What `compile` gives: call it with the inputs in slot order.

    Attributes
    ----------
    steps: its launches; more than one where a reduction is split over the grid.
    device: "cpu", "emulated" or "cuda"; target: the Target it was rendered for.
    numerics: what its numbers are beside the body.
    out_shapes: the shapes of its outputs.
    input_slots, output_slots: where it takes inputs and outputs; partials: BUFFERs that hold what
    one step leaves for the next, or blocks for the last one; counters: slots of those that are zero
    before a launch, and zero after it; errors: the BUFFER that takes the code of a stray index, or
    None.
    """

    def __init__(
        self,
        steps: tuple[Step, ...],
        how: str,
        on: Target,
        bodies: Sequence[UOp],
        outs: Sequence[UOp],
        partials: Sequence[UOp],
        numerics: Numerics,
        errors: UOp | None = None,
    ) -> None:
        self.steps, self.device, self.target, self.numerics = steps, how, on, numerics
        self.out_shapes = tuple(b.shape for b in bodies)
        self._dtypes = tuple(b.dtype for b in bodies)
        self.output_slots = tuple(o.arg.slot for o in outs)
        self.partials = tuple(partials)
        self.counters = _counters(steps) & {p.arg.slot for p in partials}
        params = {u.arg.slot: u for u in toposort(*bodies) if u.op is Ops.BUFFER}
        self.input_slots = tuple(sorted(params))
        self.errors = errors
        self._programs: list[Program] | None = None

    @property
    def opts(self) -> Opts:
        """The Opts of the first step."""
        return self.steps[0].opts

    @property
    def source(self) -> Source:
        """The text of the only step, with the user's file and line as comments.

        Raises UsageError where there are several (see `.steps`; their `.source` has no comments: it
        is what gets compiled and cached).
        """
        step = self._only("source")
        return render_for(
            step.program,
            step.source.name,
            step.source.language,
            self.target,
            origins=True,
            check=step.source.checked,
        )

    @property
    def launch_dims(self) -> tuple[Dims, Dims]:
        """((grid x, y, z), (block x, y, z)) of the only step."""
        return self._gpu("launch_dims").launch_dims

    @property
    def cubin(self) -> bytes:
        """The ELF file of the only step."""
        return self._gpu("cubin").cubin.code

    @property
    def ptx(self) -> str:
        """The PTX of the only step: to read, never to ship."""
        step = self._gpu("ptx")
        return nvrtc.compile_ptx(step.cuda_source, step.source.name, step.source.target)

    @property
    def sass(self) -> str:
        """Its instructions.  Raises ToolchainError where no disassembler is installed."""
        return self._gpu("sass").cubin.sass

    @property
    def resources(self) -> Resources:
        """Registers, shared, stack and spill bytes of the only step, from ptxas."""
        return self._gpu("resources").cubin.resources

    def _only(self, what: str) -> Step:
        if len(self.steps) > 1:
            raise UsageError(
                f"the kernel has {len(self.steps)} steps; ask each one: "
                f"[s.{what} for s in kernel.steps]"
            )
        return self.steps[0]

    def _gpu(self, what: str) -> Step:
        if not self.target.is_gpu:
            raise UsageError(
                f"Kernel.{what} is for GPU targets, this kernel is for cpu. Compile it with "
                "target='sm_90a' or the like."
            )
        return self._only(what)

    def explain(self) -> str:
        """Of each step its Opts with their reasons, and the graph after every pass with the rules
        that fired in it; Numerics that were asked for."""
        parts = [] if self.numerics == USUAL else [str(self.numerics)]
        for n, step in enumerate(self.steps):
            said = [f"\n   {decision}" for decision in step.decisions]
            head = f"step {n}: {step.source.name} for {step.source.target}\n{step.opts}"
            parts.append(head + "".join(said))
            parts += [f"-- {passed}\n{show(passed.graph)}" for passed in step.trace]
        return "\n\n".join(parts)

    def report(self, gpu: str | GPU | None = None) -> ProgramReport:
        """What each launch does to memory, what bounds it, and why it is as it is; nothing runs.

        gpu: the GPU that times are for, by name ("H200") or as a record of its rates; None: a usual
        one of the target.  Where data decides where an access goes, its counts are unknown here:
        `uopc.report` takes arrays.  Raises UsageError on cpu, and for a GPU that is not known.
        """
        return program_report(self.steps[-1].source.name, self.steps, gpu)

    def __call__(self, *inputs: Any, out: Any = None, stream: Any = None) -> Any:
        """Run on arrays in slot order; the outputs, in `out` if given (an array or a list).

        numpy arrays on any device; arrays in device memory on cuda only, used in place on `stream`.
        Without `out` the outputs are DeviceArrays where an input is in device memory, else numpy's.
        Raises UsageError for a wrong count, dtype, size or layout.
        """
        if len(inputs) != len(self.input_slots):
            raise UsageError(
                f"kernel {self.steps[0].source.name} takes {len(self.input_slots)} inputs "
                f"(slots {list(self.input_slots)}), got {len(inputs)}"
            )
        outs = self._outputs(out, inputs, stream)
        arrays: dict[int, Any] = dict(zip(self.input_slots, inputs, strict=True))
        self.run(arrays | dict(zip(self.output_slots, outs, strict=True)), stream)
        return outs[0] if len(outs) == 1 else outs

    def run(self, arrays: Mapping[int, Any], stream: Any = None) -> None:
        """Run on an array for each parameter by its slot; outputs are written where they are.

        Raises UsageError for a wrong dtype, size or layout, and where a slot is missing.
        """
        have = dict(arrays)
        for p in self.partials:
            make = self._zeros if p.arg.slot in self.counters else self._empty
            have[p.arg.slot] = make(p.arg.shape, p.dtype, self.device == "cuda", stream)
        for n, step in enumerate(self.steps):
            wanted = [p.slot for p in step.source.params]
            if missing := [slot for slot in wanted if slot not in have]:
                raise UsageError(
                    f"kernel {step.source.name} wants arrays for the slots {wanted}, "
                    f"there is none for {missing}"
                )
            self._launch(n, step, [have[slot] for slot in wanted], stream)

    def _empty(self, shape: Shape, dtype: DType, on_device: bool, stream: Any) -> Any:
        """Memory for an output or a partial result, on the device where it can stay there."""
        if on_device and self.device == "cuda":
            return cuda.open_device().empty(shape, dtype.numpy, stream)
        return np.empty(shape, dtype.numpy)

    def _zeros(self, shape: Shape, dtype: DType, on_device: bool, stream: Any) -> Any:
        if on_device:
            return cuda.open_device().zeros(shape, dtype.numpy, stream)
        return np.zeros(shape, dtype.numpy)

    def _outputs(self, out: Any, inputs: Sequence[Any], stream: Any) -> list[Any]:
        if out is None:
            on_device = any(map(is_on_device, inputs))
            made = zip(self.out_shapes, self._dtypes, strict=True)
            return [self._empty(shape, dtype, on_device, stream) for shape, dtype in made]
        given = list(out) if isinstance(out, (list, tuple)) else [out]
        if len(given) != len(self.output_slots):
            raise UsageError(
                f"the kernel has {len(self.output_slots)} outputs, out= holds {len(given)} arrays"
            )
        return given

    def _launch(self, n: int, step: Step, arrays: list[Any], stream: Any) -> None:
        if self.device == "cuda":
            cuda.run_cuda(step.source, step.source.name, *step.launch_dims, *arrays, stream=stream)
            return
        if self._programs is None:
            self._programs = [Program(s.runs, s.runs.name) for s in self.steps]
        self._programs[n](*arrays)

    def __repr__(self) -> str:
        return f"Kernel({self.steps[0].source.name}, {self.device}, {self.target}, {self.opts})"


def _counters(steps: Sequence[Step]) -> frozenset[int]:
    """Slots of the parameters that steps count in."""
    counted = (u for s in steps for u in toposort(s.sink) if u.op is Ops.ATOMIC)
    memories = {memory(u.src[0]) for u in counted}
    return frozenset(m.arg.slot for m in memories if m.op is Ops.BUFFER)


def render_for(
    tree: ProgramTree,
    name: str,
    language: str,
    on: Target,
    origins: bool = False,
    check: bool = False,
) -> Source:
    """The text of a kernel in one language; check: of an emulation, checked text."""
    if language == "cuda":
        return render_cuda(tree, name, on, origins)
    if language == "c":
        return render_c(tree, name, origins)
    return render_emulated(tree, name, target=on, origins=origins, check=check)
