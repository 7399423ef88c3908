"""Machine instructions of y = x*2 + 1, several elements a thread: wide accesses are ours."""

from __future__ import annotations

import re
from collections import Counter

from uopc.dtype import dtypes
from uopc.gpu import gpu_lower, render_cuda
from uopc.opts import Opts
from uopc.runtime import compile_cubin
from uopc.uop import buffer

N = 1 << 20
body = buffer(0, dtypes.f32, (N,)) * 2.0 + 1.0
choices = {
    "one element": Opts(gpu=True, local={0: 256}),
    "4 copies": Opts(gpu=True, local={0: 256}, upcast={0: 4}),
    "a vector of 2": Opts(gpu=True, local={0: 256}, vector={0: 2}),
    "a vector of 4": Opts(gpu=True, local={0: 256}, vector={0: 4}),
    "a vector of 8": Opts(gpu=True, local={0: 256}, vector={0: 8}),
}
for choice, opts in choices.items():
    source = render_cuda(gpu_lower(body, buffer(1, dtypes.f32, (N,)), opts), "kern", "sm_80")
    sass = compile_cubin(source, "kern", "sm_80").sass
    moves = re.findall(r"\b(LDG|STG)\.E(?:\.(\d+))?", sass)
    found = Counter(f"{name} of {int(bits or 32) // 8} B" for name, bits in moves)
    accesses = ", ".join(f"{n} {what}" for what, n in sorted(found.items()))
    fused = len(re.findall(r"\bFFMA\b", sass))
    print(f"{choice:14} {accesses}; {fused} fused multiply-adds")
