"""A GPU that only has a clock, and programs whose kernels take as long as a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from uopc.compiled import Step
from uopc.kernel import Launch, Source
from uopc.profiling.programs import Program
from uopc.profiling.watchers import Clocks
from uopc.runtime import observe
from uopc.target import target

EVENT_S = 1e-6  # what a mark costs this GPU
HOLD_S = 1e-4
EMPTY_S = 2e-6


class FakeGPU:
    """A clock whose time passes where it is told to.  held: how often it was kept waiting."""

    device, what, waits = "cuda", "CUDA events", False

    def __init__(self) -> None:
        self.now_s = 0.0
        self.held = 0

    def mark(self) -> float:
        self.now_s += EVENT_S / 2
        at_s = self.now_s
        self.now_s += EVENT_S / 2
        return at_s

    def hold(self) -> None:
        self.held += 1
        self.now_s += HOLD_S

    def wait(self) -> None:
        """Nothing is ever queued."""

    def between_s(self, begin: float, end: float) -> float:
        return end - begin

    def start_empty(self) -> None:
        self.now_s += EMPTY_S


class FakeKernel:
    """A kernel that takes so long on a fake GPU.  step: what was compiled, if anything."""

    def __init__(self, name: str, time_s: float, step: Step | None = None, grid: int = 7) -> None:
        self.time_s = time_s
        source = step.source if step is not None else cuda_source(name, grid)
        self.launcher: Any = SimpleNamespace(name=name, device="cuda", source=source, step=step)

    def start(self, gpu: FakeGPU, late_s: float = 0.0) -> None:
        """As a Launcher does it; late_s: what this launch takes more than usually."""

        def run() -> None:
            gpu.now_s += self.time_s + late_s

        buffers = [None] * (1 + max([p.slot for p in self.launcher.source.params], default=-1))
        if observe.current is None:
            run()
        else:
            observe.current.launch(self.launcher, buffers, run)  # type: ignore[arg-type]  # no bundles: nobody looks at them


class FakeProgram:
    """Starts what `plan(run)` says, run by run; gap_s: time without a kernel in each run."""

    name = "fake"

    def __init__(
        self,
        gpu: FakeGPU,
        plan: Callable[[int], Sequence[tuple[FakeKernel, float]]],
        gap_s: float = 0.0,
    ) -> None:
        self.gpu, self.plan, self.gap_s = gpu, plan, gap_s
        self.runs = 0

    def first(self) -> Program:
        self.run()
        return self

    def run(self) -> None:
        self.gpu.now_s += self.gap_s
        for kernel, late_s in self.plan(self.runs):
            kernel.start(self.gpu, late_s)
        self.runs += 1


def cuda_source(name: str, grid: int = 7) -> Source:
    """A text that is never compiled."""
    launch = Launch((grid, 1, 1), (128, 1, 1))
    text = f"{name} of {grid} blocks"
    return Source(
        text, name=name, language="cuda", params=(), launch=launch, target=target("sm_90a")
    )


def clocks_of(gpu: FakeGPU) -> Clocks:
    return Clocks(lambda device: gpu)
