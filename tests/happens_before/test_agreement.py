"""The checked emulator and brute-force happens-before of single threads say the same.

More of them: scratch/fuzz_races.py.
"""

from __future__ import annotations

import pytest

from tests.happens_before.agreement import ORDERS, disagreements, shrink
from tests.happens_before.generator import Generated, generate
from tests.happens_before.machine import run
from tests.happens_before.small import arrays_for, program
from tests.happens_before.test_machine import CASES, Case
from uopc.pipeline import emulate
from uopc.runtime.emulated import RunOptions
from uopc.runtime.program import Program
from uopc.uop.node import toposort
from uopc.uop.ops import EFFECTS

#: kinds that leave a kernel right: beside an error they may be all that is not told
WARNINGS = frozenset(("SAME_VALUE",))


@pytest.mark.parametrize("seed", range(150))
def test_emulator_and_single_threads_agree(seed: int) -> None:
    found = [str(d) for d in disagreements(generate(seed))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", CASES)
def test_emulator_judges_as_one_does_by_hand(name: str) -> None:
    build, kinds, size = CASES[name]
    case = Case(size)
    build(case)
    sink = case.c.sink()
    checked = Program(emulate(sink, "by_hand", check=True))
    for warps, lanes, engine in ORDERS:
        options = RunOptions(warps, lanes, engine, initialised=frozenset())
        found = {f.kind.name for f in checked.run(arrays_for(sink), options).faults}
        assert found <= kinds and bool(found) == bool(kinds), (warps, lanes, engine, found)
        assert bool(found - WARNINGS) == bool(kinds - WARNINGS), (warps, lanes, engine, found)


@pytest.mark.parametrize("seed", (2730, 7144, 50213, 60356))
def test_they_agree_on_kernels_that_once_told_them_apart(seed: int) -> None:
    found = [str(d) for d in disagreements(generate(seed))]
    assert not found, "\n".join(found)


def test_a_kernel_shrinks_while_it_fails() -> None:
    def races(kernel: Generated) -> bool:
        return "RACE" in run(program(kernel.sink), arrays_for(kernel.sink)).kinds

    seed = next(s for s in range(100) if races(generate(s)))
    smaller = shrink(generate(seed), races)
    effects = [u for u in toposort(smaller.sink) if u.op in EFFECTS]
    assert races(smaller)
    assert len(effects) < 8
