"""The text of constants and of the records in `arg`, and back.

One pair of functions an op; `text.py` puts them into lines.  A plain whole number is an index, one
with a point (or inf, nan) is f32; every other constant names its dtype: 5:i32, 1.5:f16.  A float
that no short decimal gives back, as most NaNs, is written by its bits: 0x7fffffff:f32.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from typing import Any

from uopc.dtype import AddrSpace, DType, dtype_named, dtypes, from_bits, to_bits
from uopc.errors import UsageError
from uopc.layouts import OperandTile, SharedTile
from uopc.uop.ops import (
    AccessArg,
    Atomic,
    AtomicArg,
    AxisType,
    BarrierArg,
    BarrierScope,
    BasedArg,
    Combine,
    ConstArg,
    CopyArg,
    DescriptorArg,
    Engine,
    Fence,
    GatherArg,
    IotaArg,
    LaunchArg,
    MatrixArg,
    Ops,
    ParamArg,
    PrintArg,
    RangeArg,
    ReduceArg,
    ReportArg,
    RoleArg,
    ScanArg,
    ScatterArg,
    ShuffleArg,
    ShuffleMode,
    StageArg,
    TensorMapArg,
    Vote,
    VoteArg,
    WaitArg,
    WarpReduceArg,
)

_PREFIX = {
    AddrSpace.GLOBAL: "p",
    AddrSpace.SHARED: "s",
    AddrSpace.REG: "a",
    AddrSpace.MBARRIER: "b",
    AddrSpace.CLUSTER: "d",
}
_RANGE_NAME = re.compile(r"([a-z]+)(0|[1-9]\d*)(?:_([1-9]\d*))?")
_MEMORY_NAME = re.compile(r"([a-z]+)(0|[1-9]\d*)")
_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)')
_PUNCTUATION = re.compile(r"[\[\](),:#=%]")  # what a line reads as its own
_POINT = re.compile(r"[.en]")


# ---- constants
def const_text(c: ConstArg) -> str:
    """2 (index), 1.5 (f32), true, or value:dtype; -0.0, inf, nan and every bit pattern included."""
    d, bits = c.dtype, c.bits
    if d is dtypes.index:
        return str(bits)
    if d is dtypes.bool and bits in (0, 1):
        return "true" if bits else "false"
    if not d.is_float:
        return f"{int(bits)}:{d}"
    text = _float_text(c)
    return text if d is dtypes.f32 and not text.startswith(("0x", "-0x")) else f"{text}:{d}"


def _float_text(c: ConstArg) -> str:
    d, bits = c.dtype, c.bits
    if not 0 <= bits < 1 << d.bits:
        return hex(bits)
    value = float(from_bits(bits, d))
    shortest = str(d.numpy.type(value)) if d in (dtypes.f16, dtypes.f32) else repr(value)
    for text in (shortest, repr(value)):
        if to_bits(float(text), d) == bits:
            return text if _POINT.search(text) else text + ".0"
    return hex(bits)


def parse_const(text: str) -> ConstArg:
    """The constant that `const_text` wrote.  Raises ValueError for anything else."""
    if text in ("true", "false"):
        return ConstArg(dtypes.bool, int(text == "true"))
    number, _, name = text.partition(":")
    is_float = _POINT.search(number) is not None and not number.lstrip("-").startswith("0x")
    d = dtype_named(name) if name else dtypes.f32 if is_float else dtypes.index
    if is_float:
        return ConstArg(d, to_bits(float(number), d))
    return ConstArg(d, int(number, 16 if d.is_float else 10))


def short_const(c: ConstArg) -> str:
    """A constant for messages: its value without a dtype."""
    return const_text(c).partition(":")[0]


# ---- leaves: names that say what they can, and the rest as fields
def range_name(a: RangeArg) -> str:
    """Digit, axis and instance: r0, g1, k2_1.  Other records may give the same name."""
    return f"{a.digit or 'r'}{a.axis}" + (f"_{a.instance}" if a.instance else "")


def memory_name(a: ParamArg) -> str:
    """What it holds, or p GLOBAL, s SHARED, a REG (an array), d CLUSTER (distributed), then the
    slot: acc3, p0."""
    return f"{a.name or _PREFIX[a.addrspace]}{a.slot}"


def leaf_name(op: Ops, arg: Any) -> str:
    """The name that a BUFFER, ALLOC or RANGE would like; "" where none can be made of it."""
    name = range_name(arg) if op is Ops.RANGE else memory_name(arg)
    known = _range_fields(name) if op is Ops.RANGE else _memory_fields(name)
    plain = (arg.axis, arg.digit, arg.instance) if op is Ops.RANGE else (arg.slot, arg.name)
    return name if known == plain else ""


def _range_fields(name: str) -> tuple[int, str, int] | None:
    m = _RANGE_NAME.fullmatch(name)
    return None if m is None else (int(m[2]), "" if m[1] == "r" else m[1], int(m[3] or 0))


def _memory_fields(name: str) -> tuple[int, str] | None:
    m = _MEMORY_NAME.fullmatch(name)
    return None if m is None else (int(m[2]), "" if m[1] in _PREFIX.values() else m[1])


def _quoted(text: str) -> str:
    inner = json.dumps(text)[1:-1]
    return '"' + _PUNCTUATION.sub(lambda m: f"\\u{ord(m[0]):04x}", inner) + '"'


def range_text(a: RangeArg, name: str) -> str:
    """9 GLOBAL, and what neither the name nor the defaults tell."""
    parts = [str(a.size), a.kind.name]
    if _range_fields(name) != (a.axis, a.digit, a.instance):
        parts += [f"axis={a.axis}", f"digit={_quoted(a.digit)}", f"instance={a.instance}"]
    parts += [
        f"{f}={v}" for f, v, usual in (("start", a.start, 0), ("step", a.step, 1)) if v != usual
    ]
    return " ".join(parts)


def parse_range(text: str, name: str) -> RangeArg:
    size, kind, *_ = text.split(" ", 2)
    fields: dict[str, Any] = {}
    if (told := _range_fields(name)) is not None:
        fields = dict(zip(("axis", "digit", "instance"), told, strict=True))
    rest = text.split(" ", 2)[2] if text.count(" ") > 1 else ""
    for field, value in _fields(rest, ("axis", "digit", "instance", "start", "step")):
        fields[field] = json.loads(value) if field == "digit" else int(value)
    if "axis" not in fields:
        raise ValueError(f"{name} tells no axis; write axis=...")
    return RangeArg(size=int(size), kind=AxisType[kind], **fields)


def memory_text(a: ParamArg, name: str) -> str:
    """f32[33, 1000], its space if not GLOBAL, slot and name where the leaf is called otherwise."""
    text = type_text(a.dtype, a.shape, always=True)
    if a.bundle:
        text = f"BUNDLE {text}"
    if a.addrspace is not AddrSpace.GLOBAL:
        text = f"{a.addrspace.name} {text}"
    told = _memory_fields(name) == (a.slot, a.name)
    return text if told else f"{text} slot={a.slot} name={_quoted(a.name)}"


def parse_memory(text: str, name: str) -> ParamArg:
    m = re.fullmatch(
        r"(?:(GLOBAL|SHARED|REG|MBARRIER|CLUSTER) )?(BUNDLE )?(\w+\[[^]]*\])(.*)", text
    )
    if m is None:
        raise ValueError("a memory reads like SHARED f32[33, 1000]")
    space = AddrSpace[m[1] or "GLOBAL"]
    fields: dict[str, Any] = {}
    if (told := _memory_fields(name)) is not None:
        fields = dict(zip(("slot", "name"), told, strict=True))
    for field, value in _fields(m[4], ("slot", "name")):
        fields[field] = json.loads(value) if field == "name" else int(value)
    if "slot" not in fields:
        raise ValueError(f"{name} tells no slot; write slot=...")
    d, shape = parse_type(m[3])
    return ParamArg(shape=shape, dtype=d, addrspace=space, bundle=bool(m[2]), **fields)


def _fields(text: str, known: tuple[str, ...]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = _FIELD.findall(text)
    if _FIELD.sub("", text).strip() or any(f not in known for f, _ in found):
        raise ValueError(f"{text.strip()!r} must be fields among {', '.join(known)}")
    return found


# ---- types, shapes, small lists
def type_text(d: DType, shape: tuple[int, ...], always: bool = False) -> str:
    """f32 for a scalar (f32[] when `always`), f32[33, 1000] for an array."""
    return f"{d}[{', '.join(map(str, shape))}]" if shape or always else str(d)


def parse_type(text: str) -> tuple[DType, tuple[int, ...]]:
    m = re.fullmatch(r"(\w+)(?:\[([^]]*)\])?", text)
    if m is None:
        raise ValueError(f"{text!r} is no type; one reads like f32[33, 1000]")
    return dtype_named(m[1]), _ints(m[2] or "")


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(x) for x in text.split(",")) if text.strip() else ()


def _ints_text(xs: tuple[int, ...]) -> str:
    return ", ".join(map(str, xs))


def _pairs(text: str) -> tuple[tuple[int, int], ...]:
    two = [x.split(":") for x in text.split(",")] if text.strip() else []
    return tuple((int(a), int(b)) for a, b in two)


def _pairs_text(xs: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(f"{a}:{b}" for a, b in xs)


# ---- records
def _reduce_text(a: ReduceArg) -> str:
    return a.combine.name + (f", {a.axes}" if a.axes else "")


def _parse_reduce(text: str) -> ReduceArg:
    name, _, axes = text.partition(",")
    return ReduceArg(Combine[name], int(axes or 0))


_OF_OPERAND = ("name", "tile", "bytes", "swizzle", "pad", "slab", "major", "depth", "engine")
_OF_BOX = ("shape", "strides", "box")
_ORIGIN = "origin"


def _stage_text(a: StageArg) -> str:
    """SHARED 8 exchange; of a product's operand also how it lies and who brings it."""
    exchange = " exchange" if a.exchange else ""
    text = f"{a.space.name} {a.size}{exchange}" + (f" blocks={a.blocks}" if a.blocks > 1 else "")
    if a.layout is None:
        return text
    t = a.layout.tile
    text += f" name={a.name} tile={_sizes_text((t.rows, t.columns))} bytes={t.element_bytes}"
    for name in ("swizzle", "pad", "slab"):
        text += f" {name}={getattr(t, name)}" if getattr(t, name) else ""
    text += f" major={a.layout.major} depth={a.depth}"
    text += f" engine={a.engine.name}" if a.engine is not None else ""
    if a.box is None:
        return text
    box = dataclasses.replace(a.box, swizzle=0)  # the tile's
    origin = f" origin={','.join(map(str, a.origin))}" if a.origin else ""
    return f"{text} {_map_text(box)}{origin}"


def _parse_stage(text: str) -> StageArg:
    read = re.fullmatch(r"(\w+) (\d+)( exchange)?(?: blocks=(\d+))?( name=.*)?", text)
    if read is None:
        raise ValueError("a STAGE reads like SHARED 8 exchange")
    stage = StageArg(AddrSpace[read[1]], int(read[2]), bool(read[3]), int(read[4] or 1))
    if read[5] is None:
        return stage
    given = dict(_fields(read[5], (*_OF_OPERAND, *_OF_BOX, _ORIGIN)))
    rows, columns = _sizes(given["tile"])
    swizzle, pad, slab = (int(given.get(name, 0)) for name in ("swizzle", "pad", "slab"))
    tile = SharedTile(rows, columns, int(given["bytes"]), swizzle, pad, slab)
    shape, strides, box = (_sizes(given.get(name, "none")) for name in _OF_BOX)
    return dataclasses.replace(
        stage,
        name=given["name"],
        layout=OperandTile(tile, given["major"]),
        depth=int(given["depth"]),
        engine=Engine[given["engine"]] if "engine" in given else None,
        box=TensorMapArg(shape, strides, box, swizzle) if "box" in given else None,
        origin=tuple(map(int, given[_ORIGIN].split(","))) if _ORIGIN in given else (),
    )


def _store_text(a: AccessArg | ReportArg) -> str:
    return "report" if isinstance(a, ReportArg) else str(a.width)


def _parse_store(text: str) -> AccessArg | ReportArg:
    return ReportArg() if text == "report" else AccessArg(int(text))


def _launch_text(a: LaunchArg) -> str:
    parts = [f"{f}={','.join(map(str, v))}" for f, v in (("lanes", a.lanes), ("grid", a.grid)) if v]
    parts += [f"blocks_per_sm={a.blocks_per_sm}"] if a.blocks_per_sm else []
    parts += [] if a.early else ["early=no"]
    return " ".join(parts + (["streaming=yes"] if a.streaming else []))


def _parse_launch(text: str) -> LaunchArg:
    fields = dict(_fields(text, ("lanes", "grid", "blocks_per_sm", "early", "streaming")))
    for flag, word in (("early", "no"), ("streaming", "yes")):
        if fields.get(flag, word) != word:
            raise ValueError(f"{flag} is {word}, or left out")
    lanes, grid = _ints(fields.get("lanes", "")), _ints(fields.get("grid", ""))
    blocks = int(fields.get("blocks_per_sm", 0))
    return LaunchArg(lanes, grid, blocks, "early" not in fields, "streaming" in fields)


def _parse_iota(text: str) -> IotaArg:
    d, (size,) = parse_type(text)
    return IotaArg(size, d)


def _dims_text(dims: tuple[int, ...]) -> str:
    """Axes by number, indices as ~k: ~0, 1."""
    return ", ".join(str(j) if j >= 0 else f"~{~j}" for j in dims)


def _dims(text: str) -> tuple[int, ...]:
    parts = (t.strip() for t in text.split(",") if t.strip())
    return tuple(~int(t[1:]) if t.startswith("~") else int(t) for t in parts)


def _parse_scatter(text: str) -> ScatterArg:
    shape, arrow, dims = text.partition("<-")
    if not arrow:
        raise ValueError("a SCATTER reads like 100, 8 <- ~0, 1")
    return ScatterArg(_ints(shape), _dims(dims))


# ---- records of the GPU's ops: words and fields; what is usual is left out
def _flat(cls: type[Any], **enums: type[Enum]) -> tuple[Callable[[Any], str], Callable[[str], Any]]:
    """Texts of a record like `XOR by=4 members=0xff`: enums as words, the rest as fields."""
    usual = {f.name: f.default for f in fields(cls)}

    def text(a: Any) -> str:
        parts: list[str] = []
        for name, default in usual.items():
            value = getattr(a, name)
            if name in enums:
                parts.insert(list(enums).index(name), value.name)
            elif value != default:
                parts.append(f"{name}={_field_text(name, value)}")
        return " ".join(parts)

    def parse(t: str) -> Any:
        words = t.split(" ", len(enums))
        known: dict[str, Any] = {n: e[w] for (n, e), w in zip(enums.items(), words, strict=False)}
        rest = words[len(enums)] if len(words) > len(enums) else ""
        for name, value in _fields(rest, tuple(n for n in usual if n not in enums)):
            known[name] = _parse_field(value)
        return cls(**known)

    return text, parse


def _field_text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return hex(value) if name == "members" else str(value)


def _parse_field(text: str) -> Any:
    if text.startswith('"'):
        return json.loads(text)
    if text in ("yes", "no"):
        return text == "yes"
    return int(text, 0)


def _sizes_text(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes)) or "none"


def _sizes(text: str) -> tuple[int, ...]:
    return () if text == "none" else tuple(map(int, text.split("x")))


def _map_text(a: TensorMapArg) -> str:
    parts = (("shape", a.shape), ("strides", a.strides), ("box", a.box))
    sizes = " ".join(f"{n}={_sizes_text(v)}" for n, v in parts)
    return sizes + (f" swizzle={a.swizzle}" if a.swizzle else "")


def _parse_map(text: str) -> TensorMapArg:
    given = dict(_fields(text, ("shape", "strides", "box", "swizzle")))
    shape, strides, box = (_sizes(given[n]) for n in ("shape", "strides", "box"))
    return TensorMapArg(shape, strides, box, int(given.get("swizzle", 0)))


def _shuffle_text(a: ShuffleArg) -> str:
    """A butterfly, by far the usual one, is only its mask."""
    return str(a.by) if a == ShuffleArg(a.by) else _SHUFFLE[0](a)


def _parse_shuffle(text: str) -> ShuffleArg:
    is_mask = text.lstrip("-").isdigit()
    a: ShuffleArg = ShuffleArg(int(text)) if is_mask else _SHUFFLE[1](text)
    return a


_SHUFFLE = _flat(ShuffleArg, mode=ShuffleMode)
#: op -> (text of its arg, arg of its text)
RECORDS: dict[Ops, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    Ops.CONST: (const_text, parse_const),
    Ops.IOTA: (lambda a: type_text(a.dtype, (a.size,)), _parse_iota),
    Ops.INDEX: (lambda a: "based", lambda t: BasedArg()),
    Ops.LOAD: (lambda a: str(a.width), lambda t: AccessArg(int(t))),
    Ops.STORE: (_store_text, _parse_store),
    Ops.SINK: (_launch_text, _parse_launch),
    Ops.RESHAPE: (_ints_text, _ints),
    Ops.EXPAND: (_ints_text, _ints),
    Ops.PERMUTE: (_ints_text, _ints),
    Ops.FLIP: (_ints_text, _ints),
    Ops.SHRINK: (_pairs_text, _pairs),
    Ops.PAD: (_pairs_text, _pairs),
    Ops.GATHER: (lambda a: _dims_text(a.dims), lambda t: GatherArg(_dims(t))),
    Ops.SCATTER: (lambda a: f"{_ints_text(a.shape)} <- {_dims_text(a.dims)}", _parse_scatter),
    Ops.REDUCE: (_reduce_text, _parse_reduce),
    Ops.SCAN: _flat(ScanArg, combine=Combine),
    Ops.ITEM: (str, int),
    Ops.STAGE: (_stage_text, _parse_stage),
    Ops.CAST: (str, dtype_named),
    Ops.BITCAST: (str, dtype_named),
    Ops.SHUFFLE: (_shuffle_text, _parse_shuffle),
    Ops.VOTE: _flat(VoteArg, vote=Vote),
    Ops.WARP_REDUCE: _flat(WarpReduceArg, combine=Combine),
    Ops.ATOMIC: _flat(AtomicArg, atomic=Atomic),
    Ops.BARRIER: _flat(BarrierArg, scope=BarrierScope),
    Ops.ROLE: _flat(RoleArg),
    Ops.COPY: _flat(CopyArg, engine=Engine),
    Ops.TENSORMAP: (_map_text, _parse_map),
    Ops.COMMIT: (lambda a: a.name, lambda t: Engine[t]),
    Ops.WAITG: _flat(WaitArg, engine=Engine),
    Ops.FENCE: (lambda a: a.name, lambda t: Fence[t]),
    Ops.LDMATRIX: _flat(MatrixArg),
    Ops.STMATRIX: _flat(MatrixArg),
    Ops.DESCRIPTOR: _flat(DescriptorArg),
    Ops.MMA: (_quoted, json.loads),
    Ops.DOT: (_quoted, json.loads),
    Ops.CURVE: (_quoted, json.loads),
    Ops.PRINTF: _flat(PrintArg),
    Ops.ASSERT: (_quoted, json.loads),
}


def arg_text(op: Ops, arg: Any, name: str) -> str | None:
    """The arg of a node called `name` as text; None where it has none."""
    if arg is None:
        return None
    if op is Ops.RANGE:
        return range_text(arg, name)
    if op in (Ops.BUFFER, Ops.ALLOC):
        return memory_text(arg, name)
    if op not in RECORDS:
        raise UsageError(f"{op} takes no arg, this one has {arg!r}: it has no text")
    return RECORDS[op][0](arg)


def parse_arg(op: Ops, text: str, name: str) -> Any:
    """The arg that `arg_text` wrote.  Raises ValueError or KeyError for anything else."""
    if op is Ops.RANGE:
        return parse_range(text, name)
    if op in (Ops.BUFFER, Ops.ALLOC):
        return parse_memory(text, name)
    if op not in RECORDS:
        raise ValueError(f"{op} takes no arg")
    return RECORDS[op][1](text)
