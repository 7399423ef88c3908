"""Opts for kernels that scan an axis: a row a warp or a block; columns; parts of what is long.

Along a contiguous axis a thread takes the vectors of a few chunks, whose lanes and warps exchange
what they have come to: a row that fits stays in registers, a longer one is walked in steps.  Along
a strided axis lanes lie along the contiguous one, a thread takes a few elements below each other,
and the threads below it those that follow.  Where that fills too few SMs the axis is cut into
parts, in three kernels (`passes/split_scan.py`).
"""

from __future__ import annotations

import math

from uopc.choose.facts import KernelFacts, pow2_at_least, pow2_at_most
from uopc.choose.sizes import Aim, Sizes, contiguous_axis, order
from uopc.decision import Guess, Reason

WIDEST = 8  # elements of a vector: bytes by 16 do not stay in registers
ELEMENTS = 32  # registers of a thread for the elements that it holds
WARP_ROW = 1024  # elements of the longest row that one warp takes
MOST_THREADS, STEP_THREADS = 512, 256  # of a block that holds a row, and that walks one
WORTH_PARTS = 1 << 15  # elements of a row below which more kernels cost more than they save
PART = 1 << 13  # elements of a part at least
REGISTERS_BESIDES = 24  # addresses, guards and temporaries
MOST_BLOCKS = 16  # blocks per SM that launch bounds ask for
BELOW, ROW_LANES = 8, 32  # columns: elements that a thread takes below each other, its neighbours
COLUMN_THREADS = 512
COLUMN_PART = 64  # elements of a part of a column at least

# ---- what decides, in words
ALONG_ROWS = Reason(
    "choose.scans.scans", "axis {axis} is scanned and contiguous: neighbouring threads walk it"
)
ALONG_COLUMNS = Reason(
    "choose.scans.scans",
    "axis {axis} is scanned and strided; most bytes are contiguous along axis {x}: neighbouring "
    "threads walk it",
)
WIDE = Reason(
    "choose.facts.KernelFacts.vector",
    "accesses contiguous along axis {axis} begin at multiples of so many elements; more than "
    "{widest} do not stay in registers",
)
BY_A_WARP = Reason(
    "choose.scans._rows", "a row of {n} elements fits a warp, up to {most} elements a lane"
)
OTHER_ROWS = Reason("choose.scans._rows", "{count} rows, {lanes} lanes each: several share a block")
BY_A_BLOCK = Reason(
    "choose.scans._rows",
    "{each} elements of a row by the threads of a block, up to {most} of them in the registers of "
    "a thread",
)
PARTS = Reason(
    "choose.scans._rows",
    "{count} rows are fewer than {sms} SMs, and {n} elements long: parts of {part}, in three "
    "kernels",
)
LINES = Reason("choose.scans._columns", "{lanes} lanes along axis {x} walk a row together")
PAIRS = Reason(
    "choose.scans._columns",
    "up to {most} bytes of neighbours a thread, fewer where blocks would not fill {sms} SMs",
)
BELOW_EACH_OTHER = Reason(
    "choose.scans._columns", "a thread takes {below} elements below each other, of {n}"
)
BELOW_THREADS = Reason(
    "choose.scans._columns",
    "the threads of a block below each other take what follows, {threads} threads at most",
)
COLUMN_PARTS = Reason(
    "choose.scans._columns",
    "{blocks} blocks leave half of {sms} SMs idle: parts of a column in three kernels",
)
BOUNDS = Reason(
    "choose.scans._ranked",
    "about {registers} registers for each of {threads} threads: so many blocks fit an SM",
)


def scans(facts: KernelFacts, aim: Aim, axis: int) -> list[Guess]:
    """Ranked Opts of a kernel that scans along `axis`."""
    others = tuple(a for a in facts.outputs if a != axis and facts.sizes[a] > 1)
    walked = facts.strides(axis)
    strided = bool(walked) and not facts.contiguous(axis)
    strided |= bool(facts.large([a for a, c in walked if not a.store and c not in (None, 0, 1)]))
    if others and strided:
        return _columns(facts, aim, axis, contiguous_axis(facts, others))
    return _rows(facts, aim, axis)


def _rows(facts: KernelFacts, aim: Aim, axis: int) -> list[Guess]:
    n, v = facts.sizes[axis], min(facts.vector(axis), WIDEST)
    kept = [a for a in facts.outputs if a != axis]
    count = math.prod(facts.sizes[a] for a in kept)
    words = max(1, facts.widest_item() // 4)
    streams = max(1, facts.streams(axis))
    most = max(v, ELEMENTS // (words * streams) // v * v)  # elements of a thread
    s = Sizes(facts)
    s.vector[axis] = v
    s.because("lanes", ALONG_ROWS, axis=axis)
    s.because("vector", WIDE, axis, axis=axis, widest=WIDEST)
    if n <= 32 * most and n <= WARP_ROW:
        s.local[axis] = min(32, pow2_at_least(-(-n // v)))
        s.upcast[axis] = -(-n // (s.local[axis] * v))
        if kept:
            last = kept[-1]
            room = max(1, min(aim.max_threads, 4 * count) // s.local[axis])
            s.local[last] = min(pow2_at_most(room), pow2_at_least(facts.sizes[last]))
            s.because("local", OTHER_ROWS, last, count=count, lanes=s.local[axis])
        for name in ("local", "upcast"):
            s.because(name, BY_A_WARP, axis, n=n, most=most)
        return _ranked(facts, aim, axis, s)
    parts = 1
    if aim.split and count < aim.target.sms and n >= WORTH_PARTS:
        parts = max(1, n // PART)  # each stays in the registers of a block
        s.blocks[axis] = parts
        s.because("blocks", PARTS, axis, count=count, sms=aim.target.sms, n=n, part=PART)
    each = -(-n // parts)
    threads = max(32, min(pow2_at_least(-(-each // most)), pow2_at_most(aim.row_threads)))
    if threads > MOST_THREADS:  # it is walked in steps
        threads, most = STEP_THREADS, max(v, most // 2 // v * v)
    s.local[axis] = threads
    s.upcast[axis] = max(1, min(-(-each // (threads * v)), most // v))
    for name in ("local", "upcast"):
        s.because(name, BY_A_BLOCK, axis, each=each, most=most)
    return _ranked(facts, aim, axis, s)


def _columns(facts: KernelFacts, aim: Aim, axis: int, x: int) -> list[Guess]:
    """x: the axis that memory is contiguous in."""
    n, size = facts.sizes[axis], facts.sizes[x]
    words = max(1, facts.widest_item() // 4)
    rest = math.prod(facts.sizes[a] for a in facts.outputs if a not in (axis, x))
    s = Sizes(facts)
    s.local[x] = min(ROW_LANES, pow2_at_least(size))
    s.vector[x] = min(facts.vector(x), max(1, 2 // words))
    while s.vector[x] > 1 and rest * -(-size // (s.local[x] * s.vector[x])) < aim.target.sms // 2:
        s.vector[x] //= 2
    s.vector[axis] = min(BELOW // words or 1, pow2_at_least(n))
    below = pow2_at_least(-(-n // s.vector[axis]))
    s.local[axis] = max(1, min(below, COLUMN_THREADS // s.local[x]))
    blocks = rest * -(-size // (s.local[x] * s.vector[x]))
    step = s.local[axis] * s.vector[axis]
    if aim.split and 2 * blocks < aim.target.sms and n >= 2 * COLUMN_PART:
        parts = max(1, min(2 * aim.target.sms // blocks, n // max(COLUMN_PART, step)))
        if parts > 1:
            s.blocks[axis] = parts
    sms = aim.target.sms
    s.because("lanes", ALONG_COLUMNS, axis=axis, x=x)
    s.because("local", LINES, x, lanes=s.local[x], x=x)
    s.because("vector", PAIRS, x, most=2 * 4, sms=sms)
    s.because("vector", BELOW_EACH_OTHER, axis, below=s.vector[axis], n=n)
    s.because("local", BELOW_THREADS, axis, threads=COLUMN_THREADS)
    s.because("blocks", COLUMN_PARTS, axis, blocks=blocks, sms=sms)
    return _ranked(facts, aim, x, s)


def _ranked(facts: KernelFacts, aim: Aim, first: int, s: Sizes) -> list[Guess]:
    """The mapping, then a plain one; launch bounds from a register estimate."""
    words = max(1, facts.widest_item() // 4)
    each = math.prod(d.get(a, 1) for d in (s.upcast, s.vector) for a in range(len(facts.axes)))
    chunks = math.prod(s.upcast.values())
    registers = REGISTERS_BESIDES + (each + chunks) * words
    threads = max(32, s.threads)
    per_sm = aim.target.registers_per_sm // (threads * registers)
    per_sm = max(1, min(per_sm, aim.target.max_threads_per_sm // threads, MOST_BLOCKS))
    lanes = order(facts, first)
    s.because("blocks_per_sm", BOUNDS, registers=registers, threads=threads)
    best = s.guess(lanes, blocks_per_sm=per_sm)
    plain = Sizes(facts)
    plain.local = {a: n for a, n in s.local.items() if n > 1}
    plain.blocks, plain.why = dict(s.blocks), s.why
    return [best, plain.guess(lanes, blocks_per_sm=0)]
