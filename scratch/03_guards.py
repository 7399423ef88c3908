"""What is left of a guard for sizes that 32 threads with 4 elements each do not divide."""

from __future__ import annotations

from uopc.dtype import dtypes
from uopc.opts import Opts
from uopc.passes.split import split
from uopc.pipeline import index
from uopc.uop import Ops, buffer, toposort
from uopc.uop.text import index_text

opts = Opts(gpu=True, local={0: 32}, vector={0: 4})
for n in (1024, 1000, 1001, 1002, 1008, 1009, 992):
    root = index([buffer(0, dtypes.f32, (n,)) + 1.0], [buffer(1, dtypes.f32, (n,))])
    (store,) = (u for u in toposort(split(root, opts)) if u.op is Ops.STORE)
    guard = index_text(store.src[2]) if len(store.src) == 3 else "none"
    print(f"{n:5}  p1[{index_text(store.src[0].src[1])}]  guard: {guard}")
