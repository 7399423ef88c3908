"""Random programs of tensors, as text: one statement a line, over variables v0, v1, ...

A program is written while it runs on the reference (`Value`): each line is drawn for the shapes and
dtypes that are there, tried, and left out where the reference refuses it.  Then it runs on tensors:
lazily in one go, or with values computed, compared and dropped at random moments.  However it runs,
every variable and every gradient must have the same bits.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

import numpy as np

from tests.helpers import assert_same, special
from tests.tensor import reference
from tests.tensor.reference import Refused, Value
from uopc import tensor
from uopc.dtype import DType, dtypes
from uopc.tensor import Tensor
from uopc.uop.numbers import Array

Names = dict[str, Any]
T = TypeVar("T")
#: more often than others: what training uses
_DTYPES = (
    *[dtypes.f32] * 6,
    *[dtypes.i32] * 3,
    *(dtypes.f64, dtypes.f64, dtypes.i64, dtypes.bool, dtypes.bool),
    *(dtypes.f16, dtypes.bf16, dtypes.i8, dtypes.u8, dtypes.i16, dtypes.u16, dtypes.u32),
    *(dtypes.u64, dtypes.f8e4m3, dtypes.f8e5m2),
)
_SIZES = (1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 16, 33)
_UNARY = (
    *("-{}", "-{}", "~{}", "{}.abs()", "{}.square()", "{}.sqrt()", "{}.reciprocal()"),
    *("{}.floor()", "{}.ceil()", "{}.trunc()", "{}.round()", "{}.sign()", "{}.isnan()"),
    *("{}.isinf()", "{}.isfinite()", "{}.signbit()", "{}.logical_not()", "{}.relu()"),
    *("{}.relu()", "{}.clamp(-2, 3)", "{}.cast(dtypes.f32)", "{}.cast(dtypes.i32)"),
)
_BINARY = (
    *["+", "-", "*"] * 3,
    *("/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "&", "|", "^", "<<", ">>"),
)
_SCALARS = ("2", "3", "-1", "0", "1", "0.5", "-2.0", "True", "7")


def data(seed: int, dtype: DType, shape: tuple[int, ...], wild: bool = False) -> Array:
    """Small halves, whole numbers or bools; wild: any values of the dtype."""
    rng = np.random.default_rng(seed)
    if wild:
        return np.asarray(rng.choice(special(dtype), shape), dtype.numpy)
    if dtype is dtypes.bool:
        return np.asarray(rng.integers(0, 2, shape).astype(bool))
    if dtype.is_float:
        return np.asarray((rng.integers(-6, 7, shape) / 2).astype(dtype.numpy))
    return np.asarray(rng.integers(-4 if dtype.min else 0, 5, shape).astype(dtype.numpy))


_COMMON = {"dtypes": dtypes, "data": data, "np": np}
REFERENCE: Names = {
    **_COMMON,
    "Tensor": Value,
    "cat": Value.cat,
    "stack": Value.stack,
    "where": Value.where,
    "no_grad": reference.no_grad,
    "grad": reference.grad,
    "zeros": lambda *s, dtype=dtypes.f32: Value(np.zeros(s, dtype.numpy)),
    "full": lambda s, x: Value(np.full(s, x, Value(x).dtype.numpy)),
    "arange": lambda n: Value(np.arange(n, dtype=np.int32)),
    "eye": lambda n: Value(np.eye(n, dtype=np.float32)),
}
TENSORS: Names = {
    **_COMMON,
    "Tensor": Tensor,
    **{
        name: getattr(tensor, name)
        for name in ("cat", "stack", "where", "no_grad", "grad", "zeros", "full", "arange", "eye")
    },
}


class Writer:
    """Draws a program.  names: its variables on the reference, as they are after the last line."""

    def __init__(self, seed: int, grads: bool = True) -> None:
        self.pick = Random(seed)
        self.names: Names = dict(REFERENCE)
        self.lines: list[str] = []
        self.made = 0
        self.grads = grads

    @property
    def variables(self) -> list[str]:
        return [n for n, v in self.names.items() if isinstance(v, Value)]

    def write(self, steps: int) -> list[str]:
        for _ in range(self.pick.randint(1, 3)):
            self.attempt(self.leaf())
        for _ in range(steps):
            for _ in range(20):
                if self.attempt(self.line()):
                    break
        return self.lines

    def attempt(self, line: str) -> bool:
        """Whether the reference takes the line, which then belongs to the program."""
        try:
            with np.errstate(all="ignore"):
                exec(line, self.names)
        except Exception:
            return False
        if any(self.names[v].size > 4096 for v in self.variables):
            del self.names[f"v{self.made - 1}"]
            return False
        self.lines.append(line)
        return True

    # ---- what there is
    def new(self, expression: str) -> str:
        name = f"v{self.made}"
        self.made += 1
        return f"{name} = {expression}"

    def any(self) -> str:
        """A variable, a late one more often."""
        return self.pick.choice(self.variables[-self.pick.choice((2, 4, 30)) :])

    def shape(self, axes: int | None = None) -> tuple[int, ...]:
        count = self.pick.choice((0, 1, 1, 2, 2, 2, 3, 4)) if axes is None else axes
        empty = self.pick.random() < 0.03
        sizes = [self.pick.choice((*_SIZES, 0) if empty else _SIZES) for _ in range(count)]
        return tuple(n if np.prod(sizes) < 600 else min(n, 3) for n in sizes)

    def leaf(self, shape: tuple[int, ...] | None = None, dtype: DType | None = None) -> str:
        given, kind = shape, dtype or self.pick.choice(_DTYPES)
        shape = self.shape() if given is None else given
        what = self.pick.random()
        if what < 0.06:
            return self.new(f"zeros({', '.join(map(str, shape))})" if shape else "full((), 2.5)")
        if what < 0.1:
            return self.new(f"full({shape}, {self.pick.choice(_SCALARS)})")
        if what < 0.12 and given is None:
            return self.new(f"arange({self.pick.choice(_SIZES)})")
        wild = ", True" if self.pick.random() < 0.15 else ""
        source = f"data({self.pick.randrange(1000)}, dtypes.{kind}, {shape}{wild})"
        needs = self.grads and kind.is_float and not kind.storage and not wild and 0 not in shape
        more = ", requires_grad=True" if needs and self.pick.random() < 0.5 else ""
        return self.new(f"Tensor({source}{more})")

    def like(self, shape: tuple[int, ...]) -> str:
        """Something that broadcasts to a shape: a variable, a new leaf, or a number."""
        kind = self.pick.random()
        if kind < 0.15:
            return self.pick.choice(_SCALARS)
        fitting = [
            v
            for v in self.variables
            if self.names[v].ndim <= len(shape)
            and all(
                n in (1, m)
                for n, m in zip(reversed(self.names[v].shape), reversed(shape), strict=False)
            )
        ]
        if fitting and kind < 0.8:
            return self.pick.choice(fitting)
        cut = shape[self.pick.choice((0, 0, 0, 1)) :]
        shape = tuple(1 if self.pick.random() < 0.15 else n for n in cut)
        if not self.attempt(self.leaf(shape)):
            return "1"
        return self.variables[-1]

    # ---- lines
    def line(self) -> str:
        if not self.variables:
            return self.leaf()
        kinds = {
            self.leaf: 2,
            self.unary: 4,
            self.binary: 8,
            self.choice: 2,
            self.movement: 8,
            self.several: 3,
            self.reduction: 4,
            self.read: 4,
            self.write_items: 5,
            self.update: 5,
            self.product: 2,
            self.other: 4,
            self.differentiate: 4 if self.grads else 0,
        }
        return self.pick.choices(list(kinds), list(kinds.values()))[0]()

    def unary(self) -> str:
        text = self.pick.choice(_UNARY).format(self.any())
        if self.pick.random() < 0.15:
            text = f"{self.any()}.cast(dtypes.{self.pick.choice(_DTYPES)})"
        return self.new(text)

    def binary(self) -> str:
        x = self.any()
        y = self.like(self.names[x].shape)
        what = self.pick.random()
        if what < 0.15:
            return self.new(f"{x}.{self.pick.choice(('maximum', 'minimum'))}({y})")
        op = self.pick.choice(_BINARY)
        swapped = what > 0.7 and (y[0] == "v" or op in "+-*/")
        return self.new(f"{y} {op} {x}" if swapped else f"{x} {op} {y}")

    def choice(self) -> str:
        x = self.any()
        shape = self.names[x].shape
        masks = [v for v in self.variables if self.names[v].dtype is dtypes.bool and v != x]
        if masks and self.pick.random() < 0.5:
            mask = self.pick.choice(masks)
        else:
            mask = f"({x} > {self.pick.choice(('0', '1', self.like(shape)))})"
        if self.pick.random() < 0.3:
            return self.new(f"{x}.masked_fill({mask}, {self.pick.choice(_SCALARS)})")
        parts = [x, self.like(shape)]
        self.pick.shuffle(parts)
        return self.new(f"where({mask}, {parts[0]}, {parts[1]})")

    def axis(self, x: str) -> int:
        n = self.names[x].ndim
        return self.pick.randrange(-n, n) if n else 0

    def movement(self) -> str:
        x = self.any()
        v = self.names[x]
        n, shape, pick = v.ndim, v.shape, self.pick
        order = pick.sample(range(n), n)
        axis = self.axis(x)
        pads = [(pick.randrange(3), pick.randrange(3)) for _ in shape]
        bounds = [tuple(sorted((pick.randint(0, m), pick.randint(0, m)))) for m in shape]
        texts = [
            f"reshape({', '.join(map(str, self.other_shape(shape)))})",
            "reshape(-1)",
            f"permute({', '.join(map(str, order))})",
            f"transpose({axis}, {self.axis(x)})",
            f"expand({', '.join(map(str, self.wider(shape)))})",
            f"unsqueeze({pick.randint(-n - 1, n)})",
            "squeeze()",
            f"flip({pick.choice((None, axis))})",
            f"roll({pick.randint(-4, 9)}, {pick.choice((None, axis))})",
            f"pad({pads}, {pick.choice((0, 0, 1, 2))})",
            f"shrink({bounds})",
            f"repeat({pick.randint(0, 3)}, {axis})",
            f"tile({', '.join(str(pick.randint(0, 2)) for _ in range(n))})",
            f"tril({pick.randint(-2, 2)})",
            f"triu({pick.randint(-2, 2)})",
            f"diagonal({pick.randint(-1, 1)})",
            f"split({pick.randint(1, 4)}, {axis})[-1]",
        ]
        return self.new(f"{x}.{pick.choice(texts)}")

    def other_shape(self, shape: tuple[int, ...]) -> list[int]:
        """The same elements in another shape."""
        factors: list[int] = []
        for n in shape:
            while n > 1:
                f = next(d for d in (2, 3, 5, 7, 11, n) if n % d == 0)
                factors.append(f)
                n //= f
            if n == 0:
                factors.append(0)
        self.pick.shuffle(factors)
        sizes: list[int] = []
        for f in factors:
            if sizes and self.pick.random() < 0.5:
                sizes[-1] *= f
            else:
                sizes.append(f)
        if self.pick.random() < 0.3:
            sizes.insert(self.pick.randint(0, len(sizes)), 1)
        return sizes

    def wider(self, shape: tuple[int, ...]) -> list[int]:
        sizes = [self.pick.choice((1, 2, 3)) if n == 1 else n for n in shape]
        return [self.pick.choice((1, 2, 3)), *sizes] if self.pick.random() < 0.4 else sizes

    def several(self) -> str:
        x = self.any()
        v = self.names[x]
        same = [w for w in self.variables if self.names[w].shape == v.shape]
        axis = self.axis(x)
        if self.pick.random() < 0.4:
            parts = self.pick.choices(same, k=self.pick.randint(1, 3))
            return self.new(f"stack([{', '.join(parts)}], {axis})")

        def beside(w: str) -> bool:
            s, t = list(self.names[w].shape), list(v.shape)
            return len(s) == len(t) > 0 and [n for a, n in enumerate(s) if a != axis % len(t)] == [
                n for a, n in enumerate(t) if a != axis % len(t)
            ]

        fitting = [w for w in self.variables if beside(w)] or [x]
        parts = [x, *self.pick.choices(fitting, k=self.pick.randint(0, 3))]
        return self.new(f"cat([{', '.join(parts)}], {axis})")

    def reduction(self) -> str:
        x = self.any()
        n = self.names[x].ndim
        axes = tuple(sorted(self.pick.sample(range(n), self.pick.randint(0, n))))
        axis: Any = self.pick.choice((None, self.axis(x) if n else None, axes))
        name = self.pick.choice(
            ("sum", "sum", "sum", "mean", "max", "max", "min", "prod", "any", "all", "arg", "cum")
        )
        if name == "arg":
            name, axis = (
                self.pick.choice(("argmax", "argmin")),
                self.pick.choice((None, self.axis(x))),
            )
        if name == "cum":
            return self.new(f"{x}.cumsum({self.axis(x)})")
        return self.new(f"{x}.{name}({axis}{self.pick.choice(('', '', ', True'))})")

    # ---- positions
    def read(self) -> str:
        x = self.any()
        what = self.pick.random()
        if what < 0.6:
            return self.new(f"{x}[{self.key(x)}]")
        axis, v = self.axis(x), self.names[x]
        n = v.shape[axis] if v.ndim else 1
        if what < 0.7:
            return self.new(f"{x}.take({self.integers(self.shape(), n)}, {axis})")
        sizes = list(v.shape)
        if v.ndim:
            sizes[axis] = self.pick.choice((1, 2, 5))
        index = self.integers(tuple(sizes), n)
        if what < 0.8:
            return self.new(f"{x}.gather({axis}, {index})")
        if what < 0.85:
            return self.new(f"{x}.take_along_axis({index}, {axis})")
        if what < 0.9:
            return self.new(f"{x}.one_hot(5)")
        if not self.attempt(self.leaf(tuple(sizes), v.dtype)):
            return "refused"
        return self.new(f"{x}.scatter_add({axis}, {index}, {self.variables[-1]})")

    def integers(self, shape: tuple[int, ...], n: int) -> str:
        """A tensor of integers that are in range of an axis."""
        fitting = [
            v
            for v in self.variables
            if self.names[v].shape == shape
            and self.names[v].dtype.is_data_int
            and self.names[v].size
            and int(self.names[v].array.max()) < n
            and int(self.names[v].array.min()) >= -n
        ]
        if fitting and self.pick.random() < 0.5:
            return self.pick.choice(fitting)
        rng = np.random.default_rng(self.pick.randrange(1000))
        low = -n if self.pick.random() < 0.5 else 0
        kind = "i64" if low else self.pick.choice(("i64", "i32", "u8"))
        numbers = rng.integers(low, n, shape) if n else np.zeros((0,), np.int64)
        array = f"np.array({numbers.tolist()}, np.int64).reshape({numbers.shape})"
        return f"Tensor({array}, dtypes.{kind})"

    def key(self, x: str) -> str:
        """What stands between the brackets."""
        parts = []
        for n in self.names[x].shape[: self.pick.randint(0, 4)]:
            what = self.pick.random()
            if what < 0.25 and n:
                parts.append(str(self.pick.randrange(-n, n)))
            elif what < 0.6:
                ends = [self.pick.choice(("", str(self.pick.randint(-n - 1, n + 1)))) for _ in "ab"]
                step = self.pick.choice(("", "", "::-1", "2", "-1", "3", "-2"))
                parts.append(f"{ends[0]}:{ends[1]}:{step}" if step != "::-1" else step)
            elif what < 0.7:
                parts.append(":")
            elif what < 0.8 and n:
                numbers = [self.pick.randrange(-n, n) for _ in range(self.pick.choice((1, 2, 3)))]
                parts.append(str(numbers))
            elif what < 0.95 and n:
                parts.append(self.integers(self.pick.choice(((3,), (2,), (2, 1), ())), n))
            else:
                parts.append("None")
        if self.pick.random() < 0.15:
            parts.insert(self.pick.randint(0, len(parts)), "...")
        return ", ".join(parts) or "..."

    def write_items(self) -> str:
        x = self.any()
        v = self.names[x]
        if self.pick.random() < 0.15:
            key = f"{x} > 0"
            value = self.pick.choice(_SCALARS)
        else:
            key = self.key(x)
            try:
                shape = eval(f"{x}[{key}]", self.names).shape
            except Exception:
                return "refused"
            value = self.like(shape)
        return self.within(x, f"{x}[{key}] = {value}", v)

    def within(self, x: str, line: str, v: Value) -> str:
        """Inside no_grad where it must be, and sometimes where not."""
        needs = v.requires_grad and v.is_leaf
        return f"with no_grad(): {line}" if needs or self.pick.random() < 0.1 else line

    # ---- new versions, other names
    def update(self) -> str:
        x = self.any()
        v = self.names[x]
        what = self.pick.random()
        y = self.like(v.shape)
        if what < 0.3:
            return self.within(x, f"{x}.assign({y})", v)
        if what < 0.5:
            return self.within(x, f"{x}.assign({x} * 0.5 + {y})", v)
        if what < 0.6 and v.ndim == 2 and v.shape[0] == v.shape[1]:
            return self.within(x, f"{x}.assign({x}.T)", v)
        if what < 0.65:
            return self.within(x, f"{x}.assign({x}.flip())", v)
        return self.within(x, f"{x} {self.pick.choice(('+', '-', '*'))}= {y}", v)

    def product(self) -> str:
        x = self.any()
        v = self.names[x]
        fitting = [
            w
            for w in self.variables
            if v.ndim
            and self.names[w].ndim
            and self.names[w].shape[-min(2, self.names[w].ndim)] == v.shape[-1]
        ]
        if fitting and self.pick.random() < 0.6:
            return self.new(f"{x} @ {self.pick.choice(fitting)}")
        if v.ndim and self.attempt(self.leaf((v.shape[-1], self.pick.choice(_SIZES)))):
            return self.new(f"{x} @ {self.variables[-1]}")
        return "refused"

    def other(self) -> str:
        x = self.any()
        what = self.pick.random()
        if what < 0.25:
            return self.new(f"{x}.detach()")
        if what < 0.4:
            return self.new(f"{x}.clone()")
        if what < 0.55:
            return self.new(x)  # another name
        if what < 0.65 and self.grads:
            return f"{x}.requires_grad_()"
        if what < 0.7:
            return f"{x}.grad = None"
        return f"del {x}" if len(self.variables) > 3 else "refused"

    def differentiate(self) -> str:
        needing = [v for v in self.variables if self.names[v].requires_grad]
        if not needing:
            return "refused"
        x = self.pick.choice(needing)
        what = self.pick.random()
        shape = self.names[x].shape
        loss = self.pick.choice(
            (f"{x}.sum()", f"({x} * {x}).sum()", f"({x} * {self.like(shape)}).sum()")
        )
        if what < 0.5:
            return f"{loss}.backward()"
        leaves = [v for v in needing if self.names[v].is_leaf]
        if not leaves:
            return "refused"
        return self.new(f"grad({loss}, [{self.pick.choice(leaves)}])[0] + 0.0")


def program(seed: int, steps: int, grads: bool = True) -> list[str]:
    """The lines of a random program."""
    return Writer(seed, grads).write(steps)


# ---- running
class Difference(AssertionError):  # noqa: N818
    """A tensor is not what the reference says."""


def run(lines: Sequence[str], seed: int | None) -> None:
    """Both side by side; seed: of what is computed and compared on the way, None: all at the end.

    Raises Difference, Refused where the reference no longer takes a line (of a shortened program),
    and whatever a tensor raises.
    """
    pick = None if seed is None else Random(seed)
    want, got = dict(REFERENCE), dict(TENSORS)
    for n, line in enumerate(lines):
        with np.errstate(all="ignore"):
            try:
                exec(line, want)
            except Exception as error:
                raise Refused(str(error)) from None
        exec(line, got)
        if pick is not None:
            _meanwhile(pick, want, got, f"after line {n}")
    compare(want, got, "at the end", pick)


def _meanwhile(pick: Random, want: Names, got: Names, when: str) -> None:
    names = [n for n, v in want.items() if isinstance(v, Value)]
    what = pick.random()
    if not names:
        return
    some = pick.sample(names, pick.randint(1, min(3, len(names))))
    if what < 0.15:
        tensor.realize(*[got[n] for n in some])
    elif what < 0.3:
        for n in some:
            same(n, want[n], got[n], when)
    elif what < 0.33:
        gradients = [got[n].grad for n in names if got[n].grad is not None]
        tensor.realize(*gradients)
    elif what < 0.36:
        gc.collect()


def compare(want: Names, got: Names, when: str, pick: Random | None = None) -> None:
    """Every variable and every gradient, in any order."""
    names = [n for n, v in want.items() if isinstance(v, Value)]
    if pick is not None:
        pick.shuffle(names)
    else:
        tensor.realize(*[got[n] for n in names])
    for n in names:
        same(n, want[n], got[n], when)


def same(name: str, want: Value, got: Tensor, when: str) -> None:
    """Bits, dtype, shape, and what gradients have to do with it.  Gradients that are 0 have no
    sign: it depends on what was added to what."""
    facts = [(v.shape, str(v.dtype), v.requires_grad, v.is_leaf) for v in (want, got)]
    if facts[0] != facts[1]:
        raise Difference(f"{name} {when}: is {facts[1]}, must be {facts[0]}")
    arrays = got.numpy(), np.ascontiguousarray(want.array).reshape(want.shape)
    if name.endswith(".grad"):
        arrays = arrays[0] + 0, arrays[1] + 0
    try:
        assert_same(*arrays)
    except AssertionError as error:
        raise Difference(
            f"{name} {when}: {error}\ngot\n{got.numpy()}\nwant\n{want.array}"
        ) from None
    if (want.grad is None) != (got.grad is None):
        raise Difference(f"{name}.grad {when}: {got.grad}, must be {want.grad}")
    if want.grad is not None and got.grad is not None:
        same(f"{name}.grad", want.grad, got.grad, when)


# ---- captured
_NOT_INSIDE = ("del ", ".requires_grad_()", "grad = None")


class Calls:
    """The last lines of a program as a function that is called again and again.

    lines: all; first: how many stand outside.  Variables that are there before are closed over, or
    arguments: then each call may bring other values.  Between calls values are held, and changed.
    """

    def __init__(self, lines: Sequence[str], first: int, seed: int) -> None:
        self.pick = Random(seed)
        self.before = list(lines[:first])
        self.body = [t for t in lines[first:] if not any(part in t for part in _NOT_INSIDE)]
        self.want, self.got = dict(REFERENCE), dict(TENSORS)
        self.held: list[tuple[Value, Tensor]] = []

    def run(self, how: Callable[[Any], Any], calls: int = 5) -> None:
        """Raises Difference, or Refused where the reference refuses the first call."""
        for line in self.before:
            self.both(line)
        self.forget_history()
        names = [n for n, v in self.want.items() if isinstance(v, Value)]
        holders = Counter(id(self.want[n]) for n in names)
        simple = [n for n in names if self.want[n].is_leaf and holders[id(self.want[n])] == 1]
        arguments = self.pick.sample(simple, self.pick.randint(0, min(3, len(simple))))
        plain = self.function(self.want, arguments)
        captured = how(self.function(self.got, arguments))
        for n in range(calls):
            for name in arguments:
                v = self.want[name]
                if self.pick.random() < 0.6 and not v.requires_grad:
                    source = f"data({self.pick.randrange(99)}, dtypes.{v.dtype}, {v.shape})"
                    self.both(f"{name} = Tensor({source})")
            try:
                with np.errstate(all="ignore"):
                    want = plain(*[self.want[a] for a in arguments])
            except Exception as error:
                if n == 0:
                    raise Refused(str(error)) from None
                return
            got = captured(*[self.got[a] for a in arguments])
            self.forget_history()
            self.compare(want, got, f"in call {n}")
            self.between(names, want, got)

    def forget_history(self) -> None:
        """What is no leaf requires no gradient: a call does not go back into the one before."""
        for n, v in list(self.want.items()):
            if isinstance(v, Value) and not v.is_leaf:
                self.both(f"with no_grad(): {n}.assign({n})")

    def both(self, line: str) -> None:
        with np.errstate(all="ignore"):
            try:
                exec(line, self.want)
            except Exception as error:
                raise Refused(str(error)) from None
        exec(line, self.got)

    def function(self, names: Names, arguments: Sequence[str]) -> Callable[..., dict[str, Any]]:
        kind = Value if names is self.want else Tensor

        def body(*given: Any) -> dict[str, Any]:
            mine = {**names, **dict(zip(arguments, given, strict=True))}
            for line in self.body:
                exec(line, mine)
            return {n: v for n, v in mine.items() if isinstance(v, kind) and n not in names}

        return body

    def compare(self, want: Names, got: Names, when: str) -> None:
        for n in want:
            if self.pick.random() < 0.5:
                same_numbers(n, want[n], got[n], when)
        for n in [n for n, v in self.want.items() if isinstance(v, Value)]:
            if self.pick.random() < 0.5:
                same_numbers(n, self.want[n], self.got[n], when)
        for k, (v, t) in enumerate(self.held):
            same_numbers(f"held {k}", v, t, when)

    def between(self, names: Sequence[str], want: Names, got: Names) -> None:
        """What a caller does with values."""
        what = self.pick.random()
        results = sorted(want)
        if what < 0.4 and results:
            n = self.pick.choice(results)
            self.held.append((want[n].detach(), got[n].detach()))
        elif what < 0.5 and names:
            n = self.pick.choice(names)
            self.held.append((self.want[n].detach(), self.got[n].detach()))
        elif what < 0.6 and results:
            n = self.pick.choice(results)
            self.held.append(
                (want[n].detach() == want[n].detach(), got[n].detach() == got[n].detach())
            )
        elif what < 0.8 and names:
            n = self.pick.choice(names)
            v = self.want[n]
            if v.dtype.is_float and not v.dtype.storage:
                self.both(f"with no_grad(): {n}.assign({n} * 0.5)")
        elif what < 0.9 and self.held:
            self.held.pop(0)


def same_numbers(name: str, want: Value, got: Tensor, when: str) -> None:
    """Bits, and those of gradients."""
    if want.requires_grad != got.requires_grad:
        want, got = want.detach(), got.detach()
    same(name, want, got, when)


def shorter(lines: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """The lines that a failure needs."""
    lines = list(lines)
    size = max(1, len(lines) // 2)
    while True:
        for start in range(len(lines) - size, -1, -size):
            less = lines[:start] + lines[start + size :]
            if fails(less):
                lines = less
        if size == 1:
            return lines
        size //= 2
