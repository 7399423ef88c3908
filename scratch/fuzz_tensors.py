"""Random programs of tensors against numpy: lazily, in pieces, and captured by jit.

    python scratch/fuzz_tensors.py 1000 0                   1,000 programs, evaluated by the oracle
    python scratch/fuzz_tensors.py 50 0 --on cpu emulated   compiled, emulated kernels checked
    python scratch/fuzz_tensors.py 1 1234 --show            one program: its text

Each program runs as a whole, twice with values computed and compared at random moments, and as a
function that jit captures.  Of each kind of failure the first seed is printed, with the fewest
lines that still fail.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

os.environ.setdefault("UOPC_CHECK", "1")  # before anything reads it
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.tensor.by_oracle import by_oracle
from tests.tensor.random_programs import Calls, Difference, program, run, shorter
from tests.tensor.reference import Refused
from uopc.errors import UsageError
from uopc.tensor import jit, set_default_device

WAYS = ("whole", "pieces", "other pieces", "jit")


@dataclass(frozen=True)
class Program:
    """Lines of which the first ones stand outside of the function that is captured."""

    seed: int
    outside: tuple[str, ...]
    inside: tuple[str, ...]

    @property
    def differentiates(self) -> bool:
        return self.seed % 2 == 0

    @classmethod
    def of(cls, seed: int, steps: int) -> Program:
        """Every fourth one is longer."""
        lines = program(seed, steps if seed % 4 else 3 * steps, grads=seed % 2 == 0)
        first = Random(seed).randint(1, max(1, 2 * len(lines) // 3))
        return cls(seed, tuple(lines[:first]), tuple(lines[first:]))

    def run(self, way: str) -> None:
        lines = [*self.outside, *self.inside]
        if way == "jit":
            Calls(lines, len(self.outside), self.seed).run(jit)
        else:
            pick = {"whole": None, "pieces": self.seed, "other pieces": self.seed + 10**6}[way]
            run(lines, pick)

    def fewest(self, fails: Callable[[Program], bool]) -> Program:
        """The fewest lines that still fail."""

        def made(marked: Sequence[tuple[bool, str]]) -> Program:
            outside = tuple(line for first, line in marked if first)
            return Program(self.seed, outside, tuple(line for first, line in marked if not first))

        marked = [*((True, line) for line in self.outside), *((False, t) for t in self.inside)]
        return made(shorter(marked, lambda less: fails(made(less))))


def on(device: str) -> Any:
    """A context in which programs run there."""
    set_default_device("cpu" if device == "oracle" else device)
    return by_oracle() if device == "oracle" else nullcontext()


def attempt(given: Program, way: str, device: str) -> tuple[str, str]:
    """(what kind of failure, the whole of it); both empty where it is right."""
    warnings.simplefilter("ignore")
    try:
        with on(device):
            given.run(way)
    except Refused:
        pass
    except Exception as error:
        if given.differentiates and is_declared(error):
            return "", ""
        return kind_of(error), traceback.format_exc()
    return "", ""


def is_declared(error: Exception) -> bool:
    """A gradient at a value that an update has been written over (see backward.py), or by a leaf of
    whose elements none is left in the graph."""
    said = ("has been written over", "no output depends on input")
    return isinstance(error, UsageError) and any(text in str(error) for text in said)


def kind_of(error: Exception) -> str:
    """What failures of one cause have in common: where, and the first words."""
    if isinstance(error, Difference):
        return "Difference of " + ("a gradient" if ".grad " in str(error) else "a value")
    frames = traceback.extract_tb(error.__traceback__)
    place = next(f for f in reversed(frames) if "uopc" in f.filename)
    return f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}"


def one(seed: int, steps: int, devices: Sequence[str]) -> list[tuple[str, str, str, str]]:
    """(kind, way, device, failure) of each way that was not right."""
    given = Program.of(seed, steps)
    found = []
    for device in devices:
        for way in WAYS:
            kind, text = attempt(given, way, device)
            if kind:
                found.append((kind, way, device, text))
    return found


def tell(seed: int, steps: int, failure: tuple[str, str, str, str]) -> None:
    kind, way, device, text = failure
    least = Program.of(seed, steps).fewest(lambda p: attempt(p, way, device)[0] == kind)
    print(f"\n{kind}: first seed {seed}, {way} on {device}")
    print("\n".join(least.outside))
    print("# inside\n" if way == "jit" else "", end="")
    print("\n".join(least.inside))
    print(attempt(least, way, device)[1] or text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument(
        "--on", nargs="+", default=["oracle"], choices=("oracle", "cpu", "emulated", "cuda")
    )
    parser.add_argument("--steps", type=int, default=14, help="statements; some have three times")
    parser.add_argument("--show", action="store_true", help="print the first program")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    given = parser.parse_args()
    if given.show:
        shown = Program.of(given.seed, given.steps)
        print("\n".join([*shown.outside, "# inside", *shown.inside]))
    kinds: Counter[str] = Counter()
    seeds = range(given.seed, given.seed + given.count)
    with ProcessPoolExecutor(given.workers) as pool:
        jobs = [pool.submit(one, seed, given.steps, given.on) for seed in seeds]
        for seed, job in zip(seeds, jobs, strict=True):
            for failure in job.result():
                if not kinds[failure[0]]:
                    tell(seed, given.steps, failure)
                kinds[failure[0]] += 1
    runs = len(WAYS) * len(given.on)
    print(f"{given.count} programs in {runs} ways, {kinds.total()} wrong")
    for kind, count in kinds.most_common():
        print(f"{count} x {kind}")
    sys.exit(bool(kinds))


if __name__ == "__main__":
    main()
