"""Memory-bound kernels with automatic Opts beside torch, in one process, by the cool protocol.

Needs an NVIDIA GPU and torch:  python scratch/bench_memory.py [NAME]
Prints median times, GB/s (each input read once, each output written once) and ratios to torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from uopc import compile, dtypes
from uopc.runtime import cuda
from uopc.runtime.timing import CUDAClock, time_candidates
from uopc.uop import Ops, UOp, buffer, prod

MISSING = 3  # exit code: something that this script needs is not here


def param(slot: int, *shape: int) -> UOp:
    """An f32 input of this shape."""
    return buffer(slot, dtypes.f32, (prod(shape),)).reshape(shape)


def softmax(x: UOp) -> UOp:
    """Softmax over the last axis."""
    rows = (*x.shape[:-1], 1)
    top = x.reduce(Ops.MAX, 1).reshape(rows).expand(x.shape)
    e = (x - top).exp()
    return e / e.reduce(Ops.ADD, 1).reshape(rows).expand(x.shape)


def cases(torch: Any) -> dict[str, tuple[UOp, list[tuple[int, ...]], Callable[..., Any]]]:
    """name -> (body, input shapes, the same in torch)."""
    n = 64 << 20
    out: dict[str, tuple[UOp, list[tuple[int, ...]], Callable[..., Any]]] = {}
    out["add 64Mi"] = param(0, n) + param(1, n), [(n,), (n,)], lambda a, b: a + b
    relu = (param(0, n) * 2.0 + param(1, n)).maximum(0.0) * param(0, n)
    out["relu(a*2+b)*a 64Mi"] = relu, [(n,), (n,)], lambda a, b: torch.relu(a * 2 + b) * a
    m = n - 5
    out["add 64Mi-5"] = param(0, m) + param(1, m), [(m,), (m,)], lambda a, b: a + b
    p, q = 8191, 8193
    odd = param(0, p, q) * param(1, p, q)
    out["mul 8191x8193"] = odd, [(p, q), (p, q)], lambda a, b: a * b
    four = (8, 64, 512, 257)
    row = param(1, 64, 257).reshape((1, 64, 1, 257)).expand(four)
    out["4 axes * row"] = (
        param(0, *four) * row,
        [four, (64, 257)],
        lambda a, b: a * b[None, :, None],
    )
    for s in ((8192, 1024), (8192, 8192), (1 << 20, 64)):
        out[f"softmax {s[0]}x{s[1]}"] = softmax(param(0, *s)), [s], lambda a: torch.softmax(a, -1)
    s = (8192, 8192)
    out["sum rows"] = param(0, *s).reduce(Ops.ADD, 1), [s], lambda a: a.sum(-1)
    out["sum columns"] = param(0, *s).permute((1, 0)).reduce(Ops.ADD, 1), [s], lambda a: a.sum(0)
    out["sum all 64Mi"] = (
        param(0, n).reduce(Ops.ADD, 1).reshape((1,)),
        [(n,)],
        lambda a: a.sum()[None],
    )
    out["argmax rows"] = param(0, *s).argmax(1), [s], lambda a: a.argmax(-1).int()
    return out


def main(pick: str = "") -> int:
    """Run the cases whose name contains pick; the exit code."""
    if reason := cuda.why_unusable():
        print(f"skipped: {reason}")
        return MISSING
    try:
        import torch
    except ImportError:
        print("skipped: torch is not installed (pip install torch)")
        return MISSING
    gpu = cuda.open_device()
    clock = CUDAClock(gpu)
    print(f"{cuda.describe()}, torch {torch.__version__}")
    print(
        f"{'work':22} {'uopc':>9} {'eager':>9} {'compiled':>9} {'GB/s':>6} {'of eager':>8} "
        f"{'of compiled':>11}  opts"
    )
    for name, (body, shapes, peer) in cases(torch).items():
        if pick not in name:
            continue
        inputs = [torch.randn(s, device="cuda") for s in shapes]
        want = peer(*inputs)
        got = torch.empty_like(want)
        kernel = compile(body, target="cuda")
        kernel(*inputs, out=got.reshape(-1))
        error = float((got.double() - want.double()).abs().max())
        compiled = torch.compile(peer, dynamic=False)
        compiled(*inputs)
        times = time_candidates(
            {
                "uopc": partial(kernel, *inputs, out=got.reshape(-1)),
                "eager": partial(peer, *inputs),
                "compiled": partial(compiled, *inputs),
            },
            clock,
            samples=21,
            warm=3,
        )
        size = sum(x.numel() * x.element_size() for x in (*inputs, got))
        ours, eager, best = (times[k].median_s for k in ("uopc", "eager", "compiled"))
        print(
            f"{name:22} {ours * 1e6:7.1f}us {eager * 1e6:7.1f}us {best * 1e6:7.1f}us "
            f"{size / ours / 1e9:6.0f} {eager / ours:8.3f} {best / ours:11.3f}  "
            f"{kernel.opts} error {error:.1e}",
            flush=True,
        )
        del inputs, want, got, kernel, compiled
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
