"""Random graphs through the scheduler: by the oracle kernel by kernel, or compiled and run.

    python scratch/fuzz_schedule.py 10000 0                  10,000 graphs from seed 0 on
    python scratch/fuzz_schedule.py 500 0 --on emulated cpu  compiled too, emulated kernels checked
    python scratch/fuzz_schedule.py 1 1234 --show            one graph: its kernels
    python scratch/fuzz_schedule.py 250 0 --mutants          which graphs notice which lost rule

Each graph is scheduled with the usual limits of a GPU, tiny ones, those of a CPU and random ones,
and without fusion.  Of each kind of failure the first seed is printed, with the fewest results that
still fail.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

os.environ.setdefault("UOPC_CHECK", "1")  # before anything reads it
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.schedule.execute import CPU, GPU, TIGHT, assert_right, assert_runs
from tests.schedule.execute import WAYS as NAMED
from tests.schedule.graphs import CanonicalCase, Case, random_case
from tests.schedule.mutants import MUTANTS, judged
from uopc.errors import OutOfRangeError
from uopc.runtime.executor import raise_errors
from uopc.schedule.limits import Limits
from uopc.schedule.plan import Schedule, schedule
from uopc.uop.text import show

WAYS = ("usual", "tight", "cpu", "random", "unfused")


def steps_of(seed: int) -> int:
    """Most graphs are small; some of them find what only length finds."""
    return 40 if seed % 3 == 0 else 14


def random_limits(seed: int) -> Limits:
    """Some limits as they are, others tiny."""
    rng = random.Random(seed)
    names = [f.name for f in fields(Limits) if f.name != "tile" and rng.random() < 0.5]
    changed = replace(Limits(), **{name: getattr(TIGHT, name) for name in names})
    return replace(changed, tile=rng.random() < 0.7)


def plan_of(case: CanonicalCase, way: str, seed: int) -> Schedule:
    limits = {"tight": TIGHT, "random": random_limits(seed)}.get(way)
    on = CPU if way == "cpu" else GPU
    return schedule(case.roots, on, case.kept, fuse=way != "unfused", limits=limits)


def attempt(case: CanonicalCase, way: str, device: str, seed: int) -> str:
    """Nothing where it is right, else the traceback."""
    try:
        plan = plan_of(case, way, seed)
        if device == "oracle":
            assert_right(case, plan, random.Random(seed))
        else:
            try:
                assert_runs(case, plan, device)
            finally:
                told = said(device)
            assert case.reports or not told, "an index is reported that is in range"
    except Exception:
        return traceback.format_exc()
    return ""


def said(device: str) -> bool:
    """Has a kernel reported an index?"""
    try:
        raise_errors(device)
    except OutOfRangeError:
        return True
    return False


def ways(devices: list[str]) -> list[tuple[str, str]]:
    """(way, where it runs): a device runs what is scheduled for its kind."""
    out = []
    for device in devices:
        fitting = {"oracle": WAYS, "cpu": ("cpu", "unfused"), "emulated": ("usual", "tight")}
        out += [(way, device) for way in fitting[device]]
    return out


def one(seed: int, devices: list[str]) -> tuple[int, list[tuple[str, str, str]]]:
    """(kernels, (way, device, what was wrong) of each way that was not right)."""
    graph = random_case(seed, steps_of(seed))
    case = graph.canonical()
    if not case.roots:
        return 0, []
    wrong = [
        (way, device, why)
        for way, device in ways(devices)
        if (why := attempt(case, way, device, seed))
    ]
    return len(schedule(case.roots, GPU, case.kept).launches), wrong


def fewest(graph: Case, way: str, device: str, seed: int, kind: str) -> Case:
    """The graph with the fewest results that still fail in the same way."""
    again = True
    while again:
        again = False
        for k in range(len(graph.roots)):
            less = replace(graph, roots=graph.roots[:k] + graph.roots[k + 1 :])
            if not less.roots:
                continue
            why = attempt(less.canonical(), way, device, seed)
            if kind_of(why) == kind:
                graph, again = less, True
                break
    return graph


def kind_of(why: str) -> str:
    """What failures of one cause have in common: where, and the first words."""
    if not why:
        return ""
    lines = why.strip().splitlines()
    place = next(line for line in reversed(lines) if line.startswith("  File"))
    return f"{lines[-1].split(':')[0]} {place.split('/')[-1]}"


def print_mutants(seeds: range) -> None:
    """How many graphs notice each rule that is switched off, and the smallest of them."""
    found: dict[str, list[tuple[int, int, str]]] = {name: [] for name in MUTANTS}
    for seed in seeds:
        case = random_case(seed, steps_of(seed)).canonical()
        for way in NAMED if case.roots else ():
            without = judged(case, way)
            for name in MUTANTS:
                if judged(case, way, name).worse(without):
                    found[name].append((steps_of(seed), seed, way))
    for name, by in found.items():
        first = [f"{seed} ({steps} steps) {way}" for steps, seed, way in sorted(by)[:4]]
        print(f"{name}: {len(by)}  {', '.join(first)}")


def print_case(case: CanonicalCase, way: str, seed: int) -> None:
    print("kept:", sorted(u.arg.slot for u in case.kept))
    for root in case.roots:
        print(show(root), end="\n\n")
    plan = plan_of(case, way, seed)
    print(plan.explain())
    for launch in plan.launches:
        print(f"\n{launch.name}  axes {launch.body.sizes}  at {launch.places}")
        for output in launch.body.outputs:
            print(f"to {output.memory.arg.slot}, axes {launch.body.axes[output.value]}:")
            print(show(output.value))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument(
        "--on", nargs="+", default=["oracle"], choices=("oracle", "emulated", "cpu")
    )
    parser.add_argument("--show", action="store_true", help="print the first graph's kernels")
    parser.add_argument("--mutants", action="store_true", help="say which graphs notice them")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    given = parser.parse_args()
    if given.mutants:
        print_mutants(range(given.seed, given.seed + given.count))
        return
    if given.show:
        print_case(random_case(given.seed, steps_of(given.seed)).canonical(), "usual", given.seed)
    kinds: Counter[str] = Counter()
    first: dict[str, tuple[int, str, str, str]] = {}
    kernels = graphs = 0
    seeds = range(given.seed, given.seed + given.count)
    with ProcessPoolExecutor(given.workers) as pool:
        for seed, (made, wrong) in zip(
            seeds, pool.map(one, seeds, [given.on] * len(seeds), chunksize=8), strict=True
        ):
            kernels, graphs = kernels + made, graphs + (made > 0)
            for way, device, why in wrong:
                kinds[kind_of(why)] += 1
                first.setdefault(kind_of(why), (seed, way, device, why))
    print(f"{graphs} graphs, {kernels} kernels with the usual limits, {kinds.total()} wrong")
    for kind, count in kinds.most_common():
        seed, way, device, why = first[kind]
        print(f"\n{count} x {kind}: first seed {seed}, {way} on {device}\n{why}")
        least = fewest(random_case(seed, steps_of(seed)), way, device, seed, kind)
        print_case(least.canonical(), way, seed)
    sys.exit(bool(kinds))


if __name__ == "__main__":
    main()
