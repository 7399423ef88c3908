"""Random kernels under random Opts: oracle, emulated GPU and native CPU, and every stage checked.

    python scratch/fuzz_kernels.py 1000 0            1000 kernels from seed 0 on, on every core
    python scratch/fuzz_kernels.py 1 1234 --show     one kernel: its graph and Opts

Each kernel runs with Opts drawn for it and with automatic ones; results are compared as
tests/three_ways.py says.  Of each kind of failure one is printed: its seed, the smallest
sub-expression and the fewest choices that still fail.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import fields
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.random_kernels import Case, random_case
from tests.three_ways import agree, random_opts
from uopc.errors import UsageError
from uopc.opts import Opts
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import TRANSCENDENTAL, Ops

WAYS = ("random emulated", "random cpu", "automatic emulated", "automatic cpu")
REFUSED = "refused"


def kernel(seed: int) -> Case:
    """The kernel of a seed."""
    return random_case(random.Random(seed))


def opts_of(seed: int, case: Case, way: str) -> Opts | None:
    """The Opts of a seed, None for automatic ones."""
    if way.startswith("automatic"):
        return None
    gpu = not way.endswith("cpu")
    return random_opts(random.Random(2 * seed + gpu), case.bodies, gpu)


def attempt(case: Case, opts: Opts | None, way: str) -> str:
    """Nothing where it is right, the traceback where it is not, REFUSED where Opts cannot be."""
    try:
        return "" if agree(case, opts, way.split()[1]) else REFUSED
    except Exception:
        return traceback.format_exc()


def one(seed: int) -> list[tuple[str, str]]:
    """(way, what `attempt` said) of each way that was not right."""
    case = kernel(seed)
    said = [(way, attempt(case, opts_of(seed, case, way), way)) for way in WAYS]
    return [(way, why) for way, why in said if why]


# ---- a failure made small
def smaller(case: Case, opts: Opts | None, way: str) -> tuple[Case, Opts | None]:
    """The smallest sub-expression, then the fewest fields of Opts, that fail in the same way."""
    kind = last_line(attempt(case, opts, way)).split(":")[0]

    def fails(c: Case, o: Opts | None) -> bool:
        said = last_line(attempt(c, o, way))
        return said.split(":")[0] == kind and "the kernel has axes" not in said

    for u in sorted(toposort(*case.bodies), key=lambda u: len(toposort(u))):
        if u.dtype.name in ("void", "index"):
            continue
        part = part_of(case, u)
        for o in (None, opts):
            if fails(part, o):
                return part, o and fewer(part, o, fails)
    return case, opts and fewer(case, opts, fails)


def part_of(case: Case, u: UOp) -> Case:
    """A value of a kernel as a kernel of its own."""
    below = [x.op for x in toposort(u)[:-1]]
    if case.check == "sum" and u.op is Ops.REDUCE:
        check = "sum"
    elif u.op in TRANSCENDENTAL:
        check = "ulp"
    else:
        check = "rows" if any(op in TRANSCENDENTAL for op in below) else "exact"
    read = {x.arg.slot for x in toposort(u) if x.op is Ops.BUFFER}
    return Case((u,), {slot: a for slot, a in case.arrays.items() if slot in read}, check)


def fewer(case: Case, opts: Opts, fails: Any) -> Opts:
    """Opts without what the failure does not need, field by field, then axis by axis."""
    for f in fields(Opts):
        if f.name == "gpu":
            continue
        now = getattr(opts, f.name)
        tries = [getattr(Opts(gpu=opts.gpu), f.name)]
        if isinstance(now, tuple) and now and isinstance(now[0], tuple):
            tries += [tuple(p for p in now if p is not q) for q in now]
        for value in tries:
            try:
                simpler = Opts(
                    **{g.name: getattr(opts, g.name) for g in fields(Opts)} | {f.name: value}
                )
            except UsageError:
                continue
            if simpler != opts and fails(case, simpler):
                opts = simpler
                break
    return opts


def last_line(why: str) -> str:
    return why.strip().splitlines()[-1] if why else ""


def report(seed: int, way: str, why: str) -> None:
    """A failure, and the least that fails like it."""
    print(f"\n==== seed {seed}, {way}\n{why}")
    case = kernel(seed)
    small, opts = smaller(case, opts_of(seed, case, way), way)
    for body in small.bodies:
        print(f"shape {body.shape}, {small.check}\n{body}")
    print(f"{way.split()[1]}, {opts}\n{last_line(attempt(small, opts, way))}", flush=True)


# ---- many of them
def fuzz(seeds: range, jobs: int, most: int) -> int:
    """Run the seeds until there are `most` kinds of failure; how many there are."""
    counts: Counter[str] = Counter()
    seen: dict[str, tuple[int, str, str]] = {}
    with ProcessPoolExecutor(jobs) as pool:
        todo = {pool.submit(one, seed): seed for seed in seeds}
        for n, done in enumerate(as_completed(todo), 1):
            for way, why in done.result():
                counts[REFUSED if why == REFUSED else f"{way}: {last_line(why)[:90]}"] += 1
                kind = "\n".join(line for line in why.splitlines() if line.startswith("  File"))
                if why != REFUSED and kind not in seen:
                    seen[kind] = (todo[done], way, why)
                    print(f"seed {todo[done]}, {way}: {last_line(why)}", flush=True)
            if n % 200 == 0:
                print(f"{n} kernels, {len(seen)} kinds of failure", flush=True)
            if len(seen) >= most:
                for t in todo:
                    t.cancel()
                break
    for seed, way, why in seen.values():
        report(seed, way, why)
    for text, count in counts.most_common():
        print(f"{count:6} {text}")
    return len(seen)


def main() -> int:
    parser = argparse.ArgumentParser(description="Random kernels, three ways.")
    parser.add_argument("number", type=int, nargs="?", default=60, help="kernels")
    parser.add_argument("seed", type=int, nargs="?", default=0, help="of the first one")
    parser.add_argument("--show", action="store_true", help="print each kernel")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--failures", type=int, default=5, help="kinds of failure to stop after")
    parser.add_argument("--cc", default="tcc" if shutil.which("tcc") else "", help="C compiler")
    given = parser.parse_args()
    os.environ |= {"UOPC_CHECK_SPEC": "1", "UOPC_CC": given.cc, "UOPC_CACHE_MB": "0"}
    seeds = range(given.seed, given.seed + given.number)
    for seed in seeds if given.show else ():
        case = kernel(seed)
        print(*(f"{body.shape}\n{body}" for body in case.bodies), sep="\n")
        print(*(f"{way}: {opts_of(seed, case, way)}" for way in WAYS), sep="\n")
    failures = fuzz(seeds, given.jobs, given.failures)
    print(f"{given.number} kernels, {failures} kinds of failure")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
