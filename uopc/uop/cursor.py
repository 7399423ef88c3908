"""Write effects in the order in which they happen.

`AFTER(x, done...)` is the only order of effects in the graph; a Cursor remembers what was done last
and puts it there.  Only for convenience: what it builds can be written node by node.

    c = Cursor()
    c.store(tile.index(t), x.index(t).load())
    c.barrier()
    with c.loop(range_(4, 1)) as k:
        c.store(y.index(4 * t + k), c.load(tile.index(63 - t)))
    kernel = c.sink()
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.uop.node import Scalar, UOp, here, memory, sink
from uopc.uop.ops import (
    ALL_LANES,
    Atomic,
    BarrierArg,
    BarrierScope,
    CopyArg,
    DescriptorArg,
    Engine,
    Fence,
    LaunchArg,
    MatrixArg,
    Ops,
    PrintArg,
    RoleArg,
    TensorMapArg,
    WaitArg,
)
from uopc.uop.text import scope_text


class Cursor:
    """One chain of effects; `done` is what the next one comes after.

    A memory that is indexed through the cursor (`c.load(m.index(i))`, `c.store(m.index(i), v)`) is
    seen in its latest version, and inside the scope that is open: `x.index(i).load()`, without the
    cursor, may be done before a `when` that guards it, and is right only where every lane may read.
    So with lanes that work together: `c.now(v).shuffle(1)` is done here, `v.shuffle(1)` anywhere.

    Roles are chains of their own: `with c.role(...)` branches off, and what follows comes after
    none of the roles, though a warp that has a role does it afterwards; they meet through
    mbarriers.  Roles are opened outside of all other scopes.
    """

    def __init__(self, *done: UOp) -> None:
        self.done: tuple[UOp, ...] = done
        self._finished: list[UOp] = []  # roles that were closed
        self._depth = 0  # of scopes that are open

    # ---- one effect
    def do(self, op: Ops, *src: UOp, arg: object = None) -> UOp:
        """Append an effect.  The memory of its first INDEX or TENSORMAP is seen after all before.

        An op without such a source takes what was done as its last sources."""
        at = next((n for n, s in enumerate(src) if s.op in (Ops.INDEX, Ops.TENSORMAP)), None)
        if at is None:
            effect = UOp(op, (*src, *self.done), arg)
        else:
            effect = UOp(op, tuple(self._now(s) for s in src), arg)
        self.done = (effect,)
        return effect

    def _now(self, u: UOp) -> UOp:
        """An INDEX or a TENSORMAP of the latest version of its memory; other values as they are."""
        if u.op not in (Ops.INDEX, Ops.TENSORMAP):
            return u
        return UOp(u.op, (self.now(memory(u.src[0])), *u.src[1:]), u.arg)

    def now(self, x: UOp) -> UOp:
        """A memory after everything done so far; a value that is evaluated here, not before."""
        return x.after(*self.done)

    def load(self, index: UOp, gate: UOp | None = None, other: Scalar | None = None) -> UOp:
        """Read an INDEX of a memory after everything done so far."""
        return self._now(index).load(gate, other)

    def store(self, index: UOp, value: Scalar, gate: UOp | None = None) -> UOp:
        v = value if isinstance(value, UOp) else UOp.const(value, index.dtype)
        return self.do(Ops.STORE, index, v, *(() if gate is None else (gate,)))

    def store_each(
        self, index: UOp, value: Scalar, ranges: Sequence[UOp], gate: UOp | None = None
    ) -> UOp:
        """A STORE for every value of the ranges, of which none sees what another one wrote."""
        self.store(index, value, gate)
        if ranges:
            self.done = (self.done[0].end(*ranges),)
        return self.done[0]

    def atomic(
        self, atomic: Atomic, index: UOp, value: Scalar, compare: Scalar | None = None
    ) -> UOp:
        """The old value."""
        old = self._now(index).atomic(atomic, value, compare)
        self.done = (old,)
        return old

    # ---- threads meet
    def barrier(self) -> UOp:
        """__syncthreads()"""
        return self.do(Ops.BARRIER)

    def syncwarp(self, members: int = ALL_LANES) -> UOp:
        return self.do(Ops.BARRIER, arg=BarrierArg(BarrierScope.WARP, members=members))

    def named_barrier(self, number: UOp, threads: int) -> UOp:
        return self.do(Ops.BARRIER, number, arg=BarrierArg(BarrierScope.NAMED, threads))

    def cluster_barrier(self) -> UOp:
        """All threads of the blocks of a cluster meet."""
        return self.do(Ops.BARRIER, arg=BarrierArg(BarrierScope.CLUSTER))

    def cluster_arrive(self) -> UOp:
        """This block has started; `cluster_wait` is to follow."""
        return self.do(Ops.BARRIER, arg=BarrierArg(BarrierScope.CLUSTER_ARRIVE))

    def cluster_wait(self) -> UOp:
        """All blocks of the cluster have started."""
        return self.do(Ops.BARRIER, arg=BarrierArg(BarrierScope.CLUSTER_WAIT))

    def send(self, to: UOp, value: UOp, mbarrier: UOp, gate: UOp | None = None) -> UOp:
        """A value into CLUSTER memory; the mbarrier of the block that holds it counts its bytes."""
        more = () if gate is None else (gate,)
        return self.do(Ops.COPY, to, value, mbarrier, *more, arg=CopyArg(Engine.CLUSTER))

    # ---- asynchronous work
    def copy_async(self, to: UOp, source: UOp, width: int = 1, gate: UOp | None = None) -> UOp:
        """cp.async of `width` elements; zeros where the gate is false."""
        more = () if gate is None else (gate,)
        return self.do(Ops.COPY, to, source, *more, arg=CopyArg(Engine.CP_ASYNC, width))

    def bulk_load(self, to: UOp, tensor_map: UOp, mbarrier: UOp, *coordinates: UOp) -> UOp:
        """The map's box at these coordinates into SHARED memory; its bytes count at mbarrier."""
        return self.do(Ops.COPY, to, tensor_map, mbarrier, *coordinates, arg=CopyArg(Engine.BULK))

    def bulk_store(self, tensor_map: UOp, source: UOp, *coordinates: UOp) -> UOp:
        return self.do(Ops.COPY, tensor_map, source, *coordinates, arg=CopyArg(Engine.BULK))

    def commit(self, engine: Engine) -> UOp:
        return self.do(Ops.COMMIT, arg=engine)

    def wait_group(self, engine: Engine, pending: int = 0, *covers: UOp, read: bool = False) -> UOp:
        """covers: accumulators that WGMMA has worked on."""
        return self.do(Ops.WAITG, *map(self.now, covers), arg=WaitArg(engine, pending, read))

    def fence(self, fence: Fence, *covers: UOp) -> UOp:
        """covers: accumulators that the next WGMMA works on."""
        return self.do(Ops.FENCE, *map(self.now, covers), arg=fence)

    def init(self, mbarrier: UOp, count: Scalar) -> UOp:
        return self.do(Ops.MBAR_INIT, mbarrier, _index(count))

    def arrive(self, mbarrier: UOp, expect_bytes: Scalar | None = None) -> UOp:
        more = () if expect_bytes is None else (_index(expect_bytes),)
        return self.do(Ops.ARRIVE, mbarrier, *more)

    def wait(self, mbarrier: UOp, parity: Scalar) -> UOp:
        return self.do(Ops.WAIT, mbarrier, _index(parity))

    # ---- tensor cores
    def ldmatrix(self, to: UOp, source: UOp, tiles: int = 4, transposed: bool = False) -> UOp:
        return self.do(Ops.LDMATRIX, to, source, arg=MatrixArg(tiles, transposed))

    def stmatrix(self, to: UOp, source: UOp, tiles: int = 4, transposed: bool = False) -> UOp:
        return self.do(Ops.STMATRIX, to, source, arg=MatrixArg(tiles, transposed))

    def descriptor(self, index: UOp, arg: DescriptorArg) -> UOp:
        """Where a wgmma operand lies, after everything done so far."""
        return UOp(Ops.DESCRIPTOR, (self._now(index),), arg)

    def mma(self, atom: str, accumulator: UOp, a: UOp, b: UOp, keep: UOp | None = None) -> UOp:
        """keep (bool): add to the accumulator, or start from zero (wgmma only)."""
        return self.do(Ops.MMA, accumulator, a, b, *(() if keep is None else (keep,)), arg=atom)

    # ---- for people
    def printf(self, text: str, *values: UOp) -> UOp:
        """A line for each active thread: `text` with {} for each of the values."""
        if text.count("{}") != len(values):
            raise UsageError(
                f"printf at {here()}: {text!r} shows {text.count('{}')} values, got {len(values)}"
            )
        return self.do(Ops.PRINTF, *values, arg=PrintArg(text))

    def check(self, condition: UOp, message: str) -> UOp:
        """Stop the kernel with this message where the condition does not hold."""
        return self.do(Ops.ASSERT, condition, arg=message)

    # ---- scopes
    @contextmanager
    def loop(self, *ranges: UOp) -> Iterator[UOp]:
        """Everything inside, for every value of the ranges, outermost first; gives the last."""
        if not ranges:
            raise UsageError(f"loop at {here()}: it wants one range or more")
        self._depth += 1
        self.done = (*self.done, *ranges)
        yield ranges[-1]
        self._close(*ranges)

    @contextmanager
    def when(self, condition: UOp) -> Iterator[UOp]:
        """Everything inside where the condition holds."""
        opened = UOp(Ops.IF, (condition, *self.done))
        self._depth += 1
        self.done = (opened,)
        yield opened
        self._close(opened)

    @contextmanager
    def role(
        self, name: str, first: int, warps: int, registers: int = 0, grow: bool = False
    ) -> Iterator[UOp]:
        """A chain of its own for some warps of the block."""
        if self._depth:
            raise UsageError(
                f"role {name} at {here()}: it is opened inside another scope. Open roles outside, "
                "and put loops and conditions into each"
            )
        self._depth += 1
        before = self.done
        opened = UOp(Ops.ROLE, before, RoleArg(name, first, warps, registers, grow))
        self.done = (opened,)
        yield opened
        self._close(opened)
        self._finished += self.done
        self.done = before

    def _close(self, *scopes: UOp) -> None:
        self._depth -= 1
        if len(self.done) != 1 or self.done[0] in scopes:
            names = ", ".join(scope_text(s) for s in scopes)
            raise UsageError(f"nothing is done inside {names}: a scope holds an effect or more")
        self.done = (self.done[0].end(*scopes),)

    def sink(self, launch: LaunchArg | None = None) -> UOp:
        """The kernel."""
        if self._depth:
            raise UsageError(f"sink at {here()}: a scope is still open; leave its `with` first")
        before = {u for end in self._finished for u in end.toposort()}
        ends = (*self._finished, *(u for u in self.done if u not in before))
        if not ends:
            raise UsageError(f"sink at {here()}: a kernel without any effect")
        return sink(*ends, launch=launch)


def tensor_map(
    buffer: UOp,
    box: tuple[int, ...],
    swizzle: int = 0,
    shape: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> UOp:
    """How bulk copies see a parameter: its own shape, row-major, unless told otherwise."""
    shape = memory(buffer).arg.shape if shape is None else shape
    if strides is None:
        row_major, n = [], 1
        for size in reversed(shape[1:]):
            n *= size
            row_major.append(n)
        strides = tuple(reversed(row_major))
    return UOp(Ops.TENSORMAP, (buffer,), TensorMapArg(shape, strides, box, swizzle))


def _index(x: Scalar) -> UOp:
    return x if isinstance(x, UOp) else UOp.const(x, dtypes.index)
