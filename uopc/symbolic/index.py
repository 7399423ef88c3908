"""Index arithmetic in one canonical form, built directly.

An index is a sum of coefficient * atom plus a constant, in the order GLOBAL, LOCAL, serial, UPCAST,
vector: every prefix of the sum is invariant where it can be, so that it hoists itself, and the same
index is the same node.  Passes build indices with these constructors instead of rewriting them
afterwards.  All of it holds for dtypes.index only (mathematical integers, floor division).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from uopc.dtype import dtypes
from uopc.uop.facts import bottom_up, bounds, free, key
from uopc.uop.node import UOp, derive, toposort
from uopc.uop.ops import AxisType, ConstArg, Ops

Affine = tuple[dict[UOp, int], int]

_RANK = {
    AxisType.GLOBAL: 0,
    AxisType.THREAD: 0,
    AxisType.WARPGROUP: 1,
    AxisType.WARP: 1,
    AxisType.LOCAL: 1,
    AxisType.LANE: 1,
    AxisType.LOOP: 2,
    AxisType.REDUCE: 2,
    AxisType.UPCAST: 3,
}
_DIGIT = {"t": 1, "v": 1, "s": 2, "i": 3}


def rank(r: UOp) -> tuple[int, int, int, int]:
    """Where a range stands among the terms of an index: outer and slower ones first."""
    a = r.arg
    return _RANK[a.kind], _DIGIT.get(a.digit, 0), a.axis, a.instance


def index(n: int) -> UOp:
    """The constant n of dtype index."""
    return UOp(Ops.CONST, (), ConstArg(dtypes.index, n))


ZERO, ONE = index(0), index(1)
TRUE = UOp(Ops.CONST, (), ConstArg(dtypes.bool, 1))
FALSE = UOp(Ops.CONST, (), ConstArg(dtypes.bool, 0))


def affine(u: UOp) -> Affine:
    """{atom: coefficient}, constant.  Callers must not change the dict."""
    found = u._affine
    return _read(u) if found is not None else _known(u, bottom_up(u, "_affine", _affine))


def _read(u: UOp) -> Affine:
    return _known(u, u._affine)


def _known(u: UOp, form: Affine | str) -> Affine:
    """An atom does not hold its own form: a node must not keep itself alive."""
    return ({u: 1}, 0) if isinstance(form, str) else form


def _affine(u: UOp) -> Affine | str:
    op, src = u.op, u.src
    if u.dtype is not dtypes.index:
        return "atom"
    if op is Ops.CONST:
        return {}, u.arg.bits
    if op is Ops.ADD:
        return _plus(_read(src[0]), _read(src[1]))
    if op is Ops.SUB:
        return _plus(_read(src[0]), _times(_read(src[1]), -1))
    if op is Ops.NEG:
        return _times(_read(src[0]), -1)
    if op is Ops.MUL:
        if src[1].op is Ops.CONST:
            return _times(_read(src[0]), src[1].arg.bits)
        if src[0].op is Ops.CONST:
            return _times(_read(src[1]), src[0].arg.bits)
    return "atom"


def _plus(a: Affine, b: Affine) -> Affine:
    if not b[0]:
        return a[0], a[1] + b[1]
    terms = dict(a[0])
    for atom, c in b[0].items():
        c += terms.get(atom, 0)
        if c:
            terms[atom] = c
        else:
            del terms[atom]
    return terms, a[1] + b[1]


def _times(a: Affine, n: int) -> Affine:
    return ({atom: c * n for atom, c in a[0].items()} if n else {}), a[1] * n


def _order(item: tuple[UOp, int]) -> tuple[object, ...]:
    atom, c = item
    outermost = max((rank(r) for r in free(atom) if r.op is Ops.RANGE), default=(-1, 0, 0, 0))
    return (*outermost, -abs(c), key(atom))


def from_affine(terms: dict[UOp, int], constant: int) -> UOp:
    """The canonical node of a sum.  (x // n) * n*k + (x % n) * k becomes x*k."""
    for mod in [t for t in terms if t.op is Ops.MOD and t.src[1].op is Ops.CONST]:
        x, n, k = mod.src[0], mod.src[1].arg.bits, terms[mod]
        if k * n not in terms.values():
            continue
        quotient = div(x, n)
        if terms.get(quotient) == k * n:
            rest = {t: c for t, c in terms.items() if t is not mod and t is not quotient}
            whole = _plus((rest, constant), _times(affine(x), k))
            return from_affine(*whole)
    total: UOp | None = None
    for atom, c in sorted(terms.items(), key=_order) if len(terms) > 1 else terms.items():
        term = atom if c == 1 else UOp(Ops.MUL, (atom, index(c)))
        total = term if total is None else UOp(Ops.ADD, (total, term))
    if total is None:
        return index(constant)
    return total if constant == 0 else UOp(Ops.ADD, (total, index(constant)))


def add(a: UOp, b: UOp) -> UOp:
    """a + b."""
    return from_affine(*_plus(affine(a), affine(b)))


def scale(a: UOp, n: int) -> UOp:
    """a * n."""
    return a if n == 1 else from_affine(*_times(affine(a), n))


def mul(a: UOp, b: UOp) -> UOp:
    """a * b; canonical where one of them is constant."""
    if b.op is Ops.CONST:
        return scale(a, b.arg.bits)
    if a.op is Ops.CONST:
        return scale(b, a.arg.bits)
    return UOp(Ops.MUL, (a, b) if key(a) <= key(b) else (b, a))


def sub(a: UOp, b: UOp) -> UOp:
    """a - b."""
    return from_affine(*_plus(affine(a), _times(affine(b), -1)))


def split(a: UOp, n: int) -> tuple[UOp, UOp]:
    """(q, r) with a = n*q + r for n > 0: every term that n divides goes to q.

    Exact for floor division whatever r is: a // n == q + r // n, a % n == r % n.
    """
    terms, c = affine(a)
    q = from_affine({t: k // n for t, k in terms.items() if k % n == 0}, c // n)
    r = from_affine({t: k for t, k in terms.items() if k % n}, c % n)
    return q, r


def _split_coefficients(a: UOp, n: int) -> tuple[UOp, UOp]:
    """The same with parts of terms: 5*x is 4*x and x for n = 4.  For where r is then a digit."""
    terms, c = affine(a)
    whole = {t: abs(k) // n * (1 if k > 0 else -1) for t, k in terms.items()}
    q = from_affine({t: k for t, k in whole.items() if k}, c // n)
    r = from_affine({t: k - n * whole[t] for t, k in terms.items() if k - n * whole[t]}, c % n)
    return q, r


def _is_digit(r: UOp, n: int) -> bool:
    lo, hi = bounds(r)
    return lo >= 0 and hi < n


def div(a: UOp, n: int) -> UOp:
    """a // n, floor; n = 0 gives 0."""
    if n == 0:
        return ZERO
    if n < 0:
        return div(scale(a, -1), -n)
    if n == 1:
        return a
    q, r = split(a, n)
    if _is_digit(r, n):
        return q
    more, digit = _split_coefficients(r, n)
    if _is_digit(digit, n):
        return add(q, more)
    if r.op is Ops.IDIV and r.src[1].op is Ops.CONST and r.src[1].arg.bits > 0:
        return add(q, div(r.src[0], r.src[1].arg.bits * n))  # (x // m) // n = x // (m*n)
    g = _granule(r, n)
    if g > 1:  # r = g*r' + d with 0 <= d < g and g | n: r // n = r' // (n // g)
        return add(q, div(split(r, g)[0], n // g))
    lo, hi = bounds(r)
    if lo // n == hi // n:
        return add(q, index(lo // n))
    return add(q, UOp(Ops.IDIV, (r, index(n))))


def mod(a: UOp, n: int) -> UOp:
    """a % n, floor: the result has n's sign; n = 0 gives 0."""
    if n == 0 or n == 1:
        return ZERO
    if n < 0:
        return scale(mod(scale(a, -1), -n), -1)
    r = split(a, n)[1]
    if _is_digit(r, n):
        return r
    digit = _split_coefficients(r, n)[1]
    if _is_digit(digit, n):
        return digit
    g = _granule(r, n)
    if g > 1:  # r = g*r' + d with 0 <= d < g and g | n: r % n = g*(r' % (n // g)) + d
        inner, d = split(r, g)
        return add(scale(mod(inner, n // g), g), d)
    if r.op is Ops.MOD and r.src[1].op is Ops.CONST and r.src[1].arg.bits % n == 0:
        return mod(r.src[0], n)  # (x % (k*n)) % n = x % n
    lo, hi = bounds(r)
    if lo // n == hi // n:
        return sub(r, index(lo // n * n))
    return UOp(Ops.MOD, (r, index(n)))


def xor(a: UOp, b: UOp) -> UOp:
    """a ^ b.  Where neither is negative and b = g*q < n, for powers of two, only a's digit from g
    to n changes: n*(a // n) + g*((a % n // g) ^ q) + a % g.  So what a swizzle leaves as it is, a
    vector's elements for instance, stays a term of its own."""
    (low, _), (other, most) = bounds(a), bounds(b)
    if low < 0 or other < 0:
        return UOp(Ops.XOR, (a, b))
    terms, constant = affine(b)
    g, n = math.gcd(constant, *terms.values()), 1 << most.bit_length()
    g &= -g
    if not g:  # b is 0
        return a
    digit, q = div(mod(a, n), g), div(b, g)
    if digit.op is q.op is Ops.CONST:
        changed = index(digit.arg.bits ^ q.arg.bits)
    else:
        changed = UOp(Ops.XOR, (digit, q) if key(digit) <= key(q) else (q, digit))
    return add(add(scale(div(a, n), n), scale(changed, g)), mod(a, g))


def _granule(r: UOp, n: int) -> int:
    """The largest g > 1 with g | n and r = g*r' + d, 0 <= d < g; 1 if there is none."""
    coefficients = affine(r)[0].values()
    sizes = {math.gcd(c, n) for c in coefficients} | {math.gcd(n, *coefficients)}
    for g in sorted(sizes - {1}, reverse=True):
        if _is_digit(split(r, g)[1], g):
            return g
    return 1


def lt(a: UOp, b: UOp) -> UOp:
    """a < b, with what is common to both cancelled and digits that cannot matter stripped."""
    terms, c = _plus(affine(a), _times(affine(b), -1))
    if not terms:
        return TRUE if c < 0 else FALSE
    if all(k < 0 for k in terms.values()):
        positive = from_affine({t: -k for t, k in terms.items()}, 0)
        return at_least(positive, c + 1)  # c - p < 0  <=>  p >= c + 1
    return below(from_affine(terms, 0), -c)


def below(a: UOp, n: int) -> UOp:
    """a < n.  With a = g*q + r, 0 <= r < g and g | n, r cannot change the answer, so it goes.

    So a guard is uniform over a vector, often over the lanes, sometimes down to the unrolled digit.
    """
    lo, hi = bounds(a)
    if hi < n:
        return TRUE
    if lo >= n:
        return FALSE
    stripped = _strip(a, n)
    return below(stripped, n) if stripped is not a else UOp(Ops.LT, (a, index(n)))


def at_least(a: UOp, n: int) -> UOp:
    """a >= n, written n - 1 < a."""
    lo, hi = bounds(a)
    if lo >= n:
        return TRUE
    if hi < n:
        return FALSE
    stripped = _strip(a, n)
    return at_least(stripped, n) if stripped is not a else UOp(Ops.LT, (index(n - 1), a))


def _strip(a: UOp, n: int) -> UOp:
    for g in sorted(
        {abs(c) for c in affine(a)[0].values() if c not in (1, -1) and n % c == 0}, reverse=True
    ):
        q, r = split(a, g)
        if r is not ZERO and _is_digit(r, g):
            return scale(q, g)
    return a


def conj(*gates: UOp) -> UOp:
    """All of them; each once, in the order given."""
    parts: dict[UOp, None] = {}
    for g in gates:
        if g is FALSE:
            return FALSE
        for x in conjuncts(g):
            parts[x] = None
    parts.pop(TRUE, None)
    if not parts:
        return TRUE
    out, *rest = parts
    for x in rest:
        out = UOp(Ops.AND, (out, x))
    return out


def conjuncts(g: UOp) -> list[UOp]:
    """The gates of which all must hold."""
    out: list[UOp] = []
    stack = [g]
    while stack:
        x = stack.pop()
        if x.op is Ops.AND:
            stack.extend((x.src[1], x.src[0]))
        else:
            out.append(x)
    return out


def divides(n: int, u: UOp) -> bool:
    """Is u a multiple of n whatever its atoms are?"""
    terms, c = affine(u)
    return c % n == 0 and all(k % n == 0 for k in terms.values())


def coefficient(u: UOp, r: UOp) -> int | None:
    """The stride of range r in u: 0 where u does not depend on it, None where it is not affine."""
    if r not in free(u):
        return 0
    terms = affine(u)[0]
    if any(t is not r and r in free(t) for t in terms):
        return None
    return terms.get(r, 0)


def flat(parts: Iterable[tuple[UOp, int]]) -> UOp:
    """Row-major position of (index, size) pairs, outermost first."""
    at = ZERO
    for i, n in parts:
        at = add(scale(at, n), i)
    return at


def digits(position: UOp, sizes: Iterable[int]) -> tuple[UOp, ...]:
    """The row-major indices of a position inside their box: the inverse of `flat`."""
    out: list[UOp] = []
    sizes = tuple(sizes)
    for k, n in enumerate(reversed(sizes)):
        if k == len(sizes) - 1:  # inside the box the outermost index needs no remainder
            out.append(position if n > 1 else ZERO)
            break
        out.append(mod(position, n))
        position = div(position, n)
    return tuple(reversed(out))


def remake(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """u over other sources, after a substitution: index arithmetic and gates stay canonical."""
    op = u.op
    if src and src[0].dtype is dtypes.index:
        if op is Ops.ADD:
            return add(*src)
        if op is Ops.MUL:
            return mul(*src)
        if op is Ops.SUB:
            return sub(*src)
        if op is Ops.NEG:
            return scale(src[0], -1)
        if op is Ops.IDIV and src[1].op is Ops.CONST:
            return div(src[0], src[1].arg.bits)
        if op is Ops.MOD and src[1].op is Ops.CONST:
            return mod(src[0], src[1].arg.bits)
        if op is Ops.XOR:
            return xor(*src)
        if op is Ops.LT:
            return lt(*src)
        if op is Ops.CAST and src[0].op is Ops.CONST and u.arg.is_int:
            return UOp(Ops.CONST, (), ConstArg(u.arg, u.arg.wrap(src[0].arg.bits)))
    if op is Ops.AND and u.dtype is dtypes.bool:
        return conj(*src)
    if op is Ops.ITEM and src[0].op is Ops.TUPLE:
        value: UOp = src[0].src[u.arg]
        return value
    if op is Ops.NOT and src[0] in (TRUE, FALSE):
        return FALSE if src[0] is TRUE else TRUE
    if op is Ops.WHERE:
        if src[0] is TRUE:
            return src[1]
        if src[0] is FALSE:
            return src[2]
    if op is Ops.LOAD and len(src) == 3:
        if src[1] is TRUE:
            return derive(u, src[:1])
        if src[1] is FALSE:
            return src[2]
    if op is Ops.STORE and len(src) == 3 and src[2] is TRUE:
        return derive(u, src[:2])
    return derive(u, src)


def substitute(root: UOp, table: dict[UOp, UOp]) -> UOp:
    """Ranges replaced, canonical form kept.  What mentions none of them is not visited at all."""
    keys = frozenset(table)
    if free(root).isdisjoint(keys):
        return root
    memo, stack = dict(table), [root]
    while stack:
        u = stack[-1]
        if u in memo:
            stack.pop()
            continue
        if free(u).isdisjoint(keys):
            memo[u] = u
            stack.pop()
            continue
        todo = [s for s in u.src if s not in memo]
        if todo:
            stack.extend(todo)
            continue
        src = tuple([memo[s] for s in u.src])
        memo[u] = u if src == u.src else remake(u, src)
        stack.pop()
    return memo[root]


def canonical(root: UOp) -> UOp:
    """An index that was written with operators, in canonical form."""
    memo: dict[UOp, UOp] = {}
    for u in toposort(root):
        memo[u] = remake(u, tuple([memo[s] for s in u.src])) if u.src else u
    return memo[root]
