"""The emulator's tensor cores against the tables of uopc.layouts and numpy's arithmetic."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc.runtime
from uopc.layouts import (
    ATOMS,
    K_MAJOR,
    LDMATRIX,
    MN_MAJOR,
    STMATRIX,
    SWIZZLES,
    TF32_MASK,
    WARP,
    Atom,
    Descriptor,
    Operand,
    SharedTile,
    operand_descriptor,
)
from uopc.runtime.cpu import FLAGS, find_compiler

Array = np.ndarray[Any, Any]
SOURCE = Path(uopc.runtime.__file__).with_name("tensor_cores.c")
#: TcType, in its order
TYPES = ("f16", "bf16", "tf32", "f8e4m3", "f8e5m2", "i8", "u8", "f64", "f32", "i32")
QUARTER = 16
MOST_PIECES = 512
MMA_SYNC = [atom for atom in ATOMS.values() if atom.engine == "mma.sync"]
#: the smallest, less than a block of columns and not whole blocks, one block, many
SAMPLED_N = (8, 24, 32, 128, 256)
WGMMA = [atom for atom in ATOMS.values() if atom.engine == "wgmma" and atom.n in SAMPLED_N]


class CAtom(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("m", "n", "k", "a", "b", "accumulator", "held")]


def c_atom(atom: Atom) -> Any:
    types = (TYPES.index(operand.type) for operand in (atom.a, atom.b, atom.accumulator))
    return ctypes.byref(CAtom(atom.m, atom.n, atom.k, *types, atom.a.fragment is not None))


def lanes(held: Array | None) -> tuple[int | None, ctypes.c_long]:
    """The address of what lanes hold and the bytes from one lane to the next."""
    return (None, ctypes.c_long(0)) if held is None else (at(held), ctypes.c_long(held.strides[0]))


def at(array: Array) -> int:
    return int(array.ctypes.data)


@pytest.fixture(scope="module")
def cores(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    built = tmp_path_factory.mktemp("tensor_cores") / "tensor_cores.so"
    command = [*find_compiler().command, "-O3", *FLAGS, str(SOURCE), "-o", str(built), "-lm"]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(built))
    pointer, number, stride = ctypes.c_void_p, ctypes.c_int, ctypes.c_long
    held, pieces = (pointer, stride), (pointer, number)
    library.tc_mma_sync.argtypes = [pointer, *held, *held, *held]
    library.tc_wgmma.argtypes = [pointer, *held, *held, pointer, *pieces, *pieces, number]
    library.tc_operand_pieces.argtypes = [ctypes.c_uint64, *[number] * 5, pointer]
    library.tc_ldmatrix.argtypes = [pointer, stride, pointer, pointer, number, number]
    library.tc_stmatrix.argtypes = [pointer, pointer, pointer, stride, number, number]
    return library


# ---- registers
def wide(held: Array) -> Array:
    """The same registers, but with others behind those of each lane."""
    room = np.full((len(held), held.shape[1] + 8 // held.itemsize), 1, held.dtype)
    room[:, : held.shape[1]] = held
    return room[:, : held.shape[1]]


def take(operand: Operand, tile: Array) -> Array:
    assert operand.fragment is not None
    return wide(operand.fragment.take(tile))


def put(operand: Operand, held: Array) -> Array:
    assert operand.fragment is not None
    return operand.fragment.put(held)


def numbers(operand: Operand, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Integers whose products and sums are exact: of integer types all there are, else small.

    tf32 registers have low bits that do not count.
    """
    numpy_type = operand.dtype.numpy
    if operand.type in ("i8", "u8", "i32"):
        limits = np.iinfo(numpy_type)
        return rng.integers(limits.min, limits.max, shape, numpy_type, endpoint=True)
    found = rng.integers(-3, 4, shape).astype(numpy_type)
    if operand.type == "tf32":
        found.view(np.uint32)[...] |= rng.integers(0, ~TF32_MASK & 0xFFFFFFFF, shape, np.uint32)
    return found


def worth(operand: Operand, tile: Array) -> Array:
    """The values that the tensor core sees."""
    if operand.type == "tf32":
        tile = (tile.view(np.uint32) & np.uint32(TF32_MASK)).view(np.float32)
    return tile.astype(np.int64 if operand.dtype.numpy.kind in "iu" else np.float64)


def mma(cores: ctypes.CDLL, atom: Atom, d: Array, a: Array, b: Array) -> Array:
    """D of tiles (m, n), (m, k), (k, n) by mma.sync."""
    held = take(atom.accumulator, d)
    held_a, held_b = take(atom.a, a), take(atom.b, b)
    cores.tc_mma_sync(c_atom(atom), *lanes(held), *lanes(held_a), *lanes(held_b))
    assert held.base is not None and (held.base[:, held.shape[1] :] == 1).all()
    return put(atom.accumulator, held)


def exact(atom: Atom, d: Array, a: Array, b: Array) -> Array:
    """D + A B, wrapped to the accumulator's type; wrong only where it rounds."""
    product = worth(atom.a, a) @ worth(atom.b, b)
    found: Array = (worth(atom.accumulator, d) + product).astype(atom.accumulator.dtype.numpy)
    return found


def same_bits(got: Array, want: Array) -> bool:
    assert got.dtype == want.dtype and got.shape == want.shape
    return bool((got.view(f"u{got.itemsize}") == want.view(f"u{want.itemsize}")).all())


@pytest.mark.parametrize("atom", MMA_SYNC, ids=str)
def test_mma_sync_is_the_product(cores: ctypes.CDLL, atom: Atom, rng: np.random.Generator) -> None:
    a, b = numbers(atom.a, (atom.m, atom.k), rng), numbers(atom.b, (atom.k, atom.n), rng)
    d = numbers(atom.accumulator, (atom.m, atom.n), rng)
    assert same_bits(mma(cores, atom, d, a, b), exact(atom, d, a, b))


# ---- wgmma
class Shared:
    """Shared memory full of noise, in which operands are laid out as tensor copies do it."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.bytes = rng.integers(0, 256, 1 << 17).astype(np.uint8)
        self.free = 2048

    def lay(self, operand: Array, mode: int, major: str) -> Descriptor:
        """The descriptor of an operand (m or n, k): at a tile's row 64 or second slab, second k."""
        size, (rows, k) = operand.itemsize, operand.shape
        slab = (mode or 16) // size
        if major == K_MAJOR:
            shape = (64 + rows, -(-2 * k // slab) * slab)
        else:
            shape = (2 * k, slab + -(-rows // slab) * slab)
        tile = SharedTile(*shape, size, mode, slab=slab)
        row = 64 if major == K_MAJOR else tile.slab_columns
        r, c = np.indices(operand.shape)
        index = tile.index(row + r, k + c) if major == K_MAJOR else tile.index(k + c, row + r)
        words = self.bytes.view(f"u{size}")
        words[self.free // size + index] = operand.view(words.dtype)
        start = self.free
        self.free += -(-tile.size_bytes // 1024) * 1024
        return operand_descriptor(tile, major, start, row, k)


def pieces(
    cores: ctypes.CDLL,
    descriptor: Descriptor,
    first: int,
    shape: tuple[int, int],
    size: int,
    major: str,
) -> Array:
    """The addresses of the pieces of rows first ... of an operand."""
    found = np.zeros(MOST_PIECES, np.uint32)
    arguments = (descriptor.encode(), first, *shape, size, major == MN_MAJOR, at(found))
    count: int = cores.tc_operand_pieces(*arguments)
    assert count * 16 == shape[0] * shape[1] * size
    return found[:count]


def wgmma(
    cores: ctypes.CDLL,
    atom: Atom,
    tiles: tuple[Array, Array, Array],
    mode: int,
    majors: tuple[str, str],
    keep: bool,
    rng: np.random.Generator,
) -> Array:
    """D of tiles (m, n), (m, k), (k, n), one warp after another."""
    d, a, b = tiles
    held = take(atom.accumulator, d)
    held_a = None if atom.a.fragment is None else take(atom.a, a)
    shared = Shared(rng)
    size = atom.b.element_bytes
    described = shared.lay(np.ascontiguousarray(b.T), mode, majors[1])
    pieces_b = pieces(cores, described, 0, (atom.n, atom.k), size, majors[1])
    described = shared.lay(a, mode, majors[0])
    for warp in range(4):
        mine = slice(WARP * warp, WARP * (warp + 1))
        shape = (QUARTER, atom.k)
        pieces_a = pieces(cores, described, QUARTER * warp, shape, size, majors[0])
        cores.tc_wgmma(
            c_atom(atom),
            *lanes(held[mine]),
            *lanes(None if held_a is None else held_a[mine]),
            at(shared.bytes),
            *(at(pieces_a) if held_a is None else None, majors[0] == MN_MAJOR),
            *(at(pieces_b), majors[1] == MN_MAJOR),
            keep,
        )
    assert held.base is not None and (held.base[:, held.shape[1] :] == 1).all()
    return put(atom.accumulator, held)


def both_majors(atom: Atom) -> Iterator[tuple[str, str]]:
    return itertools.product(atom.a.majors or (K_MAJOR,), atom.b.majors)


@pytest.mark.parametrize("mode", SWIZZLES)
def test_wgmma_is_the_product(cores: ctypes.CDLL, mode: int, rng: np.random.Generator) -> None:
    for atom in WGMMA:
        a, b = numbers(atom.a, (atom.m, atom.k), rng), numbers(atom.b, (atom.k, atom.n), rng)
        d = numbers(atom.accumulator, (atom.m, atom.n), rng)
        for majors in both_majors(atom):
            got = wgmma(cores, atom, (d, a, b), mode, majors, True, rng)
            assert same_bits(got, exact(atom, d, a, b)), (atom, majors)


@pytest.mark.parametrize("types", ["bf16", "f16.f16", "i8"])
def test_wgmma_can_start_from_zero(
    cores: ctypes.CDLL, types: str, rng: np.random.Generator
) -> None:
    atom = ATOMS[f"wgmma.m64n128k{32 if types == 'i8' else 16}.{types}"]
    a, b = numbers(atom.a, (atom.m, atom.k), rng), numbers(atom.b, (atom.k, atom.n), rng)
    d = np.full((atom.m, atom.n), 77, atom.accumulator.dtype.numpy)
    got = wgmma(cores, atom, (d, a, b), 128, (K_MAJOR, K_MAJOR), False, rng)
    assert same_bits(got, exact(atom, np.zeros_like(d), a, b))


@pytest.mark.parametrize("mode", SWIZZLES)
@pytest.mark.parametrize(
    ("major", "size"), [(K_MAJOR, 1), (K_MAJOR, 2), (K_MAJOR, 4), (MN_MAJOR, 2)]
)
def test_pieces_of_an_operand(cores: ctypes.CDLL, mode: int, major: str, size: int) -> None:
    """In the order of rows, then of k; a part of the rows is a part of the pieces."""
    descriptor = Descriptor(8 * 1024, 4096, 16 * (mode or 16), mode)
    rows, k, elements = 64, 32 // size, 16 // size
    across, along = (1, elements) if major == K_MAJOR else (elements, 1)
    r, c = np.arange(0, rows, across)[:, None], np.arange(0, k, along)
    want = np.ravel(descriptor.address(r, c, size, major))
    assert (pieces(cores, descriptor, 0, (rows, k), size, major) == want).all()
    for first in range(0, rows, QUARTER):
        part = pieces(cores, descriptor, first, (QUARTER, k), size, major)
        assert (part == want[first * len(want) // rows :][: len(part)]).all()


# ---- number formats: all other elements of A are -0, those of B are 1, D starts at -0
def alone(cores: ctypes.CDLL, atom: Atom, column: Array) -> Array:
    """D of an A with one column, padded to whole tiles: the values of that column as f32 or i32."""
    a = np.zeros((atom.m, atom.k), column.dtype)
    ones = np.ones((atom.k, atom.n), atom.b.dtype.numpy)
    d = np.zeros((atom.m, atom.n), atom.accumulator.dtype.numpy)
    if atom.accumulator.type != "i32":
        a, d = np.negative(a), np.negative(d)
    found = []
    for first in range(0, len(column), atom.m):
        a[:, 0] = column[first : first + atom.m]
        found.append(mma(cores, atom, d, a, ones)[:, 0])
    return np.concatenate(found)


def same_numbers(got: Array, want: Array) -> bool:
    nan = want != want
    return bool(((got != got) == nan).all()) and same_bits(got[~nan], want[~nan])


@pytest.mark.parametrize(
    "name",
    [
        "mma.m16n8k16.f16",
        "mma.m16n8k16.bf16",
        "mma.m16n8k32.f8e4m3",
        "mma.m16n8k32.f8e5m2",
        "mma.m16n8k32.i8",
        "mma.m16n8k32.u8",
    ],
)
def test_every_number_of_a_format(cores: ctypes.CDLL, name: str) -> None:
    atom = ATOMS[name]
    size = atom.a.element_bytes
    patterns = np.arange(1 << 8 * size).astype(f"u{size}").view(atom.a.dtype.numpy)
    want = patterns.astype(atom.accumulator.dtype.numpy)
    assert same_numbers(alone(cores, atom, patterns), want)


def test_tf32_drops_the_low_bits(cores: ctypes.CDLL, rng: np.random.Generator) -> None:
    atom = ATOMS["mma.m16n8k8.tf32"]
    upper = np.arange(1 << 16).astype(np.uint32) << np.uint32(16)
    patterns = upper | rng.integers(0, 1 << 16, len(upper)).astype(np.uint32)
    want = (patterns & np.uint32(TF32_MASK)).view(np.float32)
    assert same_numbers(alone(cores, atom, patterns.view(np.float32)), want)


F16_SUMS = ATOMS["mma.m16n8k16.f16.f16"]


def test_f16_accumulators_come_back(cores: ctypes.CDLL) -> None:
    a = np.full((16, 16), -0.0, np.float16)
    for first in range(0, 1 << 16, 128):
        d = np.arange(first, first + 128).astype(np.uint16).view(np.float16).reshape(16, 8)
        assert same_numbers(mma(cores, F16_SUMS, d, a, np.ones((16, 8), np.float16)), d)


def test_f16_accumulators_are_rounded_to_the_nearest(
    cores: ctypes.CDLL, rng: np.random.Generator
) -> None:
    a = np.full((16, 16), -0.0, np.float16)
    b = np.ones((16, 8), np.float16)
    d = np.full((16, 8), -0.0, np.float16)
    for _ in range(300):
        a[:, 0] = rng.integers(0, 1 << 16, 16).astype(np.uint16).view(np.float16)
        b[0] = rng.integers(0, 1 << 16, 8).astype(np.uint16).view(np.float16)
        with np.errstate(over="ignore", invalid="ignore"):
            want = (a[:, :1].astype(np.float32) * b[:1].astype(np.float32)).astype(np.float16)
        assert same_numbers(mma(cores, F16_SUMS, d, a, b), want)


@pytest.mark.parametrize(
    ("product", "rounded"),
    [
        ((2049.0, 1.0), 2048.0),  # ties go to the even one
        ((683.0, 3.0), 2048.0),
        ((2051.0, 1.0), 2052.0),
        ((65504.0, 1.0), 65504.0),
        ((2047.0, 32.0), 65504.0),
        ((4095.0, 16.0), np.inf),
        ((2.0**-24, 0.5), 0.0),
        ((2.0**-24, 1.5), 2.0**-23),
        ((2047.0 * 2.0**-24, 0.5), 2.0**-14),
    ],
)
def test_f16_accumulators_at_ties_and_ends(
    cores: ctypes.CDLL, product: tuple[float, float], rounded: float
) -> None:
    """Two products where f16 does not have the first factor."""
    a, b = np.zeros((16, 16), np.float16), np.zeros((16, 8), np.float16)
    left = np.float16(product[0])
    a[:, 0], a[:, 1] = left, np.float32(product[0]) - np.float32(left)
    b[:2] = product[1]
    got = mma(cores, F16_SUMS, np.zeros((16, 8), np.float16), a, b)
    assert (got == np.float16(rounded)).all()


# ---- sums
@pytest.mark.parametrize("atom", [a for a in MMA_SYNC if a.accumulator.type != "i32"], ids=str)
def test_sums_are_within_their_bound(
    cores: ctypes.CDLL, atom: Atom, rng: np.random.Generator
) -> None:
    a = rng.standard_normal((atom.m, atom.k)).astype(atom.a.dtype.numpy)
    b = rng.standard_normal((atom.k, atom.n)).astype(atom.b.dtype.numpy)
    d = rng.standard_normal((atom.m, atom.n)).astype(atom.accumulator.dtype.numpy)
    got = mma(cores, atom, d, a, b).astype(np.float64)
    x, y, z = worth(atom.a, a), worth(atom.b, b), d.astype(np.float64)
    size = abs(z) + abs(x) @ abs(y)
    bound = atom.k * {"f64": 2.0**-52}.get(atom.accumulator.type, 2.0**-23) * size
    if atom.accumulator.type == "f16":
        bound += 2.0**-11 * size
    assert (abs(got - (z + x @ y)) <= bound).all()


def test_sums_start_at_the_accumulator_and_go_up_k(cores: ctypes.CDLL) -> None:
    atom = ATOMS["mma.m16n8k16.bf16"]
    a = np.zeros((16, 16), atom.a.dtype.numpy)
    a[:, 2], a[:, 5], a[:, 9] = 2.0**12, -(2.0**12), 2.0**-12
    b = np.full((16, 8), 2.0**12).astype(a.dtype)
    got = mma(cores, atom, np.ones((16, 8), np.float32), a, b)
    assert (got == 1).all()  # (1 + 2**24) - 2**24 + 1


def test_products_are_exact_where_f32_has_none(cores: ctypes.CDLL) -> None:
    atom = ATOMS["mma.m16n8k16.bf16"]
    a, b = np.zeros((16, 16), atom.a.dtype.numpy), np.zeros((16, 8), atom.b.dtype.numpy)
    a[:, 0], b[0] = 1.5 * 2.0**-75, 2.0**-74
    got = mma(cores, atom, np.full((16, 8), 2.0**-149, np.float32), a, b)
    assert (got == 2.0**-148).all()  # 2.5 units; a product rounded to 2 units would give 3


# ---- ldmatrix and stmatrix
MOVES = list(itertools.product((1, 2, 4), (False, True)))


def rows_anywhere(tiles: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Memory of 16-byte rows (u16) and the place of each lane's row, far off if it names none."""
    memory = rng.integers(0, 1 << 16, (200, 8)).astype(np.uint16)
    rows = np.full(WARP, 1 << 30, np.uint32)
    rows[: 8 * tiles] = 16 * rng.permutation(len(memory))[: 8 * tiles]
    return memory, rows


@pytest.mark.parametrize(("tiles", "transposed"), MOVES)
def test_ldmatrix(
    cores: ctypes.CDLL, tiles: int, transposed: bool, rng: np.random.Generator
) -> None:
    memory, rows = rows_anywhere(tiles, rng)
    held = wide(np.zeros((WARP, 2 * tiles), np.uint16))
    cores.tc_ldmatrix(*lanes(held), at(memory), at(rows), tiles, transposed)
    stack = memory[rows[: 8 * tiles] // 16]
    assert (held == LDMATRIX[tiles, transposed].fragment.take(stack)).all()
    assert held.base is not None and (held.base[:, 2 * tiles :] == 1).all()


@pytest.mark.parametrize(("tiles", "transposed"), MOVES)
def test_stmatrix(
    cores: ctypes.CDLL, tiles: int, transposed: bool, rng: np.random.Generator
) -> None:
    memory, rows = rows_anywhere(tiles, rng)
    held = wide(rng.integers(0, 1 << 16, (WARP, 2 * tiles)).astype(np.uint16))
    want = memory.copy()
    want[rows[: 8 * tiles] // 16] = STMATRIX[tiles, transposed].fragment.put(held)
    cores.tc_stmatrix(at(memory), at(rows), *lanes(held), tiles, transposed)
    assert (memory == want).all()
