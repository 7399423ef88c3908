"""Bytes that an SM has on the way: mappings of a softmax row, with the registers that ptxas gives.

NVRTC needs no GPU.  A row of 8192 floats is asked for at once, held and stored, or read three times
in steps.  Held by an SM: what its resident blocks have asked for and not stored yet.  By Little's
law that is rate times stay; `stay` is how long a row may stay where rows come in as fast as a copy
reads.  Registers are those of one version of NVRTC.
"""

from __future__ import annotations

from uopc.dtype import DType, dtypes
from uopc.opts import Opts
from uopc.pipeline import compile
from uopc.target import occupancy, target
from uopc.uop import Ops, UOp, buffer, memory, toposort

ROWS, COLUMNS = 8192, 8192
H200 = target("sm_90")
COPY_GB_S = 4100  # about what a copy moves on an H200 (chapter 13); half of it is read
READ_BYTES_PER_NS = COPY_GB_S / 2 / H200.sms


def softmax(dtype: DType) -> UOp:
    """Of each row, computed in f32."""
    x = buffer(0, dtype, (ROWS, COLUMNS)).cast(dtypes.f32)

    def along(row: UOp) -> UOp:
        return row.reshape((ROWS, 1)).expand((ROWS, COLUMNS))

    e = (x - along(x.reduce(Ops.MAX))).exp()
    return (e * along(1.0 / e.reduce(Ops.ADD))).cast(dtype)


def mapping(threads: int, vector: int, copies: int, blocks_per_sm: int = 0) -> Opts:
    """A row a block."""
    return Opts(
        gpu=True,
        local={1: threads},
        vector={1: vector},
        upcast={1: copies},
        lanes=(1, 0),
        grid=(1, 0),
        blocks_per_sm=blocks_per_sm,
    )


def line(name: str, dtype: DType, opts: Opts | None) -> str:
    """One mapping; None: the automatic choice for an H200."""
    step = compile(softmax(dtype), opts, H200).steps[0]
    used, row = step.cubin.resources, step.opts.axis(1, COLUMNS, reduced=True)
    fits = occupancy(H200, row.local, used.registers, used.shared_bytes).blocks_per_sm
    loads = [u for u in toposort(step.sink) if u.op is Ops.LOAD]
    reads = sum(memory(u.src[0]).op is Ops.BUFFER for u in loads)
    each = row.upcast * row.vector
    held = fits * row.local * each * dtype.itemsize
    stay = f"{held / READ_BYTES_PER_NS / 1000:4.1f} us" if reads == 1 else "   -   "
    return (
        f"{name:19}{row.local:6} x {each:2}{used.registers:8}{fits:8}{held >> 10:8} KiB"
        f"   {stay}{reads:6}"
    )


if __name__ == "__main__":
    f32, bf16 = dtypes.f32, dtypes.bf16
    print("mapping          threads x each  regs  blocks    held      stay   reads")
    print(line("in steps", f32, mapping(1024, 4, 1)))
    print(line("1024 threads", f32, mapping(1024, 4, 2)))
    print(line("512 threads", f32, mapping(512, 4, 4, 2)))
    print(line("one by one", f32, mapping(512, 1, 16, 2)))
    print(line("256 threads", f32, mapping(256, 4, 8)))
    print(line("chosen", f32, None))
    print(line("bf16, as f32", bf16, mapping(512, 4, 4, 2)))
    print(line("bf16, chosen", bf16, None))
