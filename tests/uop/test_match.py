"""Patterns, rules and the driver: what matches, what is recorded, what comes to an end."""

from __future__ import annotations

import pytest

from uopc.dtype import dtypes
from uopc.errors import CompilerError
from uopc.uop.match import (
    ANY,
    BOOL,
    FLOAT,
    INDEX,
    WRAP,
    Rule,
    Rules,
    Step,
    const,
    node,
    rewrite,
    var,
)
from uopc.uop.node import UOp, buffer, sink, toposort
from uopc.uop.ops import Ops

x, y, c, d = var("x"), var("y"), const("c"), const("d")
a, b = buffer(0, dtypes.i32, ()), buffer(1, dtypes.i32, ())
f, g = buffer(2, dtypes.f32, ()), buffer(3, dtypes.f32, ())
three = UOp.const(3, dtypes.i32)


def one(rule: Rule, u: UOp) -> UOp | None:
    """What the rule makes of u."""
    found = Rules([rule]).first(u)
    return None if found is None else found[1]


# ---- what matches
def test_commutative_operands_match_in_either_order() -> None:
    rule = Rule("r", (x * c) + y, lambda x, y, c: y - x)
    for u in (a * 3 + b, three * a + b, b + a * 3, b + three * a):
        assert one(rule, u) is b - a


def test_operands_of_other_ops_keep_their_places() -> None:
    rule = Rule("r", c - x, lambda x, c: x)
    assert one(rule, three - a) is a
    assert one(rule, a - three) is None


def test_two_plain_variables_are_bound_as_they_stand() -> None:
    assert one(Rule("r", x + y, lambda x, y: x - y), a + b) is a - b
    assert one(Rule("r", x + y, lambda x, y: x - y), b + a) is b - a


def test_a_name_twice_is_the_same_node_twice() -> None:
    rule = Rule("r", (x + y) - x, lambda y: y)
    assert one(rule, (a + b) - a) is b
    assert one(rule, (a + b) - (a * 1)) is None


@pytest.mark.parametrize("number", [0.0, -0.0])
def test_a_float_is_a_constant_by_its_bits(number: float) -> None:
    rule = Rule("r", x + number, lambda x: x, FLOAT)
    assert one(rule, f + number) is f
    assert one(rule, f + -number) is None


def test_an_int_is_no_float_and_no_bool() -> None:
    rule = Rule("r", node(Ops.MAX, x, 1), lambda x: x, ANY)
    flag = buffer(4, dtypes.bool, ())
    assert one(rule, a.maximum(1)) is a
    assert one(rule, f.maximum(1.0)) is None
    assert one(rule, flag.maximum(True)) is None


def test_minus_one_is_all_bits_of_an_unsigned() -> None:
    u = buffer(5, dtypes.u8, ())
    assert one(Rule("r", x & -1, lambda x: x), u & 255) is u


def test_a_rule_is_kept_to_what_it_holds_for() -> None:
    i = a.cast(dtypes.index)
    rules = {h: Rule("r", x - x, lambda x: x, h) for h in (INDEX, WRAP, FLOAT)}
    for h, u in ((INDEX, i - i), (WRAP, a - a), (FLOAT, f - f)):
        assert [k for k, rule in rules.items() if one(rule, u) is not None] == [h]


def test_a_comparison_is_of_the_kind_of_its_operands() -> None:
    rule = Rule("r", x < x, lambda x: x.ne(x), FLOAT)
    assert one(rule, f < f) is f.ne(f)
    assert one(rule, a < a) is None


def test_a_variable_of_a_kind() -> None:
    rule = Rule("r", var("x", BOOL).cast(), lambda x: x.where(1, 0).cast(dtypes.i32))
    flag = a < b
    assert one(rule, flag.cast(dtypes.i32)) is flag.where(1, 0)
    assert one(rule, f.cast(dtypes.i32)) is None


def test_needs_sees_the_nodes_that_have_sources_root_first() -> None:
    seen: list[tuple[UOp, ...]] = []

    def needs(*nodes: UOp) -> bool:
        seen.append(nodes)
        return False

    u = (a * 3 + b) // 3
    assert one(Rule("r", (x * c + y) // d, lambda x: x, WRAP, needs), u) is None
    assert seen == [(u, a * 3 + b, a * 3)]


# ---- what is wrong with a rule
def test_a_name_that_the_pattern_lacks() -> None:
    with pytest.raises(CompilerError, match="rule r: its pattern does not bind z"):
        Rules([Rule("r", x + y, lambda x, z: x)])


def test_names_are_unique() -> None:
    rule = Rule("r", x + y, lambda x: x)
    with pytest.raises(CompilerError, match="share the names r"):
        Rules([rule, rule])


def test_a_rule_keeps_the_dtype() -> None:
    rules = Rules([Rule("r", x + y, lambda x: x.cast(dtypes.f32))])
    with pytest.raises(CompilerError, match="rule r turned i32 into f32"):
        rewrite(a + b, rules)


def test_rules_that_go_round_in_circles_are_named() -> None:
    rules = Rules([Rule("to", x + y, lambda x, y: x - y), Rule("fro", x - y, lambda x, y: x + y)])
    with pytest.raises(CompilerError, match=r"does not end.*to, fro"):
        rewrite(a + b, rules)


def test_a_rule_that_grows_is_named() -> None:
    rules = Rules([Rule("grow", x + c, lambda x, c: (x + 1) + (c + 1))])
    with pytest.raises(CompilerError, match=r"does not end.*grow"):
        rewrite(a + 3, rules)


def test_a_rule_that_wraps_its_own_node_is_named() -> None:
    rules = Rules([Rule("wrap", x + y, lambda x, y: (x + y) * 1)])
    with pytest.raises(CompilerError, match=r"does not end.*wrap"):
        rewrite(a + b, rules)


# ---- the driver
FOLD = Rule("fold", c + d, lambda c, d: UOp.const(c.value + d.value, c.dtype), WRAP)
GATHER = Rule("gather", (x + c) + y, lambda x, y, c: (x + y) + c if y.op is not Ops.CONST else None)
MEET = Rule("meet", (x + c) + d, lambda x, c, d: x + (c + d))
SUMS = Rules([FOLD, MEET, GATHER])


def test_a_fixed_point_and_the_steps_to_it() -> None:
    trace: list[Step] = []
    u = ((a + 1) + b) + 2
    assert rewrite(u, SUMS, trace) is (a + b) + 3
    assert [s.rule for s in trace] == ["gather", "meet", "fold"]
    assert trace[0].before is (a + 1) + b
    assert trace[0].after is (a + b) + 1


def test_rules_are_tried_in_their_order() -> None:
    first = Rule("first", x + y, lambda x: x)
    second = Rule("second", x + y, lambda y: y)
    assert rewrite(a + b, Rules([first, second])) is a
    assert rewrite(a + b, Rules([second, first])) is b


def test_what_no_rule_touches_is_the_same_node() -> None:
    u = sink(buffer(6, dtypes.f32, (4,)).index(0).store(f * g))
    assert rewrite(u, SUMS) is u


def test_a_scalar_takes_the_shape_of_what_it_replaces() -> None:
    v = buffer(7, dtypes.i32, (2, 3))
    zero = Rule("zero", x * 0, lambda x: UOp.const(0, x.dtype))
    assert rewrite(v * 0, Rules([zero])).shape == (2, 3)


def test_origins_go_from_a_node_to_what_replaces_it() -> None:
    u = (a + 1) + b + 2
    new = rewrite(u, SUMS)
    assert new.origins and new.src[0].origins
    assert new.src[0].origins[0][0] == __file__


DEEP = 50_000


def test_fifty_thousand_nodes_deep() -> None:
    u = a
    for n in range(DEEP):
        u = u + (1 if n % 100 == 99 else b)
    new = rewrite(u, SUMS)
    assert new.src[1].value == DEEP // 100
    assert new.src[0].src[1] is b


def test_fifty_thousand_nodes_wide() -> None:
    at = buffer(8, dtypes.i32, (1,)).index(0)
    stores = [at.store(b + n) for n in range(DEEP // 2 - 1)]
    new = rewrite(sink(*stores, at.store((a + 1) + 2)), SUMS)
    assert len(new.src) == DEEP // 2
    assert new.src[0] is stores[0] and new.src[-1].src[1] is a + 3


def test_a_rewriting_that_makes_thousands_of_nodes() -> None:
    """What the rules make is as deep as they like."""

    def once_more(x: UOp, c: UOp) -> UOp:
        return x if c.value == 0 else (x << UOp.const(c.value - 1, x.dtype)) + x

    new = rewrite(a << 5_000, Rules([Rule("unfold", x << c, once_more, WRAP)]))
    assert len(toposort(new)) == 5_001
