"""Where a PROGRAM is cut, and what lives across the cuts."""

from __future__ import annotations

from tests.helpers import alloc
from uopc.dtype import AddrSpace, dtypes
from uopc.examples import smem_gemm_ir
from uopc.opts import Opts
from uopc.passes.linearize import linearize
from uopc.pipeline import gpu_lower
from uopc.render.regions import Branch, Region, Regions, Split, Wide, cut
from uopc.uop.node import UOp, buffer, range_, sink
from uopc.uop.ops import AxisType, Ops


def names(nodes: frozenset[UOp]) -> set[str]:
    """Arrays by name, values by op."""
    return {u.arg.name if u.op is Ops.ALLOC else u.op.name for u in nodes}


def shape(cuts: Regions) -> list[object]:
    """Parts by kind; of a split loop its size and parts."""

    def one(part: object) -> object:
        if isinstance(part, Split):
            return (part.opener.arg.size, [one(p) for p in part.parts])
        if isinstance(part, Branch):
            return (part.opener.op.name, [one(p) for p in part.parts])
        if isinstance(part, Region):
            return "lanes"
        assert isinstance(part, Wide)
        return part.op.op.name.lower()

    return [one(p) for p in cuts.parts]


def test_a_kernel_is_cut_where_threads_meet() -> None:
    cuts = cut(linearize(smem_gemm_ir(64, 16)))
    assert shape(cuts) == ["lanes", (4, ["lanes", "barrier", "lanes", "barrier"]), "lanes"]


def test_only_what_two_regions_mention_is_kept() -> None:
    cuts = cut(linearize(smem_gemm_ir(64, 16)))
    assert names(cuts.kept) == {"acc"}
    assert all(u.dtype is dtypes.index for u in cuts.again) and len(cuts.again) >= 3


def test_a_row_sum_keeps_partial_sums_and_no_addresses() -> None:
    x = buffer(0, dtypes.f32, (4, 640))
    out = buffer(1, dtypes.f32, (4,))
    opts = Opts(gpu=True, local={1: 64}, unroll=10)
    cuts = cut(linearize(gpu_lower(x.reduce(Ops.ADD, 1), out, opts)))
    butterflies = ["lanes", "shuffle"] * 5
    assert shape(cuts) == [*butterflies, "lanes", "barrier", "lanes"]
    assert all(u.op is Ops.ALLOC or u.dtype is dtypes.f32 for u in cuts.kept)
    assert not names(cuts.kept) & {"x"}, "the loads are summed in the region that made them"


def local() -> UOp:
    return range_(64, 0, AxisType.LOCAL)


def test_an_array_of_one_region_is_local_to_it() -> None:
    i, step = local(), range_(3, 1, AxisType.LOOP)
    tile, one = alloc(AddrSpace.SHARED, size=64), alloc(AddrSpace.REG)
    begun = one.after(step)
    filled = begun.index(0).store(1.0)
    value = begun.after(filled).index(0).load()
    met = tile.after(step).index(i).store(value).barrier()
    cuts = cut(linearize(sink(met.end(step))))
    assert shape(cuts) == [(3, ["lanes", "barrier"])]
    assert cuts.kept == frozenset()


def test_an_array_that_a_split_loop_comes_back_to_is_kept() -> None:
    """One region touches it, but what the first iteration leaves there the others read."""
    i, step = local(), range_(3, 1, AxisType.LOOP)
    tile, acc = alloc(AddrSpace.SHARED, size=64), alloc(AddrSpace.REG)
    once = acc.index(0).store(5.0, gate=step < 1)
    met = tile.after(step).index(i).store(acc.after(once).index(0).load()).barrier()
    cuts = cut(linearize(sink(met.end(step))))
    assert shape(cuts)[-1] == (3, ["lanes", "barrier"])
    assert cuts.kept == {acc}
