"""A product as choices see it: its sizes and types, and how its operands lie."""

from __future__ import annotations

import math
from dataclasses import dataclass

from uopc.choose.facts import KernelFacts
from uopc.choose.sizes import Aim
from uopc.dtype import DType, dtypes
from uopc.layouts import ATOMS
from uopc.passes.find_products import Product
from uopc.passes.operands import Lies, lies, neighbours
from uopc.plan import FMA, Plan
from uopc.symbolic import index as ix
from uopc.target import Target
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import Ops

#: names in atoms
TYPE_NAMES: dict[DType, str] = {
    **{dtypes.f16: "f16", dtypes.bf16: "bf16", dtypes.i8: "i8", dtypes.u8: "u8"},
    **{dtypes.f8e4m3: "f8e4m3", dtypes.f8e5m2: "f8e5m2"},
}
TF32 = "tf32"


@dataclass(frozen=True)
class ProductFacts:
    """A product on a target: its types, and how its operands lie.

    kind: in names of atoms, or FMA.  even: elements that the places of the result's columns are
    multiples of.  bytes: each parameter once.
    """

    target: Target
    product: Product
    sizes: tuple[int, int, int, int]
    kind: str
    itemsize: int
    a: Lies
    b: Lies
    result: DType
    even: int
    bytes: int

    @classmethod
    def of(cls, facts: KernelFacts, product: Product, aim: Aim) -> ProductFacts:
        a, b = narrowest(product.a), narrowest(product.b)
        kind = _kind(product, a.dtype, b.dtype, aim)
        if kind == FMA:
            a, b = product.a, product.b
        store = next(u for u in facts.root.src[0].src if u.op is Ops.STORE)
        offset, along = store.src[0].src[1], product.n[-1]
        even = next((n for n in (8, 4, 2) if ix.divides(n, neighbours(offset, along, n)[0])), 1)
        return cls(
            *(aim.target, product, product.sizes, kind, a.dtype.itemsize),
            *(lies(product, a, product.m), lies(product, b, product.n)),
            store.src[1].dtype,
            even,
            _touched(facts),
        )

    def is_box(self, x: Lies) -> bool:
        """Can tensor copies bring an operand as it lies?"""
        return x.strides is not None and x.takes(16, self.itemsize)

    def tiles_along(self, plan: Plan) -> tuple[int, int]:
        """Tiles of D along both sides."""
        _, m, n, _ = self.sizes
        m, n = (n, m) if plan.swap else (m, n)
        down = -(-m // plan.block_m)
        if plan.rows:
            each = (r.arg.size for r in self.product.m)
            down = math.prod(-(-size // rows) for size, rows in zip(each, plan.rows, strict=True))
        return down, -(-n // plan.block_n)

    def tiles(self, plan: Plan) -> int:
        """Of D, of all batches."""
        return self.sizes[0] * math.prod(self.tiles_along(plan))

    def steps(self, plan: Plan) -> int:
        """Tiles of k."""
        return -(-self.sizes[3] // plan.block_k)

    def step_bytes(self, plan: Plan) -> int:
        """Of a tile of k of both operands."""
        return (plan.block_m + plan.block_n) * plan.block_k * self.itemsize


def _touched(facts: KernelFacts) -> int:
    """Bytes of parameters that the kernel moves if it moves each once."""
    whole = {
        u.arg.slot: math.prod(u.arg.shape) * u.dtype.itemsize
        for u in toposort(facts.root)
        if u.op is Ops.BUFFER
    }
    most: dict[int, int] = {}
    for x in facts.accesses:
        most[x.slot] = min(whole[x.slot], max(x.size_bytes, most.get(x.slot, 0)))
    return sum(most.values())


def narrowest(operand: UOp) -> UOp:
    """The operand, or what it is a CAST of, where that loses nothing."""
    while operand.op is Ops.CAST and operand.src[0].dtype in TYPE_NAMES:
        operand = operand.src[0]
    return operand


def _kind(product: Product, a: DType, b: DType, aim: Aim) -> str:
    """Types of the operands as atoms call them, where tensor cores give the sums that are asked
    for; else FMA."""
    total = product.total.dtype
    if a in TYPE_NAMES and b in TYPE_NAMES:
        both = TYPE_NAMES[a] if a is b else f"{TYPE_NAMES[a]}x{TYPE_NAMES[b]}"
        wanted = dtypes.i32 if a.is_int else dtypes.f32
        known = any(x.name.split(".")[2:] == [both] for x in ATOMS.values())
        return both if total is wanted and known else FMA
    return TF32 if aim.tf32 and total is dtypes.f32 and a is b is dtypes.f32 else FMA
