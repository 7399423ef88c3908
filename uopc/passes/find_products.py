"""Which kernel is a matrix product?  On INDEXED graphs, before a plan tiles it.

A product is one sum of a*b where a varies along some output axes, m, that b lacks, b along others,
n, that a lacks, and both along what is summed, k.  Output axes that both have are batches.  Views
are index arithmetic by now, so it makes no difference whether an operand lies transposed, or is a
window of an image (a convolution), or how many axes m, n and k are.

    out[z, m, n] = f(REDUCE(a[z, m, k] * b[z, n, k], k), anything at [z, m, n])
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from uopc.errors import UsageError
from uopc.passes.share import is_report
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, prod, toposort
from uopc.uop.ops import Combine, Ops

Ranges = tuple[UOp, ...]


@dataclass(frozen=True)
class Product:
    """total: the REDUCE.  a, b: its operands.  batch, m, n, k: ranges, outermost first."""

    total: UOp
    a: UOp
    b: UOp
    batch: Ranges
    m: Ranges
    n: Ranges
    k: Ranges

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(batches, M, N, K)."""
        batch, m, n, k = (
            prod(r.arg.size for r in ranges) for ranges in (self.batch, self.m, self.n, self.k)
        )
        return batch, m, n, k

    @property
    def swapped(self) -> Product:
        """The transpose of the product: b * a."""
        return replace(self, a=self.b, b=self.a, m=self.n, n=self.m)


def find_product(root: UOp) -> Product:
    """The product that a kernel is.  Raises UsageError with the reason where it is none."""
    order = toposort(root)
    found = [u for u in order if u.op in (Ops.REDUCE, Ops.SCAN)]
    if len(found) != 1:
        raise _no_product(f"it has {len(found)} reductions and scans")
    (total,) = found
    if total.op is not Ops.REDUCE or total.arg.combine is not Combine.ADD:
        raise _no_product(f"its reduction is {total.op} {total.arg.combine}")
    if total.src[0].op is not Ops.MUL:
        raise _no_product(f"it sums up {total.src[0].op}, not MUL")
    k = frozenset(total.src[1:])
    a, b = total.src[0].src
    both, mine, other = free(a) & free(b), free(a) - free(b), free(b) - free(a)
    if not k <= both or not mine or not other:
        raise _no_product("its operands do not share what is summed, or lack an axis of their own")
    if min(r.arg.axis for r in other) < min(r.arg.axis for r in mine):
        a, b, mine, other = b, a, other, mine
    axes = frozenset(both - k) | mine | other
    if any(is_report(e) or frozenset(e.src[1:]) != axes for e in root.src):
        raise _no_product("it stores along other axes than its operands have")
    return Product(total, a, b, *(_in_order(x) for x in (both - k, mine, other, k)))


def places(ranges: Ranges, position: UOp) -> dict[UOp, UOp]:
    """Each range's place, of a position along all of them."""
    return dict(zip(ranges, ix.digits(position, [r.arg.size for r in ranges]), strict=True))


def _in_order(ranges: frozenset[UOp]) -> Ranges:
    return tuple(sorted(ranges, key=lambda r: r.arg.axis))


def _no_product(why: str) -> UsageError:
    return UsageError(f"Opts.plan: the kernel is no product of two operands: {why}. Leave it out.")
