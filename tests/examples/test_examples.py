"""Every example is valid in its stage, and NVRTC makes of it what its author meant.

No GPU is needed: ptxas reports what a kernel uses, its machine code names its instructions.
"""

from __future__ import annotations

import numpy as np
import pytest

from uopc import layouts
from uopc.examples import EXAMPLES
from uopc.examples.tensor_cores import mma_tile
from uopc.examples.wgmma import wgmma_from_registers, wgmma_tile
from uopc.passes.linearize import linearize
from uopc.pipeline import render_cuda
from uopc.runtime.nvrtc import Cubin, compile_cubin
from uopc.runtime.ptxas import Resources
from uopc.uop.node import UOp
from uopc.uop.spec import Stage, check

TARGETS = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_90a")
#: what printf's arguments and an assert's line take
FRAMES = {"print_lanes": 48, "checked_square": 32}
#: the widest and the narrowest of each type
SIZES = (8, 128)


def targets_of(name: str) -> tuple[str, ...]:
    """The first target that has an example's instructions, and those that add others."""
    first = TARGETS.index(EXAMPLES[name].target)
    return tuple(t for t in TARGETS[first:] if t in (EXAMPLES[name].target, "sm_80", "sm_90a"))


def compiled(root: UOp, name: str, target: str) -> Cubin:
    return compile_cubin(render_cuda(root, name, target), name, target)


def assert_fits(used: Resources, frame: int = 0) -> None:
    assert not used.spills and used.stack_bytes == frame and not used.remarks, used
    assert "warning" not in used.log, used.log


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_valid(name: str) -> None:
    check(EXAMPLES[name].build(), Stage.LOOPS, gpu=True)


@pytest.mark.parametrize(("name", "target"), [(n, t) for n in EXAMPLES for t in targets_of(n)])
def test_it_compiles_without_spills(name: str, target: str) -> None:
    cubin = compiled(EXAMPLES[name].build(), name, target)
    assert_fits(cubin.resources, FRAMES.get(name, 0))


@pytest.mark.parametrize("name", [n for n in EXAMPLES if EXAMPLES[n].sass])
def test_its_machine_code_has_what_it_shows(name: str) -> None:
    sass = compiled(EXAMPLES[name].build(), name, "sm_90a").sass
    assert [i for i in EXAMPLES[name].sass if i not in sass] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_its_arrays_fit_its_parameters(name: str) -> None:
    example, tree = EXAMPLES[name], linearize(EXAMPLES[name].build())
    arrays = example.arrays()
    assert [(p.slot, p.size, p.dtype.numpy) for p in tree.params] == [
        (slot, a.size, a.dtype) for slot, a in enumerate(arrays)
    ]
    want = example.expected(arrays)
    for slot, array in want.items():
        assert tree.params[slot].written
        assert (array.dtype, array.size) == (arrays[slot].dtype, arrays[slot].size)


@pytest.mark.parametrize("name", EXAMPLES)
def test_its_arrays_follow_from_the_seed_and_its_reference_leaves_them(name: str) -> None:
    example = EXAMPLES[name]
    first, again = example.arrays(3), example.arrays(3)
    example.expected(first)
    for one, other in zip(first, again, strict=True):
        assert np.array_equal(one.view(np.uint8), other.view(np.uint8))


def some_of(engine: str) -> list[str]:
    """Every mma.sync atom; of wgmma a narrow and a wide one of each type."""
    return [
        name
        for name, atom in layouts.ATOMS.items()
        if atom.engine == engine and (engine == "mma.sync" or atom.n in SIZES)
    ]


@pytest.mark.parametrize("name", some_of("wgmma"))
def test_every_type_of_wgmma_compiles(name: str) -> None:
    root = wgmma_from_registers(name) if name.endswith(".registers") else wgmma_tile(name)
    assert_fits(compiled(root, "wgmma", "sm_90a").resources)


@pytest.mark.parametrize("name", some_of("mma.sync"))
def test_every_atom_of_mma_sync_compiles(name: str) -> None:
    target = layouts.ATOMS[name].target
    assert_fits(compiled(mma_tile(name), "mma_tile", target).resources)
