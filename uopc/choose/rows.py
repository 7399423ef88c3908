"""Opts for kernels that reduce a contiguous axis: a row a warp, a row a block, parts of a row."""

from __future__ import annotations

import math

from uopc.choose.facts import KernelFacts, pow2_at_least, pow2_at_most
from uopc.choose.sizes import Aim, Sizes, order
from uopc.opts import Opts
from uopc.uop.ops import Combine

REGISTERS_BESIDES = 24  # addresses, guards and temporaries of a kernel that holds nothing
REGISTERS_EARLY = 16  # the same, while loads that were issued early are awaited
SHARED_BESIDES = 1 << 10  # bytes of the warps' partial results, beside a row

FULL = 1.125  # times a row's length that its threads may hold before fewer of them are better
MOST_BLOCKS = 16  # blocks per SM that launch bounds ask for: every target has room for them


def rows(facts: KernelFacts, aim: Aim, axis: int) -> list[Opts]:
    """One row is reduced along a contiguous axis, by a warp or by the lanes of a block."""
    n, v = facts.sizes[axis], facts.vector(axis)
    kept = [a for a in facts.outputs if a != axis]
    count = math.prod(facts.sizes[a] for a in kept)
    held, streams = facts.held(axis), max(1, facts.streams(axis))
    last = kept[-1] if kept else None
    out: list[Opts] = []
    # elements of a thread: 16, or 32 where each exchange is dear (argmax), or one vector at least
    wide = max(1, (32 if _indices(facts) else 16) // v) * v
    if n <= 32 * v:
        s = Sizes(facts)
        s.vector[axis], s.local[axis] = v, pow2_at_least(-(-n // v))
        if last is not None:
            s.local[last] = max(
                1, min(aim.max_threads // s.local[axis], pow2_at_least(facts.sizes[last]))
            )
            room = count // (aim.blocks * s.threads // s.local[axis])
            s.upcast[last] = pow2_at_most(max(1, min(4, max(1, 16 // v), room, facts.sizes[last])))
        out.append(_finish(facts, aim, s, axis, held, streams))
        return out
    local = max(32, pow2_at_least(-(-n // wide)))
    words = max(1, facts.widest_item() // 4)
    if local > 512:
        local = 1024 if n * words <= 32768 else 512
    local = min(local, pow2_at_most(aim.row_threads))
    if local > 32 and _padded(n, local * v) > FULL * n and 3 * wide // 2 * local // 2 >= n:
        local //= 2  # half as many threads waste less
    copies = -(-n // (local * v))
    carried = copies * v * words * streams  # registers of a row that stays
    fits = carried <= 96 and local * (REGISTERS_EARLY + carried) <= aim.target.registers_per_sm
    if fits and (held or copies * v <= wide):  # the row stays in registers: read once, written once
        s = Sizes(facts)
        s.local[axis], s.upcast[axis], s.vector[axis] = local, copies, v
        _more_rows(facts, aim, s, axis, last, local)
        out.append(_finish(facts, aim, s, axis, held, streams))
    threads = (
        min(aim.max_threads, pow2_at_least(-(-n // v)))
        if not held
        else min(pow2_at_most(aim.row_threads) // words, pow2_at_least(-(-n // wide)))
    )
    s = Sizes(facts)
    s.local[axis], s.vector[axis] = threads, v
    spare = aim.target.registers_per_sm // threads - REGISTERS_BESIDES
    most = pow2_at_most(max(1, spare // ((streams + _indices(facts)) * v * words)))
    s.upcast[axis] = max(1, min(4 if v > 1 else 8, most, -(-n // (threads * v))))
    parts = 1
    if aim.split and not held and count < aim.blocks and n > 65536:
        parts = max(1, min(4 * aim.target.sms // count, -(-n // 8192)))
        s.blocks[axis] = parts
    s.serial({axis: parts})
    step = threads * v * s.upcast[axis]
    room = min(200_000, aim.target.shared_optin_bytes - SHARED_BESIDES)
    keep = "shared" if held and _padded(n, step) * facts.widest_item() * streams <= room else "reg"
    out.append(_finish(facts, aim, s, axis, held, streams, keep))
    small = Sizes(facts)
    small.local[axis], small.vector[axis] = min(256, threads), 1
    small.serial()
    out.append(small.opts((axis, *order(facts, axis)[1:]), blocks_per_sm=2))
    return out


def _padded(n: int, step: int) -> int:
    """n, up to whole steps."""
    return -(-n // step) * step


def _more_rows(
    facts: KernelFacts, aim: Aim, s: Sizes, axis: int, last: int | None, local: int
) -> None:
    """Rows that fit one warp share a block; longer ones do not: the barrier would couple them."""
    if last is not None and local <= 32:
        s.local[last] = max(1, min(aim.max_threads // local, pow2_at_least(facts.sizes[last])))


def _finish(
    facts: KernelFacts, aim: Aim, s: Sizes, axis: int, held: bool, streams: int, keep: str = "reg"
) -> Opts:
    """Launch bounds from a register estimate: what is held at once, and addresses."""
    elements = math.prod(d.get(a, 1) for d in (s.upcast, s.vector) for a in range(len(facts.axes)))
    arrays = streams + held if streams * elements <= 64 else 2
    arrays += _indices(facts)
    words = max(1, facts.widest_item() // 4)
    registers = REGISTERS_BESIDES + arrays * elements * words
    per_sm = aim.target.registers_per_sm // (max(32, s.threads) * registers)
    per_sm = max(1, min(per_sm, aim.target.max_threads_per_sm // max(32, s.threads), MOST_BLOCKS))
    lanes = (axis, *(a for a in reversed(facts.outputs) if a != axis))
    flying = s.threads * (REGISTERS_EARLY + streams * elements * words)
    early = streams * elements <= 64 and flying <= aim.target.registers_per_sm
    return s.opts(lanes, blocks_per_sm=per_sm, keep=keep, early=early)


def _indices(facts: KernelFacts) -> int:
    """1 where a reduction carries an index beside each value, else 0."""
    return int(any(u.arg.combine in (Combine.ARGMAX, Combine.ARGMIN) for u in facts.reduces))
