"""Each stage takes its own graphs, and refuses each kind of wrong one with op, place and rule."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tests.helpers import alloc, reduce_over
from uopc.dtype import AddrSpace, dtypes
from uopc.errors import SpecError
from uopc.uop.node import UOp, buffer, range_, sink
from uopc.uop.ops import AxisType, Combine, Ops, RangeArg, ReduceArg, ScatterArg
from uopc.uop.spec import check
from uopc.uop.stages import OPERANDS, STAGE_OPS, STAGE_RANGES, Stage
from uopc.uop.text import parse

F32 = dtypes.f32

GOOD: dict[str, tuple[Stage, str]] = {
    "body": (
        Stage.TENSOR,
        """
        p0 = BUFFER f32[4, 8]
        p1 = BUFFER f32[]
        %0 = MUL(p0, p1)
        %1 = REDUCE[MAX, 1](%0) : f32[4]
        %2 = IOTA i32[4]
        %3 = TUPLE(%1, %2)
        %4 = REDUCE[ARGMAX, 1](%3)
        %5 = ITEM[1](%4)
        """,
    ),
    "places": (
        Stage.TENSOR,
        """
        p0 = BUFFER f32[4, 8]
        p1 = BUFFER i32[5, 8]
        %0 = GATHER[~0, 1](p0, p1)
        %1 = DETACH(%0)
        %2 = SCATTER[4, 8 <- ~0, 1](%1, p1)
        %3 = ASSIGN(p0, %2)
        %4 = ASSIGN(%3, p0)
        """,
    ),
    "rows": (
        Stage.INDEXED,
        """
        p0 = BUFFER f32[33]
        r0 = RANGE 33 LOOP
        %0 = INDEX(p0, r0)
        p1 = BUFFER f32[33]
        %1 = INDEX(p1, r0)
        %2 = LT(r0, 32)
        %3 = LOAD(%1, %2, 0.0)
        r1 = RANGE 5 REDUCE
        %4 = REDUCE[ADD](%3, r1)
        p2 = BUFFER f32[]
        %5 = MUL(%4, p2)
        %6 = STORE(%0, %5)
        %7 = END(%6, r0)
        %8 = SINK(%7)
        """,
    ),
    "segments": (
        Stage.INDEXED,
        """
        p0 = BUFFER BUNDLE f32[3, 64]
        r0 = RANGE 3 LOOP
        %0 = SEGMENT(p0, r0)
        r1 = RANGE 64 LOOP
        %1 = INDEX(%0, r1)
        p1 = BUFFER i32[3]
        %2 = INDEX(p1, r0)
        %3 = LOAD(%2)
        %4 = CAST[i32](r1)
        %5 = LT(%4, %3)
        %6 = LOAD(%1, %5, 0.0)
        %7 = MUL(%6, 2.0)
        %8 = STORE(%1, %7, %5)
        %9 = END(%8, r0, r1)
        %10 = SINK(%9)
        """,
    ),
    "wide": (
        Stage.LOOPS,
        """
        p0 = BUFFER BUNDLE f32[3, 64]
        g0 = RANGE 3 GLOBAL
        %0 = SEGMENT(p0, g0)
        x0 = ALLOC REG f32[4]
        %1 = INDEX(x0, 0)
        %2 = INDEX(%0, 4)
        %3 = LOAD[4](%2)
        %4 = STORE[4](%1, %3)
        %5 = AFTER(%0, %4)
        %6 = INDEX(%5, 8)
        %7 = STORE(%6, 1.0)
        s0 = ALLOC SHARED f32[4]
        %8 = INDEX(s0, 0)
        %9 = STORE(%8, 1.0)
        %10 = SINK(%7, %9)
        """,
    ),
    "digits": (
        Stage.MAPPED,
        """
        p0 = BUFFER f32[64]
        g0 = RANGE 2 GLOBAL
        l1 = RANGE 32 LOCAL
        p1 = BUFFER f32[4096]
        u1 = RANGE 4 UPCAST
        %0 = MUL(g0, 128)
        %1 = MUL(l1, 4)
        %2 = ADD(%0, %1)
        %3 = ADD(%2, u1)
        %4 = INDEX(p1, %3)
        %5 = LOAD(%4)
        %6 = STAGE[REG 4](%5, u1, u1, true, u1)
        %7 = REDUCE[ADD](%6, u1)
        %8 = SHUFFLE[16](%7)
        %9 = ADD(%7, %8)
        %10 = EQ(l1, 0)
        %11 = STAGE[SHARED 1 exchange](%9, 0, 0, %10)
        %12 = INDEX(p0, g0)
        %13 = STORE(%12, %11, %10)
        %14 = SINK(%13)
        """,
    ),
    "loops": (
        Stage.LOOPS,
        """
        p0 = BUFFER f32[64]
        g0 = RANGE 2 GLOBAL
        l1 = RANGE 32 LOCAL
        acc0 = ALLOC REG f32[4]
        u1 = RANGE 4 UPCAST
        %0 = INDEX(acc0, u1)
        %1 = STORE(%0, 0.0)
        %2 = END(%1, u1)
        k1 = RANGE 8 REDUCE
        %3 = AFTER(acc0, %2, k1)
        u1_1 = RANGE 4 UPCAST
        %4 = INDEX(%3, u1_1)
        %5 = LOAD(%4)
        %6 = MUL(%5, 2.0)
        %7 = STORE(%4, %6)
        %8 = END(%7, k1, u1_1)
        %9 = AFTER(acc0, %8)
        %10 = INDEX(%9, 0)
        %11 = LOAD[4](%10)
        s1 = ALLOC SHARED f32[128]
        %12 = MUL(l1, 4)
        %13 = INDEX(s1, %12)
        %14 = STORE[4](%13, %11)
        %15 = BARRIER(%14)
        %16 = AFTER(s1, %15)
        %17 = INDEX(%16, l1)
        %18 = LOAD(%17)
        %19 = SHUFFLE[1](%18)
        %20 = MUL(g0, 32)
        %21 = ADD(%20, l1)
        %22 = INDEX(p0, %21)
        %23 = STORE(%22, %19)
        %24 = SINK[lanes=1](%23)
        """,
    ),
    "threads": (
        Stage.LOOPS,
        """
        p0 = BUFFER f32[64]
        g0 = RANGE 8 THREAD
        k0 = RANGE 8 LOOP
        %0 = MUL(g0, 8)
        %1 = ADD(%0, k0)
        %2 = INDEX(p0, %1)
        %3 = STORE(%2, 1.0)
        %4 = END(%3, g0, k0)
        %5 = SINK(%4)
        """,
    ),
}


ALSO = {("threads", Stage.MAPPED), ("segments", Stage.LOOPS)}


@pytest.mark.parametrize("name", GOOD)
def test_good_graphs(name: str) -> None:
    stage, text = GOOD[name]
    check(parse(text), stage)
    for other in Stage:
        if other is not stage and (name, other) not in ALSO:
            with pytest.raises(SpecError):
                check(parse(text), other)


# ---- a good graph with one change: (graph, what to replace, by what, which error)
CHANGES = [
    # TENSOR
    (
        "body",
        "%2 = IOTA i32[4]",
        "r0 = RANGE 4 LOOP\n%2 = CAST[i32](r0)",
        "TENSOR: RANGE .*no RANGE",
    ),
    ("body", "%5 = ITEM[1](%4)", "", "TENSOR: REDUCE .*take one of several"),
    ("body", "BUFFER f32[]", "BUFFER SHARED f32[]", "a BUFFER is GLOBAL"),
    ("body", "p1 = BUFFER f32[]", "p1 = BUFFER f32[] slot=0", "slot 0 in GLOBAL is also f32"),
    ("places", "%4 = ASSIGN(%3, p0)", "%4 = TUPLE(%3, p0)", "a body is a value"),
    ("places", "BUFFER f32[4, 8]", "BUFFER BUNDLE f32[4, 8]", "shaped values are no bundles"),
    # bundles
    ("segments", "BUNDLE f32[3, 64]", "BUNDLE f32[0, 64]", "a parameter of one element at least"),
    ("wide", "BUNDLE f32[3, 64]", "BUNDLE f32[3, 66]", "up to 66 elements, .*multiple of .* 4"),
    (
        "wide",
        "%9 = STORE(%8, 1.0)",
        "%9 = COPY[CP_ASYNC width=4](%8, %2)",
        "COPY .*segments of bundles are loaded, stored and changed by ATOMICs",
    ),
    # INDEXED
    ("rows", "RANGE 33 LOOP", "RANGE 0 LOOP", "INDEXED: RANGE .*size 0"),
    ("rows", "RANGE 33 LOOP", "RANGE 33 GLOBAL", "this stage has no GLOBAL ranges"),
    ("rows", "r1 = RANGE 5 REDUCE", 'r1 = RANGE 5 REDUCE axis=1 digit="k"', "digit 'k'"),
    ("rows", "REDUCE[ADD](%3, r1)", "REDUCE[ADD](%3)", "INDEXED: REDUCE .*names the ranges"),
    ("rows", "REDUCE[ADD](%3, r1)", "REDUCE[ADD](%3, r1, r1)", "closes the same range twice"),
    ("rows", "END(%6, r0)", "END(%6, r1)", "SINK .*the range r0 is never closed"),
    ("rows", "p2 = BUFFER f32[]", "p2 = BUFFER f32[4]", "MUL .*source 1 must be .*is a memory"),
    ("rows", "p1 = BUFFER f32[33]", "p1 = BUFFER f32[]", "INDEX .*source 0 must be a memory"),
    ("rows", "%8 = SINK(%7)", "%8 = SINK(%7, r0)", "SINK .*must be an effect, is a RANGE"),
    ("rows", "%7 = END(%6, r0)", "%9 = END(%6, r0)\n%7 = END(%9, r0)", "ranges of a STORE here"),
    ("rows", "%8 = SINK(%7)", "%9 = SINK(%7)\n%8 = SINK(%9)", "SINK .*stands nowhere else"),
    ("rows", "%8 = SINK(%7)", "", "INDEXED: END .*the root is a SINK"),
    (
        "rows",
        "%3 = LOAD(%1, %2, 0.0)",
        "%3 = LOAD[4](%1, %2, 0.0)",
        "wide accesses are made in LOOPS",
    ),
    # MAPPED
    ("digits", "u1 = RANGE 4 UPCAST", "u1 = RANGE 4 LOOP", "digit 'u' is no LOOP range"),
    (
        "digits",
        "g0 = RANGE 2 GLOBAL",
        "r0 = RANGE 2 GLOBAL\ng0 = MUL(r0, 1)",
        "digit '' is no GLOBAL",
    ),
    ("digits", "u1, u1, true, u1", "u1, l1, true, u1", "STAGE .*not by the LOCAL range l1"),
    ("digits", "u1, u1, true, u1", "u1, u1, true, u1, u1", "STAGE .*the same range twice"),
    ("digits", "u1, u1, true, u1", "u1, u1, u1, u1", "STAGE .*the gate is bool"),
    ("digits", "u1, u1, true, u1", "u1, 1.0, true, u1", "STAGE .*addresses are index"),
    ("digits", "STAGE[REG 4]", "STAGE[REG 4 exchange]", "never through registers"),
    ("digits", "STAGE[REG 4]", "STAGE[GLOBAL 4]", "not GLOBAL of 4"),
    ("digits", "STAGE[REG 4]", "STAGE[REG 0]", "not REG of 0"),
    ("digits", "(%5, u1, u1, true, u1)", "(%5, 0, 0, true, l1)", "cannot close the LOCAL range l1"),
    (
        "digits",
        "REDUCE[ADD](%6, u1)",
        "REDUCE[ADD](%6, u1, g0)",
        "cannot close the GLOBAL range g0",
    ),
    ("digits", "SHUFFLE[16]", "SHUFFLE[XOR by=16 members=0xff]", "all lanes exchange; these are"),
    ("digits", "SHUFFLE[16]", "SHUFFLE[32]", "XOR goes 1 to 31 lanes away, not 32"),
    # LOOPS
    ("loops", "acc0 = ALLOC REG f32[4]", "acc0 = ALLOC REG f32[0]", "at least one element"),
    ("loops", "acc0 = ALLOC REG", "acc0 = ALLOC", "an ALLOC is SHARED, CLUSTER, REG or MBARRIER"),
    ("loops", "acc0 = ALLOC REG f32[4]", "acc0 = ALLOC REG f32[4] slot=-1", "slots count from 0"),
    (
        "loops",
        "%0 = INDEX(acc0, u1)",
        "%0 = INDEX(acc0, l1)",
        "INDEX .*the LOCAL range l1.*local memory",
    ),
    ("loops", "%4 = INDEX(%3, u1_1)", "%4 = INDEX(%3, k1)", "INDEX .*the REDUCE range k1"),
    ("loops", "%8 = END(%7, k1, u1_1)", "%8 = END(%7, k1)", "RANGE .*no END closes this range"),
    ("loops", "%8 = END(%7, k1, u1_1)", "%8 = END(%7, k1, u1_1, u1)", "u1 is closed twice"),
    (
        "loops",
        "%17 = INDEX(%16, l1)",
        "%17 = INDEX(%16, k1)",
        "mentions k1 after the END that closes",
    ),
    (
        "loops",
        "%14 = STORE[4](%13, %11)",
        "%14 = STORE(%13, %11)",
        "takes one element, the LOAD has 4",
    ),
    (
        "loops",
        "%14 = STORE[4](%13, %11)",
        "%14 = STORE[2](%13, %11)",
        "width 2 copies .* got LOAD of width 4",
    ),
    (
        "loops",
        "%14 = STORE[4](%13, %11)",
        "%14 = STORE[4](%13, 1.0)",
        "width 4 copies a LOAD .*got CONST",
    ),
    ("loops", "%11 = LOAD[4](%10)", "%11 = LOAD[3](%10)", "width 3 of f32 is 12 bytes"),
    ("loops", "%11 = LOAD[4](%10)", "%11 = LOAD[8](%10)", "width 8 of f32 is 32 bytes"),
    ("loops", "%11 = LOAD[4](%10)", "%11 = LOAD[4](%10, true, 1.0)", "the other value must be 0"),
    ("loops", "%19 = SHUFFLE[1](%18)", "%19 = SHUFFLE[1](%11)", "only copied by a wide STORE"),
    (
        "loops",
        "%15 = BARRIER(%14)",
        "%15 = BARRIER(%11)",
        "BARRIER .*comes after effects and opened scopes, source 0 is a value",
    ),
    ("loops", "%15 = BARRIER(%14)", "%15 = BARRIER()", "only blocks meet as they start"),
    ("loops", "%16 = AFTER(s1, %15)", "%16 = AFTER(s1, %11)", "AFTER .*source 1 must be"),
    ("loops", "%16 = AFTER(s1, %15)", "%16 = AFTER(s1)", "it has 1 sources, wants 2 or more"),
    ("loops", "%16 = AFTER(s1, %15)", "%16 = ADD(s1, s1)", "ADD .*is a memory"),
    ("loops", "%19 = SHUFFLE[1](%18)", "%19 = REDUCE[ADD](%18, k1)", "this stage has no REDUCE"),
    ("loops", "%23 = STORE(%22, %19)", "%23 = ADD(%19, %19)", "SINK .*must be an effect"),
    ("threads", "END(%3, g0, k0)", "END(%3, g0)", "no END closes this range"),
]


@pytest.mark.parametrize(("name", "old", "new", "why"), CHANGES)
def test_one_change(name: str, old: str, new: str, why: str) -> None:
    stage, text = GOOD[name]
    assert old in text
    with pytest.raises(SpecError, match=why):
        check(parse(text.replace(old, new)), stage)


@pytest.mark.parametrize(
    ("name", "gpu", "why"),
    [
        ("digits", False, "native C has no GLOBAL ranges"),
        ("loops", False, "native C has no GLOBAL ranges"),
        ("threads", True, "a GPU kernel has no THREAD ranges"),
    ],
)
def test_what_a_machine_has(name: str, gpu: bool, why: str) -> None:
    stage, text = GOOD[name]
    check(parse(text), stage, gpu=not gpu)
    with pytest.raises(SpecError, match=why):
        check(parse(text), stage, gpu=gpu)


def test_native_c_has_no_shared_memory_barriers_and_shuffles() -> None:
    out, i = buffer(0, F32, (8,)), range_(8, 0)
    shared = alloc(AddrSpace.SHARED, size=8)
    fill = shared.index(i).store(1.0).end(i)
    with pytest.raises(SpecError, match="native C has no SHARED memory"):
        check(sink(fill), Stage.LOOPS, gpu=False)
    check(sink(fill), Stage.LOOPS, gpu=True)
    with pytest.raises(SpecError, match=r"BARRIER .*native C has threads"):
        check(sink(out.index(i).store(1.0).end(i).barrier()), Stage.LOOPS, gpu=False)
    stage = parse("%0 = STAGE[SHARED 1](1.0, 0, 0, true)")
    whole = sink(out.index(0).store(stage))
    with pytest.raises(SpecError, match="native C has no SHARED memory"):
        check(whole, Stage.MAPPED, gpu=False)


def test_nothing_that_mentions_a_range_lives_after_its_end() -> None:
    out, i, j = buffer(0, F32, (64,)), range_(4, 0), range_(4, 1)
    inner = out.index(i * 16 + j).store(1.0).end(j)
    check(sink(out.after(inner).index(i).store(2.0).end(i)), Stage.LOOPS)
    apart = out.index(i).store(1.0).end(i)
    wrong = sink(out.after(apart, j).index(j).store(i.cast(F32)).end(j))
    with pytest.raises(SpecError, match=r"STORE .*it mentions r0 after the END that closes it"):
        check(wrong, Stage.LOOPS)


def test_two_allocations_of_one_slot() -> None:
    a, b = (alloc(AddrSpace.REG, size=n) for n in (1, 2))
    both = sink(a.index(0).store(1.0), b.index(0).store(1.0))
    with pytest.raises(SpecError, match="slot 0 in REG is also"):
        check(both, Stage.LOOPS)
    check(sink(a.index(0).store(1.0), alloc(AddrSpace.SHARED).index(0).store(1.0)), Stage.LOOPS)


def test_a_load_is_no_register_index() -> None:
    x, reg = buffer(0, dtypes.i32, (4,)), alloc(AddrSpace.REG, size=4)
    where = x.index(0).load().cast(dtypes.index)
    with pytest.raises(SpecError, match=r"not by p0\[0\]: they would silently go to local memory"):
        check(sink(reg.index(where + 1).store(1.0)), Stage.LOOPS)


def test_the_message_names_the_users_line() -> None:
    frame = inspect.currentframe()
    assert frame is not None
    bad = UOp(Ops.REDUCE, (buffer(0, F32, ()),), ReduceArg(Combine.ADD))
    place = f"{Path(__file__).name}:{frame.f_lineno - 1}"
    with pytest.raises(SpecError, match=rf"^INDEXED: REDUCE at {place}: it names the ranges"):
        check(sink(buffer(1, F32, (1,)).index(0).store(bad)), Stage.INDEXED)


def test_a_generated_node_is_placed_by_its_sources() -> None:
    x = buffer(977, F32, ())  # of no other test: nodes are shared, and keep their first place
    generated = parse("p977 = BUFFER f32[]\n%0 = SHUFFLE[40](p977)")
    assert generated.src[0] is x and not generated.origins
    with pytest.raises(SpecError, match=rf"SHUFFLE at generated \(from {Path(__file__).name}:"):
        check(sink(buffer(1, F32, (1,)).index(0).store(generated)), Stage.LOOPS)


def test_an_end_may_name_hardware_ranges_any_number_of_times() -> None:
    g, out = range_(8, 0, AxisType.GLOBAL), buffer(0, F32, (8,))
    first = out.index(g).store(1.0).end(g)
    check(sink(first, out.after(first).index(g).store(2.0).end(g)), Stage.LOOPS)


def test_reduce_closes_threads_but_not_blocks() -> None:
    lane = UOp(Ops.RANGE, (), RangeArg(0, 8, AxisType.LOCAL, "l"))
    x, out = buffer(1, F32, (8,)), buffer(0, F32, (1,))
    check(sink(out.index(0).store(reduce_over(x.index(lane).load(), lane))), Stage.MAPPED)


def test_a_gather_has_a_record_of_its_own() -> None:
    x, at = buffer(0, F32, (4,)), buffer(1, dtypes.i32, (4,))
    odd = UOp(Ops.GATHER, (x, at), ScatterArg((4,), (~0,)))
    with pytest.raises(SpecError, match=r"GATHER .*its arg is GatherArg, got ScatterArg"):
        check(odd, Stage.TENSOR)


def test_tables_cover_every_op() -> None:
    assert set(OPERANDS) == set(Ops)
    used = frozenset[Ops]().union(*STAGE_OPS.values())
    assert used == set(Ops)
    assert set(STAGE_RANGES) == set(Stage)


def test_deep_and_wide_graphs_are_checked() -> None:
    n = 10_000
    x, i = buffer(0, F32, (n,)), range_(n, 0)
    value = x.index(i).load()
    for _ in range(n):
        value = value * 2.0
    check(sink(buffer(1, F32, (n,)).index(i).store(value).end(i)), Stage.INDEXED)
    wide = sink(*(x.index(k).store(1.0) for k in range(n)))
    check(wide, Stage.LOOPS)
