"""The table of memory-bound work: what each row computes, in uopc and in torch, and how large.

`scratch/bench_memory.py` times its rows on a GPU, `tests/test_memory_table.py` compiles them at
full size and runs them at small ones.  A row is some Work on a shape and dtype, written as a user
writes it: nothing here names a choice of a kernel.  Torch is never imported: peers are given it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from uopc.dtype import DType, dtypes
from uopc.schedule.normalise import canonical, structure
from uopc.schedule.plan import Schedule, schedule
from uopc.target import Target
from uopc.tensor import Tensor, empty, nn, no_grad, storage
from uopc.tensor.base import memory_of
from uopc.tensor.engine import base_of
from uopc.uop.node import Shape, UOp, prod

Results: TypeAlias = "Tensor | tuple[Tensor, ...]"
#: a shape, or one with a dtype where it is not the row's
Input: TypeAlias = "Shape | tuple[Shape, DType]"
Peer: TypeAlias = Callable[[Any, Shape], Callable[..., Any]]
EPS = 1e-5
LARGE_BYTES = 256 << 20  # from here on a kernel is to be nearly as fast as a copy


@dataclass(frozen=True)
class Work:
    """One formula.

    Attributes
    ----------
    inputs: their shapes for the shape of a row.
    build: tensors to results.
    eager: (torch, shape) -> the function of torch's eager mode.
    formula: the same for torch.compile, where that is not the eager function.
    kernels: launches at most; registers: of a thread at most.
    full: shapes of the table, in f32 and bf16; odd: in f32 only; small: shapes of the tests.
    each: every element of a result depends on one of each input.
    """

    name: str
    inputs: Callable[[Shape], Sequence[Input]]
    build: Callable[..., Results]
    eager: Peer
    full: tuple[Shape, ...]
    small: tuple[Shape, ...]
    odd: tuple[Shape, ...] = ()
    formula: Peer | None = None
    kernels: int = 1
    registers: int = 64
    each: bool = False


@dataclass(frozen=True)
class Row:
    """Some work on a shape and dtype; it is called by its name."""

    work: Work
    shape: Shape
    dtype: DType

    @property
    def name(self) -> str:
        return f"{self.work.name} {'x'.join(map(str, self.shape))} {self.dtype}"

    def inputs(self) -> list[tuple[Shape, DType]]:
        """Shape and dtype of each input."""
        out: list[tuple[Shape, DType]] = []
        for given in self.work.inputs(self.shape):
            shape, dtype = given if isinstance(given[-1], DType) else (given, self.dtype)
            out.append((shape, dtype))
        return out

    def plan(self, device: str, on: Target) -> Plan:
        """Its schedule for a target over tensors of a device; nothing is computed."""
        tensors = [empty(*shape, dtype=dtype, device=device) for shape, dtype in self.inputs()]
        with no_grad():
            made = self.work.build(*tensors)
        results = made if isinstance(made, tuple) else (made,)
        roots = [base_of(t._u) for t in results]
        _, leaves = structure(roots, storage.becomes.get, frozenset())
        asked, _ = canonical(roots, storage.becomes.get, leaves)
        return Plan(
            schedule(asked, on),
            asked,
            leaves,
            [leaves.index(_memory(t)) for t in tensors],
            [(t.shape, t.dtype) for t in results],
            (tensors, results),
        )

    def at(self, shape: Shape) -> Row:
        """The same on another shape."""
        return replace(self, shape=shape)

    @property
    def bytes(self) -> int:
        """Each input read once, each output written once."""
        results = self.plan("cpu", Target("cpu")).results
        return sum(prod(shape) * dtype.itemsize for shape, dtype in (*self.inputs(), *results))


@dataclass(frozen=True, eq=False)
class Plan:
    """A schedule of a row.

    roots: its results' graphs, over leaves by number; leaves: its memories, in order; inputs:
    numbers of those of the inputs; results: their shapes and dtypes; alive: tensors that own the
    leaves.
    """

    schedule: Schedule
    roots: list[UOp]
    leaves: list[UOp]
    inputs: list[int]
    results: list[tuple[Shape, DType]]
    alive: object = field(repr=False)


def _memory(t: Tensor) -> UOp:
    found = memory_of(t._u)
    assert found is not None
    return found


# ---- inputs
def _one(shape: Shape) -> list[Input]:
    return [shape]


def _two(shape: Shape) -> list[Input]:
    return [shape, shape]


def _with_weight(shape: Shape) -> list[Input]:
    return [shape, (shape[-1],)]


def _with_weight_and_bias(shape: Shape) -> list[Input]:
    return [shape, (shape[-1],), (shape[-1],)]


def _of_layer(shape: Shape) -> list[Input]:
    """Gradient, x, mean, 1 / deviation, weight."""
    statistic = ((*shape[:-1], 1), dtypes.f32)
    return [shape, shape, statistic, statistic, (shape[-1],)]


# ---- uopc
def _layernorm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    layer = nn.LayerNorm(x.shape[-1], EPS, affine=False)
    layer.weight, layer.bias = weight, bias
    return layer.forward(x)


def _rmsnorm(x: Tensor, weight: Tensor) -> Tensor:
    layer = nn.RMSNorm(x.shape[-1], EPS, affine=False)
    layer.weight = weight
    return layer.forward(x)


def _transposed(x: Tensor) -> Tensor:
    return empty(*x.shape[::-1], dtype=x.dtype, device=x.device).assign(x.T)


def _times_row(x: Tensor, row: Tensor) -> Tensor:
    return x * row.reshape(1, row.shape[0], 1, row.shape[1])


def _softmax_backward(gradient: Tensor, y: Tensor) -> Tensor:
    g, p = gradient.cast(dtypes.f32), y.cast(dtypes.f32)
    return ((g - (g * p).sum(-1, keepdim=True)) * p).cast(y.dtype)


def _layernorm_backward(
    gradient: Tensor, x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(of x, of weight, of bias); scale: 1 / deviation."""
    g = gradient.cast(dtypes.f32)
    normal = (x.cast(dtypes.f32) - mean) * scale
    weighted = g * weight.cast(dtypes.f32)
    by_mean = weighted.mean(-1, keepdim=True)
    by_scale = (weighted * normal).mean(-1, keepdim=True)
    found = (scale * (weighted - by_mean - normal * by_scale), (g * normal).sum(0), g.sum(0))
    of_x, of_weight, of_bias = (t.cast(x.dtype) for t in found)
    return of_x, of_weight, of_bias


# ---- torch
def _torch_layernorm_backward(torch: Any, shape: Shape) -> Callable[..., Any]:
    normal, width = torch.ops.aten.native_layer_norm_backward, [shape[-1]]

    def run(g: Any, x: Any, mean: Any, scale: Any, weight: Any) -> Any:
        # the bias' values are not read: it says that its gradient is wanted, and of what dtype
        return normal(g, x, width, mean, scale, weight, weight, [True, True, True])

    return run


def _formula_layernorm_backward(torch: Any, shape: Shape) -> Callable[..., Any]:
    def run(gradient: Any, x: Any, mean: Any, scale: Any, weight: Any) -> Any:
        g = gradient.float()
        normal = (x.float() - mean) * scale
        weighted = g * weight.float()
        by_mean = weighted.mean(-1, keepdim=True)
        by_scale = (weighted * normal).mean(-1, keepdim=True)
        of_x = scale * (weighted - by_mean - normal * by_scale)
        return (
            of_x.to(x.dtype),
            (g * normal).sum(0).to(x.dtype),
            g.sum(0).to(x.dtype),
        )

    return run


def _torch_softmax_backward(torch: Any, shape: Shape) -> Callable[..., Any]:
    backward = torch.ops.aten._softmax_backward_data
    return lambda g, y: backward(g, y, -1, g.dtype)


def _formula_softmax_backward(torch: Any, shape: Shape) -> Callable[..., Any]:
    def run(gradient: Any, y: Any) -> Any:
        g, p = gradient.float(), y.float()
        return ((g - (g * p).sum(-1, keepdim=True)) * p).to(y.dtype)

    return run


# ---- the table
_FLAT, _SQUARE = (64 << 20,), (8192, 8192)
_PRIME = (67_108_859,)
_ODD, _TALL = (8191, 8193), (1_000_003, 61)
_OF_A_ROW = 128  # registers of a thread that holds a part of a row: up to 33 numbers of each input
_SMALL_FLAT: tuple[Shape, ...] = ((4096,), (1003,), (5,))
_SMALL: tuple[Shape, ...] = ((4, 256), (7, 129), (33, 61), (3, 1))
_LONG: tuple[Shape, ...] = (*_SMALL, (2, 8192), (3, 4099))

WORK: tuple[Work, ...] = (
    Work(
        "add",
        _two,
        lambda a, b: a + b,
        lambda torch, shape: lambda a, b: a + b,
        full=(_FLAT,),
        odd=(_PRIME,),
        small=_SMALL_FLAT,
        each=True,
    ),
    Work(
        "relu(a*2+b)*a",
        _two,
        lambda a, b: (a * 2 + b).relu() * a,
        lambda torch, shape: lambda a, b: torch.relu(a * 2 + b) * a,
        full=(_FLAT,),
        odd=(_PRIME,),
        small=_SMALL_FLAT,
        each=True,
    ),
    Work(
        "gelu",
        _one,
        lambda a: a.gelu(),
        lambda torch, shape: torch.nn.functional.gelu,
        full=(_FLAT,),
        small=_SMALL_FLAT,
        each=True,
    ),
    Work(
        "mul",
        _two,
        lambda a, b: a * b,
        lambda torch, shape: lambda a, b: a * b,
        full=(_ODD,),
        small=_SMALL,
        each=True,
    ),
    Work(
        "x[1:]+y[1:]",
        _two,
        lambda a, b: a[1:] + b[1:],
        lambda torch, shape: lambda a, b: a[1:] + b[1:],
        full=(_FLAT,),
        small=_SMALL_FLAT,
        each=True,
    ),
    Work(
        "4 axes * row",
        lambda shape: [shape, (shape[1], shape[3])],
        _times_row,
        lambda torch, shape: lambda a, b: a * b[None, :, None],
        full=((8, 64, 512, 257),),
        small=((2, 3, 4, 5), (2, 4, 8, 16)),
        each=True,
    ),
    Work(
        "sum all",
        _one,
        lambda a: a.sum(),
        lambda torch, shape: lambda a: a.sum(),
        full=(_FLAT,),
        small=(*_SMALL_FLAT, (70_001,)),
    ),
    Work(
        "sum rows",
        _one,
        lambda a: a.sum(-1),
        lambda torch, shape: lambda a: a.sum(-1),
        full=(_SQUARE, (1 << 20, 64)),
        odd=(_ODD, _TALL),
        small=_LONG,
    ),
    Work(
        "sum cols",
        _one,
        lambda a: a.sum(0),
        lambda torch, shape: lambda a: a.sum(0),
        full=(_SQUARE,),
        small=(*_SMALL, (3000, 7), (512, 64)),
    ),
    Work(
        "argmax rows",
        _one,
        lambda a: a.argmax(-1),
        lambda torch, shape: lambda a: a.argmax(-1),
        full=(_SQUARE,),
        small=_LONG,
    ),
    Work(
        "softmax",
        _one,
        lambda a: a.softmax(-1),
        lambda torch, shape: lambda a: torch.softmax(a, -1),
        full=((8192, 1024), _SQUARE, (256, 131_072), _ODD),
        odd=(_TALL,),
        small=_LONG,
        registers=_OF_A_ROW,
    ),
    Work(
        "layernorm",
        _with_weight_and_bias,
        _layernorm,
        lambda torch, shape: (
            lambda a, w, b: torch.nn.functional.layer_norm(a, (shape[-1],), w, b, EPS)
        ),
        full=((8192, 4096),),
        odd=(_ODD,),
        small=_LONG,
        registers=_OF_A_ROW,
    ),
    Work(
        "rmsnorm",
        _with_weight,
        _rmsnorm,
        lambda torch, shape: lambda a, w: torch.nn.functional.rms_norm(a, (shape[-1],), w, EPS),
        full=((8192, 4096),),
        small=_LONG,
        registers=_OF_A_ROW,
    ),
    Work(
        "transpose",
        _one,
        _transposed,
        lambda torch, shape: lambda a: a.t().contiguous(),
        full=(_SQUARE,),
        odd=((4097, 4095),),
        small=((64, 64), (7, 129), (33, 61), (3, 1)),
    ),
    Work(
        "cumsum rows",
        _one,
        lambda a: a.cumsum(-1),
        lambda torch, shape: lambda a: a.cumsum(-1),
        full=(_SQUARE,),
        small=((4, 256), (7, 129), (3, 700), (3, 1)),
    ),
    Work(
        "softmax backward",
        _two,
        _softmax_backward,
        _torch_softmax_backward,
        formula=_formula_softmax_backward,
        full=(_SQUARE,),
        small=_LONG,
        registers=_OF_A_ROW,
    ),
    Work(
        "layernorm backward",
        _of_layer,
        _layernorm_backward,
        _torch_layernorm_backward,
        formula=_formula_layernorm_backward,
        full=((8192, 4096),),
        small=(*_SMALL, (600, 96)),
        kernels=2,
        registers=128,
    ),
)

ROWS: tuple[Row, ...] = tuple(
    Row(work, shape, dtype)
    for dtype in (dtypes.f32, dtypes.bf16)
    for work in WORK
    for shape in (*work.full, *(work.odd if dtype is dtypes.f32 else ()))
)
