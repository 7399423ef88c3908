"""Which block, register copy, lane and vector place each element of an axis gets."""

from __future__ import annotations

from collections import Counter
from itertools import product

from uopc.dtype import dtypes
from uopc.opts import Opts
from uopc.passes.split import split
from uopc.pipeline import index
from uopc.symbolic import index as ix
from uopc.uop import Ops, buffer, toposort
from uopc.uop.facts import free
from uopc.uop.text import index_text

OPTS = Opts(gpu=True, local={0: 4}, upcast={0: 2}, vector={0: 2})


def elements(n: int) -> dict[tuple[int, ...], int]:
    """{(block, copy, lane, place): element} of an axis of n, -1 where the guard says no."""
    root = split(index([buffer(0, dtypes.i8, (n,)) * 2], [buffer(1, dtypes.i8, (n,))]), OPTS)
    (store,) = (u for u in toposort(root) if u.op is Ops.STORE)
    offset = store.src[0].src[1]
    guard = store.src[2] if len(store.src) == 3 else ix.TRUE
    print(f"{n} elements: {index_text(offset)}, guard {index_text(guard)}")
    digits = sorted(free(offset), key=lambda r: "gulv".index(r.arg.digit))
    found = {}
    for at in product(*(range(r.arg.size) for r in digits)):
        numbers = {r: ix.index(k) for r, k in zip(digits, at, strict=True)}
        inside = ix.substitute(guard, numbers) is ix.TRUE
        found[at] = ix.substitute(offset, numbers).arg.bits if inside else -1
    return found


for n in (48, 45):
    found = elements(n)
    for block, copy in product(range(3), range(2)):
        lanes = [[found[block, copy, lane, place] for place in range(2)] for lane in range(4)]
        text = "   ".join(" ".join(f"{e:2}" if e >= 0 else " ." for e in lane) for lane in lanes)
        print(f"  block {block}, copy {copy}:  {text}")
    count = Counter(e for e in found.values() if e >= 0)
    once = sorted(count) == list(range(n)) and set(count.values()) == {1}
    print(f"  every element once: {once}")
