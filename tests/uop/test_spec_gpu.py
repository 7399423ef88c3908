"""Every rule of warps, roles, copies, mbarriers and tensor cores: one kernel that breaks it."""

from __future__ import annotations

import pytest

from uopc.dtype import AddrSpace, DType, dtypes
from uopc.errors import SpecError
from uopc.uop.cursor import Cursor, tensor_map
from uopc.uop.node import UOp, buffer, range_, sink
from uopc.uop.ops import (
    Atomic,
    AxisType,
    BarrierArg,
    BarrierScope,
    Combine,
    CopyArg,
    DescriptorArg,
    Engine,
    Fence,
    MatrixArg,
    Ops,
    ParamArg,
    PrintArg,
    RoleArg,
    ShuffleArg,
    ShuffleMode,
    Vote,
    VoteArg,
    WaitArg,
    WarpReduceArg,
)
from uopc.uop.spec import check
from uopc.uop.spec_gpu import GPU_RULES
from uopc.uop.stages import ARGS, Stage

F32, BF16, F16, I32, U32, U64 = (
    *(dtypes.f32, dtypes.bf16, dtypes.f16, dtypes.i32, dtypes.u32, dtypes.u64),
)
REG, SHARED, MBARRIER = AddrSpace.REG, AddrSpace.SHARED, AddrSpace.MBARRIER
X, Y, Z = buffer(0, F32, (64, 64)), buffer(1, F32, (64, 64)), buffer(2, BF16, (128, 64))
COUNTS = buffer(3, I32, (64,))
LANE, WARP = range_(32, 1, AxisType.LANE), range_(4, 0, AxisType.WARP)


def alloc(space: AddrSpace, dtype: DType, size: int, slot: int = 0, name: str = "") -> UOp:
    return UOp(Ops.ALLOC, (), ParamArg(slot, dtype, (size,), space, name))


TILE, FULL = alloc(SHARED, F32, 512), alloc(MBARRIER, U64, 2, name="full")
A16, B16 = alloc(SHARED, BF16, 64 * 64, 1), alloc(SHARED, BF16, 64 * 64, 2)
ACC, AREG, BREG = alloc(REG, F32, 64, 0), alloc(REG, U32, 4, 1), alloc(REG, U32, 2, 2)


def idx(n: int) -> UOp:
    return UOp.const(n, dtypes.index)


def started(c: Cursor) -> None:
    """Four warps, an mbarrier that is initialised."""
    with c.when((LANE < 1) & (WARP < 1)):
        c.init(FULL.index(0), 1)
        c.fence(Fence.MBAR_INIT)
    c.barrier()


def finish(c: Cursor) -> UOp:
    c.store(Y.index(WARP * 32 + LANE), 1.0)
    return c.sink()


def assert_fault(kernel: UOp, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        check(kernel, Stage.LOOPS, gpu=True)


# ---- what is right
def everything(c: Cursor) -> None:
    """Every op of the vocabulary, once and right."""
    started(c)
    view = tensor_map(X, (8, 32), swizzle=128)
    with c.when((LANE < 1) & (WARP < 1)):
        c.arrive(FULL.index(0), 8 * 32 * 4)
        c.bulk_load(TILE.index(0), view, FULL.index(0), idx(0), idx(32))
    c.wait(FULL.index(0), 0)
    v = c.load(TILE.index(LANE))
    some = v.shuffle(1, ShuffleMode.UP) + v.shuffle(mode=ShuffleMode.INDEX, lane=idx(0))
    with c.when((v < some).vote(Vote.ANY)):
        c.atomic(Atomic.CAS, COUNTS.index(LANE), 1, 2)
        c.printf("{} of {}", v, LANE)
    total = c.load(COUNTS.index(LANE)).warp_reduce(Combine.MAX)
    c.check(total < 100, "too many")
    c.syncwarp()
    c.named_barrier(idx(3), 128)
    c.copy_async(TILE.index(LANE * 4 + WARP * 128), X.index(LANE * 4), 4, LANE < 30)
    c.commit(Engine.CP_ASYNC)
    c.wait_group(Engine.CP_ASYNC)
    c.fence(Fence.PROXY_ASYNC)
    with c.when((LANE < 1) & (WARP < 1)):
        c.bulk_store(tensor_map(Y, (8, 32)), TILE.index(256), idx(0), idx(0))
        c.commit(Engine.BULK)
        c.wait_group(Engine.BULK, 0, read=True)
    c.ldmatrix(AREG.index(0), A16.index(LANE * 8))
    c.ldmatrix(BREG.index(0), B16.index(LANE % 16 * 8), tiles=2, transposed=True)
    c.mma("mma.m16n8k16.bf16", ACC.index(0), AREG.index(0), BREG.index(0))
    c.stmatrix(A16.index(LANE * 8), AREG.index(0))
    a = c.descriptor(A16.index(0), DescriptorArg(16, 1024, 128))
    b = c.descriptor(B16.index(0), DescriptorArg(16, 1024, 128, transposed=True))
    c.fence(Fence.WGMMA, ACC)
    c.mma("wgmma.m64n64k16.bf16", ACC.index(0), a + 2, b, UOp.const(True))
    c.commit(Engine.WGMMA)
    c.wait_group(Engine.WGMMA, 0, ACC)


def test_what_is_right() -> None:
    c = Cursor()
    everything(c)
    kernel = finish(c)
    check(kernel, Stage.LOOPS, gpu=True)
    used = {u.op for u in kernel.toposort()}
    assert set(GPU_RULES) - used == {Ops.ROLE}
    with pytest.raises(SpecError, match="native C has"):
        check(kernel, Stage.LOOPS, gpu=False)


def test_roles_and_conditions_are_right() -> None:
    c = Cursor()
    started(c)
    with c.role("producer", 0, 1), c.when(LANE < 1):
        c.arrive(FULL.index(0))
    with c.role("consumer", 1, 3):
        c.wait(FULL.index(0), 0)
        with c.loop(range_(2, 2), range_(3, 3)) as k, c.when(k < LANE):
            c.barrier()  # diverges: the checked emulator's to say
            c.store(Y.index(k), 1.0)
    kernel = c.sink()
    check(kernel, Stage.LOOPS, gpu=True)
    i = range_(4, 2)
    inside = UOp(Ops.IF, (i < 2,))
    both = Y.after(inside, i).index(i).store(1.0).end(i, inside)
    check(sink(both), Stage.LOOPS)
    check(sink(both), Stage.LOOPS, gpu=False)


# ---- one node that is wrong
DESCRIBED = UOp(Ops.DESCRIPTOR, (A16.index(0),), DescriptorArg(16, 1024, 128))
OTHER = UOp(Ops.DESCRIPTOR, (B16.index(0),), DescriptorArg(32, 1024, 128))
VALUE = X.index(LANE).load()
MAP = tensor_map(X, (8, 32))
WGMMA, MMA = "wgmma.m64n64k16.bf16", "mma.m16n8k16.bf16"
CP = CopyArg(Engine.CP_ASYNC, 4)
BULK = CopyArg(Engine.BULK)
HALF = alloc(REG, BF16, 8, 7)
F8 = alloc(SHARED, dtypes.f8e4m3, 4096, 5)
NODES: list[tuple[Ops, tuple[UOp, ...], object, str]] = [
    # records
    (Ops.COPY, (TILE.index(0), X.index(0)), None, "its arg is CopyArg, got None"),
    (Ops.FENCE, (), Engine.BULK, "its arg is Fence, got BULK"),
    (Ops.COMMIT, (), None, "its arg is Engine, got None"),
    (Ops.MMA, (ACC.index(0), AREG.index(0), BREG.index(0)), None, "its arg is str"),
    (Ops.BARRIER, (), 3, "its arg is BarrierArg or None, got 3"),
    (Ops.ASSERT, (LANE < 1,), None, "its arg is str"),
    (Ops.IF, (LANE < 1,), 1, "its arg is None, got 1"),
    # warps
    (Ops.BARRIER, (VALUE,), None, "source 0 is a value"),
    (Ops.BARRIER, (), BarrierArg(BarrierScope.WARP, members=0), "members has a bit"),
    (Ops.BARRIER, (), BarrierArg(BarrierScope.WARP, members=1 << 32), "0x100000000 has not"),
    (Ops.BARRIER, (), BarrierArg(BarrierScope.NAMED, 64), "its number .index. as source 0"),
    (Ops.BARRIER, (idx(0),), BarrierArg(BarrierScope.NAMED, 64), "1 to 15, this is 0; 0 is the"),
    (Ops.BARRIER, (LANE,), BarrierArg(BarrierScope.NAMED, 64), "1 to 15, this is 0 to 31"),
    (Ops.BARRIER, (idx(1),), BarrierArg(BarrierScope.NAMED, 48), "48 threads are none"),
    (Ops.BARRIER, (idx(1),), BarrierArg(BarrierScope.NAMED, 160), "160 threads, the block has 128"),
    (Ops.ROLE, (), RoleArg("r", -1, 1), "at least one warp, these are 1 from -1"),
    (Ops.ROLE, (), RoleArg("r", 0, 0), "at least one warp, these are 0 from 0"),
    (Ops.ROLE, (), RoleArg("r", 0, 1, 24), "whole warpgroups, not for 1 warps from 0"),
    (Ops.ROLE, (), RoleArg("r", 0, 4, 36), "multiples of 8 from 24 to 256 registers, not 36"),
    (Ops.ROLE, (), RoleArg("r", 0, 4, 264), "from 24 to 256 registers, not 264"),
    (Ops.ROLE, (), RoleArg("r", 0, 4, 0, grow=True), "give registers too"),
    # memory
    (Ops.STORE, (FULL.index(0), UOp.const(1, U64)), None, "an mbarrier is no memory"),
    (Ops.COPY, (X.index(0), TILE.index(0)), CP, "from GLOBAL to SHARED"),
    (Ops.COPY, (A16.index(0), X.index(0)), CP, "copies f32 into memory of bf16"),
    (Ops.COPY, (TILE.index(0), X.index(0)), CopyArg(Engine.CP_ASYNC, 3), "4, 8 or 16 bytes"),
    (Ops.COPY, (TILE.index(0), X.index(0), LANE), CP, "at most a gate"),
    (Ops.COPY, (TILE.index(0), X.index(0)), CopyArg(Engine.WGMMA), "BULK or CLUSTER, not WGMMA"),
    (Ops.COPY, (TILE.index(0), MAP, idx(0), idx(0)), BULK, "counts its bytes at an mbarrier"),
    (Ops.COPY, (TILE.index(0), X.index(0), idx(0)), BULK, "between a TENSORMAP and SHARED"),
    (Ops.COPY, (MAP, X.index(0), idx(0), idx(0)), BULK, "between a TENSORMAP and SHARED"),
    (Ops.COPY, (MAP, TILE.index(0), idx(0)), BULK, "wants 2 coordinates .index., got 1"),
    (Ops.COPY, (MAP, A16.index(0), idx(0), idx(0)), BULK, "the tile is bf16, the map f32"),
    (Ops.COPY, (MAP, TILE.index(0), idx(0), idx(2)), BULK, "8 bytes into a row; .* of 16"),
    (Ops.COPY, (MAP, TILE.index(384), idx(0), idx(0)), BULK, "box has 256 .* 512, from 384 on"),
    (Ops.COPY, (MAP, TILE.index(0), idx(0), idx(0)), CopyArg(Engine.BULK, 4), "width is 1, not 4"),
    (Ops.COPY, (UOp(Ops.TENSORMAP, (TILE,), MAP.arg), TILE.index(0)), BULK, "views a parameter"),
    # asynchronous work
    (Ops.WAITG, (), WaitArg(Engine.CP_ASYNC, -1), "0 or more, not -1"),
    (Ops.WAITG, (), WaitArg(Engine.CP_ASYNC, 0, True), "BULK stores.* not for CP_ASYNC"),
    (Ops.WAITG, (ACC,), WaitArg(Engine.CP_ASYNC), "names memory of REG"),
    (Ops.FENCE, (TILE,), Fence.WGMMA, "names memory of SHARED"),
    (Ops.COMMIT, (ACC,), Engine.BULK, "only what is for WGMMA names accumulators"),
    (Ops.MBAR_INIT, (TILE.index(0), idx(1)), None, "the INDEX of an mbarrier"),
    (Ops.MBAR_INIT, (FULL.index(0), idx(0)), None, "count of arrivals is 1 to 1048575, this is 0"),
    (Ops.MBAR_INIT, (FULL.index(0), UOp.const(1.0)), None, "is an integer, got f32"),
    (Ops.ARRIVE, (X.index(0),), None, "the INDEX of an mbarrier"),
    (Ops.ARRIVE, (FULL.index(0), idx(1 << 20)), None, "number of bytes is 0 to 1048575"),
    (Ops.WAIT, (FULL.index(0), idx(2)), None, "parity is 0 to 1, this is 2"),
    (Ops.WAIT, (FULL.index(0), LANE), None, "parity is 0 to 1, this is 0 to 31"),
    # tensor cores
    (Ops.LDMATRIX, (AREG.index(0), A16.index(0)), MatrixArg(3), "1, 2 or 4 tiles, not 3"),
    (Ops.LDMATRIX, (AREG.index(0), ACC.index(0)), MatrixArg(4), "16 bytes in SHARED memory"),
    (Ops.LDMATRIX, (AREG.index(0), TILE.index(0)), MatrixArg(4, True), "f32 are not transposed"),
    (Ops.LDMATRIX, (ACC.index(0), A16.index(0)), MatrixArg(4), "4 registers of u32 .*is f32"),
    (Ops.LDMATRIX, (AREG.index(1), A16.index(0)), MatrixArg(4), "from 1 on the memory, of 4,"),
    (Ops.LDMATRIX, (A16.index(0), A16.index(0)), MatrixArg(4), "INDEX of REG memory"),
    (Ops.STMATRIX, (A16.index(0), BREG.index(0)), MatrixArg(4), "of 2, has not so many"),
    (Ops.MMA, (ACC.index(0), AREG.index(0), BREG.index(0)), "mma.m16n8k17.bf16", "no atom"),
    (Ops.MMA, (ACC.index(61), AREG.index(0), BREG.index(0)), MMA, "accumulator .* of 64, has not"),
    (Ops.MMA, (AREG.index(0), AREG.index(0), BREG.index(0)), MMA, "4 registers of f32.*is u32"),
    (Ops.MMA, (ACC.index(0), BREG.index(0), BREG.index(0)), MMA, "operand a .* of 2, has not"),
    (Ops.MMA, (ACC.index(0), AREG.index(0), ACC.index(0)), MMA, "operand b .* the memory is f32"),
    (Ops.MMA, (ACC.index(0), HALF.index(0), BREG.index(0)), MMA, "several elements in each"),
    (Ops.MMA, (ACC.index(0), DESCRIBED, BREG.index(0)), MMA, "an INDEX of REG memory on; got DESC"),
    (
        Ops.MMA,
        (ACC.index(0), AREG.index(0), BREG.index(0), LANE < 1),
        MMA,
        "always adds to its accumulator",
    ),
    (Ops.MMA, (ACC.index(0), DESCRIBED, BREG.index(0)), WGMMA, "is a DESCRIPTOR .*got INDEX"),
    (Ops.MMA, (ACC.index(0), DESCRIBED, UOp.const(1, U64)), WGMMA, "made from one DESCRIPTOR"),
    (
        Ops.MMA,
        (ACC.index(0), DESCRIBED, (LANE < 1).where(DESCRIBED, OTHER)),
        WGMMA,
        "operand b .* one DESCRIPTOR by adding to it, got WHERE",
    ),
    (Ops.MMA, (ACC.index(0), DESCRIBED, DESCRIBED, LANE), WGMMA, "keep is bool, got index"),
    (Ops.MMA, (ACC.index(0), DESCRIBED, DESCRIBED), "wgmma.m64n64k16.f16", "is f16, .*bf16"),
    (
        Ops.MMA,
        (
            ACC.index(0),
            *(
                UOp(Ops.DESCRIPTOR, (F8.index(0),), DescriptorArg(16, 1024, 128, t))
                for t in (False, True)
            ),
        ),
        "wgmma.m64n64k32.f8e4m3",
        "cannot be transposed in SHARED memory",
    ),
    (
        Ops.MMA,
        (alloc(REG, F32, 4, 9).index(0), DESCRIBED, DESCRIBED),
        WGMMA,
        "32 registers of f32, and from 0 on the memory, of 4",
    ),
    # for people
    (Ops.PRINTF, (VALUE, VALUE), PrintArg("{}"), "shows 1 values, LOAD is one more"),
    (Ops.PRINTF, (VALUE,), PrintArg("{:d} {}"), "a brace that is no {}"),
]


@pytest.mark.parametrize(("op", "src", "arg", "why"), NODES)
def test_one_node(op: Ops, src: tuple[UOp, ...], arg: object, why: str) -> None:
    c = Cursor()
    started(c)
    made = c.do(op, *src, arg=arg)
    if op in (Ops.ROLE, Ops.IF):
        made = Y.after(made).index(0).store(1.0).end(made)
    c.done = (made,)
    assert_fault(finish(c), why)


VALUES: list[tuple[UOp, str]] = [
    (UOp(Ops.SHUFFLE, (VALUE,), ShuffleArg(0)), "XOR goes 1 to 31 lanes away, not 0"),
    (UOp(Ops.SHUFFLE, (VALUE,), ShuffleArg(32, ShuffleMode.UP)), "UP goes 1 to 31"),
    (UOp(Ops.SHUFFLE, (VALUE, LANE), ShuffleArg(1, ShuffleMode.INDEX)), "by is 0, not 1"),
    (VALUE.shuffle(1, members=0), "at least one, 0x0 has not"),
    (UOp(Ops.VOTE, (LANE < 1,), VoteArg(Vote.ANY, 0)).where(VALUE, 0.0), "VOTE .*0x0 has not"),
    (
        UOp(Ops.WARP_REDUCE, (COUNTS.index(0).load(),), WarpReduceArg(Combine.ADD, -1)).cast(F32),
        "WARP_REDUCE .*-0x1 has not",
    ),
    (alloc(REG, I32, 1).index(0).atomic(Atomic.ADD, 1).cast(F32), "atomics are .*not for REG"),
    (FULL.index(0).atomic(Atomic.ADD, 1).cast(F32), "atomics are .*not for MBARRIER"),
    (FULL.index(0).load().cast(F32), "LOAD .*an mbarrier is no memory"),
    (UOp(Ops.DESCRIPTOR, (X.index(0),), DescriptorArg(16, 16)).cast(F32), "describes SHARED"),
    (UOp(Ops.DESCRIPTOR, (TILE.index(0),), DescriptorArg(8, 16)).cast(F32), "leading is 8 bytes"),
    (UOp(Ops.DESCRIPTOR, (TILE.index(0),), DescriptorArg(16, 16, 48)).cast(F32), "swizzle is 48"),
]


@pytest.mark.parametrize(("value", "why"), VALUES)
def test_one_value(value: UOp, why: str) -> None:
    c = Cursor()
    c.store(Y.index(WARP * 32 + LANE), value)
    assert_fault(c.sink(), why)


@pytest.mark.parametrize(
    ("shape", "strides", "box", "swizzle", "why"),
    [
        ((64, 64), (64, 1), (8, 32), 0, "wants 1 strides"),
        ((64, 64), (64,), (8,), 0, "a box of 2 sizes"),
        ((64, 64), (65,), (8, 32), 0, "stride of 260 bytes"),
        ((64, 64), (64,), (8, 257), 0, "257 elements along axis 1"),
        ((64, 64), (64,), (8, 2), 0, "rows have 8 bytes"),
        ((64, 64), (64,), (8, 64), 128, "a 128-byte swizzle takes 128"),
        ((65, 64), (64,), (8, 32), 0, "number 4159 of the parameter, which has 4096"),
    ],
)
def test_tensor_maps(
    shape: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...], swizzle: int, why: str
) -> None:
    view = tensor_map(X, box, swizzle, shape, strides)
    c = Cursor()
    c.bulk_store(view, TILE.index(0), idx(0), idx(0))
    assert_fault(finish(c), f"TENSORMAP .*{why}")


# ---- kernels that are wrong as a whole
def of_threads(*ranges: tuple[int, AxisType]) -> UOp:
    index = idx(0)
    for axis, (size, kind) in enumerate(ranges):
        index = index * size + range_(size, axis, kind)
    return sink(buffer(0, F32, (1 << 12,)).index(index).store(1.0))


K = AxisType


@pytest.mark.parametrize(
    ("ranges", "why"),
    [
        ([(16, K.LANE)], "RANGE .*count the 32 lanes of a warp, these count 16"),
        ([(4, K.WARP)], "WARP range counts warps of 32 lanes, the kernel has no LANE range below"),
        ([(4, K.WARP), (48, K.LOCAL)], "no LANE range below"),
        ([(4, K.LOCAL), (32, K.LANE)], "4 threads of LOCAL ranges are neighbours"),
        ([(2, K.WARPGROUP), (3, K.WARP), (32, K.LANE)], "a warpgroup has 4 warps, .* count 3"),
        ([(2, K.WARPGROUP), (32, K.LANE)], "counts 128 threads each, below it are 32"),
    ],
)
def test_threads(ranges: list[tuple[int, AxisType]], why: str) -> None:
    assert_fault(of_threads(*ranges), why)


@pytest.mark.parametrize(
    "ranges",
    [
        [(32, K.LANE)],
        [(4, K.WARP), (32, K.LANE)],
        [(4, K.WARP), (4, K.LANE), (8, K.LANE)],
        [(2, K.WARPGROUP), (4, K.WARP), (32, K.LANE)],
        [(2, K.WARPGROUP), (128, K.LOCAL)],
        [(4, K.WARP), (32, K.LOCAL)],
        [(48, K.LOCAL)],
        [(3, K.GLOBAL), (2, K.WARPGROUP), (2, K.WARP), (2, K.WARP), (32, K.LANE)],
    ],
)
def test_threads_that_are_right(ranges: list[tuple[int, AxisType]]) -> None:
    check(of_threads(*ranges), Stage.LOOPS, gpu=True)


def test_what_whole_warps_do() -> None:
    few = range_(48, 0, K.LOCAL)
    c = Cursor()
    c.ldmatrix(AREG.index(0), A16.index(few * 8))
    assert_fault(c.sink(), "LDMATRIX .*whole warps do this, the block has 48 threads")
    c = Cursor()
    with c.role("a", 0, 1):
        c.store(Y.index(few), 1.0)
    assert_fault(c.sink(), "ROLE .*the block has 48 threads")
    c = Cursor()
    two = range_(64, 0, K.LOCAL)
    c.store(Y.index(two), 0.0)
    c.mma(WGMMA, ACC.index(0), DESCRIBED, DESCRIBED)
    assert_fault(c.sink(), "wgmma.* is for whole warpgroups, the block has 64 threads")


def roles(first: int = 0, warps: int = 1) -> tuple[Cursor, UOp]:
    c = Cursor()
    c.store(Y.index(WARP * 32 + LANE), 1.0)
    return c, UOp(Ops.ROLE, c.done, RoleArg("late", first, warps))


def test_roles() -> None:
    c, role = roles(2, 3)
    assert_fault(sink(Y.after(role).index(0).store(2.0).end(role)), "warps 2 to 4, the block has 4")
    c, outer = roles()
    inner = UOp(Ops.ROLE, (outer,), RoleArg("inner", 0, 1))
    nested = Y.after(inner).index(0).store(2.0).end(inner).end(outer)
    assert_fault(sink(nested), "inner is opened inside the role late: roles do not nest")
    c = Cursor()
    c.store(Y.index(WARP * 32 + LANE), 1.0)
    with c.role("half", 0, 2):
        c.mma(WGMMA, ACC.index(0), DESCRIBED, DESCRIBED)
    assert_fault(c.sink(), "for whole warpgroups, the role half has 2 warps from 0")


def test_registers_belong_to_their_role() -> None:
    reg = alloc(REG, F32, 1, name="kept")

    def kernel(before: bool, own: bool) -> UOp:
        c = Cursor()
        c.store(Y.index(WARP * 32 + LANE), 0.0)
        if before:
            c.store(reg.index(0), 0.0)
        with c.role("one", 0, 1):
            c.store(reg.index(0), 1.0)
        with c.role("two", 1, 1):
            if own:
                c.store(reg.index(0), 2.0)
            c.store(Y.index(LANE), c.load(reg.index(0)))
        return c.sink()

    check(kernel(True, False), Stage.LOOPS)
    check(kernel(False, True), Stage.LOOPS)
    assert_fault(kernel(False, False), "kept0 is written in the role one and read in the role two")


def test_scopes() -> None:
    inside = UOp(Ops.IF, (LANE < 1,))
    assert_fault(
        sink(Y.index(LANE).store(1.0).end(inside)),
        r"END .*nothing that it does is inside the IF at test_spec_gpu.py:\d+",
    )
    i = range_(4, 2)
    depends = UOp(Ops.IF, (i < LANE,))
    assert_fault(
        sink(Y.after(depends).index(i).store(1.0).end(depends, i)),
        r"it closes r2 inside the IF at .*, which mentions it",
    )
    check(sink(Y.after(depends).index(i).store(1.0).end(i, depends)), Stage.LOOPS)
    assert_fault(sink(Y.after(inside).index(LANE).store(1.0)), "no END closes this IF")
    left = X.after(inside).index(LANE).load()
    closed = Y.after(inside).index(LANE).store(left).end(inside)
    assert_fault(
        sink(Y.after(closed).index(0).store(left)),
        r"it mentions the IF at test_spec_gpu.py:\d+ after the END",
    )
    twice = Y.after(inside).index(LANE).store(2.0).end(inside)
    assert_fault(sink(closed, twice), "the IF at .* is closed twice")


def test_asynchronous_work_as_a_whole() -> None:
    c = Cursor()
    c.wait(FULL.index(0), 0)
    assert_fault(finish(c), "no MBAR_INIT gives full0 its count of arrivals")
    c = Cursor()
    c.arrive(FULL.index(0))
    assert_fault(finish(c), "no MBAR_INIT gives full0")
    c = Cursor()
    c.wait_group(Engine.BULK)
    assert_fault(finish(c), "groups of BULK, and no COMMIT closes one")
    c = Cursor()
    started(c)
    c.bulk_load(TILE.index(0), MAP, FULL.index(0), idx(0), idx(0))
    c.arrive(FULL.index(0))
    assert_fault(finish(c), "no ARRIVE tells full0 how many bytes to expect")


def test_a_value_of_an_effect_is_no_effect() -> None:
    old = COUNTS.index(LANE).atomic(Atomic.ADD, 1)
    assert_fault(sink(old.after(old)), "SINK .*source 0 must be an effect, is a value .AFTER")
    moved = UOp(Ops.SHUFFLE, (old,), ShuffleArg(1))
    assert_fault(sink(moved), "SINK .*source 0 must be an effect, is a value .SHUFFLE")
    check(sink(old), Stage.LOOPS, gpu=True)


def test_records_of_every_op_are_checked() -> None:
    assert set(GPU_RULES) <= set(ARGS)
