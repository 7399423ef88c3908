"""Atoms: the tensor core instructions, each a record of its operands and of its name in PTX.

Source: PTX ISA 9.0, mma ("Matrix Fragments for mma.m16n8k16" and its kin, required architectures)
and wgmma.mma_async ("Register Fragments", shapes).  ptxas takes every instruction with these counts
of registers, and refuses those of mma.sync below their target (NVRTC 13.5).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.layouts.fragment import REGISTER, THREAD, WARP, WARPGROUP, Fragment, digits
from uopc.layouts.shared import K_MAJOR, MN_MAJOR


@dataclass(frozen=True)
class _Type:
    ptx: str
    dtype: DType


#: the types of tensor cores: what PTX calls them, how memory holds them (tf32 as f32)
_TYPES: dict[str, _Type] = {
    "f16": _Type("f16", dtypes.f16),
    "bf16": _Type("bf16", dtypes.bf16),
    "tf32": _Type("tf32", dtypes.f32),
    "f8e4m3": _Type("e4m3", dtypes.f8e4m3),
    "f8e5m2": _Type("e5m2", dtypes.f8e5m2),
    "i8": _Type("s8", dtypes.i8),
    "u8": _Type("u8", dtypes.u8),
    "i32": _Type("s32", dtypes.i32),
    "f32": _Type("f32", dtypes.f32),
    "f64": _Type("f64", dtypes.f64),
}
TYPE_NAMES = tuple(_TYPES)


@dataclass(frozen=True)
class Operand:
    """One operand of an atom.

    type: a name of TYPE_NAMES.  fragment: how threads hold it, A as (m, k), B as (k, n), the
    accumulator as (m, n); None where the instruction reads it from shared memory through a
    descriptor, and then majors are the layouts it can read.
    """

    type: str
    fragment: Fragment | None
    majors: tuple[str, ...] = ()

    @property
    def dtype(self) -> DType:
        """The type in memory: tf32 is stored as f32."""
        return _TYPES[self.type].dtype

    @property
    def element_bytes(self) -> int:
        return self.dtype.itemsize

    @property
    def packing(self) -> int:
        """Elements in one register of 32 bits; an f64 fills one of 64."""
        return max(1, 4 // self.element_bytes)

    @property
    def registers(self) -> int:
        """Registers of a thread that the instruction takes: of 32 bits, of f64 64 bits; 0: none."""
        return 0 if self.fragment is None else self.fragment.registers // self.packing


@dataclass(frozen=True, eq=False)
class Atom:
    """One tensor core instruction: D (m, n) = A (m, k) B (k, n) + D.

    A singleton compared by identity; its name is its key in ATOMS and all that an IR node or an
    Opts needs to carry.

    engine: "mma.sync" (a warp, done when it returns) or "wgmma" (a warpgroup, asynchronous).
    threads that execute it together; target: the first that has it.  instruction: its name in PTX.
    Operands in PTX: registers of D, of A (or its descriptor), of B (or its descriptor); then
    mma.sync takes the registers of C again, wgmma the predicate and the immediates.
    immediates: "scale_a", "scale_b" (1 or -1), "transpose_a", "transpose_b" (1 = MN-major).
    """

    name: str
    engine: str
    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    accumulator: Operand
    threads: int
    target: str
    instruction: str
    immediates: tuple[str, ...] = ()

    @property
    def has_predicate(self) -> bool:
        """Whether a predicate says if D counts: D = A B + (predicate ? D : 0)."""
        return self.engine == "wgmma"

    def runs_on(self, target: str) -> bool:
        """Whether the target called "sm_NN" or "sm_NNa" has the instruction.

        What needs sm_90a is on that target alone: an "a" promises nothing about other targets.
        """
        if self.target.endswith("a"):
            return target == self.target
        found = re.fullmatch(r"sm_(\d+)[af]?", target)
        return found is not None and int(found[1]) >= int(self.target[3:])

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return atom_named, (self.name,)


@cache
def _a_fragment(m: int, k: int, packing: int, threads: int) -> Fragment:
    """A from registers.  PTX ISA, "Matrix Fragments for mma.m16n8k16 ..." and wgmma "Register
    Fragments": four lanes share a row, each with `packing` neighbours along k; then 8 rows down;
    then the next 4 * packing along k."""
    halves = k // (4 * packing)
    rows = 2 if m > 8 else 1
    return Fragment(
        packing * rows * halves,
        threads,
        digits(
            (THREAD, 4, 8, 1), (REGISTER, packing, rows, 8), (THREAD, WARP, threads // WARP, 16)
        ),
        digits(
            (REGISTER, 1, packing, 1),
            (THREAD, 1, 4, packing),
            (REGISTER, rows * packing, halves, 4 * packing),
        ),
    )


@cache
def _b_fragment(k: int, packing: int) -> Fragment:
    """B of mma.sync, 8 columns: four lanes share a column, each with `packing` along k."""
    halves = k // (4 * packing)
    return Fragment(
        packing * halves,
        WARP,
        digits(
            (REGISTER, 1, packing, 1),
            (THREAD, 1, 4, packing),
            (REGISTER, packing, halves, 4 * packing),
        ),
        digits((THREAD, 4, 8, 1)),
    )


@cache
def _accumulator_fragment(m: int, n: int, threads: int) -> Fragment:
    """D of every atom: four lanes share a row, two neighbours each; 8 rows down; 8 columns on."""
    rows = 2 if m > 8 else 1
    return Fragment(
        2 * rows * (n // 8),
        threads,
        digits((THREAD, 4, 8, 1), (REGISTER, 2, rows, 8), (THREAD, WARP, threads // WARP, 16)),
        digits((REGISTER, 1, 2, 1), (THREAD, 1, 4, 2), (REGISTER, 2 * rows, n // 8, 8)),
    )


def _type_name(a: str, b: str, accumulator: str, usual: str) -> str:
    """As in names: bf16; i8xu8 of two types; f16.f16 with an accumulator that is not the usual."""
    both = a if a == b else f"{a}x{b}"
    return both if accumulator == usual else f"{both}.{accumulator}"


def _usual_accumulator(type_name: str) -> str:
    return {"i8": "i32", "u8": "i32", "f64": "f64"}.get(type_name, "f32")


def _mma_sync(m: int, k: int, a: str, b: str, accumulator: str, target: str) -> Atom:
    packing = Operand(a, None).packing
    types = _type_name(a, b, accumulator, _usual_accumulator(a))
    ptx = [_TYPES[name].ptx for name in (accumulator, a, b, accumulator)]
    return Atom(
        f"mma.m{m}n8k{k}.{types}",
        "mma.sync",
        *(m, 8, k),
        Operand(a, _a_fragment(m, k, packing, WARP)),
        Operand(b, _b_fragment(k, packing)),
        Operand(accumulator, _accumulator_fragment(m, 8, WARP)),
        WARP,
        target,
        f"mma.sync.aligned.m{m}n8k{k}.row.col.{'.'.join(ptx)}",
    )


def _wgmma(a: str, b: str, accumulator: str) -> list[Atom]:
    """The atoms of these types: every n, with A from shared memory and from registers."""
    shared_a, shared_b = (Operand(name, None, _MAJORS[name]) for name in (a, b))
    k = 32 // shared_a.element_bytes
    held_a = Operand(a, _a_fragment(64, k, shared_a.packing, WARPGROUP))
    scales = () if accumulator == "i32" else ("scale_a", "scale_b")
    transposes = ("transpose_a", "transpose_b") if MN_MAJOR in _MAJORS[a] else ()
    types = _type_name(a, b, accumulator, _usual_accumulator(a))
    ptx = ".".join(_TYPES[name].ptx for name in (accumulator, a, b))
    found = []
    for n in WGMMA_N_INT8 if accumulator == "i32" else WGMMA_N:
        shape = f"m64n{n}k{k}"
        for operand, suffix in ((shared_a, ""), (held_a, ".registers")):
            atom = Atom(
                f"wgmma.{shape}.{types}{suffix}",
                "wgmma",
                *(64, n, k),
                operand,
                shared_b,
                Operand(accumulator, _accumulator_fragment(64, n, WARPGROUP)),
                WARPGROUP,
                "sm_90a",
                f"wgmma.mma_async.sync.aligned.{shape}.{ptx}",
                scales + (transposes[1:] if suffix else transposes),
            )
            found.append(atom)
    return found


#: how descriptors can describe a type: only 16-bit operands may be contiguous along m or n
_MAJORS = {
    name: (K_MAJOR, MN_MAJOR) if of.dtype.bits == 16 else (K_MAJOR,) for name, of in _TYPES.items()
}
_FP8 = ("f8e4m3", "f8e5m2")
_INT8 = ("i8", "u8")

#: m, k, A and B, accumulator, target (PTX ISA, "mma": shapes and required architectures)
_MMA_SYNC: tuple[tuple[int, int, tuple[str, ...], str, str], ...] = (
    (16, 8, ("f16",), "f32", "sm_75"),
    (16, 8, ("f16",), "f16", "sm_75"),
    (16, 16, ("f16",), "f32", "sm_80"),
    (16, 16, ("f16",), "f16", "sm_80"),
    (16, 8, ("bf16",), "f32", "sm_80"),
    (16, 16, ("bf16",), "f32", "sm_80"),
    (16, 4, ("tf32",), "f32", "sm_80"),
    (16, 8, ("tf32",), "f32", "sm_80"),
    (16, 16, _INT8, "i32", "sm_80"),
    (16, 32, _INT8, "i32", "sm_80"),
    (16, 32, _FP8, "f32", "sm_89"),
    (8, 4, ("f64",), "f64", "sm_80"),
)
#: A and B, accumulator (PTX ISA, "wgmma.mma_async": .dtype of each input type)
_WGMMA: tuple[tuple[tuple[str, ...], str], ...] = (
    (("bf16",), "f32"),
    (("f16",), "f32"),
    (("f16",), "f16"),
    (("tf32",), "f32"),
    (_FP8, "f32"),
    (_FP8, "f16"),
    (_INT8, "i32"),
)
#: every n of wgmma; of 8-bit integers only 8, 24 and the multiples of 16
WGMMA_N = tuple(range(8, 257, 8))
WGMMA_N_INT8 = (8, 16, 24, 32, *range(48, 257, 16))


def _all_atoms() -> dict[str, Atom]:
    found = [
        _mma_sync(m, k, a, b, accumulator, target)
        for m, k, types, accumulator, target in _MMA_SYNC
        for a in types
        for b in types
    ]
    for types, accumulator in _WGMMA:
        for a in types:
            for b in types:
                found += _wgmma(a, b, accumulator)
    return {atom.name: atom for atom in found}


#: every atom by name: "mma.m16n8k16.bf16", "mma.m16n8k16.f16.f16" (f16 accumulator),
#: "wgmma.m64n128k16.bf16", "wgmma.m64n128k16.bf16.registers" (A from registers)
ATOMS: Mapping[str, Atom] = _all_atoms()


def atom_named(name: str) -> Atom:
    """The atom called `name`.  Raises UsageError for an unknown one."""
    if name in ATOMS:
        return ATOMS[name]
    types = name.split(".")[2:]
    alike = [known for known in ATOMS if types and known.split(".")[2:] == types][:4]
    names = ", ".join(alike or ("mma.m16n8k16.bf16", "wgmma.m64n128k16.bf16"))
    raise UsageError(f"no atom is called {name!r}; there are {names} and others, see atoms()")


def atoms(
    a: str,
    b: str | None = None,
    accumulator: str | None = None,
    engine: str | None = None,
    target: str | None = None,
) -> list[Atom]:
    """The atoms for these types (b like a unless given), of one engine, that a target has."""
    return [
        atom
        for atom in ATOMS.values()
        if atom.a.type == a
        and atom.b.type == (b or a)
        and accumulator in (None, atom.accumulator.type)
        and engine in (None, atom.engine)
        and (target is None or atom.runs_on(target))
    ]
