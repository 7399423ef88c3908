"""A product as choices see it: its sizes and types, and how its operands lie."""

from __future__ import annotations

import math
from dataclasses import dataclass

from uopc.choose.facts import KernelFacts
from uopc.choose.sizes import Aim
from uopc.dtype import DType, dtypes
from uopc.layouts import ATOMS
from uopc.passes.find_products import Product
from uopc.passes.operands import Lies, as_type, lies, neighbours, uncast
from uopc.plan import FMA, Plan
from uopc.symbolic import index as ix
from uopc.target import Target
from uopc.uop.node import toposort
from uopc.uop.ops import Ops

#: names in atoms
TYPE_NAMES: dict[DType, str] = {
    **{dtypes.f16: "f16", dtypes.bf16: "bf16", dtypes.i8: "i8", dtypes.u8: "u8"},
    **{dtypes.f8e4m3: "f8e4m3", dtypes.f8e5m2: "f8e5m2"},
}
TF32 = "tf32"
#: of 16 bits, as which narrower operands are multiplied that no atom takes as they are
WIDER = (dtypes.bf16, dtypes.f16)


@dataclass(frozen=True)
class ProductFacts:
    """A product on a target: its types, and how its operands lie.

    kind: in names of atoms, or FMA.  types: in which a and b are multiplied.  even: elements that
    the places of the result's columns are multiples of.  bytes: each parameter once.
    """

    target: Target
    product: Product
    sizes: tuple[int, int, int, int]
    kind: str
    types: tuple[DType, DType]
    a: Lies
    b: Lies
    result: DType
    even: int
    bytes: int

    @classmethod
    def of(cls, facts: KernelFacts, product: Product, aim: Aim) -> ProductFacts:
        kind, types = _kind(product, aim)
        a, b = (as_type(x, t) for x, t in zip((product.a, product.b), types, strict=True))
        assert a is not None and b is not None
        store = next(u for u in facts.root.src[0].src if u.op is Ops.STORE)
        offset, along = store.src[0].src[1], product.n[-1]
        even = next((n for n in (8, 4, 2) if ix.divides(n, neighbours(offset, along, n)[0])), 1)
        return cls(
            *(aim.target, product, product.sizes, kind, types),
            *(lies(product, a, product.m), lies(product, b, product.n)),
            store.src[1].dtype,
            even,
            _touched(facts),
        )

    @property
    def itemsize(self) -> int:
        """Bytes of an element of either operand."""
        return self.types[0].itemsize

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


def _kind(product: Product, aim: Aim) -> tuple[str, tuple[DType, DType]]:
    """(types of the operands as atoms call them, and as they are), where tensor cores of the target
    give the sums that are asked for; else FMA."""
    own, total = (product.a.dtype, product.b.dtype), product.total.dtype
    a, b = uncast(product.a).dtype, uncast(product.b).dtype
    if total is dtypes.i32:
        ways = [(a, b)] if a.is_int and b.is_int else []
    elif total is dtypes.f32:
        ways = [*([(a, b)] if a.is_float and b.is_float else []), *((t, t) for t in WIDER)]
    else:
        ways = []
    for x, y in ways:
        known = x in TYPE_NAMES and y in TYPE_NAMES
        if not known or as_type(product.a, x) is None or as_type(product.b, y) is None:
            continue
        both = TYPE_NAMES[x] if x is y else f"{TYPE_NAMES[x]}x{TYPE_NAMES[y]}"
        if any(
            at.name.split(".")[2:] == [both] and at.runs_on(aim.target.name)
            for at in ATOMS.values()
        ):
            return both, (x, y)
    return TF32 if aim.tf32 and total is own[0] is own[1] is dtypes.f32 else FMA, own
