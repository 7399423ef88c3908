"""Random kernels: the checked emulator against brute-force happens-before of single threads.

    python scratch/fuzz_races.py 1000 0             1000 kernels from seed 0 on, on every core
    python scratch/fuzz_races.py 1 1234 --show      one kernel: its graph and what each side says

Each kernel runs in six orders of warps, lanes and engines (tests/happens_before); where its text
leaves out checks that its barriers prove, once more with all of them.  Of each kind of
disagreement one is printed: its seed and the smallest kernel that still disagrees.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.happens_before.agreement import Disagreement, disagreements, shrink
from tests.happens_before.generator import Generated, generate
from tests.happens_before.machine import Outcome, Schedule, run
from tests.happens_before.small import arrays_for, program
from uopc.uop.text import show


def judged(kernel: Generated) -> Outcome:
    """What the single threads say."""
    return run(program(kernel.sink), arrays_for(kernel.sink), Schedule(kernel.seed), kernel.given)


def compared(kernel: Generated) -> list[Disagreement]:
    """All disagreements; an exception is one, too."""
    try:
        return list(disagreements(kernel))
    except Exception:
        return [Disagreement("error", ("", "", ""), traceback.format_exc())]


def one(seed: int) -> tuple[int, bool, list[Disagreement]]:
    kernel = generate(seed)
    found = compared(kernel)
    return seed, not any(d.how == "error" for d in found) and judged(kernel).ok, found


def smallest(seed: int, how: str) -> Generated:
    """The kernel of a seed with all dropped that this disagreement does not need."""

    def fails(kernel: Generated) -> bool:
        return any(d.how == how for d in compared(kernel))

    return shrink(generate(seed), fails)


def tell(seed: int, found: Disagreement) -> None:
    kernel = smallest(seed, found.how)
    print(f"\n== seed {seed}: {found}\n-- the smallest kernel, given {sorted(kernel.given)}")
    print(show(kernel.sink))
    for d in compared(kernel)[:6]:
        print("emulator:", d)
    for fault in judged(kernel).faults[:6]:
        print("threads: ", fault)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if arguments.show:
        print(show(generate(arguments.seed).sink))
    first: dict[str, tuple[int, Disagreement]] = {}
    counts: Counter[str] = Counter()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        seeds = range(arguments.seed, arguments.seed + arguments.count)
        for future in as_completed([pool.submit(one, seed) for seed in seeds]):
            seed, clean, found = future.result()
            counts["clean" if clean else "faulty"] += 1
            for how in {d.how for d in found}:
                counts[how] += 1
            for d in found:
                if d.how not in first or seed < first[d.how][0]:
                    first[d.how] = seed, d
    for seed, d in first.values():
        tell(seed, d)
    print(", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    return 1 if first else 0


if __name__ == "__main__":
    raise SystemExit(main())
