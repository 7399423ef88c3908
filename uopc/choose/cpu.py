"""Ranked Opts for a native CPU kernel.  INDEXED -> list of Opts.

The C compiler vectorises plain inner loops by itself; what it cannot do is reorder float sums and
block products.  So: elementwise work is one loop, sums get independent accumulators (the vector and
upcast digits) and short chains (the tile digit), products get a register tile, and the outermost
output axis runs on threads where there is enough work to pay for starting them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from uopc.choose.facts import LONGEST_CHAIN, KernelFacts, is_float_sum, pow2_at_least, tiles
from uopc.choose.sizes import SHORT_CHAINS, contiguous_axis, merged
from uopc.decision import Because, Guess, Reason, because, kind, opts_of
from uopc.opts import Opts
from uopc.uop.ops import Combine

THREAD_WORK = 1 << 18  # elements below which one thread is faster than starting more
PRODUCT_WORK = 1 << 24  # the same, multiply-adds of a product: about half a millisecond
VECTOR_BYTES = 64  # a register row of one AVX-512 register, or two of AVX2
PACK_WORK = 1 << 23  # multiply-adds of a product below which panels cost more than they save
ROWS = 6  # of a register tile: with two vectors of 16 registers each, 12 are accumulators
COLUMNS = 512  # accumulators of a strided reduction: whole cache lines of each row, all in L1

# ---- what decides, in words
ON_THREADS = Reason(
    "choose.cpu._with_threads",
    "axis {axis} is the first that no reduction closes; the kernel has {work} elements, threads "
    "pay from {worth} on",
)
ONE_THREAD = Reason(
    "choose.cpu._with_threads",
    "one thread: the kernel has {work} elements, threads pay from {worth} on",
)
NO_AXIS = Reason("choose.cpu._with_threads", "one thread: reductions close every axis")
SHARE = Reason(
    "choose.cpu._with_threads",
    "a turn of a thread does about {share} iterations of axis {axis}, so that starting it pays",
)
ROW_OF_SUMS = Reason(
    "choose.cpu.each",
    "axis {axis} is reduced and contiguous: {n} sums side by side, which the C compiler vectorises",
)
ROW_OF_OUTPUTS = Reason(
    "choose.cpu.each",
    "axis {axis} is contiguous and not reduced: accumulators for {n} outputs, which stay in L1",
)
MORE_SUMS = Reason(
    "choose.cpu.each",
    "{steps} steps are more than two levels of {most} additions hold: more sums side by side",
)
SCAN_ROWS = Reason(
    "choose.cpu._scan", "the scanned axis is strided: accumulators for {n} elements of axis {axis}"
)
SCAN_CHAIN = Reason(
    "choose.cpu._scan",
    "{steps} floats in a row are more than {most}: about the square root of them at once",
)
TILE_ROWS = Reason(
    "choose.cpu._packed_product",
    "a tile of {rows} x {width} accumulators: with two vectors of a row, {rows} rows fill 16 "
    "registers",
)
PANELS = Reason(
    "choose.cpu._packed_product",
    "{work} multiply-adds, panels pay from {worth} on: operands are first written so that a tile "
    "reads them in order",
)
PRODUCT_THREAD = Reason(
    "choose.cpu._packed_product",
    "{work} multiply-adds, threads pay from {worth} on: axis {axis} is long enough to share",
)
ACCUMULATORS = Reason(
    "choose.cpu._product",
    "eight vectors of accumulators, {along}: they hide the latency of a multiply-add",
)


def rank(facts: KernelFacts) -> list[Opts]:
    """Candidates, the best guess first; never empty."""
    return opts_of(each(facts))


def each(facts: KernelFacts) -> list[Guess]:
    """The same with reasons."""
    if not facts.axes:
        return [Guess(Opts())]
    if facts.scanned is not None:
        return [_scan(facts, facts.scanned)]
    if not facts.reduces:
        return [_with_threads(facts, {}, {}, {})]
    if (found := facts.product()) is not None:
        packed = _packed_product(facts, *found)
        return [*packed, _product(facts, *found), _with_threads(facts, {}, {}, {})]
    why: list[Because] = []
    vector: dict[int, int] = {}
    upcast: dict[int, int] = {}
    width = VECTOR_BYTES // facts.widest_item()
    walked = sorted({r.arg.axis for u in facts.reduces for r in u.src[1:]})
    outputs = [a for a in facts.outputs if a not in walked]
    along = [a for a in (*walked, *outputs) if facts.contiguous(a)]
    if along:
        a = along[0]
        row = width if a in walked else COLUMNS
        vector[a] = min(row, pow2_at_least(facts.sizes[a]))
        reason = ROW_OF_SUMS if a in walked else ROW_OF_OUTPUTS
        why.append(because("vector", reason, a, axis=a, n=vector[a]))
    for u in filter(is_float_sum, facts.reduces):  # two levels of chains hold so much; then copies
        a = max((r.arg for r in u.src[1:]), key=lambda r: r.size).axis
        steps = math.prod(-(-r.arg.size // vector.get(r.arg.axis, 1)) for r in u.src[1:])
        if (more := pow2_at_least(-(-steps // LONGEST_CHAIN**2))) > 1:
            upcast[a] = max(upcast.get(a, 1), more)
            why.append(because("upcast", MORE_SUMS, a, steps=steps, most=LONGEST_CHAIN))
            vector = {b: n for b, n in vector.items() if b in walked}  # they would share its copies
    copies = {r: vector.get(r, 1) * upcast.get(r, 1) for r in range(len(facts.axes))}
    tile = tiles(facts, copies, copies)
    for a in tile:
        steps = -(-facts.sizes[a] // copies[a])
        why.append(because("tile", SHORT_CHAINS, a, steps=steps, most=LONGEST_CHAIN))
    return [_with_threads(facts, upcast, vector, tile, why=why)]


def _scan(facts: KernelFacts, axis: int) -> Guess:
    """Steps along the axis with one accumulator, or a row of them along a contiguous other axis;
    two levels where one would add up float after float for too long."""
    others = tuple(a for a in facts.outputs if a != axis and facts.sizes[a] > 1)
    vector: dict[int, int] = {}
    if others and not facts.contiguous(axis):
        x = contiguous_axis(facts, others)
        vector[x] = min(COLUMNS, pow2_at_least(facts.sizes[x]))
    n, tile = facts.sizes[axis], {}
    why = [because("vector", SCAN_ROWS, x, n=n, axis=x) for x, n in vector.items()]
    why.append(because("tile", SCAN_CHAIN, axis, steps=n, most=LONGEST_CHAIN))
    sums = (Combine.ADD, Combine.MUL)
    if n > LONGEST_CHAIN and any(u.dtype.is_float and u.arg.combine in sums for u in facts.scans):
        tile[axis] = pow2_at_least(math.isqrt(n))
    return _with_threads(facts, {}, vector, tile, why=why)


def _packed_product(facts: KernelFacts, m: int, n: int, k: int) -> list[Guess]:
    """Both operands in panels, a tile of 6 rows by one AVX-512 register, or two of AVX2, each.

    Neither operand is then read with a stride, and no size leaves a rest inside the loop over k.
    Nothing where the product is small or narrow.
    """
    width = VECTOR_BYTES // _product_bytes(facts)
    x, y = (n, m) if facts.sizes[n] >= width else (m, n)
    sizes = facts.sizes
    work = math.prod(sizes)
    worth = PACK_WORK >> 3 if _along_k(facts, k) else PACK_WORK
    if sizes[x] < width or sizes[y] < 2 * ROWS or sizes[k] < width or work < worth:
        return []
    batches = [a for a in facts.outputs if a not in (m, n) and sizes[a] > 1]
    thread = None
    if work >= PRODUCT_WORK:  # an axis with a rest inside its loop makes gcc forget the registers
        long = sizes[y] >= 16 * ROWS and sizes[x] % width == 0
        thread = batches[0] if batches and sizes[batches[0]] >= 16 else y if long else x
    tile = {y: ROWS, x: width}
    shape = dict(rows=ROWS, width=width)
    why = [
        because("upcast", TILE_ROWS, y, **shape),
        because("vector", TILE_ROWS, x, **shape),
        because("pack", PANELS, work=work, worth=worth),
        because("thread", PRODUCT_THREAD, work=work, worth=PRODUCT_WORK, axis=thread),
        merged(facts),
    ]
    merge, up, vector = facts.merge, {y: ROWS}, {x: width}
    return [Guess(Opts(merge=merge, upcast=up, vector=vector, thread=thread, pack=tile), (*why,))]


def _product(facts: KernelFacts, m: int, n: int, k: int) -> Guess:
    """Eight vectors of accumulators: with as many loads they fit sixteen registers, and they hide
    the latency of a fused multiply-add (Van Zee and van de Geijn, "BLIS", ACM TOMS 41(3), 2015).

    Along an output axis where an operand is contiguous in it, else along k: then each output has a
    vector of partial sums.
    """
    width = VECTOR_BYTES // 2 // _product_bytes(facts)
    along = [a for a in (n, m) if facts.contiguous(a) and facts.sizes[a] >= width]
    if not along or _along_k(facts, k):
        upcast = {m: _divisor(facts.sizes[m], 4), n: _divisor(facts.sizes[n], 2)}
        vector = {k: min(width, pow2_at_least(facts.sizes[k]))}
        side = f"partial sums along axis {k}, in which both operands are contiguous or none is wide"
    else:
        x = along[0]
        y = m if x == n else n
        wide = 2 * width if facts.sizes[x] % (2 * width) == 0 else width
        upcast, vector = {y: _divisor(facts.sizes[y], 4)}, {x: wide}
        side = f"along axis {x}, in which an operand is contiguous"
    digits = [("upcast", a) for a in upcast] + [("vector", a) for a in vector]
    why = [because(name, ACCUMULATORS, a, along=side) for name, a in digits]
    return _with_threads(facts, upcast, vector, {}, PRODUCT_WORK, why)


def _along_k(facts: KernelFacts, k: int) -> bool:
    """Are both operands contiguous along what is summed?"""
    loads = [c for a, c in facts.strides(k) if not a.store]
    return bool(loads) and all(c == 1 for c in loads)


def _product_bytes(facts: KernelFacts) -> int:
    """Of an element of the sum of products."""
    return max(u.dtype.itemsize for u in facts.reduces if u.arg.combine is Combine.ADD)


def _divisor(size: int, most: int) -> int:
    """Copies of an axis, most of them at most: without a rest where half as many have none."""
    return next((c for c in range(most, most // 2, -1) if size % c == 0), min(most, size))


def _with_threads(
    facts: KernelFacts,
    upcast: dict[int, int],
    vector: dict[int, int],
    tile: dict[int, int],
    worth: int = THREAD_WORK,
    why: Sequence[Because] = (),
) -> Guess:
    """The longest output axis that no REDUCE closes on threads, if the work is worth it."""
    walked = {r.arg.axis for u in facts.reduces for r in u.src[1:]} | {facts.scanned}
    free = [a for a in facts.outputs if a not in walked and facts.sizes[a] > 1]
    thread, loop, work = None, {}, math.prod(facts.sizes)
    said = kind("one thread", ONE_THREAD if free else NO_AXIS, work=work, worth=worth)
    if free and work >= worth:
        thread = free[0]
        said = because("thread", ON_THREADS, axis=thread, work=work, worth=worth)
        inner = upcast.get(thread, 1) * vector.get(thread, 1)
        share = THREAD_WORK // 4 // max(1, math.prod(facts.sizes) // facts.sizes[thread]) // inner
        if share > 1:
            loop[thread] = _even(-(-facts.sizes[thread] // inner), share)
            why = (*why, because("loop", SHARE, thread, axis=thread, share=share))
    opts = Opts(
        merge=facts.merge, upcast=upcast, vector=vector, tile=tile, loop=loop, thread=thread
    )
    return Guess(opts, (said, merged(facts), *why))


def _even(size: int, share: int) -> int:
    """A share that divides size where one is near: a guard in the loop costs more than its call."""
    fewest = -(-size // share)
    for parts in range(fewest, 2 * fewest):
        if size % parts == 0:
            return size // parts
    return share
