"""Layouts as data: what the manuals say of them, and that they fit together.

A product computed from the tables alone equals a @ b for every atom: fragments through ldmatrix or
by element, shared operands through their descriptors, in every swizzle mode and both majors.
"""

from __future__ import annotations

import itertools
import pickle
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.symbolic.evaluate import evaluate, grid, leaves_of
from uopc.dtype import DATA, dtypes
from uopc.errors import UsageError
from uopc.layouts import (
    ATOMS,
    K_MAJOR,
    LDMATRIX,
    MN_MAJOR,
    REGISTER,
    STMATRIX,
    SWIZZLES,
    THREAD,
    TMA_DATA_TYPE,
    TMA_INTERLEAVE,
    TMA_L2_PROMOTION,
    TMA_OOB_FILL,
    TMA_SWIZZLE,
    WARP,
    Atom,
    Descriptor,
    Digit,
    Fragment,
    MatrixAccess,
    Operand,
    SharedTile,
    atom_named,
    atoms,
    matrix_access,
    operand_descriptor,
    swizzle,
    tma_encoding,
    tma_fault,
    to_tf32,
)
from uopc.runtime.nvrtc import compile_cubin
from uopc.symbolic import simplify
from uopc.uop.node import UOp, range_
from uopc.uop.text import index_text

Array = np.ndarray[Any, Any]
BF16 = ATOMS["mma.m16n8k16.bf16"]


def fragments() -> dict[Fragment, str]:
    """Every different fragment of the atoms, with the name of an atom that has it."""
    return {
        operand.fragment: atom.name
        for atom in ATOMS.values()
        for operand in (atom.a, atom.b, atom.accumulator)
        if operand.fragment is not None
    }


def small(atom: Atom, name: str, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Small integers in the type of an operand: their products and sums are exact."""
    operand: Operand = getattr(atom, name)
    low = 0 if operand.type == "u8" else -3
    return rng.integers(low, 4, shape).astype(operand.dtype.numpy)


def worth(tile: Array) -> Array:
    return tile.astype(np.float64)


# ---- fragments
def test_every_fragment_holds_each_element_once() -> None:
    for atom in ATOMS.values():
        shapes = {"a": (atom.m, atom.k), "b": (atom.k, atom.n), "accumulator": (atom.m, atom.n)}
        for name, shape in shapes.items():
            operand: Operand = getattr(atom, name)
            if operand.fragment is not None:
                assert operand.fragment.shape == shape, atom
                assert operand.fragment.threads == atom.threads, atom
    for fragment, name in fragments().items():
        assert fragment.is_bijection(*fragment.shape), name


def test_locate_is_the_inverse() -> None:
    for fragment in fragments():
        where = fragment.table()
        thread, register = fragment.locate(where[..., 0], where[..., 1])
        assert (thread == np.arange(fragment.threads)[:, None]).all()
        assert (register == np.arange(fragment.registers)).all()


def test_ints_arrays_and_uops_agree() -> None:
    thread, register = range_(WARP, 0), range_(4, 1)
    fragment = BF16.accumulator.fragment
    assert fragment is not None
    table = fragment.table()
    leaves = grid([thread, register])
    for axis, index in enumerate(fragment(thread, register)):
        for u in (index, simplify(index)):
            got = evaluate(u, leaves)
            assert (got == table[leaves[thread], leaves[register], axis]).all()
    assert all(fragment(t, r) == tuple(table[t, r]) for t in range(WARP) for r in range(4))


def test_a_fragment_in_a_kernel_is_index_arithmetic() -> None:
    fragment = BF16.accumulator.fragment
    assert fragment is not None
    row, column = (index_text(simplify(u)) for u in fragment(range_(WARP, 0), range_(4, 1)))
    assert row == "r0 // 4 + r1 // 2*8"
    assert column == "r0 % 4*2 + r1 % 2"


g, q, i = (part.astype(np.int64) for part in np.ogrid[0:8, 0:4, 0:16])
#: (row, column) of element i of lane 4 g + q as the PTX ISA words it in the figures of each shape
MANUAL: dict[str, dict[str, tuple[Array, Array]]] = {
    "mma.m16n8k16.bf16": {
        "a": (
            np.where((i < 2) | ((i >= 4) & (i < 6)), g, g + 8),
            np.where(i < 4, q * 2 + (i & 1), q * 2 + (i & 1) + 8),
        ),
        "b": (np.where(i < 2, q * 2 + (i & 1), q * 2 + (i & 1) + 8), g),
        "accumulator": (np.where(i < 2, g, g + 8), q * 2 + (i & 1)),
    },
    "mma.m16n8k8.f16": {
        "a": (np.where(i < 2, g, g + 8), q * 2 + (i & 1)),
        "b": (q * 2 + i, g),
        "accumulator": (np.where(i < 2, g, g + 8), q * 2 + (i & 1)),
    },
    "mma.m16n8k4.tf32": {"a": (np.where(i == 0, g, g + 8), q), "b": (q, g)},
    "mma.m16n8k8.tf32": {
        "a": (np.where(i % 2 == 0, g, g + 8), np.where(i < 2, q, q + 4)),
        "b": (np.where(i == 0, q, q + 4), g),
    },
    "mma.m16n8k16.i8": {
        "a": (np.where(i < 4, g, g + 8), q * 4 + (i & 3)),
        "b": (q * 4 + (i & 3), g),
        "accumulator": (np.where(i < 2, g, g + 8), q * 2 + (i & 1)),
    },
    "mma.m16n8k32.f8e4m3": {
        "a": (
            np.where((i < 4) | ((i >= 8) & (i < 12)), g, g + 8),
            np.where(i < 8, q * 4 + (i & 3), q * 4 + (i & 3) + 16),
        ),
        "b": (np.where(i < 4, q * 4 + (i & 3), q * 4 + (i & 3) + 16), g),
    },
    "mma.m8n8k4.f64": {"a": (g, q), "b": (q, g), "accumulator": (g, q * 2 + (i & 1))},
}


@pytest.mark.parametrize("name", MANUAL)
def test_fragments_are_those_of_the_manual(name: str) -> None:
    for operand, (row, column) in MANUAL[name].items():
        fragment = getattr(ATOMS[name], operand).fragment
        parts = [np.broadcast_to(x, (8, 4, 16)).reshape(WARP, 16) for x in (row, column)]
        assert (fragment.table() == np.stack(parts, -1)[:, : fragment.registers]).all()


def test_a_warpgroup_is_four_warps_of_16_rows() -> None:
    for n in (8, 24, 256):
        fragment = ATOMS[f"wgmma.m64n{n}k16.bf16"].accumulator.fragment
        one = BF16.accumulator.fragment
        assert fragment is not None and one is not None
        table, warp = fragment.table(), one.repeat(columns=n // 8).table()
        for w in range(4):
            assert (table[32 * w : 32 * w + 32] == warp + [16 * w, 0]).all()
    for k, types in ((16, "f16"), (8, "tf32"), (32, "i8"), (32, "f8e5m2")):
        of_warp = ATOMS[f"mma.m16n8k{k}.{types}"].a.fragment
        of_group = ATOMS[f"wgmma.m64n8k{k}.{types}.registers"].a.fragment
        assert of_warp is not None and of_group is not None
        warps = [of_warp.table() + [16 * w, 0] for w in range(4)]
        assert (of_group.table() == np.concatenate(warps)).all()


def test_an_accumulator_is_the_next_products_operand() -> None:
    """16-bit: elements 8 s ... 8 s + 7 of a thread are its A fragment of columns 16 s ... (P of
    attention needs no exchange)."""
    accumulator = ATOMS["wgmma.m64n64k16.bf16"].accumulator.fragment
    a = ATOMS["wgmma.m64n8k16.bf16.registers"].a.fragment
    assert accumulator is not None and a is not None
    for s in range(4):
        assert (accumulator.table()[:, 8 * s : 8 * s + 8] == a.table() + [0, 16 * s]).all()


def test_vectors_are_what_one_store_can_take() -> None:
    vectors = {
        name: [getattr(ATOMS[name], part).fragment.vector(axis) for axis in ("row", "column")]
        for name, part in (
            *(("mma.m16n8k16.bf16", part) for part in ("a", "b", "accumulator")),
            *(("mma.m16n8k32.i8", "a"), ("mma.m16n8k8.tf32", "a")),
        )
        if part != "b"
    }
    assert vectors == {
        "mma.m16n8k16.bf16": [1, 2],
        "mma.m16n8k32.i8": [1, 4],
        "mma.m16n8k8.tf32": [1, 1],
    }
    assert BF16.b.fragment is not None and BF16.b.fragment.vector("row") == 2
    whole = Fragment(8, 1, (), (Digit(REGISTER, 1, 4, 1), Digit(REGISTER, 4, 2, 4)))
    assert whole.vector("column") == 8


@st.composite
def random_fragments(draw: st.DrawFn) -> Fragment:
    """A tile cut into digits, dealt to threads and registers in any order."""
    digits: list[tuple[int, str, int, int]] = []
    for axis in (0, 1):
        scale = 1
        for size in draw(st.lists(st.sampled_from([2, 3, 4, 8]), max_size=3)):
            digits.append((axis, draw(st.sampled_from([THREAD, REGISTER])), size, scale))
            scale *= size
    count = {THREAD: 1, REGISTER: 1}
    axes: tuple[list[Digit], list[Digit]] = ([], [])
    for axis, of, size, scale in draw(st.permutations(digits)):
        axes[axis].append(Digit(of, count[of], size, scale))
        count[of] *= size
    return Fragment(count[REGISTER], count[THREAD], tuple(axes[0]), tuple(axes[1]))


@given(random_fragments(), st.integers(1, 3), st.integers(1, 3))
def test_any_digits_make_a_layout(fragment: Fragment, rows: int, columns: int) -> None:
    repeated = fragment.repeat(rows, columns)
    height, width = fragment.shape
    assert repeated.shape == (height * rows, width * columns)
    assert repeated.is_bijection(*repeated.shape)
    where = repeated.table()
    thread, register = repeated.locate(where[..., 0], where[..., 1])
    assert (thread == np.arange(fragment.threads)[:, None]).all()
    assert (register == np.arange(repeated.registers)).all()
    tile = np.arange(height * rows * width * columns).reshape(repeated.shape)
    assert (repeated.put(repeated.take(tile)) == tile).all()
    last = tile[-height:, -width:]
    assert (repeated.take(tile)[:, -fragment.registers :] == fragment.take(last)).all()


def test_what_is_no_bijection() -> None:
    twice = Fragment(1, 8, (Digit(THREAD, 1, 4, 1),), ())
    assert twice.is_bijection(4, 1) is False
    assert Fragment(1, 4, (Digit(THREAD, 1, 4, 2),), ()).is_bijection(8, 1) is False
    assert Fragment(1, 4, (Digit(THREAD, 1, 4, 1),), ()).is_bijection(2, 1) is False


# ---- atoms: what they are
def test_names_and_instructions() -> None:
    says = {
        "mma.m16n8k16.bf16": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
        "mma.m16n8k8.f16.f16": "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16",
        "mma.m16n8k32.i8xu8": "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32",
        "wgmma.m64n128k16.bf16": "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16",
        "wgmma.m64n8k32.f8e4m3xf8e5m2.f16": "wgmma.mma_async.sync.aligned.m64n8k32.f16.e4m3.e5m2",
        "wgmma.m64n8k8.tf32.registers": "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32",
    }
    assert {name: ATOMS[name].instruction for name in says} == says
    assert ATOMS["wgmma.m64n8k16.bf16"].immediates == (
        *("scale_a", "scale_b", "transpose_a", "transpose_b"),
    )
    assert ATOMS["wgmma.m64n8k16.bf16.registers"].immediates == (
        *("scale_a", "scale_b", "transpose_b"),
    )
    assert ATOMS["wgmma.m64n8k8.tf32"].immediates == ("scale_a", "scale_b")
    assert ATOMS["wgmma.m64n8k32.i8"].immediates == ()


@pytest.mark.parametrize(
    ("name", "registers"),
    [
        ("mma.m16n8k16.bf16", (4, 2, 4)),
        ("mma.m16n8k16.f16.f16", (4, 2, 2)),
        ("mma.m16n8k8.f16", (2, 1, 4)),
        ("mma.m16n8k4.tf32", (2, 1, 4)),
        ("mma.m16n8k8.tf32", (4, 2, 4)),
        ("mma.m16n8k16.i8", (2, 1, 4)),
        ("mma.m16n8k32.u8", (4, 2, 4)),
        ("mma.m16n8k32.f8e5m2", (4, 2, 4)),
        ("mma.m8n8k4.f64", (1, 1, 2)),
        ("wgmma.m64n256k16.bf16", (0, 0, 128)),
        ("wgmma.m64n256k16.f16.f16", (0, 0, 64)),
        ("wgmma.m64n256k16.bf16.registers", (4, 0, 128)),
        ("wgmma.m64n8k32.i8.registers", (4, 0, 4)),
    ],
)
def test_registers_of_a_thread(name: str, registers: tuple[int, int, int]) -> None:
    atom = ATOMS[name]
    assert (atom.a.registers, atom.b.registers, atom.accumulator.registers) == registers


def test_which_sizes_wgmma_has() -> None:
    of_bf16 = [a.n for a in atoms("bf16", engine="wgmma") if a.a.fragment is None]
    of_int8 = [a.n for a in atoms("i8", engine="wgmma") if a.a.fragment is None]
    assert of_bf16 == list(range(8, 257, 8))
    assert 24 in of_int8 and 40 not in of_int8 and len(of_int8) == 18


def test_atoms_of_a_target() -> None:
    assert [a.name for a in atoms("f16", target="sm_75")] == [
        "mma.m16n8k8.f16",
        "mma.m16n8k8.f16.f16",
    ]
    assert [a.name for a in atoms("f16", accumulator="f16", target="sm_86")] == [
        "mma.m16n8k8.f16.f16",
        "mma.m16n8k16.f16.f16",
    ]
    assert [a.name for a in atoms("i8", "u8", target="sm_80")] == [
        "mma.m16n8k16.i8xu8",
        "mma.m16n8k32.i8xu8",
    ]
    assert {a.engine for a in atoms("bf16", target="sm_90a")} == {"mma.sync", "wgmma"}
    assert {a.engine for a in atoms("bf16", target="sm_90")} == {"mma.sync"}
    assert {a.engine for a in atoms("bf16", target="sm_100a")} == {"mma.sync"}
    assert atoms("f8e4m3", target="sm_86") == []
    assert atoms("f8e4m3", target="sm_120") != []
    assert atoms("f16", target="cpu") == []


def test_an_atom_is_one_object() -> None:
    for atom in ATOMS.values():
        assert pickle.loads(pickle.dumps(atom)) is atom
    assert repr(BF16) == "mma.m16n8k16.bf16" and atom_named("mma.m16n8k16.bf16") is BF16
    with pytest.raises(UsageError, match=r"no atom is called 'mma.m16n8k32.bf16'; .*m16n8k8.bf16"):
        atom_named("mma.m16n8k32.bf16")
    with pytest.raises(UsageError, match=r"there are mma\.m16n8k16\.bf16, wgmma"):
        atom_named("tensor core")


def assembled(number: int, atom: Atom) -> str:
    """A kernel that executes an atom, its operands taken from the record."""
    wide = "double" if atom.a.type == "f64" else "unsigned"
    kept = {"f32": "float", "f64": "double"}.get(atom.accumulator.type, "unsigned")
    letter = {"float": "f", "double": "d", "unsigned": "r"}
    places = itertools.count()
    inputs: list[str] = []

    def held(count: int) -> str:
        return "{" + ", ".join(f"%{next(places)}" for _ in range(count)) + "}"

    def operand(name: str, of: Operand) -> str:
        if of.fragment is None:
            inputs.append(f'"l"({name}_descriptor)')
            return f"%{next(places)}"
        inputs.extend(f'"{letter[wide]}"({name}[{n}])' for n in range(of.registers))
        return held(of.registers)

    d = held(atom.accumulator.registers)
    outputs = [f'"+{letter[kept]}"(d[{n}])' for n in range(atom.accumulator.registers)]
    text = f"{atom.instruction} {d}, {operand('a', atom.a)}, {operand('b', atom.b)}, "
    if atom.has_predicate:
        inputs.append('"r"(keep)')
        flags = [", 1" if flag.startswith("scale") else ", 0" for flag in atom.immediates]
        text = f"{{ .reg .pred p; setp.ne.b32 p, %{next(places)}, 0; {text}p{''.join(flags)}; }}"
    else:
        text += f"{d};"
    return f"""
extern "C" __global__ void k{number}({kept}* out, const {wide}* in,
    unsigned long long a_descriptor, unsigned long long b_descriptor, int keep) {{
  {kept} d[{len(outputs)}];
  {wide} a[4], b[2];
  for (int n = 0; n < 4; n++) a[n] = in[n], b[n % 2] = in[4 + n];
  for (int n = 0; n < {len(outputs)}; n++) d[n] = out[n];
  asm volatile("{text}" : {", ".join(outputs)} : {", ".join(inputs)});
  for (int n = 0; n < {len(outputs)}; n++) out[n * 128 + threadIdx.x] = d[n];
}}"""


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_89", "sm_90a"])
def test_ptxas_takes_every_form(target: str) -> None:
    """mma.sync all, wgmma in one size of n; with the counts of registers that the records give."""
    forms = [
        atom
        for atom in ATOMS.values()
        if atom.target == target and (atom.engine == "mma.sync" or atom.n == 32)
    ]
    text = "".join(assembled(number, atom) for number, atom in enumerate(forms))
    sass = compile_cubin(text, "k0", target).sass
    mma = [line for line in sass.splitlines() if "MMA" in line and "HFMA2.MMA" not in line]
    assert len(mma) >= len(forms)


# ---- ldmatrix and stmatrix
def ldmatrix(memory: Array, rows: Array, transposed: bool) -> Array:
    """What lanes get (32, tiles) as u32, of rows (lane) -> byte address; PTX ISA, "ldmatrix"."""
    lane = np.arange(WARP)
    tiles = len(rows) // 8
    held = np.zeros((WARP, tiles, 4), np.uint8)
    for tile, half in itertools.product(range(tiles), (0, 1)):
        row, column = lane // 4, 2 * (lane % 4) + half
        if transposed:
            row, column = column, row
        at = rows[8 * tile + row] + 2 * column
        held[:, tile, 2 * half] = memory[at]
        held[:, tile, 2 * half + 1] = memory[at + 1]
    return held.view(np.uint32)[..., 0]


def stmatrix(memory: Array, rows: Array, transposed: bool, held: Array) -> None:
    """The way back: (32, tiles) of u32 into memory."""
    parts = np.ascontiguousarray(held)[..., None].view(np.uint16)
    lane = np.arange(WARP)
    words = memory.view(np.uint16)
    for tile, half in itertools.product(range(held.shape[1]), (0, 1)):
        row, column = lane // 4, 2 * (lane % 4) + half
        if transposed:
            row, column = column, row
        words[rows[8 * tile + row] // 2 + column] = parts[:, tile, half]


def stored(tile: Array, where: SharedTile) -> Array:
    """The bytes of shared memory that hold a tile."""
    memory = np.zeros(where.size, f"u{tile.itemsize}")
    rows, columns = np.indices(tile.shape)
    memory[where.index(rows, columns)] = tile.view(memory.dtype)
    return memory.view(np.uint8)


def place(tile: Array, element_bytes: int) -> SharedTile:
    """Where a tile lies: rows of 32, 64 or 128 bytes are swizzled, others plain with a pad."""
    rows, columns = tile.shape
    row_bytes = columns * element_bytes
    if row_bytes in SWIZZLES:
        return SharedTile(rows, columns, element_bytes, row_bytes)
    return SharedTile(rows, columns, element_bytes, pad=16 // element_bytes)


def addresses(access: MatrixAccess, group: int, warp: int, where: SharedTile, flip: bool) -> Array:
    """Byte addresses that the lanes of a warp give for a group."""
    lane = warp * WARP + np.arange(8 * access.move.tiles)
    row, column = access.rows(lane, np.asarray(group))
    row, column = (
        np.broadcast_to(x, lane.shape) for x in ((column, row) if flip else (row, column))
    )
    return np.asarray(where.index(row, column) * where.element_bytes)


@pytest.mark.parametrize("contiguous", ["row", "column"])
def test_ldmatrix_gives_fragments(contiguous: str, rng: np.random.Generator) -> None:
    """Of A stored (m, k) or (k, m), of B stored (k, n) or (n, k), for every size of element."""
    seen = set()
    for fragment, name in fragments().items():
        atom = ATOMS[name]
        for operand in (atom.a, atom.b):
            if operand.fragment is not fragment or operand.type == "f64":
                continue
            size, wide = operand.element_bytes, fragment.repeat(2, 3).repeat(columns=2)
            access = matrix_access(wide, size, contiguous)
            along_k = contiguous == ("column" if operand is atom.a else "row")
            assert (access is None) is (not along_k and size != 2), name
            if access is None:
                continue
            seen.add((access.move.tiles, access.move.transposed))
            tile = rng.integers(0, 256, (*wide.shape, size)).astype(np.uint8)
            tile = tile.view(f"u{size}")[..., 0]
            flip = contiguous == "row"
            in_memory = np.ascontiguousarray(tile.T if flip else tile)
            where = place(in_memory, size)
            memory, want = stored(in_memory, where), wide.take(tile)
            for warp, group in np.ndindex(wide.threads // WARP, access.groups):
                rows = addresses(access, group, warp, where, flip)
                got = ldmatrix(memory, rows, access.move.transposed)
                packed = np.ascontiguousarray(want[warp * WARP : warp * WARP + WARP])
                first = group * access.move.tiles
                assert (got == packed.view(np.uint32)[:, first : first + got.shape[1]]).all(), name
    assert {transposed for _, transposed in seen} == {False, True}


@pytest.mark.parametrize("contiguous", ["row", "column"])
@pytest.mark.parametrize("n", [8, 24, 64])
def test_stmatrix_stores_an_accumulator(n: int, contiguous: str, rng: np.random.Generator) -> None:
    """Rounded to 16 bits, into D or its transpose, swizzled as a tensor copy reads it."""
    fragment = ATOMS[f"wgmma.m64n{n}k16.bf16"].accumulator.fragment
    assert fragment is not None
    access = matrix_access(fragment, 2, contiguous, store=True)
    assert access is not None and access.move.instruction.startswith("stmatrix")
    assert access.move.transposed is (contiguous == "row")
    assert access.groups * access.move.tiles == n // 4
    tile = rng.integers(0, 1 << 16, (64, n)).astype(np.uint16)
    flip = contiguous == "row"
    in_memory = np.ascontiguousarray(tile.T if flip else tile)
    where = place(in_memory, 2)
    memory, packed = np.zeros(where.size_bytes, np.uint8), fragment.take(tile).view(np.uint32)
    for warp, group in np.ndindex(4, access.groups):
        rows = addresses(access, group, warp, where, flip)
        first = group * access.move.tiles
        held = packed[warp * WARP : warp * WARP + WARP, first : first + access.move.tiles]
        stmatrix(memory, rows, access.move.transposed, held)
    assert (memory == stored(in_memory, where)).all()


def test_stores_into_a_swizzled_tile_meet_no_bank_twice() -> None:
    fragment = ATOMS["wgmma.m64n64k16.bf16"].accumulator.fragment
    assert fragment is not None
    access = matrix_access(fragment, 2, "column", store=True)
    assert access is not None and access.move.tiles == 4
    swizzled, plain = SharedTile(64, 64, 2, 128), SharedTile(64, 64, 2)
    for warp, group in np.ndindex(4, access.groups):
        for where, different in ((swizzled, 8), (plain, 1)):
            chunks = addresses(access, group, warp, where, False).reshape(4, 8) // 16 % 8
            assert {len(set(tile)) for tile in chunks.tolist()} == {different}


@pytest.mark.parametrize("moves", [LDMATRIX, STMATRIX], ids=["ldmatrix", "stmatrix"])
def test_moves_by_element(moves: dict[tuple[int, bool], Any]) -> None:
    """fragment and address say of single elements what `ldmatrix` above does."""
    for (tiles, transposed), move in moves.items():
        stack = np.arange(8 * tiles * 8, dtype=np.uint16).reshape(-1, 8)
        lanes = np.arange(WARP)
        row, column = move.address(lanes, 0)
        assert column == 0 and (row == lanes % (8 * tiles)).all()
        got = ldmatrix(stack.view(np.uint8).ravel(), 16 * row[: 8 * tiles], transposed)
        assert (move.fragment.take(stack).view(np.uint32) == got).all()
        assert move.fragment.is_bijection(8 * tiles, 8)
        name = "ldmatrix" if moves is LDMATRIX else "stmatrix"
        trans = ".trans" if transposed else ""
        assert move.instruction == f"{name}.sync.aligned.m8n8.x{tiles}{trans}.shared.b16"
        assert move.target == ("sm_75" if moves is LDMATRIX else "sm_90")


def test_which_moves_an_operand_gets() -> None:
    assert BF16.a.fragment is not None and BF16.b.fragment is not None
    a = matrix_access(BF16.a.fragment, 2, "column")
    b = matrix_access(BF16.b.fragment, 2, "row")
    two_b = matrix_access(BF16.b.fragment.repeat(columns=2), 2, "column")
    assert a is not None and (a.move.tiles, a.move.transposed, a.groups) == (4, False, 1)
    assert b is not None and (b.move.tiles, b.move.transposed, b.groups) == (2, False, 1)
    assert two_b is not None and (two_b.move.tiles, two_b.move.transposed) == (4, True)
    lane = range_(WARP, 0)
    row, column = (index_text(simplify(u)) for u in a.rows(lane, UOp.const(0, dtypes.index)))
    assert (row, column) == ("r0 % 16", "r0 // 16*8")
    of_f64 = ATOMS["mma.m8n8k4.f64"].a.fragment
    assert of_f64 is not None and matrix_access(of_f64, 8, "column") is None
    with pytest.raises(UsageError, match="say 'row' or 'column'"):
        matrix_access(BF16.a.fragment, 2, "k")


# ---- swizzles
@pytest.mark.parametrize("element_bytes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("mode", SWIZZLES)
def test_a_swizzle_permutes_its_period(mode: int, element_bytes: int) -> None:
    period = 8 * max(mode, 16) // element_bytes
    offset = np.arange(4 * period)
    moved = swizzle(offset, mode, element_bytes)
    assert (np.sort(moved.reshape(4, period), 1) == offset.reshape(4, period)).all()
    assert (swizzle(moved, mode, element_bytes) == offset).all()
    assert moved.tolist() == [swizzle(int(x), mode, element_bytes) for x in offset]
    assert (moved * element_bytes == swizzle(offset * element_bytes, mode)).all()


def test_swizzles_are_those_of_the_manual() -> None:
    """Rows of `mode` bytes: chunk c of row r lies in chunk c ^ (r, r // 2, r // 4) of it."""
    for mode, rows_a_line in ((128, 1), (64, 2), (32, 4)):
        for row, chunk in np.ndindex(16, mode // 16):
            want = chunk ^ (row // rows_a_line) % (mode // 16)
            assert swizzle(row * mode + 16 * chunk, mode) == row * mode + 16 * want


def test_eight_rows_of_a_column_lie_in_different_banks() -> None:
    for mode in (32, 64, 128):
        rows = np.arange(8) * mode
        for chunk in range(mode // 16):
            assert len(set(swizzle(rows + 16 * chunk, mode) // 16 % 8)) == 8


@pytest.mark.parametrize("mode", SWIZZLES)
def test_swizzled_uops(mode: int) -> None:
    row, column = range_(32, 0), range_(64, 1)
    tile = SharedTile(32, 64, 2, mode)
    index = tile.index(row, column)
    env = grid([row, column])
    for u in (index, simplify(index)):
        assert (evaluate(u, env) == tile.index(env[row], env[column])).all()
    assert set(leaves_of(index)) == {row, column}


def test_no_such_swizzle() -> None:
    with pytest.raises(UsageError, match="there is no mode of 16 bytes"):
        swizzle(0, 16)


# ---- tiles
@pytest.mark.parametrize("element_bytes", [1, 2, 4])
@pytest.mark.parametrize("mode", SWIZZLES)
def test_a_tile_is_what_a_tensor_copy_writes(mode: int, element_bytes: int) -> None:
    """The box (slabs, rows, slab_columns) is written densely, then every address is swizzled."""
    tile = SharedTile(24, 256 // element_bytes, element_bytes, mode)
    assert tile.size_bytes == 24 * 256 and tile.alignment == (8 * mode or 128)
    slab, row, column = np.indices((tile.slabs, tile.rows, tile.slab_columns))
    dense = np.arange(tile.size).reshape(slab.shape)
    want = swizzle(dense * element_bytes, mode)
    got = tile.index(row, slab * tile.slab_columns + column) * element_bytes
    assert (got == want).all()
    rows, columns = np.indices((tile.rows, tile.columns))
    assert (np.sort(tile.index(rows, columns).ravel()) == np.arange(tile.size)).all()


def test_padded_tiles() -> None:
    tile = SharedTile(8, 16, 4, pad=4)
    assert (tile.pitch, tile.size_bytes, tile.index(3, 5)) == (20, 640, 65)
    assert SharedTile(8, 16, 2, slab=8).index(3, 9) == 8 * 8 + 3 * 8 + 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((8, 64, 2, 48), "swizzle is one of"),
        ((8, 64, 2, 128, 8), "no pad and no other slab"),
        ((8, 64, 2, 128, 0, 32), "no pad and no other slab"),
        ((8, 48, 2, 128), "not whole slabs of 64"),
        ((8, 20, 2, 0, 0, 8), "not whole slabs of 8"),
    ],
)
def test_tiles_that_are_none(arguments: tuple[int, ...], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        SharedTile(*arguments)


# ---- descriptors
FIELD = st.integers(0, (1 << 14) - 1).map(lambda units: 16 * units)


@given(FIELD, FIELD, FIELD, st.sampled_from(SWIZZLES), st.integers(0, 7))
def test_descriptors_round_trip(
    start: int, leading: int, stride: int, mode: int, base_offset: int
) -> None:
    aligned = start // (8 * max(mode, 16)) * 8 * max(mode, 16)
    descriptor = Descriptor(aligned, leading, stride, mode)
    bits = descriptor.encode()
    assert 0 <= bits < 1 << 64 and Descriptor.decode(bits) == descriptor
    moved = Descriptor.decode(bits | base_offset << 49)
    assert moved == Descriptor(aligned, leading, stride, mode, base_offset)


def test_the_usual_descriptor() -> None:
    """128-byte swizzle, K-major; a step along k adds 2."""
    tile = SharedTile(128, 64, 2, 128)
    base = operand_descriptor(tile, K_MAJOR, start=4096)
    assert base.encode() == 1 << 62 | 64 << 32 | 1 << 16 | 4096 >> 4
    assert operand_descriptor(tile, K_MAJOR, 4096, k=16).encode() == base.encode() + 2
    assert operand_descriptor(tile, K_MAJOR, 4096, row=64).encode() == base.encode() + 512
    wide = SharedTile(64, 256, 2, 128)
    transposed = operand_descriptor(wide, MN_MAJOR)
    assert (transposed.leading, transposed.stride) == (64 * 128, 1024)
    assert operand_descriptor(wide, MN_MAJOR, k=16).encode() == transposed.encode() + 128


@pytest.mark.parametrize(
    ("descriptor", "why"),
    [
        (Descriptor(8, 16, 1024, 128), "start is 8 bytes; it is a multiple of 16 below 262144"),
        (Descriptor(1 << 18, 16, 1024, 128), "start is 262144 bytes"),
        (Descriptor(0, 24, 1024, 128), "leading is 24 bytes"),
        (Descriptor(0, 16, -16, 128), "stride is -16 bytes"),
        (Descriptor(128, 16, 1024, 128), "lies in row 1 of a 128-byte swizzle"),
        (Descriptor(0, 16, 1024, 96), "swizzle is 96 bytes"),
        (Descriptor(0, 16, 1024, 128, 3), "base offset is 3"),
    ],
)
def test_descriptors_that_hardware_refuses(descriptor: Descriptor, why: str) -> None:
    assert why in descriptor.fault()
    with pytest.raises(UsageError, match="Descriptor"):
        descriptor.encode()


@pytest.mark.parametrize(
    ("tile", "major", "at", "why"),
    [
        (SharedTile(64, 64, 2, 128), "N", (0, 0, 0), "majors are"),
        (SharedTile(64, 32, 4, 128), MN_MAJOR, (0, 0, 0), "only 16-bit operands can be MN-major"),
        (SharedTile(64, 64, 2), K_MAJOR, (0, 0, 0), "rows have to be 16 bytes wide"),
        (SharedTile(64, 8, 2, pad=8), K_MAJOR, (0, 0, 0), "rows have to be 16 bytes wide"),
        (SharedTile(64, 64, 2, 128), K_MAJOR, (512, 0, 0), "no multiple of 1024"),
        (SharedTile(60, 64, 2, 128), K_MAJOR, (0, 0, 0), "it has 60 rows"),
        (SharedTile(64, 64, 2, 128), K_MAJOR, (0, 4, 0), "multiples of 8 rows and of 32 bytes"),
        (SharedTile(64, 64, 2, 128), K_MAJOR, (0, 0, 8), "multiples of 8 rows and of 32 bytes"),
        (SharedTile(64, 64, 2, 128), MN_MAJOR, (0, 0, 4), "multiples of 8 k and of 64 rows"),
        (SharedTile(64, 128, 2, 128), MN_MAJOR, (0, 32, 0), "multiples of 8 k and of 64 rows"),
    ],
)
def test_tiles_that_no_descriptor_describes(
    tile: SharedTile, major: str, at: tuple[int, int, int], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        operand_descriptor(tile, major, *at)


def test_addresses_are_uops_too() -> None:
    row, k = range_(64, 0), range_(16, 1)
    env = grid([row, k])
    for major, mode in itertools.product((K_MAJOR, MN_MAJOR), SWIZZLES):
        descriptor = Descriptor(1024, 8192, 1024, mode)
        address = descriptor.address(row, k, 2, major)
        assert (evaluate(address, env) == descriptor.address(env[row], env[k], 2, major)).all()


# ---- products
def shared_tile(rows: int, k: int, element_bytes: int, mode: int, major: str) -> SharedTile:
    """Room for an operand of rows x k with a step of k and 64 rows or a slab before it."""
    width = mode or 16
    slab = width // element_bytes
    if major == K_MAJOR:
        return SharedTile(64 + rows, -(-2 * k // slab) * slab, element_bytes, mode, slab=slab)
    return SharedTile(2 * k, slab + -(-rows // slab) * slab, element_bytes, mode, slab=slab)


def through_descriptor(operand: Array, mode: int, major: str, rng: np.random.Generator) -> Array:
    """The operand (m or n, k), written into a tile as a tensor copy does and read as wgmma does.

    It starts at row 64, or at the second slab, and at the second step of k; all else is noise.
    """
    size = operand.itemsize
    rows, k = operand.shape
    tile = shared_tile(rows, k, size, mode, major)
    row = 64 if major == K_MAJOR else tile.slab_columns
    start = 2048
    descriptor = operand_descriptor(tile, major, start, row, k)
    decoded = Descriptor.decode(descriptor.encode())
    memory = rng.integers(0, 256, start + tile.size_bytes).astype(np.uint8)
    words = memory.view(f"u{size}")
    r, c = np.indices(operand.shape)
    at = tile.index(row + r, k + c) if major == K_MAJOR else tile.index(k + c, row + r)
    words[start // size + at] = operand.view(words.dtype)
    read: Array = words[decoded.address(r, c, size, major) // size]
    return read.view(operand.dtype)


def product(atom: Atom, a: Array, b: Array, d: Array) -> Array:
    """D + A B as threads hold it, from the accumulator's table: one dot product an element."""
    fragment = atom.accumulator.fragment
    assert fragment is not None
    where = fragment.table()
    products: Array = np.einsum("trk,trk->tr", a[where[..., 0]], b.T[where[..., 1]])
    return fragment.take(d) + products


@pytest.mark.parametrize("name", [a.name for a in ATOMS.values() if a.engine == "mma.sync"])
def test_mma_sync_multiplies(name: str, rng: np.random.Generator) -> None:
    atom = ATOMS[name]
    assert atom.a.fragment is not None and atom.b.fragment is not None
    a, b = small(atom, "a", (atom.m, atom.k), rng), small(atom, "b", (atom.k, atom.n), rng)
    d = worth(small(atom, "accumulator", (atom.m, atom.n), rng))
    held_a, held_b = atom.a.fragment.take(a), atom.b.fragment.take(b)
    got = product(atom, worth(atom.a.fragment.put(held_a)), worth(atom.b.fragment.put(held_b)), d)
    assert atom.accumulator.fragment is not None
    assert (atom.accumulator.fragment.put(got) == d + worth(a) @ worth(b)).all()


@pytest.mark.parametrize("mode", SWIZZLES)
def test_wgmma_multiplies(mode: int, rng: np.random.Generator) -> None:
    """Every atom, through descriptors in every major that it can read."""
    for atom in (a for a in ATOMS.values() if a.engine == "wgmma"):
        a, b = small(atom, "a", (64, atom.k), rng), small(atom, "b", (atom.k, atom.n), rng)
        d = worth(small(atom, "accumulator", (64, atom.n), rng))
        for major_a, major_b in itertools.product(atom.a.majors or ("",), atom.b.majors):
            if atom.a.fragment is not None:
                got_a = atom.a.fragment.put(atom.a.fragment.take(a))
            else:
                got_a = through_descriptor(a, mode, major_a, rng)
            got_b = through_descriptor(np.ascontiguousarray(b.T), mode, major_b, rng).T
            got = product(atom, worth(got_a), worth(got_b), d)
            assert atom.accumulator.fragment is not None
            want = d + worth(a) @ worth(b)
            assert (atom.accumulator.fragment.put(got) == want).all(), (atom, major_a, major_b)


# ---- tensor maps
GOOD: dict[str, Any] = dict(shape=(4096, 4096), strides=(4096,), box=(128, 64), element_bytes=2)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (dict(shape=(), strides=(), box=()), "1 to 5 axes, this has 0"),
        (dict(shape=(8,) * 6, strides=(8,) * 5, box=(8,) * 6), "1 to 5 axes, this has 6"),
        (dict(strides=()), "2 axes need 2 box sizes and 1 strides, not 2 and 0"),
        (dict(box=(64,)), "not 1 and 1"),
        (dict(swizzle=16), "swizzle is 16 bytes"),
        (dict(shape=(0, 4096)), "axis 0 has 0 elements"),
        (dict(shape=(4096, 2**31 + 1)), "axis 1 has 2147483649 elements"),
        (dict(strides=(4095,)), "axis 0 has a stride of 8190 bytes; .* multiples of 16 .*Pad"),
        (dict(strides=(2**40,)), "below 2"),
        (dict(strides=(0,)), "a stride of 0 bytes"),
        (dict(box=(257, 64)), "257 elements along axis 0; it takes 1 to 256"),
        (dict(box=(128, 4)), "rows have 8 bytes; they are multiples of 16"),
        (dict(box=(128, 72), swizzle=128), "rows have 144 bytes; a 128-byte swizzle takes 128"),
        (dict(address=8), "the memory is at 8, which is no multiple of 16 bytes"),
        (dict(inner_start=4), "copies start 8 bytes into a row"),
    ],
)
def test_maps_that_tensor_copies_refuse(change: dict[str, Any], why: str) -> None:
    assert tma_fault(**GOOD) == tma_fault(**GOOD, swizzle=128, inner_start=8) == ""
    assert re.search(why, tma_fault(**{**GOOD, **change}))


def test_a_map_as_the_driver_wants_it() -> None:
    got = tma_encoding("bf16", (4096, 8192), (8192,), (128, 64), 128)
    assert (got.sizes, got.strides_bytes, got.box) == ((8192, 4096), (16384,), (64, 128))
    assert (got.rank, got.element_strides) == (2, (1, 1))
    assert (got.data_type, got.interleave, got.swizzle, got.l2_promotion, got.oob_fill) == (
        *(9, 0, 3, 2, 0),
    )
    slabs = tma_encoding("tf32", (4, 512, 32), (32, 128), (4, 128, 32), 128)
    assert (slabs.data_type, slabs.strides_bytes) == (11, (512, 128))
    with pytest.raises(UsageError, match=r"\(4096, 4095\): axis 0 has a stride of 8190 bytes"):
        tma_encoding("f16", (4096, 4095), (4095,), (64, 64))
    with pytest.raises(UsageError, match="no tensor map has 'index'"):
        tma_encoding("index", (64,), (), (64,))


def test_enumerations_are_the_drivers() -> None:
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    kinds = driver.CUtensorMapDataType
    words = {"f": "FLOAT", "bf": "BFLOAT", "tf": "TFLOAT", "u": "UINT", "i": "INT"}
    for name, value in TMA_DATA_TYPE.items():
        parts = re.fullmatch(r"([a-z]+)(.*)", name)
        assert parts is not None, name
        letters, bits = parts.groups()
        kind = words.get(letters, "") + bits
        if kind in ("INT8", "INT16") or letters == "bool" or name.startswith("f8"):
            kind = "UINT16" if bits == "16" else "UINT8"
        assert kinds(value) is getattr(kinds, f"CU_TENSOR_MAP_DATA_TYPE_{kind}"), name
    assert set(TMA_DATA_TYPE) == {d.name for d in DATA} | {"tf32"}
    for table, enum, prefix in (
        (TMA_SWIZZLE, driver.CUtensorMapSwizzle, "SWIZZLE_"),
        (TMA_INTERLEAVE, driver.CUtensorMapInterleave, "INTERLEAVE_"),
        (TMA_L2_PROMOTION, driver.CUtensorMapL2promotion, "L2_PROMOTION_L2_"),
    ):
        for key, value in table.items():
            word = f"{key}B" if isinstance(key, int) and key else str(key).upper()
            none = f"CU_TENSOR_MAP_{prefix.removesuffix('L2_')}NONE"
            full = none if key in (0, "none") else f"CU_TENSOR_MAP_{prefix}{word}"
            assert enum(value) is getattr(enum, full)
    fill = driver.CUtensorMapFloatOOBfill
    assert fill(TMA_OOB_FILL["zero"]) is fill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
    assert fill(TMA_OOB_FILL["nan"]) is (fill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)


# ---- tf32
@pytest.mark.parametrize(
    ("bits", "rounded"),
    [
        (0x3F800000, 0x3F800000),  # 1
        (0x3F800FFF, 0x3F800000),  # below half a unit
        (0x3F801000, 0x3F802000),  # a tie goes away from zero
        (0xBF801000, 0xBF802000),
        (0x3F803000, 0x3F804000),  # as does one that even would take down
        (0x3FFFF000, 0x40000000),  # into the next exponent
        (0x7F7FFFFF, 0x7F800000),  # the largest becomes Inf
        (0x7F800000, 0x7F800000),
        (0xFF800000, 0xFF800000),
        (0x00001000, 0x00002000),  # denormals are kept
        (0x80000FFF, 0x80000000),
        (0x7FC01234, 0x7FC00000),  # NaN keeps its upper bits
        (0x7F800001, 0x7F800000),  # and is Inf where it has none
    ],
)
def test_rounding_to_tf32(bits: int, rounded: int) -> None:
    assert to_tf32(np.array([bits], np.uint32)).tolist() == [rounded]


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False))
def test_tf32_is_the_nearest_of_11_bits(x: float) -> None:
    mantissa, exponent = np.frexp(np.float64(x))
    scaled = abs(mantissa) * 2.0**11
    want = np.copysign(np.ldexp(np.floor(scaled + 0.5), exponent - 11), x)
    with np.errstate(over="ignore"):
        got = to_tf32(np.array([x], np.float32).view(np.uint32)).view(np.float32)
        assert got[0] == np.float32(want)
