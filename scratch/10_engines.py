"""Each wait for asynchronous work is left out in turn: how must engines work for that to show?"""

from __future__ import annotations

import numpy as np

from uopc.errors import DeviceError
from uopc.examples import EXAMPLES, Example
from uopc.gpu import emulate
from uopc.runtime import Program
from uopc.runtime.emulated import RunOptions
from uopc.uop import Ops
from uopc.uop.origin import where_from

ENGINES = ("early", "late", "random(1)", "random(2)")


def outcomes(kernel: Program, example: Example, mutation: int) -> str:
    """Right, wrong or stuck, for each engine."""
    wanted = example.expected(example.arrays())
    found = []
    for engine in ENGINES:
        arrays = example.arrays()
        try:
            kernel.run(arrays, RunOptions(engine=engine, mutation=mutation))
            same = all(np.array_equal(arrays[slot], w) for slot, w in wanted.items())
            found.append(f"{engine} {'right' if same else 'wrong'}")
        except DeviceError:
            found.append(f"{engine} stuck")
    return ", ".join(found)


for name in ("copy_ring_2", "bulk_tile_128", "wgmma_k"):
    example = EXAMPLES[name]
    source = emulate(example.build(), "kern", target=example.target, check=False, mutate=True)
    kernel = Program(source)
    print(f"{name}\n  as it is: {outcomes(kernel, example, 0)}")
    for number, node, what in source.mutants:
        if node.op in (Ops.WAITG, Ops.WAIT) and what == "deleted":
            print(f"  {node.op} at {where_from(node)} {what}: {outcomes(kernel, example, number)}")
