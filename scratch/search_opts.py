"""How far is the automatic choice from what a search finds, kernel by kernel?

    python scratch/search_opts.py                           the MLP's training step
    python scratch/search_opts.py --rows 'softmax|sum'      rows of tests/memory_table.py

Each kernel is searched by `uopc.search`, which keeps what it finds: set UOPC_CACHE_DIR to leave
this machine's own choices as they are.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.memory_table import ROWS
from tests.training import Training
from uopc.schedule.plan import Launch
from uopc.searching import search
from uopc.tensor import Tensor
from uopc.tensor.prepare import target_of


def of_training(device: str) -> Iterator[tuple[str, Launch]]:
    training = Training(device, rows=4096)
    training.step(Tensor(training.batch(0), device=device))
    plan = training.schedule(Tensor(training.batch(1), device=device))
    yield from ((launch.name, launch) for launch in plan.launches)


def of_rows(pattern: str, device: str) -> Iterator[tuple[str, Launch]]:
    for row in ROWS:
        if re.search(pattern, row.name):
            plan = row.plan(device, target_of(device)).schedule
            yield from ((row.name, launch) for launch in plan.launches)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rows", help="a regular expression")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each kernel")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    device: str = options.device
    kernels = of_training(device) if options.rows is None else of_rows(options.rows, device)
    automatic = best = 0.0
    for what, launch in kernels:
        for found in search(launch.body, device, name=launch.name, budget_s=options.seconds):
            print(f"{what}\n  {found}\n  automatic: {found.automatic}", flush=True)
            print(f"  skipped: {dict(found.skipped)}", flush=True)
            automatic, best = automatic + found.automatic_s, best + found.time_s
    print(f"all: automatic {automatic * 1e6:.1f} us, best {best * 1e6:.1f} us")


if __name__ == "__main__":
    main()
