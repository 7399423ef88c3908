"""Views of a (3, 4) array: which element each one reads, as a formula and as numbers."""

from __future__ import annotations

import numpy as np

from uopc.dtype import dtypes
from uopc.pipeline import index
from uopc.symbolic import simplify
from uopc.uop import Ops, buffer, prod, toposort
from uopc.uop.oracle import evaluate
from uopc.uop.text import index_text

x = buffer(0, dtypes.i32, (3, 4))
views = {
    "x": x,
    "reshape (2, 6)": x.reshape((2, 6)),
    "permute (1, 0)": x.permute((1, 0)),
    "flip columns": x.flip((1,)),
    "shrink to 2:3, 1:4": x.shrink(((2, 3), (1, 4))),
    "last row, 3 times": x.shrink(((2, 3), (0, 4))).expand((3, 4)),
    "pad columns by 9": x.pad(((0, 0), (1, 1)), 9),
    "every other column": x.reshape((3, 2, 2)).shrink(((0, 3), (0, 2), (0, 1))).reshape((3, 2)),
    "columns rolled by 1": x.reshape((3, 1, 4))
    .expand((3, 2, 4))
    .reshape((3, 8))
    .shrink(((0, 3), (3, 7))),
}
for name, view in views.items():
    root = simplify(index([view], [buffer(1, dtypes.i32, (prod(view.shape),))]))
    (store,) = (u for u in toposort(root) if u.op is Ops.STORE)
    print(f"{name}: {index_text(store.src[1])}")
    print(*evaluate(view, {0: np.arange(12, dtype=np.int32)}), sep="\n")
