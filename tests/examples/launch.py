"""Launch examples on a GPU and compare them with their references, and with their emulation.

    python -m tests.examples.launch [NAME ...] [--times N]

Tests use its functions; as a script it is what compute-sanitizer watches.  One line an example;
exit code 1 where one differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

import numpy as np

from tests.helpers import assert_same
from uopc.errors import UopcError
from uopc.examples import EXAMPLES, Example
from uopc.examples.parts import Array
from uopc.kernel import Source
from uopc.pipeline import emulate, render_cuda
from uopc.runtime import cuda
from uopc.runtime.program import Program


def cuda_source(name: str) -> Source:
    """The text of an example for this machine's GPU, with the letter that its target asks for."""
    example, device = EXAMPLES[name], cuda.device_target()
    target = example.target if example.target.endswith("a") else device
    return render_cuda(example.build(), name, target)


def runs_here(example: Example) -> bool:
    """Whether this machine's GPU has the example's instructions."""
    device, wanted = cuda.device_target(), example.target.removeprefix("sm_")
    if wanted.endswith("a"):
        return device.sm == int(wanted[:-1])
    return device.sm >= int(wanted)


def launched(name: str, arrays: Sequence[Array]) -> None:
    """Run on the GPU, in place."""
    cuda.run_cuda(cuda_source(name), name, None, None, *arrays)


def emulated(name: str, arrays: Sequence[Array]) -> None:
    """Run the same kernel on the CPU, in place."""
    Program(emulate(EXAMPLES[name].build(), name))(*arrays)


def assert_right(
    name: str, run: Callable[[str, Sequence[Array]], None], seed: int = 0
) -> dict[int, Array]:
    """Run an example and compare it with its reference, bit for bit unless its order matters."""
    example = EXAMPLES[name]
    arrays = example.arrays(seed)
    want = example.expected(arrays)
    run(name, arrays)
    for slot, expected in want.items():
        if example.order_dependent:
            np.testing.assert_allclose(arrays[slot], expected, rtol=1e-5, err_msg=name)
        else:
            assert_same(arrays[slot], expected)
    return {slot: arrays[slot] for slot in want}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(EXAMPLES))
    parser.add_argument("--times", type=int, default=1, help="runs of each, with other inputs")
    given = parser.parse_args(argv)
    wrong = 0
    for name in given.names:
        if not runs_here(EXAMPLES[name]):
            print(f"{name}: not for this GPU", flush=True)
            continue
        try:
            for seed in range(given.times):
                assert_right(name, launched, seed)
            print(f"{name}: right", flush=True)
        except (AssertionError, UopcError) as error:
            wrong += 1
            print(f"{name}: WRONG: {str(error).strip()[:300]}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
