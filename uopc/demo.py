"""The demo: handwritten digits classified by the nearest class mean, in three kernels of ours, and
by a network that is trained on them (`demo_training.py`).

The mean image of each class comes from the first images, the squared distance of each remaining
image to each mean follows, and the nearest mean is the answer.  numpy does the same beside it, and
every device that can be used must agree with it.
"""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeAlias

import numpy as np
from rich.console import Console

from uopc import demo_training
from uopc.dtype import dtypes
from uopc.errors import ToolchainError, UopcError, UsageError
from uopc.pipeline import Kernel, compile
from uopc.printing import code, duration, facts, heading, paragraph, step_facts, table
from uopc.runtime.cuda import open_device
from uopc.runtime.device import devices
from uopc.runtime.program import Program
from uopc.runtime.timing import Clock, CPUClock, CUDAClock, time_candidates
from uopc.uop.node import UOp, buffer
from uopc.uop.ops import Ops

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

CLASSES = 10
IMAGES = 10_000  # in the file
FEWEST = 200  # images that hold every class among those that make the means
SAMPLES = 5  # timed runs of a kernel, one where the first run took LONG_S
LONG_S = 0.5
PURPOSE = {
    "means": "the mean image of each class, one-hot(labels) transposed @ images / counts",
    "distances": "squared distance of every image to every mean, |m|^2 - 2 x.m",
    "nearest": "the class of the nearest mean, argmin",
}
LEGEND = (
    "compile: from the body to a loaded kernel; a text that the disk cache holds is not compiled "
    "again. run: one call on numpy arrays; on cuda the GPU's own time. means must be equal: f32 "
    "holds sums of bytes below 2**24 exactly. distances may differ by the bound of a product of k "
    "terms, k * 2**-23 * sum|ab|. nearest must be numpy's class for every image."
)
_DATA = "data/mnist10k.npz"


@dataclass(frozen=True)
class Digits:
    """Images of handwritten digits, u8, one row of pixels an image, and what each shows.

    The first nine tenths make the means, the others test them.
    """

    images: Array
    labels: Array

    @property
    def train(self) -> int:
        """How many images make the means."""
        return len(self.images) * 9 // 10

    @property
    def parts(self) -> tuple[Array, Array, Array, Array]:
        """Images and labels of the means, images and labels of the test."""
        n = self.train
        return self.images[:n], self.labels[:n], self.images[n:], self.labels[n:]


def digits(count: int = IMAGES) -> Digits:
    """The first `count` of the 10,000 digits that come with uopc.

    Raises UsageError for a count that leaves a class without images, ToolchainError where the file
    is missing.
    """
    if not FEWEST <= count <= IMAGES:
        raise UsageError(f"the demo takes {FEWEST} to {IMAGES} images, not {count}.")
    try:
        data = resources.files("uopc").joinpath(_DATA).read_bytes()
    except OSError as error:
        raise ToolchainError(
            f"the demo's images are missing ({error}). Install uopc again."
        ) from None
    with np.load(io.BytesIO(data)) as file:
        images, labels = file["images"][:count], file["labels"][:count]
    return Digits(np.ascontiguousarray(images.reshape(count, -1)), np.ascontiguousarray(labels))


# ---- the three kernels
def means_body(n: int, pixels: int) -> UOp:
    """Mean image of each class.  Labels u8 (n,) in slot 0, images u8 (n, pixels) in slot 1.

    Result: f32 (CLASSES, pixels): one-hot(labels) transposed times images, divided by how many
    images each class has.
    """
    labels, images = buffer(0, dtypes.u8, (n,)), buffer(1, dtypes.u8, (n, pixels))
    classes = UOp.arange(CLASSES).reshape((CLASSES, 1)).expand((CLASSES, n))
    shown = labels.cast(dtypes.i32).reshape((1, n)).expand((CLASSES, n))
    one_hot = shown.eq(classes).cast(dtypes.f32)
    whole = (CLASSES, pixels, n)
    weights = one_hot.reshape((CLASSES, 1, n)).expand(whole)
    columns = images.cast(dtypes.f32).permute((1, 0)).reshape((1, pixels, n)).expand(whole)
    counts = one_hot.reduce(Ops.ADD).reshape((CLASSES, 1)).expand((CLASSES, pixels))
    return (weights * columns).reduce(Ops.ADD) / counts


def distances_body(n: int, pixels: int) -> UOp:
    """Squared distance to each mean, less the image's own square, which all classes share.

    Images x u8 (n, pixels) in slot 0, means m f32 (CLASSES, pixels) in slot 1; result f32
    (n, CLASSES): m.m - 2 x.m, a matrix product with its epilogue.
    """
    images, means = buffer(0, dtypes.u8, (n, pixels)), buffer(1, dtypes.f32, (CLASSES, pixels))
    whole = (n, CLASSES, pixels)
    x = images.cast(dtypes.f32).reshape((n, 1, pixels)).expand(whole)
    m = means.reshape((1, CLASSES, pixels)).expand(whole)
    squares = (means * means).reduce(Ops.ADD).reshape((1, CLASSES)).expand((n, CLASSES))
    return squares - 2.0 * (x * m).reduce(Ops.ADD)


def nearest_body(n: int) -> UOp:
    """The nearest class: distances f32 (n, CLASSES) in slot 0 to i32 (n,)."""
    return buffer(0, dtypes.f32, (n, CLASSES)).argmin(1)


def bodies(data: Digits) -> dict[str, UOp]:
    """The kernels by name, in the order they run."""
    train, _, test, _ = data.parts
    pixels = train.shape[1]
    return {
        "means": means_body(len(train), pixels),
        "distances": distances_body(len(test), pixels),
        "nearest": nearest_body(len(test)),
    }


# ---- what numpy says
@dataclass(frozen=True)
class Reference:
    """numpy's own answers, and how far a device's may be from them.

    means must be equal bit for bit: a sum of fewer than 65,793 bytes stays below 2**24, so f32
    holds it exactly in whatever order it is added, and one division rounds it.  distances may
    differ by bound: products of k numbers within k * 2**-23 * sum|ab|, plus the epilogue's two
    roundings.  nearest must be equal.
    """

    means: Array
    distances: Array
    bound: Array
    nearest: Array
    accuracy: float
    time_s: float


def reference(data: Digits) -> Reference:
    """The job in numpy, in f32 as on the devices; the bound is worked out in f64."""
    train, labels, test, truth = data.parts
    start = time.perf_counter()
    one_hot = (labels == np.arange(CLASSES)[:, None]).astype(np.float32)
    means = one_hot @ train.astype(np.float32) / one_hot.sum(axis=1, keepdims=True)
    distances = (means * means).sum(axis=1) - 2 * (test.astype(np.float32) @ means.T)
    nearest = distances.argmin(axis=1)
    time_s = time.perf_counter() - start
    m, x = means.astype(np.float64), test.astype(np.float64)
    exact = (m * m).sum(axis=1) - 2 * (x @ m.T)
    terms = (m * m).sum(axis=1) + 2 * (x @ m.T)  # sum|ab|: pixels are not negative
    bound = (m.shape[1] + 2) * 2.0**-23 * terms
    return Reference(means, exact, bound, nearest, accuracy(nearest, truth), time_s)


def accuracy(nearest: Array, truth: Array) -> float:
    """The share of images whose class is the right one."""
    return float((nearest == truth).mean())


# ---- what a device says
@dataclass(frozen=True)
class Ran:
    """One kernel on one device: its result, and seconds for compiling and for one run."""

    result: Array
    compile_s: float
    run_s: float


@dataclass(frozen=True)
class Compared:
    """Whether a result is what numpy's allows, and in words."""

    agrees: bool
    words: str


@dataclass(frozen=True)
class Outcome:
    """All kernels on one device.  error: what stopped it, "" where nothing did."""

    device: str
    kernels: dict[str, tuple[Ran, Compared]]
    accuracy: float
    error: str = ""

    def agrees(self, wanted: Reference) -> bool:
        """Did every kernel agree with numpy, and is the accuracy numpy's?"""
        same = all(compared.agrees for _, compared in self.kernels.values())
        return same and not self.error and self.accuracy == wanted.accuracy


def run_on(device: str, data: Digits, wanted: Reference) -> Outcome:
    """Run the three kernels on a device, each on the result of the one before, beside numpy."""
    train, labels, test, truth = data.parts
    kernels = bodies(data)
    try:
        means = _timed(device, "means", kernels["means"], labels, train)
        distances = _timed(device, "distances", kernels["distances"], test, means.result)
        nearest = _timed(device, "nearest", kernels["nearest"], distances.result)
    except UopcError as error:
        return Outcome(device, {}, 0.0, f"{type(error).__name__}: {error}")
    compared = {
        "means": (means, compare_means(means.result, wanted)),
        "distances": (distances, compare_distances(distances.result, wanted)),
        "nearest": (nearest, compare_nearest(nearest.result, wanted)),
    }
    return Outcome(device, compared, accuracy(nearest.result, truth))


def _timed(device: str, name: str, body: UOp, *inputs: Array) -> Ran:
    """Compile, run, and run again for the time of one run.

    On cuda that is the GPU's own time on arrays that lie there; else it is what a call takes.
    """
    gpu = open_device() if device == "cuda" else None  # the context is not the kernel's time
    start = time.perf_counter()
    kernel = compile(body, target=device, name=name)
    for step in kernel.steps:
        if gpu is None:
            Program(step.runs).compile()
        else:
            gpu.function(step.source)
    compiled = time.perf_counter()
    result = kernel(*inputs)
    first_s = time.perf_counter() - compiled
    arrays: Sequence[Any] = inputs
    out: Any = result.copy()
    clock: Clock = CPUClock(flush_bytes=0)
    if gpu is not None:
        arrays, out = [gpu.to_device(x) for x in inputs], gpu.empty(out.shape, out.dtype)
        clock = CUDAClock(gpu)
    samples = 1 if first_s > LONG_S else SAMPLES
    taken = time_candidates(
        {name: lambda: kernel(*arrays, out=out)}, clock, samples=samples, warm=samples - 1
    )
    return Ran(result, compiled - start, taken[name].median_s)


def compare_means(got: Array, wanted: Reference) -> Compared:
    """Bit for bit."""
    wrong = int((got.view(np.uint32) != wanted.means.view(np.uint32)).sum())
    return Compared(
        not wrong, f"{wrong:,} of {got.size:,} differ" if wrong else "equal bit for bit"
    )


def compare_distances(got: Array, wanted: Reference) -> Compared:
    """Within the bound; a NaN is not."""
    worst = float((abs(got - wanted.distances) / wanted.bound).max())
    return Compared(worst <= 1, f"largest error {worst:.2g} of the bound")


def compare_nearest(got: Array, wanted: Reference) -> Compared:
    """Every class the same."""
    wrong = int((got != wanted.nearest).sum())
    return Compared(not wrong, f"{wrong:,} of {got.size:,} differ" if wrong else "equal")


# ---- the whole of it
def demo(out: Console, count: int = IMAGES) -> int:
    """Run the demo on the first `count` images and print it.

    Returns 0 where at least one device is usable and each that is agrees with numpy, else 1.
    The network is trained where native kernels can be made.
    """
    data = digits(count)
    train, _, test, _ = data.parts
    wanted = reference(data)
    states = devices()
    usable = [state.name for state in states if state.usable]
    heading(out, "Handwritten digits by the nearest class mean")
    paragraph(
        out,
        f"{count:,} images of MNIST: means of the first {len(train):,}, tested on the last "
        f"{len(test):,}. numpy has {wanted.accuracy:.1%} right after {duration(wanted.time_s)}.",
    )
    out.print()
    for body in bodies(data).values():
        compile(body, target="emulated")  # no device's time holds what the first lowering loads
    outcomes = [run_on(name, data, wanted) for name in usable]
    on = "cuda" if "cuda" in usable else "emulated"
    kernels = {name: compile(body, target=on, name=name) for name, body in bodies(data).items()}
    for name, kernel in kernels.items():
        _print_kernel(out, name, kernel)
    _print_outcomes(out, outcomes, wanted)
    for state in states:
        if not state.usable:
            paragraph(out, f"Not run on {state.name}: {state.detail}")
    code = _verdict(out, outcomes, wanted)
    if demo_training.DEVICE in usable:
        out.print()
        demo_training.show(out, demo_training.train(data.parts, demo_training.STEPS))
    return code


def _print_kernel(out: Console, name: str, kernel: Kernel) -> None:
    """Source, launch and resources of each launch of a kernel."""
    for n, step in enumerate(kernel.steps):
        part = f", launch {n + 1} of {len(kernel.steps)}" if len(kernel.steps) > 1 else ""
        heading(out, f"{name}{part}: {PURPOSE[name]}")
        code(out, step.cuda_source, "cuda")
        facts(out, [*step_facts(step), ("choice", str(step.opts))])
        out.print()


def _print_outcomes(out: Console, outcomes: Sequence[Outcome], wanted: Reference) -> None:
    rows = []
    for outcome in outcomes:
        for name, (ran, compared) in outcome.kernels.items():
            last = f"{outcome.accuracy:.1%}" if name == "nearest" else ""
            times = (duration(ran.compile_s), duration(ran.run_s))
            rows.append((outcome.device, name, *times, compared.words, last))
    rows.append(("numpy", "all", "", duration(wanted.time_s), "", f"{wanted.accuracy:.1%}"))
    columns = ("device", "kernel", "compile", "run", "beside numpy", "accuracy")
    table(out, columns, rows, right=frozenset(("compile", "run", "accuracy")))
    paragraph(out, LEGEND)
    out.print()


def _verdict(out: Console, outcomes: Sequence[Outcome], wanted: Reference) -> int:
    """Print who agrees with numpy.  Returns the exit code."""
    agree = [x.device for x in outcomes if x.agrees(wanted)]
    for outcome in outcomes:
        if outcome.error:
            out.print(f"{outcome.device} failed. {outcome.error}", soft_wrap=True)
        elif outcome.device not in agree:
            heading(out, f"{outcome.device} does not agree with numpy: see the table.")
    if agree:
        right = f"{wanted.accuracy:.1%} right, every class as numpy's."
        heading(out, f"{' and '.join(agree)}: {right}")
    if not outcomes:
        heading(out, "No device is usable: nothing was run.")
    return 0 if agree and len(agree) == len(outcomes) else 1
