"""Random kernels under random Opts: oracle, emulated and native, until the number is reached.

    python scratch/fuzz_kernels.py 1000 0            1000 kernels from seed 0 on, on every core
    python scratch/fuzz_kernels.py 1 1234 --show     one kernel: its graph and Opts

Every kernel is lowered with random Opts for a GPU and for a CPU and with the automatic ones, each
stage is checked, and the results are compared as tests/three_ways.py says.  A failure is printed
with its seed, the smallest sub-expression and the fewest choices that still fail.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.random_kernels import Case, random_case
from tests.three_ways import check_device, random_opts
from uopc.errors import TargetError, UsageError
from uopc.opts import Opts
from uopc.uop.node import UOp, prod, toposort
from uopc.uop.ops import TRANSCENDENTAL, Ops

WAYS = ("random emulated", "random cpu", "automatic emulated", "automatic cpu")
#: refusals that are answers: one reduction over another cannot be split over the grid, and the like
REFUSED = (
    "cannot be split over blocks",
    "have different other axes",
    "one reduction is split at a time",
)


def kernel(seed: int) -> Case:
    """The kernel of a seed."""
    return random_case(random.Random(seed))


def opts_of(seed: int, case: Case, way: str) -> Opts | None:
    """The Opts of a seed, None for automatic ones."""
    if way.startswith("automatic"):
        return None
    return random_opts(
        random.Random(seed * 2 + way.endswith("cpu")), case.bodies, not way.endswith("cpu")
    )


def attempt(case: Case, opts: Opts | None, way: str) -> str:
    """ "" where it is right, else what went wrong; "refused" where the Opts cannot be."""
    try:
        check_device(case, opts, way.split()[1])
        return ""
    except TargetError:
        return "refused"
    except UsageError as error:
        return "refused" if any(r in str(error) for r in REFUSED) else traceback.format_exc()
    except Exception:
        return traceback.format_exc()


def one(seed: int) -> list[tuple[int, str, str]]:
    """(seed, way, what went wrong) of every way that failed."""
    case = kernel(seed)
    found = []
    for way in WAYS:
        try:
            opts = opts_of(seed, case, way)
        except Exception:
            found.append((seed, way, traceback.format_exc()))
            continue
        if why := attempt(case, opts, way):
            found.append((seed, way, why))
    return found


def smaller(case: Case, opts: Opts | None, way: str) -> tuple[Case, Opts | None]:
    """The smallest sub-expression, then the fewest fields of Opts, that still fail."""

    kind = _class(attempt(case, opts, way))

    def fails(c: Case, o: Opts | None) -> bool:
        why = attempt(c, o, way)
        return _class(why) == kind and "the kernel has axes" not in why

    values = [
        u
        for u in toposort(*case.bodies)
        if u.op is not Ops.TUPLE and u.dtype.name not in ("void", "index")
    ]
    for u in sorted(values, key=lambda u: len(toposort(u))):
        check = (
            "sum"
            if u.op is Ops.REDUCE and case.check == "sum"
            else "ulp"
            if u.op in TRANSCENDENTAL
            else "exact"
        )
        read = {x.arg.slot for x in toposort(u) if x.op is Ops.BUFFER}
        part = Case((u,), {k: a for k, a in case.arrays.items() if k in read}, check)
        if any(x.op in TRANSCENDENTAL for x in toposort(u) if x is not u):
            continue
        for o in (None, opts):
            if fails(part, o):
                return part, fewer(part, o, fails) if o is not None else o
    return case, opts if opts is None else fewer(case, opts, fails)


def _class(why: str) -> str:
    """The class of the exception at the end of a traceback."""
    return why.strip().splitlines()[-1].split(":")[0] if why else ""


def fewer(case: Case, opts: Opts, fails) -> Opts:  # type: ignore[no-untyped-def]  # a local function
    """opts without what the failure does not need."""
    base = Opts(gpu=opts.gpu)
    fields = [f for f in opts.__slots__] if hasattr(opts, "__slots__") else list(vars(opts))
    current = {f: getattr(opts, f) for f in fields}
    for f in fields:
        if f == "gpu" or current[f] == getattr(base, f):
            continue
        tries = [getattr(base, f)]
        if isinstance(current[f], tuple) and current[f] and isinstance(current[f][0], tuple):
            tries += [tuple(p for p in current[f] if p is not q) for q in current[f]]
        for t in tries:
            try:
                o = Opts(**{**current, f: t})
            except UsageError:
                continue
            if fails(case, o):
                current[f] = t
                break
    return Opts(**current)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("number", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--show", action="store_true", help="print each kernel")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--failures", type=int, default=5, help="stop after so many different ones")
    parser.add_argument(
        "--cc", default="tcc" if shutil.which("tcc") else "", help="C compiler; tcc is the fastest"
    )
    given = parser.parse_args()
    os.environ["UOPC_CHECK_SPEC"] = "1"
    os.environ["UOPC_CC"] = given.cc
    os.environ["UOPC_CACHE_MB"] = "0"
    os.environ["OMP_NUM_THREADS"] = "2"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["UOPC_CACHE_DIR"] = folder
        return fuzz(given)


def fuzz(given: argparse.Namespace) -> int:
    counts: Counter[str] = Counter()
    seen: dict[str, tuple[int, str, str]] = {}
    seeds = range(given.seed, given.seed + given.number)
    if given.show:
        for seed in seeds:
            case = kernel(seed)
            for body in case.bodies:
                print(body.shape, body, sep="\n")
            for way in WAYS:
                print(way, opts_of(seed, case, way))
    with ProcessPoolExecutor(given.jobs) as pool:
        todo = [pool.submit(one, seed) for seed in seeds]
        for n, done in enumerate(as_completed(todo), 1):
            for seed, way, why in done.result():
                last = why.strip().splitlines()[-1]
                counts["refused" if why == "refused" else f"{way}: {last[:100]}"] += 1
                kind = f"{way.split()[1]} {_kind(why)}"
                if why != "refused" and kind not in seen:
                    seen[kind] = (seed, way, why)
                    print(f"seed {seed}, {way}: {last}", flush=True)
            if n % 200 == 0:
                print(f"{n} kernels, {len(seen)} kinds of failure", flush=True)
            if len(seen) >= given.failures:
                for t in todo:
                    t.cancel()
                break
    for seed, way, why in seen.values():
        report(seed, way, why)
    print(
        f"{given.number} kernels: {counts['refused']} refused, {sum(counts.values()) - counts['refused']} failures"
    )
    for text, k in counts.most_common():
        print(f"{k:6} {text}")
    return 1 if seen else 0


def _kind(why: str) -> str:
    """Where a failure was raised, which is roughly what it is."""
    frames = [line.strip() for line in why.splitlines() if line.strip().startswith("File ")]
    return " ".join(frames[-2:])


def report(seed: int, way: str, why: str) -> None:
    print(f"\n==== seed {seed}, {way}\n{why}")
    case = kernel(seed)
    small, opts = smaller(case, opts_of(seed, case, way), way)
    for body in small.bodies:
        print(f"shape {body.shape}, {small.check}\n{body}")
    print(f"{way.split()[1]}, {opts}")
    print(attempt(small, opts, way).strip().splitlines()[-1:])


if __name__ == "__main__":
    sys.exit(main())

__all__ = ["UOp", "prod", "replace"]
