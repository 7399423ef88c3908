"""show and parse are each other's inverse, for every op, record, constant and size of graph."""

from __future__ import annotations

import gc
import pickle
import weakref
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import alloc, reduce_over
from uopc.dtype import DATA, FLOATS, SIGNED, AddrSpace, DType, dtypes
from uopc.errors import UsageError
from uopc.layouts import ATOMS, K_MAJOR, MN_MAJOR, OperandTile, SharedTile
from uopc.uop.node import UOp, alu, buffer, bundle, range_, sink
from uopc.uop.ops import (
    AccessArg,
    Atomic,
    AxisType,
    BarrierArg,
    BarrierScope,
    Combine,
    ConstArg,
    CopyArg,
    DescriptorArg,
    Engine,
    Fence,
    IotaArg,
    LaunchArg,
    MatrixArg,
    Ops,
    ParamArg,
    PrintArg,
    RangeArg,
    ReduceArg,
    RoleArg,
    ShuffleArg,
    ShuffleMode,
    StageArg,
    TensorMapArg,
    Vote,
    VoteArg,
    WaitArg,
    WarpReduceArg,
)
from uopc.uop.text import index_text, parse, show

F32 = dtypes.f32


def assert_round_trip(u: UOp) -> None:
    text = show(u)
    assert parse(text) is u, text
    assert show(parse(text)) == text


def row_sum() -> UOp:
    x, out = buffer(1, F32, (33, 1000)), buffer(0, F32, (33,))
    row, column = range_(33, 0), range_(1000, 1, AxisType.REDUCE)
    return sink(
        out.index(row).store(reduce_over(x.index(row, column).load() * 2.0, column)).end(row)
    )


def test_text_of_a_kernel() -> None:
    assert show(row_sum()) == (
        "p0 = BUFFER f32[33]\n"
        "r0 = RANGE 33 LOOP\n"
        "%0 = INDEX(p0, r0) : f32\n"
        "p1 = BUFFER f32[33, 1000]\n"
        "%1 = MUL(r0, 1000)\n"
        "r1 = RANGE 1000 REDUCE\n"
        "%2 = ADD(%1, r1)\n"
        "%3 = INDEX(p1, %2) : f32\n"
        "%4 = LOAD(%3) : f32\n"
        "%5 = MUL(%4, 2.0) : f32\n"
        "%6 = REDUCE[ADD](%5, r1) : f32\n"
        "%7 = STORE(%0, %6)\n"
        "%8 = END(%7, r0)\n"
        "%9 = SINK(%8)"
    )
    assert repr(row_sum()) == show(row_sum())


def test_text_of_a_body() -> None:
    body = buffer(0, dtypes.i8, (4, 8)).permute((1, 0)).pad(((1, 2), (0, 0)), -3).argmax()
    assert show(body) == (
        "p0 = BUFFER i8[4, 8]\n"
        "%0 = PERMUTE[1, 0](p0) : i8[8, 4]\n"
        "%1 = PAD[1:2, 0:0](%0, -3:i8) : i8[11, 4]\n"
        "%2 = IOTA i32[4]\n"
        "%3 = RESHAPE[1, 4](%2) : i32[1, 4]\n"
        "%4 = EXPAND[11, 4](%3) : i32[11, 4]\n"
        "%5 = TUPLE(%1, %4)\n"
        "%6 = REDUCE[ARGMAX, 1](%5)\n"
        "%7 = ITEM[1](%6) : i32[11]"
    )
    assert_round_trip(body)


# ---- constants
@pytest.mark.parametrize(
    ("u", "text"),
    [
        (UOp.const(5, dtypes.index), "5"),
        (UOp.const(-(1 << 80), dtypes.index), str(-(1 << 80))),
        (UOp.const(5), "5:i32"),
        (UOp.const(-(2**63), dtypes.i64), "-9223372036854775808:i64"),
        (UOp.const(2**64 - 1, dtypes.u64), "18446744073709551615:u64"),
        (UOp.const(True), "true"),
        (UOp.const(False), "false"),
        (UOp.const(0.1), "0.1"),
        (UOp.const(1.0), "1.0"),
        (UOp.const(-0.0), "-0.0"),
        (UOp.const(1e10), "1e+10"),
        (UOp.const(float("nan")), "nan"),
        (UOp.const(float("-inf")), "-inf"),
        (UOp.const(float("inf"), dtypes.f16), "inf:f16"),
        (UOp.const(0.1, dtypes.bf16), "0.10009765625:bf16"),
        (UOp.const(0.1, dtypes.f64), "0.1:f64"),
        (UOp.const(448.0, dtypes.f8e4m3), "448.0:f8e4m3"),
        (UOp(Ops.CONST, (), ConstArg(F32, 0x7FFFFFFF)), "0x7fffffff:f32"),
        (UOp(Ops.CONST, (), ConstArg(dtypes.f16, 0xFC01)), "0xfc01:f16"),
    ],
)
def test_constants(u: UOp, text: str) -> None:
    assert show(u) == f"%0 = CONST {text}"
    assert_round_trip(u)


def test_equal_looking_constants_stay_apart() -> None:
    likes = [
        *(UOp.const(0.0), UOp.const(-0.0), UOp.const(0), UOp.const(False)),
        *(UOp.const(0, dtypes.index), UOp.const(0.0, dtypes.f64), UOp.const(0.0, dtypes.f16)),
    ]
    assert len({show(u) for u in likes}) == len(set(likes)) == len(likes)


@given(st.sampled_from(DATA), st.data())
def test_every_bit_pattern(dtype: DType, data: st.DataObject) -> None:
    lo, hi = (0, (1 << dtype.bits) - 1) if dtype.is_float else (dtype.min, dtype.max)
    u = UOp(Ops.CONST, (), ConstArg(dtype, data.draw(st.integers(lo, hi))))
    assert_round_trip(u)
    assert_round_trip(alu(Ops.NE, u, u) if not dtype.storage else u)


# ---- records
X = buffer(0, F32, (4, 8))
I0, YES = UOp.const(0, dtypes.index), UOp.const(True)
SCALAR = buffer(3, F32, ())
ROWS = buffer(1, dtypes.i64, (4, 8))
BUNDLE = bundle(4, F32, 3, 64)
ELEMENT = X.index(I0)
DONE = ELEMENT.store(1.0)
_LIES = OperandTile(SharedTile(64, 128, 2, swizzle=128), K_MAJOR)
_BOX = TensorMapArg((100, 256), (256,), (64, 64), 128)
OPERANDS = (
    StageArg(AddrSpace.SHARED, 8192, True, 1, "a", _LIES, 4, Engine.BULK, _BOX),
    StageArg(AddrSpace.SHARED, 8192, True, 1, "b", _LIES, 3, Engine.CP_ASYNC),
    StageArg(
        AddrSpace.SHARED,
        *(1056, True, 1, "b"),
        OperandTile(SharedTile(8, 128, 4, pad=4), MN_MAJOR),
        depth=1,
    ),
)
RECORDS = [
    *(
        UOp(Ops.RANGE, (), RangeArg(3, 7, kind, digit, instance, start, step))
        for kind, digit, instance, start, step in [
            *((k, "", 0, 0, 1) for k in AxisType),
            *((AxisType.GLOBAL, "g", 0, 0, 1), (AxisType.UPCAST, "u", 12, 0, 1)),
            *((AxisType.LOOP, "r", 0, 0, 1), (AxisType.LOOP, "p", 0, -4, -2)),
            *((AxisType.LOOP, 'odd (#:) "\\\n é_0', 1, 5, 3), (AxisType.LOOP, "", -1, 0, 1)),
        ]
    ),
    UOp(Ops.RANGE, (), RangeArg(-2, 1, AxisType.LOOP)),
    UOp(Ops.BUFFER, (), ParamArg(12, dtypes.bf16, ())),
    UOp(Ops.BUFFER, (), ParamArg(-1, dtypes.bool, (0, 3))),
    UOp(Ops.BUFFER, (), ParamArg(0, F32, (2,), AddrSpace.SHARED)),
    *(UOp(Ops.ALLOC, (), ParamArg(2, F32, (64,), space)) for space in AddrSpace),
    *(
        UOp(Ops.ALLOC, (), ParamArg(2, F32, (64,), AddrSpace.REG, name))
        for name in ("acc", "a", "x_1", "# : =")
    ),
    *(UOp(Ops.REDUCE, (X,), ReduceArg(c, 2)) for c in (Combine.ADD, Combine.MUL, Combine.MAX)),
    *(X.argmax(2), X.argmin(1), buffer(0, dtypes.bool, (4,)).reduce(Combine.AND)),
    reduce_over(SCALAR, range_(4, 0), range_(5, 1), combine=Combine.MIN),
    *(X.scan(Combine.ADD), X.scan(Combine.MAX, reverse=True, exclusive=True)),
    X.gather((~0, 1), buffer(1, dtypes.i32, (5, 8))),
    X.gather((~1, ~0), SCALAR.cast(dtypes.i8), SCALAR.cast(dtypes.u64)),
    *(X.scatter((9, 8), (~0, 1), ROWS), X.scatter((7,), (~0,), ROWS), X.assign(X + 1.0)),
    *(X.assign(X).assign(1.0), X.detach()),
    *(BUNDLE, BUNDLE.segment(2), BUNDLE.segment(2).index(I0).store(1.0)),
    BUNDLE.after(DONE).segment(range_(3, 0)).after(DONE).index(range_(4, 1)).load(),
    UOp(Ops.IOTA, (), IotaArg(0, dtypes.u8)),
    *(X.reshape((32,)), X.reduce(Ops.ADD, 2).reshape((1, 1)).reshape(()), X.flip((0, 1))),
    *(X.shrink(((1, 3), (0, 8))), X.pad(((0, 1), (2, 0)), 1.5)),
    *(X.cast(dtypes.f8e5m2), X.bitcast(dtypes.u32), X.reshape((4, 1, 8)).expand((4, 5, 8))),
    UOp(Ops.LOAD, (ELEMENT,), AccessArg(4)),
    UOp(
        Ops.STORE,
        (ELEMENT, UOp(Ops.LOAD, (ELEMENT, YES, UOp.const(0.0)), AccessArg(4))),
        AccessArg(4),
    ),
    *(
        UOp(Ops.STAGE, (SCALAR, I0, I0, YES), StageArg(AddrSpace.SHARED, 8, e))
        for e in (True, False)
    ),
    UOp(Ops.STAGE, (SCALAR, I0, I0, YES, range_(4, 0)), StageArg(AddrSpace.REG, 1)),
    *(UOp(Ops.STAGE, (SCALAR, I0, I0, YES, range_(4, 0)), a) for a in OPERANDS),
    UOp(Ops.SHUFFLE, (SCALAR,), ShuffleArg(16)),
    UOp(Ops.SINK),
    sink(ELEMENT.store(1.0), launch=LaunchArg()),
    sink(ELEMENT.store(1.0), launch=LaunchArg((1, 0), (2,), 4, False)),
    sink(
        X.after(ELEMENT.store(1.0).barrier(), range_(2, 1)).index(I0).store(2.0).end(range_(2, 1))
    ),
    *(SCALAR.after(ELEMENT.store(0.0)), SCALAR.fma(2.0, 3.0), SCALAR.ne(0.0).where(SCALAR, 1.0)),
    UOp(Ops.TUPLE, (SCALAR, I0)),
]


@pytest.mark.parametrize("u", RECORDS, ids=lambda u: show(u).rpartition("\n")[2])
def test_records(u: UOp) -> None:
    assert_round_trip(u)


# ---- records of the GPU's ops: every field, whatever the spec thinks of it
WORDS = st.text(max_size=12)
INTS = st.integers(-(1 << 33), 1 << 33)
MASKS = st.integers(0, (1 << 32) - 1)
SIZES = st.lists(st.integers(0, 999), max_size=4).map(tuple)
BOOLS = st.booleans()
PLACE = buffer(5, dtypes.i32, (64,)).index(I0)
MBAR = alloc(AddrSpace.MBARRIER, dtypes.u64).index(I0)


def one_of(enum: type[Enum]) -> st.SearchStrategy[Enum]:
    return st.sampled_from(list(enum))


SHUFFLES = st.one_of(
    st.builds(ShuffleArg, INTS, st.sampled_from(list(ShuffleMode)[:3]), MASKS),
    st.builds(ShuffleArg, INTS),
).map(lambda a: UOp(Ops.SHUFFLE, (SCALAR,), a))
GPU_RECORDS: dict[Ops, st.SearchStrategy[UOp]] = {
    Ops.SHUFFLE: SHUFFLES,
    Ops.VOTE: st.builds(VoteArg, one_of(Vote), MASKS).map(lambda a: UOp(Ops.VOTE, (YES,), a)),
    Ops.WARP_REDUCE: st.builds(
        WarpReduceArg, st.sampled_from((Combine.ADD, Combine.MIN, Combine.MAX)), MASKS
    ).map(lambda a: UOp(Ops.WARP_REDUCE, (PLACE.load(),), a)),
    Ops.ATOMIC: st.sampled_from(list(Atomic)).map(
        lambda a: PLACE.atomic(a, 1, 2) if a is Atomic.CAS else PLACE.atomic(a, 1)
    ),
    Ops.BARRIER: st.builds(BarrierArg, one_of(BarrierScope), INTS, MASKS).map(
        lambda a: UOp(Ops.BARRIER, (DONE,), a)
    ),
    Ops.ROLE: st.builds(RoleArg, WORDS, INTS, INTS, INTS, BOOLS).map(
        lambda a: UOp(Ops.ROLE, (DONE,), a)
    ),
    Ops.COPY: st.builds(CopyArg, one_of(Engine), INTS).map(
        lambda a: UOp(Ops.COPY, (ELEMENT, ELEMENT, YES), a)
    ),
    Ops.TENSORMAP: st.builds(TensorMapArg, SIZES, SIZES, SIZES, INTS).map(
        lambda a: UOp(Ops.TENSORMAP, (X,), a)
    ),
    Ops.COMMIT: one_of(Engine).map(lambda a: UOp(Ops.COMMIT, (DONE,), a)),
    Ops.WAITG: st.builds(WaitArg, one_of(Engine), INTS, BOOLS).map(lambda a: UOp(Ops.WAITG, (), a)),
    Ops.FENCE: one_of(Fence).map(lambda a: UOp(Ops.FENCE, (DONE, X), a)),
    Ops.LDMATRIX: st.builds(MatrixArg, INTS, BOOLS).map(
        lambda a: UOp(Ops.LDMATRIX, (ELEMENT, ELEMENT), a)
    ),
    Ops.STMATRIX: st.builds(MatrixArg, INTS, BOOLS).map(
        lambda a: UOp(Ops.STMATRIX, (ELEMENT, ELEMENT), a)
    ),
    Ops.DESCRIPTOR: st.builds(DescriptorArg, INTS, INTS, INTS, BOOLS).map(
        lambda a: UOp(Ops.DESCRIPTOR, (ELEMENT,), a)
    ),
    Ops.MMA: WORDS.map(lambda a: UOp(Ops.MMA, (ELEMENT, ELEMENT, ELEMENT, YES), a)),
    Ops.DOT: st.sampled_from(sorted(ATOMS)).map(lambda a: UOp(Ops.DOT, (SCALAR, SCALAR), a)),
    Ops.PRINTF: WORDS.map(lambda t: UOp(Ops.PRINTF, (SCALAR,) * t.count("{}"), PrintArg(t))),
    Ops.ASSERT: WORDS.map(lambda a: UOp(Ops.ASSERT, (YES, DONE), a)),
    Ops.IF: st.just(UOp(Ops.IF, (YES, DONE))),
    Ops.MBAR_INIT: st.just(UOp(Ops.MBAR_INIT, (MBAR, I0))),
    Ops.ARRIVE: st.sampled_from((UOp(Ops.ARRIVE, (MBAR,)), UOp(Ops.ARRIVE, (MBAR, I0)))),
    Ops.WAIT: st.just(UOp(Ops.WAIT, (MBAR, I0))),
}


@pytest.mark.parametrize("op", GPU_RECORDS)
@given(st.data())
def test_gpu_records(op: Ops, data: st.DataObject) -> None:
    u = data.draw(GPU_RECORDS[op])
    assert u.op is op
    assert_round_trip(u)
    assert pickle.loads(pickle.dumps(u)) is u
    again = None if u.arg is None else pickle.loads(pickle.dumps(u.arg))
    assert again == u.arg
    assert UOp(op, u.src, again) is u  # an equal record makes the same node


def test_usual_records_are_short() -> None:
    printed = UOp(Ops.PRINTF, (SCALAR,), PrintArg("x[0] is {}, 100%!"))
    assert show(printed).endswith(r'PRINTF[format="x\u005b0\u005d is {}\u002c 100\u0025!"](p3)')
    for u, text in (
        (UOp(Ops.SHUFFLE, (SCALAR,), ShuffleArg(4)), "SHUFFLE[4](p3) : f32"),
        (SCALAR.shuffle(4, ShuffleMode.DOWN, members=255), "SHUFFLE[DOWN by=4 members=0xff](p3)"),
        (YES.vote(Vote.BALLOT), "VOTE[BALLOT](true) : u32"),
        (PLACE.atomic(Atomic.CAS, 1, 2), "ATOMIC[CAS](%0, 1:i32, 2:i32) : i32"),
        (DONE.barrier(), "BARRIER(%1)"),
        (UOp(Ops.COMMIT, (), Engine.BULK), "COMMIT[BULK]()"),
        (UOp(Ops.WAITG, (), WaitArg(Engine.BULK, 1, True)), "WAITG[BULK pending=1 read=yes]()"),
        (UOp(Ops.MMA, (ELEMENT,) * 3, "mma.m16n8k16.bf16"), 'MMA["mma.m16n8k16.bf16"](%0, %0, %0)'),
        (
            UOp(Ops.TENSORMAP, (X,), TensorMapArg((4, 8), (8,), (2, 8), 32)),
            "TENSORMAP[shape=4x8 strides=8 box=2x8 swizzle=32](p0) : f32[4, 8]",
        ),
    ):
        assert text in show(u)


def test_every_op_has_a_text() -> None:
    seen = {x.op for u in RECORDS for x in u.toposort()} | {Ops.PERMUTE, Ops.CONST}
    seen |= set(GPU_RECORDS)
    x, n = SCALAR, buffer(4, dtypes.i32, ())
    for op in Ops:
        if op in seen or op in (Ops.INDEX, Ops.LOAD, Ops.ITEM):
            continue
        built = 0
        for operands in ((x,), (n,), (x, x), (n, n), (x, x, x)):
            try:
                u = UOp(op, operands)
            except ValueError:
                continue
            assert_round_trip(u)
            built += 1
        assert built, op


def test_ranges_and_memories_of_one_name_stay_apart() -> None:
    a, b, c = (range_(n, 0) for n in (4, 5, 6))
    same = a + b * c + range_(7, 0, AxisType.LOOP, start=3)
    assert 'r0.2 = RANGE 5 LOOP axis=0 digit="" instance=0\n' in show(same)
    assert_round_trip(same)
    p = buffer(0, F32, (2,)).index(I0).store(buffer(0, F32, (3,)).index(I0).load())
    assert 'p0.2 = BUFFER f32[3] slot=0 name=""\n' in show(p)
    assert_round_trip(p)
    digit = UOp(Ops.RANGE, (), RangeArg(0, 4, AxisType.LOOP, "p"))
    assert_round_trip(buffer(0, F32, (2,)).index(digit).load())


# ---- random graphs
@st.composite
def graphs(draw: st.DrawFn) -> UOp:
    """Elementwise and movement ops over a few leaves, then perhaps a kernel around them."""
    dtype = draw(st.sampled_from((*FLOATS, *SIGNED)))
    leaves = [
        *(buffer(k, dtype, ()) for k in range(2)),
        *(UOp.const(v, dtype) for v in (0, 1, 3)),
        buffer(2, dtype, (2, 3)),
    ]
    pool = list(leaves)
    for _ in range(draw(st.integers(1, 25))):
        op = draw(
            st.sampled_from((Ops.ADD, Ops.MUL, Ops.MAX, Ops.LT, Ops.NEG, Ops.CAST, Ops.RESHAPE))
        )
        x, y = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        if op is Ops.NEG:
            pool.append(-x)
        elif op is Ops.CAST:
            pool.append(UOp(Ops.CAST, (x,), draw(st.sampled_from(DATA))).cast(dtype))
        elif op is Ops.RESHAPE:
            pool.append(x.flip((0,)) if x.shape else x.reshape((1, 1)).expand((2, 3)))
        elif op is Ops.LT:
            pool.append(alu(Ops.LT, x, y).where(x, y))
        else:
            pool.append(alu(op, x, y))
    return pool[-1]


@given(graphs())
def test_random_graphs(u: UOp) -> None:
    assert_round_trip(u)


# ---- size
def test_deep_graph_is_built_shown_parsed_pickled_and_dies() -> None:
    n = 50_000
    x = u = range_(10, 0)
    for k in range(n):
        u = u + x if k % 2 else u * 3
    text = show(u)
    assert text.count("\n") == n
    assert parse(text) is u
    assert pickle.loads(pickle.dumps(u)) is u
    assert index_text(u).endswith("r0") or index_text(u).endswith("3")
    middle = weakref.ref(u.src[0])
    del u
    gc.collect()
    assert middle() is None


def test_wide_graph() -> None:
    n = 50_000
    u = UOp(Ops.TUPLE, tuple(range_(2, 0) + k for k in range(n)))
    assert parse(show(u)) is u
    assert len(u.src) == n


# ---- bad text
GOOD = "r0 = RANGE 4 LOOP\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "at least one line"),
        ("# only a comment", "at least one line"),
        ("hello", "line 1 .* a line reads like"),
        (GOOD + "%0 = PLUS(r0, 1)", "line 2 .*no op"),
        (GOOD + "%0 = ADD(r0, r1)", "line 2 .*r1 is neither defined above nor a constant"),
        (GOOD + "%0 = ADD(r0, 1.5)", "line 2 .*dtypes differ: index and f32"),
        (GOOD + "%0 = ADD(r0)", "line 2 "),
        (GOOD + "%0 = ADD(r0, 1) : f32", "line 2 .*the type is index, the line says f32"),
        (GOOD + "%0 = ADD[3](r0, 1)", "line 2 .*ADD takes no arg"),
        (GOOD + GOOD, "line 2 .*r0 is defined twice"),
        ("x = RANGE 4 LOOP", "line 1 .*axis="),
        ("r0 = RANGE 4 DIAGONAL", "line 1 .*DIAGONAL"),
        ("r0 = RANGE 4 LOOP speed=3", "line 1 .*fields among axis"),
        ("x = BUFFER f32[4]", "line 1 .*slot="),
        ("p0 = BUFFER f33[4]", "line 1 .*no dtype is called 'f33'"),
        ("%0 = CONST __import__", "line 1 "),
        (GOOD + "%0 = ADD(r0, __import__('os'))", "line 2 "),
        ("p0 = BUFFER f32[]\n%0 = CAST[f33](p0)", "line 2 .*f33"),
        ("p0 = BUFFER f32[]\n%0 = STAGE[SHARED 8 twice](p0, 0, 0, true)", "line 2 .*exchange"),
        ("%0 = TUPLE()", "line 1 "),
        ("p0 = BUFFER i32[4]\n%0 = SCATTER[4, ~0](p0, p0)", "line 2 .*reads like 100, 8 <- ~0, 1"),
        ("p0 = BUFFER i32[4]\n%0 = GATHER[~x](p0, p0)", "line 2 "),
        ("p0 = BUFFER i32[4]\n%0 = GATHER[0](p0, p0)", "line 2 .*must name each of the 1 indices"),
    ],
)
def test_bad_text_names_the_line(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse(text)


def test_comments_and_blank_lines() -> None:
    assert parse("# a sum\n\nr0 = RANGE 4 LOOP  # rows\n  %7 = ADD(r0, 1)\n") is range_(4, 0) + 1


# ---- messages
def test_text_of_gathers() -> None:
    text = show(X.gather((~0, 1), ROWS).scatter((9, 2), (~0, ~1), ROWS, ROWS).detach())
    assert text.splitlines()[2:] == [
        "%0 = GATHER[~0, 1](p0, p1) : f32[4, 8]",
        "%1 = SCATTER[9, 2 <- ~0, ~1](%0, p1, p1) : f32[9, 2]",
        "%2 = DETACH(%1) : f32[9, 2]",
    ]


def test_text_of_bundles() -> None:
    element = bundle(0, F32, 3, 64).segment(range_(3, 0)).index(range_(64, 1) + 1)
    assert show(element).splitlines()[::2] == [
        "p0 = BUFFER BUNDLE f32[3, 64]",
        "%0 = SEGMENT(p0, r0) : f32[64]",
        "%1 = ADD(r1, 1)",
    ]
    assert index_text(element) == "p0[r0][r1 + 1]"
    one, other = (UOp(Ops.BUFFER, (), ParamArg(0, F32, (3, 64), bundle=b)) for b in (True, False))
    assert one is not other and show(one) != show(other)


def test_index_text() -> None:
    a, b = range_(8, 0), UOp(Ops.RANGE, (), RangeArg(1, 4, AxisType.LOCAL, "l", 2))
    p = buffer(1, F32, (64,))
    for u, text in [
        ((a * 1000 + b) // 4 % 7 - (a - (b - 3)), "(r0*1000 + l1_2) // 4 % 7 - (r0 - (l1_2 - 3))"),
        ((a * 2 < 5) & b.ne(0), "(r0*2 < 5) & (l1_2 != 0)"),
        (p.index(a + b).load() * -1.0, "p1[r0 + l1_2]*-1.0"),
        (-(a + b), "-(r0 + l1_2)"),
        (a - (b + 1) * 2, "r0 - (l1_2 + 1)*2"),
        (a + b + (a + 1), "r0 + l1_2 + r0 + 1"),
        (a.cast(dtypes.f32).exp(), "exp(f32(r0))"),
        (alloc(AddrSpace.REG, slot=3).after(a).index(0), "a3[0]"),
    ]:
        assert index_text(u) == text
    wide = a
    for _ in range(40):
        wide = wide * wide  # 2**40 leaves if written out
    assert len(index_text(wide, 100)) <= 100
